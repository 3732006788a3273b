"""The tables of the lock experiment: ours beside the paper's, searches, the grid of n, costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tasid.experiments.lock.scores import (
    NAMES,
    Count,
    Result,
    evaluations,
    family,
    median_of,
)
from tasid.experiments.records import Records
from tasid.report.pages.content import Section, Table
from tasid.report.text.wording import count, duration

PAPER = "Liu, Misra, Dudík and Schapire, NeurIPS 2022"


def episodes_section(main: Sequence[Result]) -> Section:
    """Ours beside the paper's, and where they differ."""
    rows = tuple(
        (
            _named(one),
            str(one.horizon),
            _listed(one),
            shown(one.median),
            _best(one),
            ", ".join(map(shown, one.published or ())),
            shown(median_of(one.published)) if one.published else "",
        )
        for one in main
    )
    table = Table(
        "episodes",
        "Episodes in the target until solved, seed by seed; ∞: not within the budget; …: still at "
        "work. Best: the highest evaluation as a share of the robust value, lowest and highest "
        f"seed. Paper: the appendix table with the results of all random seeds of {PAPER}.",
        ("algorithm", "H", "here", "median", "best", "paper", "median"),
        rows,
    )
    return Section("Episodes needed", (), (), (table,), tuple(_differences(main)))


def _differences(main: Sequence[Result]) -> Iterator[str]:
    """Where ours and the paper's tell different stories."""
    for one in main:
        if one.published is None or one.unfinished:
            continue
        ours, published = one.median, median_of(one.published)
        name = f"{NAMES[family(one.algorithm)]} at H = {one.horizon}"
        if ours is None and published is not None:
            yield (
                f"{name}: the median seed does not solve it here (best evaluations {_best(one)} of "
                f"the robust value); in the paper after {shown(published)} episodes."
            )
        elif ours is not None and published is None:
            yield f"{name}: solved here after {shown(ours)} episodes (median), not in the paper."
        elif ours is not None and published is not None and not 0.5 <= ours / published <= 2.0:
            than = "fewer" if ours < published else "more"
            yield (
                f"{name}: {shown(ours)} episodes here, {shown(published)} in the paper "
                f"(medians): {than} by a factor of {max(ours / published, published / ours):.1f}."
            )


def searches_section(found: Sequence[Result], horizon: int) -> Section:
    """RND's coefficient and EPOpt's ε."""
    own = {one.algorithm: one for one in found if one.horizon == horizon}
    coefficients = [("0 (PPO)", "ppo"), ("100", "ppo+rnd-100"), ("500", "ppo+rnd")]
    rnd = [(text, own[name]) for text, name in coefficients if name in own]
    epopt = [
        (f"{NAMES[base]}, ε = {epsilon}", own[name])
        for base in ("ppo+dr", "ppo+rnd+dr")
        for epsilon, name in (
            *((e, f"{base}-epopt-{e}") for e in ("0.1", "0.2", "0.5")),
            ("1", base),
        )
        if name in own
    ]
    bonus = f"RND's bonus coefficient at H = {horizon}; the paper chose 500."
    share = f"EPOpt's ε at H = {horizon}; the paper chose 1, all episodes."
    tables = tuple(
        Table(name, caption, (what, "here", "median", "best"), tuple(map(_searched, rows)))
        for name, caption, what, rows in (
            ("rnd", bonus, "bonus", rnd),
            ("epopt", share, "pre-training", epopt),
        )
        if rows
    )
    words = "The searches that the paper mentions without their results, as tables."
    return Section("Searches", (words,), (), tables)


def _searched(row: tuple[str, Result]) -> tuple[str, ...]:
    name, one = row
    return name, _listed(one), shown(one.median), _best(one)


def grid_section(records: Records) -> Section:
    """All n of the paper's method, not only the smallest that solves."""
    ratios: dict[tuple[int, int], list[float]] = {}
    for one in records.series():
        if one.setting.startswith("tasid-paper-n") and evaluations(one):
            key = int(one.configuration["horizon"]), int(one.configuration["episodes"])
            last = evaluations(one)[-1][1] / float(one.facts["robust_value"])
            ratios.setdefault(key, []).append(last)
    rows = tuple(
        (
            f"H = {horizon}",
            count(n),
            f"{np.median(found):.3f}",
            ", ".join(f"{ratio:.3f}" for ratio in found),
        )
        for (horizon, n), found in sorted(ratios.items())
    )
    table = Table(
        "grid",
        "TASID by the paper's method: return as a share of the robust value, seed by seed. The "
        "smallest n whose median reaches 0.95 stands for its horizon above.",
        ("", "n", "median", "seeds"),
        rows,
    )
    return Section("The grid of n", (), (), (table,) if rows else ())


def cost_section(found: Sequence[Result]) -> Section:
    """How long it took."""
    rows = tuple(
        (
            _named(one),
            str(one.horizon),
            str(len(one.seeds)),
            duration(one.seconds),
            duration(one.undisturbed),
        )
        for one in found
    )
    total = duration(sum(one.seconds for one in found))
    undisturbed = duration(sum(one.undisturbed for one in found))
    table = Table(
        "cost",
        "Time on the clock summed over seeds, evaluations included, as measured beside other work "
        "on the same machine. Undisturbed: had every row of the records taken as long as the "
        "quickest tenth of its kind.",
        ("algorithm", "H", "seeds", "time", "undisturbed"),
        rows,
    )
    words = (
        f"All in all {total} of one processor's time, about {undisturbed} of it needed on a "
        "machine that does nothing else. The paper reports, for one run at H = 40 on "
        "a V100: TASID 2.5 hours, PPO+DR 14 hours, PPO+RND+DR 31 hours."
    )
    return Section("What it cost", (words,), (), (table,) if rows else ())


def _named(one: Result) -> str:
    base = family(one.algorithm)
    shown = NAMES.get(base, base)
    rest = one.algorithm.removeprefix(base)
    if rest.startswith("-n"):
        return f"{shown}, n = {count(int(rest[2:]))}"
    return shown + rest.replace("-epopt-", ", ε = ").replace("-", ", bonus ")


def _listed(one: Result) -> str:
    said = []
    for series, episodes in zip(one.series, one.episodes, strict=True):
        going = series.ending is None and episodes is None
        said.append("…" if going else shown(episodes))
    return ", ".join(said)


def _best(one: Result) -> str:
    known = [value for value in one.best if value == value]
    if not known:
        return "–"
    low, high = min(known), max(known)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} … {high:.2f}"


def shown(episodes: Count) -> str:
    """A number of episodes, or ∞ for never."""
    return "∞" if episodes is None else count(episodes)


def json_row(one: Result) -> dict[str, Any]:
    """One row of the table, ready for JSON."""
    searched = one.algorithm not in NAMES and "tasid-paper" not in one.algorithm
    return {
        "algorithm": one.algorithm,
        "horizon": one.horizon,
        "seeds": list(one.seeds),
        "episodes": list(one.episodes),
        "median": one.median,
        "best_ratio": [None if value != value else round(value, 4) for value in one.best],
        "unfinished": one.unfinished,
        "paper_episodes": None if searched or not one.published else list(one.published),
        "seconds": round(one.seconds, 1),
    }
