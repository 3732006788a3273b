"""One sub-environment of a wrapped target: it never ends, never raises and never starts unasked.

Vector environments step all their members together. A lane whose episode is over repeats its last
observation and leaves the environment alone; one whose environment raised says so and makes a new
environment for the next episode. Worker processes import this, so it does without JAX.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tasid.maps.size import finite, raised
from tasid.targets.gym.spaces import Encoding

ENDED, TRUNCATED, RAISED, REFUSED = "ended", "truncated", "raised", "refused"
"""What a lane tells besides its observation: the episode is over; it was cut off; the environment
raised, which may be tried again; it gave something that cannot be used, which may not."""
_RESETS = ("observation", "info")
_STEPS = ("observation", "reward", "terminated", "truncated", "info")


@dataclass(frozen=True, eq=False)
class LaneMaker:
    """Everything a lane needs, for this process or another."""

    factory: Callable[[], gymnasium.Env[Any, Any]]
    encoding: Encoding
    num_actions: int
    first_action: int
    rendered: bool
    renewable: bool = True
    """Does the factory make new environments, or give one and the same?"""
    begins: Mapping[str, Any] = field(default_factory=dict)
    """What `reset` is given besides a seed."""


def in_worker(maker: LaneMaker, owner: int) -> Lane:
    """A lane in a process of its own, which leaves Ctrl-C to the process `owner` that made it."""
    if os.getpid() != owner:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Lane(maker)


class Lane(gymnasium.Env[NDArray[Any], np.int64]):
    """An episode at a time of a user's environment, as encoded observations.

    `reset(seed=None)` stays idle: only seeded episodes touch the environment, which is made when
    first needed, unless given.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, maker: LaneMaker, env: gymnasium.Env[Any, Any] | None = None) -> None:
        shape, dtype = maker.encoding.shape, np.dtype(maker.encoding.dtype)
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, shape, dtype.type)
        self.action_space = spaces.Discrete(maker.num_actions)
        self._maker, self._env = maker, env
        self._seen: NDArray[Any] = np.zeros(shape, dtype)
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start the episode of a seed; without one, stay idle."""
        self._over = seed is None
        if self._over:
            return self._seen, {}

        def begin() -> Any:
            if self._env is None:
                self._env = self._maker.factory()
            # A copy each time: what an environment does to its options is not the next one's.
            return self._env.reset(seed=seed, **deepcopy(self._maker.begins))

        told, _ = self._asked("reset", begin, _RESETS)
        return self._seen, told

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Act, if the episode is not over; ends are told in the last part, and nowhere else."""
        if self._over or self._env is None:
            return self._seen, 0.0, False, False, {}
        chosen = int(action) + self._maker.first_action
        told, answer = self._asked("step", partial(self._env.step, chosen), _STEPS)
        if answer is None:
            return self._seen, 0.0, False, False, told
        _, reward, terminated, truncated, _ = answer
        paid = finite(reward)
        if math.isnan(paid):
            told, paid = {REFUSED: f"reward: {reward!r} is not a finite number"}, 0.0
        if terminated or truncated:
            self._over = True
            told[ENDED if terminated else TRUNCATED] = True
        return self._seen, paid, False, False, told

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()

    def _asked(
        self, doing: str, ask: Callable[[], Any], expected: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
        """What is to be told, and the answer, if it is one, whose observation is seen."""
        try:
            answer = ask()
        except Exception as error:
            self._over = True
            if self._env is not None and self._maker.renewable:
                with suppress(Exception):  # it is broken anyway
                    self._env.close()
                self._env = None
            return {RAISED: f"{doing}: {raised(error)}"}, None
        if not isinstance(answer, tuple) or len(answer) != len(expected):  # another interface
            self._over = True
            gave = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            wanted = f"({', '.join(expected)})"
            return {REFUSED: f"{doing}: gave {gave}; Gymnasium's gives {wanted}"}, None
        try:
            assert self._env is not None
            raw = self._env.render() if self._maker.rendered else answer[0]
            self._seen = self._maker.encoding(raw)
        except Exception as error:
            self._over = True
            return {REFUSED: raised(error)}, answer
        return {}, answer
