"""Any Gymnasium environment as a target: episodes in lanes, seeded, absorbing when they end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator
from tasid.maps.size import MapError, MapWarning, is_whole
from tasid.maps.sources.toy_text import from_toy_text
from tasid.targets.block import Latent
from tasid.targets.gym.lanes import Lanes, LaneViews
from tasid.targets.target import Collateral, Target


class GymEpisodes(NamedTuple):
    """A batch of episodes under way, [n] each."""

    seeds: NDArray[np.int64]
    observations: NDArray[Any]
    over: NDArray[np.bool_]
    failed: tuple[str | None, ...]
    """What the environment raised: then this is no episode, and has to be run again."""


@dataclass(eq=False, repr=False, kw_only=True)
class GymTarget(Target):
    """Oracle access to a Gymnasium environment; `wrap` makes it.

    An episode that terminates is absorbing: its last observation repeats, it pays nothing and its
    environment is left alone. Episodes are seeded by their keys. Close it, or use it in a `with`
    block, when environments hold something that must be given back.
    """

    lanes: Lanes
    name: str
    limit: int | None
    """The number of steps at which the environment cuts episodes off, if it is known."""
    horizon: int
    """How many actions an episode takes; 0 if neither `wrap` nor the environment said."""
    retries: int
    """How often an episode in which the environment raised is run again."""
    environment: Mapping[str, Any] | None
    """Name and options that make this target again, if it came from an id."""
    tolerant: bool
    """Is what cannot be used a reason to run an episode again, and no error?"""
    elsewhere: Any = None
    """Who plays whole episodes in the place of this process (`targets.ray.crew`), if any."""

    traceable = False

    @property
    def num_actions(self) -> int:
        return self.lanes.maker.num_actions

    @property
    def num_envs(self) -> int:
        return self.lanes.number

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.lanes.maker.encoding.shape

    @property
    def observation_dtype(self) -> str:
        """uint8 for pictures, float32 for vectors."""
        return self.lanes.maker.encoding.dtype

    def observe(self, raw: Any) -> NDArray[Any]:
        """A raw observation of the environment as policies and agents of this target see it."""
        return self.lanes.maker.encoding(raw)

    @property
    def reset_options(self) -> Mapping[str, Any] | None:
        """What every `reset` is given, if anything: episodes may then begin elsewhere."""
        begins: Mapping[str, Any] | None = self.lanes.maker.begins.get("options")
        return begins

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """An environment as it was before wrapping: a new one, or the only one there is."""
        return self.lanes.maker.factory()

    def latent_on(self, sim: AbstractSimulator) -> Latent | None:
        """That of a toy-text environment, if its own table gives this very map."""
        if self.reset_options:
            return None  # its table does not say where `reset` begins when told something
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MapWarning)
            try:
                env = self.make_env()
                toy = from_toy_text(env, horizon=sim.horizon, deterministic="most-likely")
            except MapError:  # no toy text
                return None
        same = all(
            np.array_equal(getattr(toy.simulator, name), getattr(sim, name))
            for name in ("successor", "reward", "starts", "start_probabilities")
        )
        return Latent(toy.world) if same and toy.world is not None else None

    def with_horizon(self, horizon: int) -> GymTarget:
        if horizon == self.horizon:
            return self
        check_horizon(horizon, self.limit, self.name)
        return replace(self, horizon=horizon)

    def reset(self, keys: jax.Array) -> tuple[GymEpisodes, Any]:
        """Start one episode per key, at most `num_envs`; give the first observations."""
        seeds = episode_seeds(keys)
        if not 1 <= seeds.size <= self.num_envs:
            raise ValueError(
                f"reset: {seeds.size} episodes at a time in {self.num_envs} environments; wrap "
                f"with num_envs={seeds.size}"
            )
        seen = self.lanes.reset(seeds.tolist())
        quiet = np.zeros(seeds.size, bool)
        start = GymEpisodes(seeds, seen.observations, quiet, (None,) * seeds.size)
        return self._after(start, seen, 0), seen.observations

    def step(
        self, state: GymEpisodes, actions: Any, h: Any, keys: Any
    ) -> tuple[GymEpisodes, Any, Any]:
        seen = self.lanes.step(np.asarray(actions))
        after = self._after(state, seen, int(h) + 1)
        return after, seen.observations, np.where(state.over, np.float32(0), seen.rewards)

    def finished(self, state: GymEpisodes) -> NDArray[np.bool_]:
        return state.over

    def failed(self, state: GymEpisodes) -> tuple[str | None, ...]:
        return state.failed

    def close(self) -> None:
        """Close the environments."""
        self.lanes.close()
        if self.elsewhere is not None:
            self.elsewhere.close()

    def __enter__(self) -> GymTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _after(self, before: GymEpisodes, seen: LaneViews, steps: int) -> GymEpisodes:
        """The episodes after so many steps, or an error if they are not what they should be."""
        raised = list(seen.raised)
        for lane, why in enumerate(seen.refused):
            if why is not None and self.tolerant:
                raised[lane] = why
            elif why is not None:
                raise ValueError(f"{self.name}: {self._where(before, lane, steps)}: {why}")
        early = np.flatnonzero(seen.truncated)
        if early.size and steps < self.horizon:
            raise ValueError(
                f"{self.name}: truncated before the horizon: {self._where(before, early[0], steps)}"
                f", but horizon={self.horizon}. Raise the environment's own limit "
                f"(max_episode_steps={self.horizon}), or shorten the map's horizon"
            )
        failed = list(before.failed)
        for lane, error in enumerate(raised):
            if error is not None and failed[lane] is None:
                kind = Collateral if isinstance(error, Collateral) else str
                failed[lane] = kind(f"{self._where(before, lane, steps)}, {error}")
        over = before.over | seen.ended | seen.truncated
        return GymEpisodes(before.seeds, seen.observations, over, tuple(failed))

    def _where(self, episodes: GymEpisodes, lane: Any, steps: int) -> str:
        return f"after {steps} steps of the episode with seed {episodes.seeds[lane]}"


def episode_seeds(keys: jax.Array) -> NDArray[np.int64]:
    """A number below 2³¹ for every episode's key: larger ones trouble some environments."""
    words = np.asarray(jax.random.key_data(keys))
    return np.bitwise_xor.reduce(words, axis=-1).astype(np.int64) & 0x7FFFFFFF


def check_horizon(horizon: int | None, limit: int | None, name: str) -> None:
    """Refuse episodes that the environment would cut off."""
    if horizon is None:
        return
    if not is_whole(horizon) or horizon < 1:
        raise ValueError(f"horizon: {horizon!r} is not a whole number of steps, 1 or more")
    if limit is not None and horizon > limit:
        raise ValueError(
            f"horizon: {horizon}, but {name} truncates episodes after {limit} steps; make it with "
            f"max_episode_steps={horizon}"
        )
