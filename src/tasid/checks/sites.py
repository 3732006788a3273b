"""Where on a map two actions surely lead to the same place, and how to get there blindly.

Without knowing any state one can still drive into a corner: commands are repeated until the map
says that, wherever the episode started, two actions now make no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

from tasid.checks.subject import Subject

_MOST = 4
_EACH = 2
"""Places for one and the same pair."""
_REPEATS = (1, 2, 4, 8)
"""How often a command is repeated; the fewer, the surer that all came out as asked."""
_FEWEST, _CERTAIN = 0.5, 0.99


@dataclass(frozen=True)
class Comparison:
    """Commands that lead to a place, actions to compare there, and how surely they compare."""

    prefix: tuple[int, ...]
    actions: tuple[int, ...]
    sure: float
    """With at least this probability the actions' successors are what the comparison assumes."""

    @property
    def h(self) -> int:
        """The step at which they are compared."""
        return len(self.prefix)


def equal_pairs(subject: Subject) -> list[Comparison]:
    """A few places where two actions have one successor, between them of as many actions as can be.

    An observation that shows the last command may not show every command. So among places that are
    not certain those come first where the last command was neither of the two: a command that is
    not shown then leaves another sight than one that is. After that, the surest.
    """

    def rank(site: Comparison) -> tuple[bool, bool, float, int]:
        again = bool(set(site.prefix[-1:]) & set(site.actions))
        return site.sure < _CERTAIN, again, -round(site.sure, 2), site.h

    found = [site for prefix in _prefixes(subject) for site in _sites(subject, prefix)]
    found.sort(key=rank)
    chosen: list[Comparison] = []
    covered: set[int] = set()
    for site in found:
        if len(chosen) < _MOST and not set(site.actions) <= covered:
            covered |= set(site.actions)
            chosen.append(site)
    times = Counter(site.actions for site in chosen)
    for site in found:
        if times[site.actions] < _EACH and len(chosen) < _MOST and site not in chosen:
            times[site.actions] += 1
            chosen.append(site)
    return chosen


def _prefixes(subject: Subject) -> Iterator[tuple[int, ...]]:
    """Nothing, the way of the plan, one command again and again, and then another."""
    yield ()
    if len(subject.sim.starts) == 1:
        route = subject.route[1]
        yield from (tuple(route[:h]) for h in range(1, len(route)))
    most = subject.sim.horizon - 1
    actions = range(subject.sim.num_actions)
    for action, times in product(actions, _REPEATS):
        if times <= most:
            yield (action,) * times
    for (first, second), some, more in product(permutations(actions, 2), _REPEATS, _REPEATS):
        if some + more <= most:
            yield (first,) * some + (second,) * more


def _sites(subject: Subject, prefix: tuple[int, ...]) -> Iterator[Comparison]:
    undisturbed = (1.0 - subject.eta) ** len(prefix)
    if undisturbed < _FEWEST:
        return
    sim, h = subject.sim, len(prefix)
    where = _spread(subject, prefix)
    states = np.flatnonzero(where)
    after = sim.successor_at(h)[states]
    over = (after == states[:, None]).all(axis=1) & ~sim.reward_at(h)[states].any(axis=1)
    states, after = states[~over], after[~over]
    sure = undisturbed * np.einsum("s,sab->ab", where[states], after[:, :, None] == after[:, None])
    for a, b in combinations(range(sim.num_actions), 2):
        if sure[a, b] >= _FEWEST:
            yield Comparison(prefix, (a, b), min(float(sure[a, b]), 1.0))


def _spread(subject: Subject, prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """Where episodes are after these commands if all come out as asked, [S]."""
    sim = subject.sim
    states, mass = sim.starts.astype(np.intp), sim.start_probabilities
    for h, action in enumerate(prefix):
        states = sim.successor_at(h)[states, action]
    return np.bincount(states, mass, sim.num_states).astype(np.float64)
