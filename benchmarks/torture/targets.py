"""Targets that break: bad observations, exceptions, hangs, and what the checks cost."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.torture.count import Count


class Faulty(gymnasium.Env[Any, Any]):
    """A walk that goes wrong once at a given step of the episode with a given seed."""

    def __init__(self, seed: int | None = None, step: int = 0, what: Any = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._fault, self._what = (seed, step), what

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._now = (seed, 0)
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self._now = (self._now[0], self._now[1] + 1)
        return self._look(), 0.0, False, False, {}

    def _look(self) -> Any:
        seen = self.np_random.normal(size=3).astype(np.float32)
        return self._what(seen) if self._what is not None and self._now == self._fault else seen


def _played(env: Callable[[], Any], **options: Any) -> Any:
    import tasid
    from tasid.runs.recording import record_episodes

    with tasid.wrap(env, horizon=5, **options) as target:
        return record_episodes(target, None, episodes=16).recorded


def _seeds() -> list[int]:
    """Of the sixteen episodes."""
    met = []

    class Noted(Faulty):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            met.append(seed)
            return super().reset(seed=seed)

    _played(Noted)
    return [seed for seed in met if seed is not None]


_SPOILT: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * np.nan,
    lambda x: x + np.inf,
    lambda x: x[:2],
    lambda x: x.astype(str),
    lambda x: x.astype(complex),
)


def observations(place: Path, number: int, dice: random.Random) -> Count:
    """What cannot be used is named with the episode's seed and the step."""
    seeds, kept = _seeds(), 0
    for _ in range(number):
        seed, step = dice.choice(seeds), dice.randrange(6)
        what = dice.choice(_SPOILT)
        try:
            _played(lambda s=seed, h=step, w=what: Faulty(s, h, w))
        except ValueError as error:
            kept += f"after {step} steps of the episode with seed {seed}" in str(error)
    return Count("NaN, inf, shape and dtype faults in a target", number, kept, "named")


def exceptions(place: Path, number: int, dice: random.Random) -> Count:
    """Environments that raise: the data are those of no fault."""
    seeds, kept, whole = _seeds(), 0, _played(Faulty)
    for _ in range(number):
        left = [1]

        def fail(seen: Any, left: list[int] = left) -> Any:
            if left.pop() if left else 0:
                raise RuntimeError("the wheel came off")
            return seen

        seed, step = dice.choice(seeds), dice.randrange(6)
        found = _played(lambda s=seed, h=step, f=fail: Faulty(s, h, f))
        kept += all((a == b).all() for a, b in zip(found, whole, strict=True)) and not left
    return Count("exceptions of an environment mid-episode", number, kept, "same data")


def hangs(place: Path, number: int, dice: random.Random) -> Count:
    """Environments that hang in a worker process: the data are those of no fault."""
    seeds, kept, whole = _seeds(), 0, _played(Faulty)
    for turn in range(number):
        mark = place / f"hung-{turn}"

        def hang(seen: Any, mark: Path = mark) -> Any:
            if not mark.exists():
                mark.touch()
                time.sleep(600)
            return seen

        seed, step = dice.choice(seeds), dice.randrange(1, 6)
        found = _played(
            lambda s=seed, h=step, f=hang: Faulty(s, h, f),
            workers=True,
            num_envs=2,
            step_timeout=1.0,
        )
        kept += all((a == b).all() for a, b in zip(found, whole, strict=True)) and mark.exists()
    return Count("hangs of an environment mid-episode", number, kept, "same data")


def overhead(place: Path, number: int, dice: random.Random) -> Count:
    """The checks of all observations and rewards, beside playing the episodes they come from.

    Nobody looks, nobody learns, and the environment does next to nothing: with anything else the
    share is smaller.
    """
    import tasid
    from tasid.runs.recording import record_episodes
    from tasid.targets.gym.spaces import refuse_infinite, refuse_other

    with tasid.wrap(Faulty, horizon=5) as target:
        record_episodes(target, None, episodes=16)  # compiled
        started = time.process_time()
        log = record_episodes(target, None, episodes=number).recorded
        playing = time.process_time() - started
    space = Faulty().observation_space
    seen = list(log.observations.reshape(-1, 3))
    paid = log.rewards.reshape(-1).tolist()
    started = time.process_time()
    for one in seen:
        refuse_other(space, one)
        refuse_infinite(one)
    for reward in paid:
        math.isfinite(reward)
    part = (time.process_time() - started) / playing
    note = f"{part:.2%} of the time of episodes, at most 2 %"
    return Count("what the checks of a target's data cost", number, number * (part <= 0.02), note)
