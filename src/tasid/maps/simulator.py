"""The abstract simulator M° = ⟨S, A, s₁, H, T°, R°⟩: a finite, deterministic, finite-horizon world.

It is what the user knows: where each action should lead and what it should pay. Tables are
validated once, here; everything downstream trusts them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.files import read_artifact, write_artifact
from tasid.maps.layout import GridLayout, Origin
from tasid.maps.size import MOST_STEPS, SimulatorError, is_whole, refuse_entries

if TYPE_CHECKING:
    from tasid.maps.sources.functions import Step

_KIND = "simulator"


@dataclass(frozen=True, eq=False, init=False)
class AbstractSimulator:
    """Successor and reward tables, start state(s) and horizon; immutable and valid.

    `successor` is int [S, A] (the same at every step) or [H, S, A]; `reward` is float64 and may
    be either shape too. Steps are 0-based: decisions at h = 0 … H−1.
    """

    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    horizon: int
    starts: NDArray[np.int32]
    start_probabilities: NDArray[np.float64]
    labels: tuple[Hashable, ...] | None
    origin: Origin | None

    def __init__(
        self,
        successor: ArrayLike,
        reward: ArrayLike,
        *,
        horizon: int,
        start: int | Sequence[int] = 0,
        start_probabilities: Sequence[float] | None = None,
        states: Sequence[Hashable] | None = None,
        origin: Origin | None = None,
    ) -> None:
        horizon = _checked_horizon(horizon)
        successor, reward = _checked_tables(successor, reward, horizon)
        num_states = successor.shape[-2]
        starts, probabilities = _checked_start(start, start_probabilities, num_states)
        labels = None if states is None else _checked_labels(states, num_states)
        layout = None if origin is None else origin.layout
        if layout is not None and len(layout.positions) != num_states:
            raise SimulatorError(
                f"origin: a layout of {len(layout.positions)} states for {num_states} states"
            )
        # Frozen: these are the only writes.
        self.__dict__.update(successor=successor, reward=reward, horizon=horizon, starts=starts)
        self.__dict__.update(start_probabilities=probabilities, labels=labels, origin=origin)

    @property
    def num_states(self) -> int:
        """|S|."""
        return int(self.successor.shape[-2])

    @property
    def num_actions(self) -> int:
        """|A|."""
        return int(self.successor.shape[-1])

    @property
    def start(self) -> int:
        """The start state's index; with several possible starts, ask `starts` instead."""
        if len(self.starts) > 1:
            raise SimulatorError(f"this simulator has {len(self.starts)} starts: use .starts")
        return int(self.starts[0])

    @cached_property
    def states(self) -> Sequence[Hashable]:
        """Labels of the states in index order; the indices themselves if none were given."""
        return range(self.num_states) if self.labels is None else self.labels

    @property
    def layout(self) -> GridLayout | None:
        """Where the states lie on a grid, if it is a grid map and its source said so."""
        return None if self.origin is None else self.origin.layout

    def successor_at(self, h: int) -> NDArray[np.int32]:
        """T°_h as [S, A]."""
        return self.successor if self.successor.ndim == 2 else self.successor[h]

    def reward_at(self, h: int) -> NDArray[np.float64]:
        """R°_h as [S, A]."""
        return self.reward if self.reward.ndim == 2 else self.reward[h]

    def check_pair(self, h: int, s: int) -> None:
        """Raise if h is not a step or s is not a state."""
        if not (is_whole(h) and 0 <= h < self.horizon):
            raise ValueError(f"h: {h!r} is not a step; steps run 0 … {self.horizon - 1}")
        if not (is_whole(s) and 0 <= s < self.num_states):
            raise ValueError(f"s: {s!r} is not a state; states run 0 … {self.num_states - 1}")

    def replay(self, actions: Sequence[int]) -> list[int]:
        """The states met when these actions are executed from the start, start included."""
        state, met = self.start, [self.start]
        for h, action in enumerate(actions):
            state = int(self.successor_at(h)[state, action])
            met.append(state)
        return met

    def with_horizon(self, horizon: int) -> AbstractSimulator:
        """The same map for episodes of another length; per-step tables cannot be stretched."""
        if horizon != self.horizon and 3 in (self.successor.ndim, self.reward.ndim):
            raise SimulatorError(
                f"horizon: {horizon} for a map with tables for exactly {self.horizon} steps"
            )
        explored = None if self.origin is None else self.origin.explored
        if explored is not None and horizon > explored:
            raise SimulatorError(
                f"horizon: {horizon} for a map that was explored {explored} steps far; "
                "make it again from its source with the longer horizon"
            )
        return self.replaced(horizon=horizon)

    def with_start(
        self, start: int | Sequence[int], start_probabilities: Sequence[float] | None = None
    ) -> AbstractSimulator:
        """The same map for episodes that begin elsewhere."""
        return self.replaced(start=start, start_probabilities=start_probabilities)

    def replaced(self, **parts: Any) -> AbstractSimulator:
        """The same map with some of what it was made of replaced, and validated again."""
        own = {
            "successor": self.successor,
            "reward": self.reward,
            "horizon": self.horizon,
            "start": self.starts,
            "start_probabilities": self.start_probabilities,
            "states": self.labels,
            "origin": self.origin,
        }
        return AbstractSimulator(**{**own, **parts})

    @staticmethod
    def from_toy_text(
        env: Any, *, horizon: int, deterministic: str = "refuse", **options: Any
    ) -> AbstractSimulator:
        """The map in a Gymnasium toy-text environment's `P`; see `sources.toy_text`.

        `env` is an environment, or the id of one with options for `gymnasium.make`.
        """
        from tasid.maps.sources.toy_text import from_toy_text

        read = from_toy_text(env, horizon=horizon, deterministic=deterministic, **options)
        return read.simulator

    @staticmethod
    def from_function(
        step: Step, start: Any, actions: int | Sequence[Any], *, horizon: int, **options: Any
    ) -> AbstractSimulator:
        """What `step(state, action) -> (next_state, reward[, done])` reaches from the start.

        With a number n of `actions`, `step` is called with 0 … n - 1; with a list of them, with
        what is in it: with names, if they are names.
        Options: `start_probabilities`, `max_states`; see `sources.functions`.
        """
        from tasid.maps.sources.functions import from_function

        return from_function(step, start, actions, horizon=horizon, **options)

    @staticmethod
    def from_text_map(
        text: str, *, horizon: int | None = None, **options: Any
    ) -> AbstractSimulator:
        """A drawn map: '#' wall, '.' free, 'S' start, 'G' goal, 'L' hazard.

        Options: `moves`, `heading`, `goal_reward`, `hazard_reward`, `step_reward`; see
        `sources.text_map`.
        """
        from tasid.maps.sources.text_map import from_text_map

        return from_text_map(text, horizon=horizon, **options)

    @staticmethod
    def from_occupancy_map(
        path: str | Path, *, horizon: int | None = None, **options: Any
    ) -> AbstractSimulator:
        """A ROS map_server pair (.yaml and image).

        Options: `start`, `goal`, `cell_size`, `robot_radius`, `hazards`, `unknown` and those of
        `from_text_map`; see `sources.occupancy_map`.
        """
        from tasid.maps.sources.occupancy_map import from_occupancy_map

        return from_occupancy_map(path, horizon=horizon, **options)

    @staticmethod
    def from_tables(path: str | Path, *, horizon: int | None = None) -> AbstractSimulator:
        """The tables of a .npz file; see `sources.tables`."""
        from tasid.maps.sources.tables import from_tables

        return from_tables(path, horizon=horizon)

    def save(self, path: str | Path) -> Path:
        """Write the simulator as a checked artifact directory."""
        return write_artifact(path, kind=_KIND, metadata=self.metadata(), arrays=self.arrays())

    @classmethod
    def load(cls, path: str | Path) -> AbstractSimulator:
        """Read a simulator written by `save`; every byte is verified."""
        artifact = read_artifact(path, kind=_KIND)
        return cls.from_parts(artifact.metadata, artifact.arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The named arrays that, with `metadata`, make up the simulator on disk."""
        return {
            "simulator.successor": self.successor,
            "simulator.reward": self.reward,
            "simulator.starts": self.starts,
            "simulator.start_probabilities": self.start_probabilities,
            **({} if self.origin is None else self.origin.arrays()),
        }

    def metadata(self) -> dict[str, Any]:
        """The JSON part of the simulator on disk."""
        return {
            "horizon": self.horizon,
            "states": None if self.labels is None else [_label_to_json(x) for x in self.labels],
            **({} if self.origin is None else {"origin": self.origin.metadata()}),
        }

    @classmethod
    def from_parts(cls, metadata: dict[str, Any], arrays: dict[str, Any]) -> AbstractSimulator:
        """The inverse of `metadata` and `arrays`; the tables are validated again."""
        try:
            horizon, labels = metadata["horizon"], metadata["states"]
            successor, reward, starts, probabilities = (
                arrays[f"simulator.{name}"]
                for name in ("successor", "reward", "starts", "start_probabilities")
            )
        except KeyError as error:
            raise SimulatorError(f"the stored simulator lacks {error}") from None
        if not isinstance(labels, list | None):
            raise SimulatorError(f"states: {labels!r} is stored where a list of labels should be")
        origin = metadata.get("origin")
        return cls(
            successor,
            reward,
            horizon=horizon,
            start=starts,
            start_probabilities=probabilities,
            states=None if labels is None else [as_label(x) for x in labels],
            origin=None if origin is None else Origin.from_parts(origin, arrays),
        )


def _checked_horizon(horizon: int) -> int:
    if not is_whole(horizon):
        raise SimulatorError(f"horizon: {horizon!r} is not a whole number")
    if horizon < 1:
        raise SimulatorError(f"horizon: {horizon} is below 1; an episode has at least one step")
    if horizon > MOST_STEPS:
        raise SimulatorError(f"horizon: {horizon:.6g} is above {MOST_STEPS}, the longest episode")
    return int(horizon)


def _checked_tables(
    successor: ArrayLike, reward: ArrayLike, horizon: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    succ, rew = _as_array("successor", successor), _as_array("reward", reward)
    for name, table in (("successor", succ), ("reward", rew)):
        if table.ndim not in (2, 3):
            raise SimulatorError(
                f"{name}: shape {table.shape} is neither [S, A] nor [H, S, A] with H = {horizon}"
            )
        if table.ndim == 3 and table.shape[0] != horizon:
            raise SimulatorError(
                f"{name}: {table.shape[0]} steps in a table of shape {table.shape}, "
                f"but horizon is {horizon}"
            )
        if 0 in table.shape:
            raise SimulatorError(f"{name}: shape {table.shape} has no states or no actions")
    if succ.shape[-2:] != rew.shape[-2:]:
        raise SimulatorError(
            f"reward: [S, A] is {rew.shape[-2:]}, but successor's is {succ.shape[-2:]}"
        )
    if succ.dtype.kind not in "iu":
        raise SimulatorError(
            f"successor: dtype {succ.dtype} is not an integer type; state indices are whole numbers"
        )
    if rew.dtype.kind not in "iuf":
        raise SimulatorError(f"reward: dtype {rew.dtype} is not a real number type")
    num_states = succ.shape[-2]
    outside = (succ < 0) | (succ >= num_states)
    refuse_entries(SimulatorError, "successor", succ, outside, f"in 0 … {num_states - 1}")
    rew = rew.astype(np.float64, copy=False)
    refuse_entries(SimulatorError, "reward", rew, ~np.isfinite(rew), "finite")
    return _frozen(succ, np.int32), _frozen(rew, np.float64)


def _checked_start(
    start: int | Sequence[int], probabilities: Sequence[float] | None, num_states: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    starts = np.atleast_1d(_as_array("start", start))
    if starts.ndim != 1 or starts.size == 0 or starts.dtype.kind not in "iu":
        raise SimulatorError(f"start: {start!r} is neither a state index nor a list of them")
    outside = (starts < 0) | (starts >= num_states)
    if outside.any():
        raise SimulatorError(
            f"start: {int(starts[outside.argmax()])} is not a state; "
            f"indices run 0 … {num_states - 1}"
        )
    if len(set(starts.tolist())) != starts.size:
        raise SimulatorError(f"start: {starts.tolist()} names a state twice")
    if probabilities is None:
        mu = np.full(starts.size, 1.0 / starts.size)
    else:
        mu = np.atleast_1d(_as_array("start_probabilities", probabilities))
        if mu.dtype.kind not in "iuf":
            raise SimulatorError(f"start_probabilities: {probabilities!r} are not numbers")
        if mu.shape != starts.shape:
            raise SimulatorError(
                f"start_probabilities: {mu.size} numbers for {starts.size} start states"
            )
        if not (np.isfinite(mu).all() and (mu > 0).all() and abs(mu.sum() - 1) < 1e-9):
            raise SimulatorError(
                f"start_probabilities: {mu.tolist()} are not positive numbers that sum to 1"
            )
    return _frozen(starts, np.int32), _frozen(mu, np.float64)


def _checked_labels(states: Sequence[Hashable], num_states: int) -> tuple[Hashable, ...]:
    """One each, by which a state can be found again."""
    labels = tuple(states)
    if len(labels) != num_states:
        raise SimulatorError(
            f"states: {len(labels)} labels for {num_states} states; give one label per state"
        )
    known: dict[Hashable, int] = {}
    for index, label in enumerate(labels):
        try:
            first = known.setdefault(label, index)
        except TypeError:
            raise SimulatorError(
                f"states: label {label!r:.80} of state {index} is a {type(label).__name__}, which "
                "nothing can be found by; use numbers, strings or tuples of them"
            ) from None
        if first != index:
            raise SimulatorError(
                f"states: {label!r:.80} is the label of state {first} and of state {index}; each "
                "needs one of its own"
            )
    return labels


def _as_array(name: str, given: Any) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise SimulatorError(f"{name}: its rows do not make one table ({error})") from None


def _frozen(array: NDArray[Any], dtype: type) -> NDArray[Any]:
    """A private read-only copy: a caller's later writes must not reach a validated table."""
    copy: NDArray[Any] = np.array(array, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def _label_to_json(label: Hashable) -> Any:
    if isinstance(label, tuple):
        return [_label_to_json(part) for part in label]
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, (str, int, float, bool)) or label is None:
        return label
    raise SimulatorError(
        f"states: label {label!r} of type {type(label).__name__} cannot be saved; "
        "use numbers, strings or tuples of them"
    )


def as_label(stored: Any) -> Hashable:
    """A label from what a file holds, where tuples are lists."""
    return tuple(as_label(part) for part in stored) if isinstance(stored, list) else stored


def check_map(simulator: AbstractSimulator) -> None:
    """Refuse what is no map."""
    if not isinstance(simulator, AbstractSimulator):
        raise TypeError(
            f"simulator: {type(simulator).__name__} is no map; give a tasid.AbstractSimulator"
        )
