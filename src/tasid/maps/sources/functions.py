"""Simulators from Python functions: all states that a start leads to within the horizon."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tasid.maps.layout import Origin
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import MapError, MapWarning, finite, is_whole

Step = Callable[[Any, Any], Any]
_ASKED_AGAIN_LATER = 10_000


def from_function(
    step: Step,
    start: Hashable | list[Hashable],
    actions: int | Sequence[Any],
    *,
    horizon: int,
    start_probabilities: Sequence[float] | None = None,
    max_states: int = 1_000_000,
) -> AbstractSimulator:
    """A simulator of `step(state, action) -> (next_state, reward[, done])`.

    States are any hashable values; a list of them means several starts. After `done` nothing
    happens and nothing is paid. Every call is made twice, and many once more at the end: answers
    that differ are refused. With a number n of `actions`, `step` is called with 0 … n - 1;
    with a list of them, with what is in it: with names, if they are names.
    """
    if not callable(step):
        raise TypeError(f"step: {step!r:.80} is no function of a state and an action")
    moves = _checked_actions(actions)
    AbstractSimulator([[0]], [[0.0]], horizon=horizon)  # checks the horizon before any work
    starts = start if isinstance(start, list) else [start]
    for value in starts:
        _check_hashable(value, "start")
    found = _Exploration(step, moves, max_states)
    for value in starts:
        found.number((value, False))
    complete = found.explore(horizon)
    found.ask_again()
    found.warn_if_nothing_matters()
    return AbstractSimulator(
        np.array(found.successor, dtype=np.int64).reshape(-1, len(moves)),
        np.array(found.reward, dtype=np.float64).reshape(-1, len(moves)),
        horizon=horizon,
        start=[found.index[value, False] for value in starts],
        start_probabilities=start_probabilities,
        states=found.labels(),
        origin=Origin(
            f"function {getattr(step, '__name__', type(step).__name__)}",
            actions=None if isinstance(actions, int) else tuple(str(move) for move in moves),
            explored=None if complete else horizon,
        ),
    )


@dataclass(eq=False)
class _Exploration:
    """Breadth first from the starts; a node is (state, is the episode over)."""

    step: Step
    moves: Sequence[Any]
    limit: int
    index: dict[tuple[Hashable, bool], int] = field(default_factory=dict)
    nodes: list[tuple[Hashable, bool]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    successor: list[list[int]] = field(default_factory=list)
    reward: list[list[float]] = field(default_factory=list)

    def number(self, node: tuple[Hashable, bool]) -> int:
        """The node's index, a new one if it is new."""
        place = self.index.setdefault(node, len(self.nodes))
        if place == len(self.nodes):
            if place >= self.limit:
                raise MapError(
                    f"max_states: more than {self.limit} states can be reached; the last one was "
                    f"{node[0]!r}. Make states coarser, the horizon shorter, or raise max_states"
                )
            self.nodes.append(node)
        return place

    def explore(self, horizon: int) -> bool:
        """Fill the tables; False if states at the end of the horizon were left alone."""
        done = 0
        for _ in range(horizon):
            level = range(done, len(self.nodes))
            done = level.stop
            for place in level:
                self._expand(place)
        # Their actions are never taken: an episode that comes so far is over.
        rest = range(done, len(self.nodes))
        for place in rest:
            self._stay(place)
        return all(self.nodes[place][1] for place in rest)

    def _expand(self, place: int) -> None:
        state, over = self.nodes[place]
        if over:
            self._stay(place)
            return
        rows: tuple[list[int], list[float]] = ([], [])
        for move in self.moves:
            answer, again = self._ask(state, move), self._ask(state, move)
            if again != answer:
                _refuse_noise(state, move, answer, again)
            after, reward, ended = answer
            rows[0].append(self.number((after, ended)))
            rows[1].append(reward)
        self.asked.append(place)
        self.successor.append(rows[0])
        self.reward.append(rows[1])

    def _stay(self, place: int) -> None:
        self.successor.append([place] * len(self.moves))
        self.reward.append([0.0] * len(self.moves))

    def ask_again(self) -> None:
        """A function with a memory may answer twice alike and later otherwise."""
        every = max(1, len(self.asked) * len(self.moves) // _ASKED_AGAIN_LATER)
        for place in self.asked[::-every]:
            state = self.nodes[place][0]
            for a, move in enumerate(self.moves):
                after, reward, ended = self._ask(state, move)
                before, paid = self.nodes[self.successor[place][a]], self.reward[place][a]
                if ((after, ended), reward) != (before, paid):
                    _refuse_noise(state, move, (before[0], paid, before[1]), (after, reward, ended))

    def warn_if_nothing_matters(self) -> None:
        """Most often `step` compares actions with something else than it is called with."""
        rows = zip(self.successor, self.reward, strict=True)
        if len(self.moves) > 1 and all(len({*zip(*row, strict=True)}) == 1 for row in rows):
            warnings.warn(
                "step: in no state does it matter which action is taken; it was called with "
                f"{', '.join(map(repr, self.moves[:4]))}{', …' if len(self.moves) > 4 else ''}",
                MapWarning,
                4,
            )

    def _ask(self, state: Hashable, move: Any) -> tuple[Hashable, float, bool]:
        where = f"step({state!r}, {move!r})"
        answer = self.step(state, move)
        if not isinstance(answer, tuple) or len(answer) not in (2, 3):
            raise MapError(
                f"step: {where} gave {answer!r}; it should be (next_state, reward) or "
                "(next_state, reward, done)"
            )
        after, reward, ended = answer if len(answer) == 3 else (*answer, False)
        _check_hashable(after, f"step: the next state of {where}")
        paid = finite(reward)
        if math.isnan(paid):
            raise MapError(f"step: the reward of {where} is {reward!r}, not a finite number")
        if not isinstance(ended, bool | np.bool_):
            raise MapError(f"step: done of {where} is {ended!r}, neither True nor False")
        return after, paid, bool(ended)

    def labels(self) -> list[Hashable]:
        """The states themselves; one where episodes both end and go on is (state, "done") too."""
        return [
            (state, "done") if over and (state, False) in self.index else state
            for state, over in self.nodes
        ]


def _checked_actions(actions: Any) -> Sequence[Any]:
    if is_whole(actions):
        actions = range(int(actions))
    if not hasattr(actions, "__len__"):
        raise MapError(f"actions: {actions!r} is neither a number of actions nor a list of them")
    if len(actions) == 0:
        raise MapError("actions: there are none; at least one is needed")
    return list(actions)


def _check_hashable(state: Any, where: str) -> None:
    try:
        hash(state)
    except TypeError:
        raise MapError(
            f"{where}: {state!r} of type {type(state).__name__} cannot be hashed; "
            "states are numbers, strings or tuples, for instance tuple(state)"
        ) from None


def _refuse_noise(state: Any, move: Any, first: Any, second: Any) -> None:
    raise MapError(
        f"step: step({state!r}, {move!r}) gave (next_state, reward, done) = {first} and then "
        f"{second}; a map has to be deterministic"
    )
