"""What the page of the lock experiment says, from its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasid.experiments.lock.figures import curves_figure, lock_picture, solved_figure
from tasid.experiments.lock.jobs import SIZES, jobs
from tasid.experiments.lock.scores import (
    NAMES,
    PUBLISHED,
    Count,
    Result,
    all_results,
    family,
    median_of,
    results,
)
from tasid.experiments.lock.tables import (
    cost_section,
    episodes_section,
    grid_section,
    json_row,
    searches_section,
    shown,
)
from tasid.experiments.records import Records, versions_of
from tasid.report.pages.content import Content, Panel, Plate, Section
from tasid.report.text.wording import count, seeds_of

_NOTES = Path(__file__).with_name("notes.txt")
"""What solved means and curves show; then how to read the page, remark by remark."""


def content(records: Records) -> Content:
    """The whole page."""
    size = str(records.description()["size"])
    every, few = SIZES[size].every, ", ".join(map(str, SIZES[size].belief_episodes))
    notes = _NOTES.read_text("utf-8").strip().format(every=every, few=few).split("\n\n")
    curves, *remarks = (note.replace("\n", " ") for note in notes)
    everything = list(records.series())
    found = results(everything)
    main = [one for one in found if one.algorithm in NAMES or "tasid-paper" in one.algorithm]
    cap = SIZES[size].target_episodes
    planned = sum(len(job.seeds) for job in jobs(size))
    finished = sum(one.ending is not None for one in everything)
    return Content(
        title="The combination lock",
        headline=_headline(main, complete=finished >= planned),
        state=_state(size, finished, planned),
        sections=(
            _figures(main, cap, curves),
            episodes_section(main),
            searches_section(found, SIZES[size].search_horizon),
            grid_section(records),
            cost_section(all_results(everything)),
            Section("How to read it", points=tuple(remarks)),
        ),
        command=f"tasid reproduce combination-lock --size {size} --out FOLDER",
        table=[json_row(one) for one in found],
        versions=versions_of(everything),
    )


def _headline(main: Sequence[Result], *, complete: bool) -> str:
    """How far everybody gets."""
    reach: dict[int, list[str]] = {}
    for name, named in NAMES.items():
        own = [one for one in main if family(one.algorithm) == name]
        solved = [one.horizon for one in own if one.median is not None]
        if solved or (own and not any(one.unfinished for one in own)):
            reach.setdefault(max(solved, default=0), []).append(named.replace(", ", " by the "))
    if not reach:
        return "Nothing is solved yet."
    parts = [
        f"{_enumerated(names)} up to H\u00a0=\u00a0{horizon}"
        if horizon
        else f"{_enumerated(names)} none of them"
        for horizon, names in sorted(reach.items(), reverse=True)
    ]
    so_far = "The median seed solves" if complete else "So far, the median seed solves"
    return f"{so_far} the lock with {'; '.join(parts)}."


def _enumerated(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _state(size: str, finished: int, planned: int) -> str:
    what = SIZES[size]
    whole = (
        f"All {planned} series are complete."
        if finished >= planned
        else f"{finished} of {planned} series are complete; the others count as far as they got."
    )
    return (
        f"Size {size}: {seeds_of(len(what.seeds), 'a random lock')}, |A| = 10, η = 0.1; "
        f"baselines have at most {count(what.target_episodes)} episodes in the target. {whole}"
    )


def _figures(main: Sequence[Result], cap: int, words: str) -> Section:
    horizons = sorted({one.horizon for one in main})
    ours = {(family(one.algorithm), one.horizon): one.median for one in main}
    theirs = {key: median_of(episodes) for key, episodes in PUBLISHED.items()}
    panels = [
        Panel(
            "lock",
            "The lock's latent states",
            "Three types of states in layers 0 to H. From type 1 one action stays and all others "
            "lead to 2; from 2 one stays, one goes back to 1, all others fall to 3 for ever.",
            lock_picture,
        ),
        Panel(
            "solved",
            "Horizon solved against episodes, here",
            _solved_words(ours),
            lambda: solved_figure("solved, here", ours, horizons, cap),
        ),
        Panel(
            "solved-paper",
            "Horizon solved against episodes, in the paper",
            _solved_words(theirs),
            lambda: solved_figure("solved, in the paper", theirs, (5, 10, 20, 40), 500_000),
        ),
    ]
    curves = [_curve_panel(main, horizon, cap) for horizon in reversed(horizons)]
    first = Plate(
        (*panels, *curves[:1]),
        "As Figure 2 of the paper: the latent MDP; the longest horizon that the median seed solves "
        "within a number of episodes, here and by the paper's table (dots: the medians); and the "
        "reward curve of the longest horizon.",
    )
    plates = [first]
    if curves[1:]:
        plates.append(Plate(tuple(reversed(curves[1:])), "Reward curves of the other horizons."))
    return Section("Who solves what", (words,), tuple(plates))


def _curve_panel(main: Sequence[Result], horizon: int, cap: int) -> Panel:
    own = [one for one in main if one.horizon == horizon]
    return Panel(
        f"rewards-H{horizon}",
        f"Reward curves for H = {horizon}",
        f"Return of training episodes against their number, for {len(own)} algorithms.",
        lambda: curves_figure(horizon, own, cap),
    )


def _solved_words(medians: dict[tuple[str, int], Count]) -> str:
    said = [
        f"{NAMES[name]} at H = {horizon}: {shown(episodes)}"
        for (name, horizon), episodes in medians.items()
    ]
    return f"Median episodes until solved. {'; '.join(said)}."
