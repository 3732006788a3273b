"""Where on a map two actions surely lead to the same place, and how to get there blindly.

Without knowing any state one can still drive into a corner: commands are repeated until the map
says that, wherever the episode started, two actions now make no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from tasid.runs.check_subject import Subject

_MOST = 4
_EACH = 2
"""Places for one and the same pair."""
_REPEATS = 8
_FEWEST = 0.5


@dataclass(frozen=True)
class Site:
    """Commands that lead to a place, actions to compare there, and how surely they compare."""

    prefix: tuple[int, ...]
    actions: tuple[int, ...]
    sure: float
    """With at least this probability the actions' successors are what the comparison assumes."""

    @property
    def h(self) -> int:
        """The step at which they are compared."""
        return len(self.prefix)


def equal_pairs(subject: Subject) -> list[Site]:
    """A few places where two actions have one successor, the surest first.

    Of equally sure ones those are preferred whose last command was neither of the two: an
    observation that shows the last command then shows a change.
    """
    found = [site for prefix in _prefixes(subject) for site in _sites(subject, prefix)]
    found.sort(key=lambda s: (-round(s.sure, 2), bool(set(s.prefix[-1:]) & set(s.actions)), s.h))
    chosen: list[Site] = []
    times: Counter[tuple[int, ...]] = Counter()
    for site in found:
        if times[site.actions] < _EACH and len(chosen) < _MOST:
            times[site.actions] += 1
            chosen.append(site)
    return chosen


def _prefixes(subject: Subject) -> Iterator[tuple[int, ...]]:
    """Nothing, the way of the plan, one command again and again, and then another."""
    yield ()
    if len(subject.sim.starts) == 1:
        route = subject.route[1]
        yield from (tuple(route[:h]) for h in range(1, len(route)))
    times = min(_REPEATS, (subject.sim.horizon - 1) // 2)
    if times < 1:
        return
    for action in range(subject.sim.num_actions):
        yield (action,) * times
    for first, second in permutations(range(subject.sim.num_actions), 2):
        yield (first,) * times + (second,) * times


def _sites(subject: Subject, prefix: tuple[int, ...]) -> Iterator[Site]:
    undisturbed = (1.0 - subject.eta) ** len(prefix)
    if undisturbed < _FEWEST:
        return
    sim, h = subject.sim, len(prefix)
    where = _spread(subject, prefix)
    sure = np.zeros((sim.num_actions, sim.num_actions))
    for state in np.flatnonzero(where).tolist():
        if not subject.absorbing(h, state):
            after = sim.successor_at(h)[state]
            sure += where[state] * undisturbed * (after[:, None] == after[None])
    for a, b in combinations(range(sim.num_actions), 2):
        if sure[a, b] >= _FEWEST:
            yield Site(prefix, (a, b), min(float(sure[a, b]), 1.0))


def _spread(subject: Subject, prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """Where episodes are after these commands if all come out as asked, [S]."""
    sim = subject.sim
    states, mass = sim.starts.astype(np.intp), sim.start_probabilities
    for h, action in enumerate(prefix):
        states = sim.successor_at(h)[states, action]
    return np.bincount(states, mass, sim.num_states).astype(np.float64)
