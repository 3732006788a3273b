"""The abstract simulator M° = ⟨S, A, μ, H, T°, R°⟩: a finite MDP with a finite horizon.

It is the user's knowledge of the task: the successor and the reward of every action, without
observations. A deterministic map stores T°_h(s, a) as one successor index. A stochastic map
stores T°_h(s' | s, a) sparsely: up to B successors per state and action, with probabilities.
Tables are validated here, once. All other modules trust them.

Steps are 0-based: decisions are taken at h = 0 … H−1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.layout import GridLayout

MAX_HORIZON = 1_000_000
MAX_BYTES = 2**33
"""Largest table that is allocated."""
_PREFIX = "simulator."


class SimulatorError(ValueError):
    """A table, start or horizon that does not describe a finite-horizon MDP."""


class SizeError(ValueError):
    """A table that would be too large, refused before it is allocated."""


@dataclass(frozen=True, eq=False, init=False)
class AbstractSimulator:
    """Validated, immutable tables of an abstract simulator.

    Parameters
    ----------
    successor:
        Integers [S, A] or [H, S, A]: deterministic map. Integers [S, A, B] or [H, S, A, B] with
        `probabilities` of the same shape: sparse stochastic map. Floats [S, A, S] or
        [H, S, A, S]: dense P(s' | s, a), stored sparsely. A stochastic map whose rows all have
        one certain successor is stored as deterministic.
    reward:
        R°(s, a) as [S, A] or [H, S, A]; on stochastic maps also the reward of each transition,
        shaped like `successor` (with or without the leading H). A shape that could be [H, S, A] as
        well as [S, A, B] is read as the latter.
    horizon:
        Number of steps H of an episode.
    start, start_probabilities:
        Start state, or several with their probabilities (uniform by default).
    states:
        Distinct hashable labels of the states in index order.
    action_names:
        Names of the actions in index order.
    layout:
        Geometry of a grid map.
    hazards:
        Boolean [S]: states that must not be entered on purpose.
    source:
        Short description of the map's origin.
    explored:
        The tables hold only the states within this many steps of the start; None: all states.
    """

    successor: NDArray[np.int32]
    probabilities: NDArray[np.float64] | None
    reward: NDArray[np.float64]
    horizon: int
    starts: NDArray[np.int32]
    start_probabilities: NDArray[np.float64]
    labels: tuple[Hashable, ...] | None
    action_names: tuple[str, ...] | None
    layout: GridLayout | None
    hazards: NDArray[np.bool_] | None
    source: str
    explored: int | None

    def __init__(
        self,
        successor: ArrayLike,
        reward: ArrayLike,
        *,
        horizon: int,
        start: int | Sequence[int] | NDArray[Any] = 0,
        start_probabilities: Sequence[float] | NDArray[Any] | None = None,
        probabilities: ArrayLike | None = None,
        states: Sequence[Hashable] | None = None,
        action_names: Sequence[str] | None = None,
        layout: GridLayout | None = None,
        hazards: Sequence[bool] | NDArray[Any] | None = None,
        source: str = "",
        explored: int | None = None,
    ) -> None:
        _require(
            is_integer(horizon) and 1 <= horizon <= MAX_HORIZON,
            f"horizon: {horizon!r} is not an integer in 1 … {MAX_HORIZON}",
        )
        succ, prob, rew = _check_tables(successor, probabilities, reward, int(horizon))
        num_states, num_actions = succ.shape[-2:] if prob is None else succ.shape[-3:-1]
        starts, mu = _check_start(start, start_probabilities, num_states)
        for name, entries, right in (
            ("states", states, num_states),
            ("action_names", action_names, num_actions),
            ("layout", None if layout is None else layout.positions, num_states),
            ("hazards", hazards, num_states),
        ):
            length = right if entries is None else len(entries)
            _require(length == right, f"{name}: {length} entries where {right} are needed")
        self.__dict__.update(  # the dataclass is frozen: these are the only writes
            successor=_frozen(succ, np.int32),
            probabilities=None if prob is None else _frozen(prob, np.float64),
            reward=_frozen(rew, np.float64),
            horizon=int(horizon),
            starts=_frozen(starts, np.int32),
            start_probabilities=_frozen(mu, np.float64),
            labels=None if states is None else _check_labels(states),
            action_names=None if action_names is None else tuple(map(str, action_names)),
            layout=layout,
            hazards=None if hazards is None else _frozen(hazards, np.bool_),
            source=source,
            explored=explored,
        )

    def __repr__(self) -> str:
        kind = "stochastic, " if self.stochastic else ""
        return (
            f"AbstractSimulator({self.source!r}, {kind}states={self.num_states}, "
            f"actions={self.num_actions}, horizon={self.horizon})"
        )

    @property
    def stochastic(self) -> bool:
        """Whether some transition is random."""
        return self.probabilities is not None

    @property
    def time_varying(self) -> bool:
        """Whether successors or rewards depend on the step."""
        return self.successors_vary or self.rewards_vary

    @property
    def successors_vary(self) -> bool:
        """Whether successors depend on the step."""
        return self._intended.ndim == 3

    @property
    def rewards_vary(self) -> bool:
        """Whether rewards depend on the step."""
        return self._expected_reward.ndim == 3

    def same_tables(self, other: AbstractSimulator) -> bool:
        """Whether both maps have the same successors, probabilities and rewards."""
        names = ("successor", "probabilities", "reward")
        return self is other or all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in names
        )

    @cached_property
    def reward_per_transition(self) -> bool:
        """Whether rewards depend on the successor, too."""
        return self.stochastic and self.reward.shape[-3:] == self.successor.shape[-3:]

    @cached_property
    def num_states(self) -> int:
        """|S|."""
        return int(self.successor.shape[-3 if self.stochastic else -2])

    @cached_property
    def num_actions(self) -> int:
        """|A|."""
        return int(self.successor.shape[-2 if self.stochastic else -1])

    @property
    def mdp(self) -> AbstractSimulator:
        """The simulator itself; the counterpart of `PerturbedMDP.mdp`."""
        return self

    @property
    def start(self) -> int:
        """Index of the start state; an error if there are several (see `starts`)."""
        _require(self.starts.size == 1, f"start: there are {self.starts.size}, see `starts`")
        return int(self.starts[0])

    @property
    def states(self) -> Sequence[Hashable]:
        """Labels of the states in index order; the indices if there are no labels."""
        return range(self.num_states) if self.labels is None else self.labels

    def successor_at(self, h: int) -> NDArray[np.int32]:
        """Successors at step h, [S, A] or [S, A, B]."""
        return self.successor[h] if self._intended.ndim == 3 else self.successor

    def probabilities_at(self, h: int) -> NDArray[np.float64] | None:
        """Probabilities of the successors at step h, [S, A, B]; None on deterministic maps."""
        if self.probabilities is None:
            return None
        return self.probabilities[h] if self.probabilities.ndim == 4 else self.probabilities

    def transitions_at(self, h: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Successors and their probabilities at step h, both [S, A, B]; B = 1 if deterministic."""
        successor, probabilities = self.successor_at(h), self.probabilities_at(h)
        if probabilities is None:
            return successor[..., None], np.ones((*successor.shape, 1))
        return successor, probabilities

    def reward_at(self, h: int) -> NDArray[np.float64]:
        """Expected reward R°_h(s, a) at step h, [S, A]."""
        return (
            self._expected_reward[h] if self._expected_reward.ndim == 3 else self._expected_reward
        )

    def transition_reward_at(self, h: int) -> NDArray[np.float64]:
        """Reward of each transition at step h, shaped like `successor_at(h)`."""
        if self.reward_per_transition:
            return self.reward[h] if self.reward.ndim == 4 else self.reward
        reward = self.reward_at(h)[..., None] if self.stochastic else self.reward_at(h)
        return np.broadcast_to(reward, self.successor_at(h).shape)

    def intended(self, h: int) -> NDArray[np.int32]:
        """Most likely successor of each state and action at step h, [S, A]."""
        return self._intended[h] if self._intended.ndim == 3 else self._intended

    def absorbing(self, h: int) -> NDArray[np.bool_]:
        """States that no action leaves at step h, and that give no reward then, [S]."""
        successor, probabilities = self.transitions_at(h)
        stays = (successor == np.arange(len(successor))[:, None, None]) | (probabilities == 0)
        return stays.all(axis=(1, 2)) & (self.reward_at(h) == 0).all(axis=1)

    def permitted(self, h: int) -> NDArray[np.bool_] | None:
        """Actions that do not enter a hazard on purpose, [S, A]; None without hazards.

        An action is not permitted if its intended successor is a hazard and another action's is
        not. Where all actions intend a hazard, all are permitted.
        """
        if self.hazards is None:
            return None
        return self._permitted[h] if self._permitted.ndim == 3 else self._permitted

    # Derived tables, [S, A] or [H, S, A].

    @cached_property
    def _expected_reward(self) -> NDArray[np.float64]:
        if self.probabilities is None or not self.reward_per_transition:
            return self.reward
        return _frozen((self.probabilities * self.reward).sum(axis=-1), np.float64)

    @cached_property
    def _intended(self) -> NDArray[np.int32]:
        if self.probabilities is None:
            return self.successor
        likeliest = self.probabilities.argmax(axis=-1)[..., None]
        return np.take_along_axis(self.successor, likeliest, axis=-1)[..., 0]

    @cached_property
    def _permitted(self) -> NDArray[np.bool_]:
        assert self.hazards is not None
        into_hazard = self.hazards[self._intended]
        return ~into_hazard | into_hazard.all(axis=-1, keepdims=True)

    def with_horizon(self, horizon: int) -> AbstractSimulator:
        """The same map with another episode length; tables per step cannot be extended."""
        _require(
            horizon == self.horizon or not self.time_varying,
            f"horizon: {horizon} for a map with tables for exactly {self.horizon} steps",
        )
        _require(
            self.explored is None or horizon <= self.explored,
            f"horizon: {horizon} for a map that was explored only {self.explored} steps deep; "
            "build it again from its source with the longer horizon",
        )
        return self.replace(horizon=horizon)

    def with_start(
        self, start: int | Sequence[int], start_probabilities: Sequence[float] | None = None
    ) -> AbstractSimulator:
        """The same map with another start distribution."""
        return self.replace(start=start, start_probabilities=start_probabilities)

    def replace(self, **parts: Any) -> AbstractSimulator:
        """A copy with some arguments of the constructor replaced, validated again."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        own |= {"start": own.pop("starts"), "states": own.pop("labels")}
        return AbstractSimulator(**{**own, **parts})

    @staticmethod
    def from_toy_text(env: Any, *, horizon: int | None = None, **options: Any) -> AbstractSimulator:
        """Map in the table `P` of a Gymnasium toy-text environment (or its id).

        See `tasid.sources.toy_text.from_toy_text`.
        """
        from tasid.sources.toy_text import from_toy_text

        return from_toy_text(env, horizon=horizon, **options)

    @staticmethod
    def from_function(
        step: Callable[..., Any], start: Any, actions: Any, *, horizon: int, **options: Any
    ) -> AbstractSimulator:
        """Map of the states that `step(state, action) -> (next_state, reward[, done])` reaches.

        `actions` is their number or a list of them. See `tasid.sources.tables.from_function`.
        """
        from tasid.sources.tables import from_function

        return from_function(step, start, actions, horizon=horizon, **options)

    @staticmethod
    def from_text_map(text: str, **options: Any) -> AbstractSimulator:
        """Grid map from text: '#' wall, '.' free, 'S' start, 'G' goal, 'L' hazard.

        See `tasid.sources.grid.from_text_map`.
        """
        from tasid.sources.grid import from_text_map

        return from_text_map(text, **options)

    @staticmethod
    def from_occupancy_map(path: str | Path, **options: Any) -> AbstractSimulator:
        """Grid map from a ROS map_server pair (.yaml and image).

        See `tasid.sources.occupancy.from_occupancy_map`.
        """
        from tasid.sources.occupancy import from_occupancy_map

        return from_occupancy_map(path, **options)

    @staticmethod
    def from_tables(path: str | Path, **options: Any) -> AbstractSimulator:
        """Map from the tables of a .npz file; see `tasid.sources.tables.from_tables`."""
        from tasid.sources.tables import from_tables

        return from_tables(path, **options)

    def save(self, path: str | Path) -> Path:
        """Write the simulator as an artifact directory; return its path."""
        from tasid.storage import write_artifact

        parts = {"metadata": self.metadata(), "arrays": self.arrays()}
        return write_artifact(path, kind="simulator", **parts)

    @classmethod
    def load(cls, path: str | Path) -> AbstractSimulator:
        """Read a simulator written by `save`; digests and tables are verified."""
        from tasid.storage import read_artifact

        artifact = read_artifact(path, kind="simulator")
        return cls.from_parts(artifact.metadata, artifact.arrays)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that, with `metadata`, store the simulator."""
        names = "successor probabilities reward starts start_probabilities hazards"
        named = {_PREFIX + name: getattr(self, name) for name in names.split()}
        if self.layout is not None:
            named |= {f"{_PREFIX}layout.{k}": array for k, array in self.layout.arrays().items()}
        return {name: array for name, array in named.items() if array is not None}

    def metadata(self) -> dict[str, Any]:
        """JSON part of the stored simulator."""
        return {
            "horizon": self.horizon,
            "states": None if self.labels is None else [_label_to_json(x) for x in self.labels],
            "action_names": None if self.action_names is None else list(self.action_names),
            "source": self.source,
            "explored": self.explored,
            "layout": None if self.layout is None else self.layout.metadata(),
        }

    @classmethod
    def from_parts(cls, metadata: dict[str, Any], arrays: dict[str, Any]) -> AbstractSimulator:
        """Inverse of `metadata` and `arrays`; everything is validated again."""
        own = {k.removeprefix(_PREFIX): v for k, v in arrays.items() if k.startswith(_PREFIX)}
        parts = {k.removeprefix("layout."): own.pop(k) for k in [*own] if k.startswith("layout.")}
        stored = dict(metadata)
        try:
            if stored["layout"] is not None:
                stored["layout"] = GridLayout.from_parts(stored["layout"], parts)
            if stored["states"] is not None:
                stored["states"] = [label_from_json(label) for label in stored["states"]]
            return cls(start=own.pop("starts"), **own, **stored)
        except (KeyError, TypeError) as error:
            raise SimulatorError(f"simulator: the stored one is incomplete ({error})") from None


def is_integer(number: Any) -> bool:
    """Whether it is a Python or NumPy integer; booleans are not."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def check_size(name: str, shape: tuple[int, ...], itemsize: int, remedy: str) -> None:
    """Raise `SizeError` if a table of this shape would take more than `MAX_BYTES`."""
    size = prod(shape) * itemsize
    if size > MAX_BYTES:
        sizes = " × ".join(map(str, shape))
        raise SizeError(
            f"{name}: {sizes} entries would take {size / 2**30:.3g} GiB, more than "
            f"{MAX_BYTES / 2**30:g}; {remedy}"
        )


def check_entries(
    error: type[ValueError], name: str, table: NDArray[Any], bad: NDArray[np.bool_], right: str
) -> None:
    """Raise `error` if some entries of a table are bad; name the first one and its place."""
    if bad.any():
        place = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        raise error(
            f"{name}: {table[place]} at index {place} should be {right}; "
            f"{int(bad.sum())} such entries in all"
        )


def label_from_json(stored: Any) -> Hashable:
    """State label from its JSON form, where tuples are lists."""
    return tuple(map(label_from_json, stored)) if isinstance(stored, list) else stored


def _label_to_json(label: Hashable) -> Any:
    if isinstance(label, tuple):
        return [_label_to_json(part) for part in label]
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, (str, int, float)) or label is None:
        return label
    raise SimulatorError(
        f"states: label {label!r:.80} of type {type(label).__name__} cannot be saved; "
        "use numbers, strings or tuples of them"
    )


def _check_tables(
    successor: ArrayLike, probabilities: ArrayLike | None, reward: ArrayLike, horizon: int
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]:
    """Successors, probabilities (None if deterministic) and rewards in the stored form."""
    succ, rew = _as_array("successor", successor), _as_array("reward", reward)
    prob = None if probabilities is None else _as_array("probabilities", probabilities)
    dense = prob is None and succ.dtype.kind == "f" and succ.ndim > 2
    _require(
        dense or succ.dtype.kind in "iu",
        f"successor: {succ.dtype} of shape {succ.shape} is neither integer state indices nor float "
        "probabilities [S, A, S]",
    )
    axes = "S, A, S" if dense else "S, A" if prob is None else "S, A, B"
    row = succ.shape[-len(axes.split()) :]  # without the leading H
    _require(
        len(row) == len(axes.split())
        and succ.shape in (row, (horizon, *row))
        and 0 not in row
        and (not dense or row[2] == row[0]),
        f"successor: shape {succ.shape} is neither [{axes}] nor [H, {axes}] with H = {horizon}",
    )
    if not dense:
        outside = (succ < 0) | (succ >= row[0])
        check_entries(SimulatorError, "successor", succ, outside, f"in 0 … {row[0] - 1}")
    _require(
        rew.shape in (row, (horizon, *row), row[:2], (horizon, *row[:2])),
        f"reward: shape {rew.shape} fits neither [S, A] = {row[:2]} nor the successors' {row}, "
        f"with or without a leading H = {horizon}",
    )
    _require(rew.dtype.kind in "iuf", f"reward: {rew.dtype} is not a real number type")
    check_entries(SimulatorError, "reward", rew, ~np.isfinite(rew), "finite")
    if dense:
        return _sparse(None, _check_distributions("successor", succ, succ.shape), rew)
    if prob is not None:
        return _sparse(succ, _check_distributions("probabilities", prob, succ.shape), rew)
    return succ, None, rew


def _sparse(
    successor: NDArray[Any] | None, prob: NDArray[np.float64], reward: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]:
    """Drop transitions of probability 0; without `successor`, column k is state k.

    Rows with fewer transitions than the longest are padded: they repeat their likeliest
    transition with probability 0, so minima and maxima over transitions need no mask.
    """
    if successor is not None and (prob > 0).all() and prob.shape[-1] > 1:
        return successor, prob, reward
    per_transition = reward.shape[-3:] == prob.shape[-3:]
    width = int((prob > 0).sum(axis=-1).max())
    column = np.argsort(prob <= 0, axis=-1, kind="stable")[..., :width]
    kept = np.take_along_axis(prob, column, axis=-1)
    column = np.where(kept > 0, column, prob.argmax(axis=-1)[..., None])
    succ = column if successor is None else np.take_along_axis(successor, column, axis=-1)
    if per_transition:
        ndim = max(reward.ndim, column.ndim)  # one of the two may lack the leading H
        rewards, columns = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (reward, column))
        reward = np.take_along_axis(rewards, columns, axis=-1)
    elif reward.shape == kept.shape[-3:]:  # [H, S, A], which would be read as [S, A, B]
        reward = np.repeat(reward[..., None], width, axis=-1)
        per_transition = True
    if width == 1:
        return succ[..., 0], None, reward[..., 0] if per_transition else reward
    return succ, kept, reward


def _check_distributions(
    name: str, table: NDArray[Any], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    _require(
        table.shape == shape and table.dtype.kind in "iuf",
        f"{name}: {table.dtype} of shape {table.shape} should be numbers shaped {shape}",
    )
    prob = table.astype(np.float64)
    check_entries(SimulatorError, name, prob, ~(prob >= 0), "a probability")
    total = prob.sum(axis=-1)
    bad = ~(np.abs(total - 1) <= 1e-5)
    check_entries(SimulatorError, name, prob, bad, "a distribution that sums to 1")
    # Rows that are already normalised keep their bits, so that saving and loading is exact.
    return np.where(np.abs(total - 1)[..., None] > 1e-12, prob / total[..., None], prob)


def _check_start(
    start: Any, probabilities: Any, num_states: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    starts = np.atleast_1d(_as_array("start", start))
    _require(
        starts.ndim == 1 and starts.size > 0 and starts.dtype.kind in "iu",
        f"start: {start!r} is neither a state index nor a list of them",
    )
    outside = (starts < 0) | (starts >= num_states)
    check_entries(SimulatorError, "start", starts, outside, f"in 0 … {num_states - 1}")
    _require(np.unique(starts).size == starts.size, f"start: {starts} contains a state twice")
    if probabilities is None:
        return starts, np.full(starts.size, 1.0 / starts.size)
    mu = np.atleast_1d(_as_array("start_probabilities", probabilities))
    _require(
        mu.dtype.kind in "iuf"
        and mu.shape == starts.shape
        and bool((mu > 0).all() and abs(mu.sum() - 1) < 1e-9),
        f"start_probabilities: {mu} should be {starts.size} positive numbers that sum to 1",
    )
    return starts, mu


def _check_labels(states: Sequence[Hashable]) -> tuple[Hashable, ...]:
    try:
        [(label, count)] = Counter(states).most_common(1)
    except TypeError as error:
        raise SimulatorError(
            f"states: labels must be numbers, strings or tuples ({error})"
        ) from None
    _require(count == 1, f"states: {label!r:.80} is the label of {count} states")
    return tuple(states)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SimulatorError(message)


def _as_array(name: str, table: Any) -> NDArray[Any]:
    try:
        return np.asarray(table)
    except ValueError as error:
        raise SimulatorError(f"{name}: rows of different lengths ({error})") from None


def _frozen(array: ArrayLike, dtype: type) -> NDArray[Any]:
    """Private read-only copy, so that later writes of the caller do not reach the tables."""
    copy: NDArray[Any] = np.array(array, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy
