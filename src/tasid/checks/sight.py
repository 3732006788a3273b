"""What do observations show: too little, what is needed, or the command itself?

Without knowing any state one can still drive into a corner: commands are repeated until the map
says that, wherever the episode started, two actions now make no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.checks.separability import Accuracy, separability
from tasid.checks.subject import LEVEL, Finding, Subject, fine, note, problem

_MISREAD = 0.1
"""Wrongly read transitions before a slip rate above η is held against the target."""
_UNREADABLE = 0.5
"""Of the accuracy that chance leaves open; with less, η cannot be read off."""
_MOST = 4
_EACH = 2
"""Places for one and the same pair."""
_REPEATS = (1, 2, 4, 8)
"""How often a command is repeated; the fewer, the surer that all came out as asked."""
_FEWEST, _CERTAIN = 0.5, 0.99


@dataclass(frozen=True)
class SlipRate:
    """How often what was seen did not look like what was commanded, and where that was looked at.

    Slips into another action with the same outcome do not count, misread transitions do.
    """

    rate: float
    low: float
    high: float
    transitions: int
    step: int


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


def leaks(subject: Subject) -> Iterator[Finding]:
    """Are actions with one and the same successor told apart by what is seen?

    If one is surely in a state where a and b lead to the same place, then after either of them the
    observation comes from that place except with probability η. So nobody can guess the command
    rightly with more than ½ + η/2; with probability p of being there, ½ + pη/2 + (1−p)/2.
    """
    pairs = equal_pairs(subject)
    if not pairs:
        yield note(
            "leak", "no two actions lead to the same place early on: a leak cannot be looked for"
        )
        return
    for number, site in enumerate(pairs):
        found = _told_apart(subject, site, 3_000_000 + 100_000 * number)
        most = 0.5 + site.sure * subject.eta / 2 + (1.0 - site.sure) / 2
        if found.p_value(most) < LEVEL / len(pairs):
            one, other = (subject.name(action) for action in site.actions)
            right = f"{found.rate:.0%} of {found.number} guesses right, {most:.0%} possible"
            yield problem(
                "leak",
                f"after {_told(subject, site)}, {one} and {other} lead to the same place on the "
                f"map, but what is seen tells which was commanded ({right}). Either the map is "
                "wrong there, or the observation shows the command itself; then inverse dynamics "
                "learns to read the command instead of what happened. Hide it with preprocess",
            )
            return
    yield fine("leak", "actions with the same successor cannot be told apart, as it should be")


def _told(subject: Subject, site: Comparison) -> str:
    if not site.prefix:
        return "the start"
    runs = [(name, len(list(group))) for name, group in groupby(site.prefix)]
    return ", ".join(f"{number} × {subject.name(action)}" for action, number in runs)


def slips(subject: Subject) -> tuple[SlipRate | None, Finding]:
    """η from a small sample: how often what is seen does not look like what was commanded."""
    for h, state in subject.sites():
        _, lowest = np.unique(subject.sim.successor_at(h)[state], return_index=True)
        actions = tuple(sorted(lowest.tolist()))
        if len(actions) > 1:
            before = tuple(subject.route[1][:h])
            return _slips_at(subject, Comparison(before, actions, (1.0 - subject.eta) ** h))
    return None, note("η", "no state early on the route has two outcomes: η cannot be estimated")


def _slips_at(subject: Subject, site: Comparison) -> tuple[SlipRate | None, Finding]:
    found = _told_apart(subject, site, 4_000_000)
    low, high = found.interval
    chance = 1.0 / len(site.actions)
    if (found.rate - chance) / (1.0 - chance) < _UNREADABLE:
        return None, note(
            "η",
            f"{found.number} transitions at step {site.h} do not suffice to tell "
            f"{len(site.actions)} outcomes apart ({found.rate:.0%} read rightly by a linear "
            "model): η cannot be estimated before learning",
        )
    rate = SlipRate(1.0 - found.rate, 1.0 - high, 1.0 - low, found.number, site.h)
    said = (
        f"about {rate.rate:.3f} of the outcomes at step {site.h} are not the commanded ones "
        f"(95 % interval {rate.low:.3f} … {rate.high:.3f}, misread ones included)"
    )
    wrong = Accuracy(found.number - found.right, found.number)
    allowed = 1.0 - site.sure * (1.0 - subject.eta) + _MISREAD
    if wrong.p_value(min(allowed, 1.0)) < LEVEL:
        return rate, problem("η", f"{said}, more than the η = {subject.eta:g} planned for")
    return rate, fine("η", f"{said}; planned for: {subject.eta:g}")


def _told_apart(subject: Subject, site: Comparison, first: int) -> Accuracy:
    """Go to the site, command one of its actions at random, and guess which by what was seen."""
    episodes = subject.episodes
    rng = np.random.default_rng([subject.seed, site.h, *site.actions])
    drawn = rng.permutation(np.arange(episodes) % len(site.actions))
    commands = np.empty((episodes, site.h + 1), dtype=np.int64)
    commands[:, :-1] = site.prefix
    commands[:, -1] = np.array(site.actions)[drawn]
    keep = (site.h, site.h + 1)
    played = subject.play(commands, first=first, keep=keep)
    return separability(played.seen[site.h], played.seen[site.h + 1], drawn)


def sight(subject: Subject) -> Iterator[Finding]:
    """Observations are finite and show something; noiseless ones show no more than the map has."""
    number, steps = min(subject.episodes, 64), min(subject.sim.horizon, 4)
    rng = np.random.default_rng([subject.seed, 5])
    commands = rng.integers(subject.sim.num_actions, size=(number, steps))
    played = subject.play(commands, first=5_000_000, keep=range(steps + 1))
    every: NDArray[Any] = np.concatenate([played.seen[h] for h in range(steps + 1)])
    if not np.isfinite(every).all():
        yield problem("observations", "some are not finite")
        return
    if (every == every[:1]).all():
        yield problem("observations", f"all {len(every)} seen are the same: they show nothing")
        return
    yield fine("observations", f"shape {every.shape[1:]} of {every.dtype}, finite, and they change")
    yield from _counted(subject, played.seen[0], played.seen[1])


def _counted(subject: Subject, first: NDArray[Any], second: NDArray[Any]) -> Iterator[Finding]:
    """Where looks repeat exactly there is no noise, and they can be counted."""
    looks = len({row.tobytes() for row in second})
    if len(subject.sim.starts) > 1 or (first != first[:1]).any() or looks > len(second) // 4:
        return
    known = len(set(subject.sim.successor_at(0)[subject.sim.start].tolist()))
    if looks > known:
        yield problem(
            "outcomes",
            f"after one step {looks} different observations were seen, though the start always "
            f"looks the same and has {known} outcome(s) on the map: the map lacks outcomes, or "
            "the observation shows more than the state (noise, the command, a clock)",
        )
    else:
        yield fine("outcomes", f"{looks} looks after one step, {known} outcome(s) on the map")


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
