"""Beliefs by enumerating every path in float64: the slow, obvious reference.

A path is a start and, for every step, the action that happened or the state one was carried to.
Nothing here knows outcomes, slots, layers or recursions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from tasid.maps import AbstractSimulator

UNLIKELY = 0.05


REWARDS = (0.0, 0.5, 2.0)


def a_world(
    rng: np.random.Generator,
    *,
    horizon: int = 3,
    several_starts: bool | None = None,
    mixed: bool = True,
) -> AbstractSimulator:
    """Four states and three actions; the arrays of all such chains have few shapes to compile.

    State 0 is a start and leads to all others, 1 leads to 0 and stays; half of the time nothing
    happens any more in 3. Tables are for every step or for all, rewards too unless not `mixed`.
    """
    shape = (horizon, 4, 3)
    tables, rewards, several, ends = (rng.random(4) < 0.5).tolist()
    rewards = rewards if mixed else tables
    successor = rng.integers(4, size=shape if tables else shape[1:])
    others = np.broadcast_to([1, 2, 3], successor[..., 0, :].shape)
    successor[..., 0, :] = rng.permuted(others, axis=-1)
    successor[..., 1, :2] = [0, 1]
    reward = rng.choice(REWARDS, size=shape if rewards else shape[1:])
    reward[..., 0, :] = REWARDS
    if ends:
        successor[..., 3, :], reward[..., 3, :] = 3, 0.0
    several = several if several_starts is None else several_starts
    share = float(rng.uniform(0.1, 0.9))
    return AbstractSimulator(
        successor,
        reward,
        horizon=horizon,
        start=[int(rng.integers(1, 4)), 0] if several else 0,
        start_probabilities=[share, 1 - share] if several else None,
    )


class Episode(NamedTuple):
    """One episode: commands, and what else was noticed."""

    commands: tuple[int, ...]
    rewards: tuple[float, ...] | None = None
    ended: int | None = None
    """After how many steps; the horizon's own end says nothing, None if ends are not told."""


@dataclass
class Found:
    """Sums over all paths, weighed by their probability and by the evidence."""

    total: float = 0.0
    visits: dict[tuple[int, int], float] = field(default_factory=dict)
    """(step, state)."""
    moves: dict[tuple[int, int, int, int], float] = field(default_factory=dict)
    """(step, state, command, successor), those that leapt not."""
    leaps: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """(step, state, command)."""
    arrivals: dict[tuple[int, int], float] = field(default_factory=dict)
    """(step, class) of what was seen."""

    def belief(self, step: int, number: int) -> np.ndarray:
        """p(state at a step | evidence)."""
        return np.array([self.visits.get((step, s), 0.0) for s in range(number)]) / self.total


@dataclass(frozen=True)
class Paths:
    """The brute force on one map."""

    sim: AbstractSimulator
    eta: float
    leap: float = 0.0
    kind: str = "place"
    anywhere: tuple[tuple[int, ...], ...] = ()
    """Where a leap may land after step h."""

    def found(self, episode: Episode, look: np.ndarray, *, upto: int | None = None) -> Found:
        """Everything, given likelihoods look[h, class] of the observations 0 … `upto`."""
        horizon = self.sim.horizon
        live = horizon if episode.ended is None else episode.ended
        last = min(live, horizon if upto is None else upto)
        found = Found()
        for start, steps in self.paths():
            weight, state = self.start_probability(start), start
            states, classes = [start], [self.first_class(start)]
            weight *= look[0, classes[0]]
            for h, (action, target) in enumerate(steps):
                heard = upto is None or h < upto
                weight *= self.probability(h, episode.commands[h], action, target)
                lands = self._leads[h][state][action] if target is None else target
                if target is None and heard:
                    weight *= self.said(h, state, lands, episode)
                classes.append(self.arrival_class(h, state, lands))
                if h + 1 <= last:
                    weight *= look[h + 1, classes[-1]]
                state = lands
                states.append(state)
            if weight:
                self._note(found, weight, episode, states, classes, steps)
        return found

    def paths(self) -> Iterator[tuple[int, list[tuple[int, int | None]]]]:
        """All of them."""
        options = []
        for h in range(self.sim.horizon):
            moves = [(a, None) for a in range(self.sim.num_actions)]
            options.append(moves + ([(0, s) for s in self.anywhere[h]] if self.leap else []))
        for start in self.sim.starts.tolist():
            for steps in product(*options):
                yield start, list(steps)

    def start_probability(self, start: int) -> float:
        at = self.sim.starts.tolist().index(start)
        return float(self.sim.start_probabilities[at])

    def probability(self, h: int, command: int, action: int, target: int | None) -> float:
        if target is not None:
            return self.leap / len(self.anywhere[h])
        slip = self.eta / self.sim.num_actions
        return (1 - self.leap) * ((1 - self.eta) * (action == command) + slip)

    def said(self, h: int, state: int, lands: int, episode: Episode) -> float:
        """What the reward and the end, or that there was none, say of an outcome."""
        agrees = True
        over = episode.ended is not None and episode.ended <= h
        if episode.rewards is not None and not over and episode.rewards[h] in self._on_map:
            leads, pays = self._leads[h][state], self._pays[h][state]
            agrees &= episode.rewards[h] in [
                paid for lead, paid in zip(leads, pays, strict=True) if lead == lands
            ]
        if episode.ended is not None and not over and h + 1 < self.sim.horizon:
            agrees &= (lands in self.final) == (episode.ended == h + 1)
        return 1.0 if agrees else UNLIKELY

    @cached_property
    def _leads(self) -> list:
        return [self.sim.successor_at(h).tolist() for h in range(self.sim.horizon)]

    @cached_property
    def _pays(self) -> list:
        return [self.sim.reward_at(h).tolist() for h in range(self.sim.horizon)]

    @cached_property
    def _on_map(self) -> set[float]:
        return set(self.sim.reward.ravel().tolist())

    @cached_property
    def final(self) -> set[int]:
        """The states in which nothing more happens, ever."""
        steps = list(zip(self._leads, self._pays, strict=True))
        return {
            s
            for s in range(self.sim.num_states)
            if all(set(leads[s]) == {s} and set(pays[s]) == {0.0} for leads, pays in steps)
        }

    @cached_property
    def places(self) -> list[int]:
        """All states that some path meets."""
        met = set(self.sim.starts.tolist())
        layer = set(met)
        for h in range(self.sim.horizon):
            layer = {int(t) for s in layer for t in self.sim.successor_at(h)[s]}
            met |= layer
        return sorted(met)

    @cached_property
    def num_classes(self) -> int:
        if self.kind == "place":
            return len(self.places)
        return self._kinds + len(set(self.sim.starts.tolist()))

    @cached_property
    def _kinds(self) -> int:
        if self.kind == "action":
            return self.sim.num_actions
        return max(len(set(row)) for table in self._leads for row in table)

    def first_class(self, start: int) -> int:
        if self.kind == "place":
            return self.places.index(start)
        return self._kinds + sorted(set(self.sim.starts.tolist())).index(start)

    def arrival_class(self, h: int, state: int, lands: int) -> int:
        if self.kind == "place":
            return self.places.index(lands)
        row = self._leads[h][state]
        return sorted(set(row)).index(lands) if self.kind == "rank" else row.index(lands)

    def _note(self, found, weight, episode, states, classes, steps) -> None:
        def add(table, key):
            table[key] = table.get(key, 0.0) + weight

        found.total += weight
        for h, (state, look) in enumerate(zip(states, classes, strict=True)):
            add(found.visits, (h, state))
            add(found.arrivals, (h, look))
        for h, (_, target) in enumerate(steps):
            if target is None:
                add(found.moves, (h, states[h], episode.commands[h], states[h + 1]))
            else:
                add(found.leaps, (h, states[h], episode.commands[h]))
