"""What the records of the lock's experiments show: the paper's Figure 2 and its tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray

import tasid
from reproduction.baselines import BaselineConfig
from reproduction.lock import SIZES, jobs, reading_jobs, run
from reproduction.pages import LOOKS, Line, Page, chart, editions, logarithmic, spread
from reproduction.records import Experiment, Record
from tasid.report.figures import PALETTE, style
from tasid.report.page import Section, Table, number

Count = int | None
"""Episodes until solved; None if never."""

NAMES = {
    "tasid-belief": "TASID, belief method",
    "tasid-paper": "TASID, paper's method",
    "ppo": "PPO",
    "ppo-rnd": "PPO+RND",
    "ppo-dr": "PPO+DR",
    "ppo-rnd-dr": "PPO+RND+DR",
}
NEVER = (None,) * 5
PUBLISHED: dict[tuple[str, int], tuple[Count, ...]] = {
    ("tasid-paper", 5): (10_000, 9_000, 12_000, 10_000, 11_000),
    ("tasid-paper", 10): (10_000, 11_000, None, 11_000, None),
    ("tasid-paper", 20): (50_000, 48_000, 48_000, 48_000, 49_000),
    ("tasid-paper", 40): (393_000, 391_000, 391_000, 393_000, 395_000),
    ("ppo", 5): (8_000, 5_000, 6_000, 7_000, 5_000),
    **{("ppo", horizon): NEVER for horizon in (10, 20, 40)},
    ("ppo-rnd", 5): (7_000, 7_000, 8_000, 6_000, 5_000),
    ("ppo-rnd", 10): (14_000, 47_000, 10_000, 16_000, 14_000),
    ("ppo-rnd", 20): (121_000, 120_000, 79_000, 79_000, 90_000),
    ("ppo-rnd", 40): NEVER,
    ("ppo-dr", 5): (2_000, 6_000, 6_000, 7_000, 1_000),
    **{("ppo-dr", horizon): NEVER for horizon in (10, 20, 40)},
    ("ppo-rnd-dr", 5): (6_000, 2_000, 1_000, 7_000, 3_000),
    ("ppo-rnd-dr", 10): (62_000, 90_000, None, None, 88_000),
    **{("ppo-rnd-dr", horizon): NEVER for horizon in (20, 40)},
}
"""Episodes of each of the paper's five seeds: its appendix table "Results for all random seeds to
generate Figure 2(b)"."""
PAPER_N = {5: 10_000, 10: 10_000, 20: 50_000, 40: 400_000}
"""The paper's n for each horizon; its Figure 2 (right) shows n = 400 000 at H = 40."""


@dataclass(frozen=True)
class Result:
    """One algorithm at one horizon."""

    algorithm: str
    """As in `NAMES`, possibly followed by n or a variant."""
    horizon: int
    records: tuple[Record, ...]

    @property
    def episodes(self) -> tuple[Count, ...]:
        """Until solved, seed by seed."""
        return tuple(
            int(record.result["episodes"]) if record.result["solved"] else None
            for record in self.records
        )

    @property
    def best(self) -> list[float]:
        """The highest evaluation of each seed over the robust value."""
        return [
            max(mean for _, mean in evaluations(record)) / float(record.result["robust_value"])
            for record in self.records
        ]

    @property
    def median(self) -> Count:
        """Over seeds."""
        return median_of(self.episodes)

    @property
    def family(self) -> str:
        """The key of `NAMES` that the algorithm belongs to."""
        matches = [name for name in NAMES if f"{self.algorithm}-".startswith(f"{name}-")]
        return max(matches, key=len, default=self.algorithm)

    @property
    def label(self) -> str:
        """For tables."""
        rest = self.algorithm.removeprefix(self.family)
        name = NAMES.get(self.family, self.family)
        if rest.startswith("-n"):
            return f"{name}, n = {number(int(rest[2:]))}"
        rest = rest.replace("-epopt-", ", ε = ")
        return name + re.sub(r"^-(\d+)$", r", bonus \1", rest).replace("-", " ")


def median_of(episodes: Sequence[Count]) -> Count:
    """The median, where never is more than any number."""
    middle = median(math.inf if count is None else count for count in episodes)
    return None if math.isinf(middle) else int(middle)


def evaluations(record: Record) -> list[tuple[int, float]]:
    """Episodes in the target and mean return of every evaluation there."""
    return [
        (int(row["episodes"]), float(row["mean"]))
        for row in record.rows
        if row["stage"] == "target" and row["mean"] is not None
    ]


def results(records: Sequence[Record]) -> list[Result]:
    """One per algorithm and horizon, in the order of `NAMES`."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        algorithm, _, horizon = record.setting.rpartition("-H")
        groups.setdefault((algorithm, int(horizon)), []).append(record)
    found = [Result(*key, tuple(members)) for key, members in groups.items()]
    order = list(NAMES)
    return sorted(found, key=lambda r: (order.index(r.family), r.horizon, _last_number(r)))


def _last_number(result: Result) -> float:
    match = re.search(r"[\d.]+$", result.algorithm)
    return float(match[0]) if match else 0.0


def main_results(found: Sequence[Result]) -> list[Result]:
    """Those of Figure 2: of the paper's method, the smallest n whose median seed solves."""
    kept = [result for result in found if result.algorithm in NAMES]
    for horizon in sorted({result.horizon for result in found}):
        grid = [r for r in found if r.family == "tasid-paper" and r.horizon == horizon]
        solving = [result for result in grid if result.median is not None]
        kept += (solving or grid[-1:])[:1]
    return sorted(kept, key=lambda r: (list(NAMES).index(r.family), r.horizon))


def page(size: str, records: list[Record]) -> Page:
    """Figure 2, the table of episodes, the searches and the grid of n."""
    found, shown = results(records), Page()
    main, cap = main_results(found), BaselineConfig(**SIZES[size].baseline).target_episodes
    ours = {(result.family, result.horizon): result.median for result in main}
    theirs = {key: median_of(episodes) for key, episodes in PUBLISHED.items()}
    horizons = sorted({result.horizon for result in main})
    stairs = {"here": (ours, horizons, cap), "in the paper": (theirs, (5, 10, 20, 40), 500_000)}
    caption = "The latent MDP: (layer, type), here with three steps, and rewards other than 0."
    figures = [shown.draw("lock", lock_figure(), caption)]
    figures += [
        shown.draw(
            f"solved-{where.split()[-1]}",
            solved_figure(f"solved, {where}", medians, at, NAMES, limit),
            "The longest horizon that the median seed solves within a number of episodes.",
        )
        for where, (medians, at, limit) in stairs.items()
    ]
    figures += [
        shown.draw(
            f"rewards-H{horizon}",
            curve_figure(horizon, found, cap),
            "Mean return, with a standard deviation over seeds.",
        )
        for horizon in reversed(horizons)
    ]
    table = Table(
        ("algorithm", "H", "here", "median", "best / robust", "paper", "median", "tasid"),
        [_table_row(result) for result in main],
        "Episodes in the target until solved, seed by seed; ∞: not within the budget. Best: "
        "highest evaluation, median seed (lowest … highest). Paper: its appendix table of all "
        "random seeds. Last column: the version of tasid that made the records.",
    )
    shown.sections = [
        Section("Which method solves the lock", paragraphs=FIGURE_TEXT, figures=figures),
        Section("Episodes until solved", paragraphs=list(_differences(main)), tables=[table]),
        _searches(found, SIZES[size].search_horizon),
        _grid(found),
        Section("How to read it", paragraphs=REMARKS),
    ]
    shown.table = [_json_row(result) for result in found]
    return shown


FIGURE_TEXT = (
    "Solved means: an evaluation reaches 95 % of the exact value, in that very target, of the "
    "robust plan for an oracle that sees the true state.",
    "Curves show the mean return of training episodes; after the end of training, that of the "
    "final policy. Training episodes of the paper's method end with the random action of their "
    "step and are completed by uniformly random actions here, so that its curve is low until "
    "training ends.",
)
REMARKS = (
    "Baselines are evaluated every 1 000 episodes by their most likely action and end at the first "
    "evaluation that solves the lock, so that chance helps a baseline just below the threshold.",
    "PPO has the paper's hyper-parameters: batches of 100 episodes, 4 passes, minibatches of 32, "
    "clip 0.1, discount 0.999, entropy 0.001, [56, 56] networks, Adam at 3e-4, gradient norm 0.25. "
    "The paper does not say what the 32 count and how advantages are estimated. Here a minibatch "
    "has 32 transitions and GAE has λ = 0.95; for PPO+RND without pre-training it has the "
    "transitions of 32 episodes and λ = 0.5, which did best on locks that are in no table. The "
    "experiment readings runs both readings.",
    "RND's bonus is 500 times the mean squared error over 56 outputs on standardised observations; "
    "the paper states neither the outputs nor the norm.",
    "Domain randomisation knows the map, η and the emission but for its permutation; every 100 "
    "episodes of pre-training have a new permutation and a new perturbation.",
)


def _counts(episodes: Sequence[Count]) -> str:
    return ", ".join("∞" if count is None else number(count) for count in episodes)


def _table_row(result: Result) -> tuple[str, ...]:
    published = PUBLISHED.get((result.family, result.horizon), ())
    return (
        result.label,
        str(result.horizon),
        _counts(result.episodes),
        _counts([result.median]),
        spread(result.best),
        _counts(published),
        _counts([median_of(published)]) if published else "",
        editions(result.records),
    )


def _differences(main: Sequence[Result]) -> Iterator[str]:
    """Where our medians and the paper's differ."""
    for result in main:
        published = PUBLISHED.get((result.family, result.horizon))
        if published is None:
            continue
        ours, theirs = result.median, median_of(published)
        name = f"{result.label} at H = {result.horizon}"
        if (ours is None) != (theirs is None):
            yield f"{name}: {_counts([ours])} episodes here, {_counts([theirs])} in the paper."
        elif ours is not None and theirs is not None and not 0.5 <= ours / theirs <= 2.0:
            factor = max(ours / theirs, theirs / ours)
            yield (
                f"{name}: {number(ours)} episodes here, {number(theirs)} in the paper, "
                f"{'fewer' if ours < theirs else 'more'} by a factor of {factor:.1f}."
            )


def _searches(found: Sequence[Result], horizon: int) -> Section:
    """RND's coefficient and EPOpt's ε."""
    at = [result for result in found if result.horizon == horizon]
    rnd = [r for r in at if re.fullmatch(r"ppo|ppo-rnd(-\d+)?", r.algorithm)]
    epopt = [r for r in at if re.fullmatch(r"ppo(-rnd)?-dr(-epopt-[\d.]+)?", r.algorithm)]
    header = ("setting", "episodes until solved", "median", "best")
    captions = (
        f"RND's bonus coefficient at H = {horizon} (PPO: 0; PPO+RND: 500, the paper's choice).",
        f"EPOpt's ε at H = {horizon} (without ε: 1, all episodes, the paper's choice).",
    )
    tables = [
        Table(header, [_table_row(r)[:1] + _table_row(r)[2:5] for r in rows], caption)
        for caption, rows in zip(captions, (rnd, epopt), strict=True)
        if rows
    ]
    text = []
    for base in ("ppo-dr", "ppo-rnd-dr"):
        solved = {
            _epsilon(r): sum(count is not None for count in r.episodes)
            for r in epopt
            if r.family == base
        }
        better = [e for e, seeds in solved.items() if e < 1 and seeds > solved.get(1.0, seeds)]
        if better:
            text.append(
                f"This contradicts the paper's choice of ε = 1: of {len(epopt[0].records)} seeds "
                f"{NAMES[base]} solves {solved[1.0]} with ε = 1 and "
                + ", ".join(f"{solved[e]} with ε = {e:g}" for e in better)
                + ". So few seeds cannot tell the two apart."
            )
    return Section("Searches", paragraphs=text, tables=tables)


def _epsilon(result: Result) -> float:
    return float(result.algorithm.partition("-epopt-")[2] or 1.0)


def _grid(found: Sequence[Result]) -> Section:
    """All n of the paper's method."""
    rows = []
    for result in found:
        if result.family == "tasid-paper":
            ratios = [
                evaluations(record)[-1][1] / float(record.result["robust_value"])
                for record in result.records
            ]
            each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            rows.append((str(result.horizon), result.label, f"{np.median(ratios):.3f}", each))
    caption = (
        "Return over robust value. The smallest n whose median reaches 0.95 counts above. With "
        "n = 10 000 at H = 10 the experiment readings has forty more seeds."
    )
    table = Table(("H", "", "median", "seeds"), rows, caption)
    return Section("The grid of n", tables=[table] if rows else [])


def _json_row(result: Result) -> dict[str, Any]:
    published = PUBLISHED.get((result.family, result.horizon))
    plain = result.algorithm in NAMES or result.family == "tasid-paper"
    return {
        "algorithm": result.algorithm,
        "horizon": result.horizon,
        "seeds": [record.seed for record in result.records],
        "episodes": list(result.episodes),
        "median": result.median,
        "best_ratio": [round(ratio, 4) for ratio in result.best],
        "paper_episodes": list(published) if published and plain else None,
    }


def curve(record: Record, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at each number of episodes: of training episodes, then of the final policy."""
    rows = [row for row in record.rows if row["stage"] == "target"]
    training = [row for row in rows if row["training"] is not None]
    if not training:
        return np.full(grid.shape, np.nan)
    place = np.searchsorted([row["episodes"] for row in training], grid)
    final = evaluations(record)[-1][1] if evaluations(record) else np.nan
    return np.array([*(row["training"] for row in training), final], np.float64)[place]


def curve_figure(horizon: int, found: Sequence[Result], cap: int) -> Any:
    """Figure 2 (right): returns against episodes; of the paper's method, at the paper's n."""
    grid = np.geomspace(10, cap, 300)
    at = [result for result in found if result.horizon == horizon]
    paper = [result for result in at if result.family == "tasid-paper"]
    wanted = [r for r in paper if r.algorithm == f"tasid-paper-n{PAPER_N.get(horizon)}"]
    lines = []
    for result in [*(r for r in at if r.algorithm in NAMES), *(wanted or paper[-1:])]:
        curves = [curve(record, grid) for record in result.records]
        mean, deviation = np.mean(curves, axis=0), np.std(curves, axis=0)
        lines.append(Line(result.family, result.label, grid, mean, deviation))
    return chart(
        lines,
        xlabel="episodes in the target",
        ylabel="return",
        title=f"H = {horizon}",
        log=True,
        reference=("robust value", np.mean([r.result["robust_value"] for r in at[0].records])),
    )


@style()
def solved_figure(
    title: str,
    medians: Mapping[tuple[str, int], int | None],
    horizons: Sequence[int],
    names: Mapping[str, str],
    cap: int,
) -> Drawing:
    """Figure 2 (centre): the longest horizon that the median seed solves within some episodes.

    A stair rises where a longer horizon is solved; a longer horizon that is solved earlier makes
    the shorter one's step unnecessary.
    """
    drawing = Drawing(figsize=(6.4, 3.2), layout="constrained")
    axes = drawing.add_subplot(xlabel="episodes in the target")
    axes.set_title(title, fontsize=10, loc="left")
    for place, (algorithm, label) in enumerate(names.items()):
        shift = 0.08 * (place - (len(names) - 1) / 2)
        points = sorted(
            (episodes, row - shift)
            for row, horizon in enumerate(horizons)
            if (episodes := medians.get((algorithm, horizon))) is not None
        )
        colour, dashes = LOOKS[algorithm]
        x = [episodes for episodes, _ in points]
        y = list(np.maximum.accumulate([row for _, row in points])) if points else []
        axes.plot(x, [row for _, row in points], "o", color=colour, markersize=4)
        stair = [*x, max(cap, *x)] if x else []
        axes.step(stair, [*y, *y[-1:]], dashes, where="post", color=colour, label=label)
    logarithmic(axes)
    axes.set_xlim(10, 1.2 * cap)
    axes.set_yticks(range(len(horizons)), [f"H = {horizon}" for horizon in horizons])
    axes.set_ylim(-0.6, len(horizons) - 0.4)
    axes.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing


@style()
def lock_figure() -> Drawing:
    """Figure 2 (left): the latent MDP, as a lock of three steps that stands for the others.

    An arrow's width is the share of actions that lead there; numbers are rewards.
    """
    simulator = tasid.make("combination-lock", horizon=3).simulator
    drawing = Drawing(figsize=(6.4, 2.9), layout="constrained")
    axes = drawing.add_subplot()
    axes.axis("off")
    places = {s: (layer, -kind) for s, (layer, kind) in enumerate(simulator.states)}
    reachable = {int(simulator.start)}
    for s, (layer, kind) in enumerate(simulator.states):
        if s not in reachable or layer == 3:
            continue
        successors, counts = np.unique(simulator.successor[s], return_counts=True)
        reachable |= set(successors.tolist())
        for successor, count in zip(successors.tolist(), counts, strict=True):
            x, y = places[successor]
            reward = simulator.reward_at(layer)[s][simulator.successor[s] == successor][0]
            bend = "arc3,rad=-0.15" if kind > -y else "arc3,rad=0"
            arrow = {
                "arrowstyle": "-|>",
                "linewidth": 0.8 + 2.4 * count / simulator.num_actions,
                "color": PALETTE["robust" if kind == -y and kind < 3 else "muted"],
                "connectionstyle": bend,
                "shrinkA": 11,
                "shrinkB": 11,
            }
            axes.annotate("", (x, y), places[s], arrowprops=arrow)
            if reward:
                near = 0.72 * np.array([x, y]) + 0.28 * np.array(places[s]) + (0.0, 0.1)
                text = f"{reward:.3g}".replace("-", "−")
                axes.text(
                    near[0], near[1], text, ha="center", fontsize=8.5, color=PALETTE["nominal"]
                )
    for s in reachable:
        layer, kind = simulator.states[s]
        axes.plot(*places[s], "o", markersize=20, color=PALETTE["line"])
        axes.text(*places[s], f"{layer},{kind}", ha="center", va="center", fontsize=8.5)
    axes.set_xlim(-0.3, 3.3)
    axes.set_ylim(-3.4, -0.6)
    return drawing


def reading_page(size: str, records: list[Record]) -> Page:
    """One table for each question."""
    found = results(records)
    kept = r"passes-transitions|\w+-kept"
    groups = {
        "Updates per batch: 4 passes, or 4 minibatches of one pass": (
            r"ppo(-rnd)?-(passes|minibatches)-\w+",
            "The lock's experiment uses four passes. At H = 5 PPO then needs about as many "
            "episodes as in the paper; with four minibatches of transitions it needs many times "
            "more, while PPO+RND comes nearer to the paper's count.",
        ),
        "RND between pre-training and fine-tuning: reset (passes-transitions), or kept": (
            rf"ppo-rnd-dr-({kept})",
            "The lock's experiment resets RND's networks and all optimisers.",
        ),
        "PPO+RND and PPO+RND+DR at the same settings": (
            r"ppo-rnd(-dr)?-passes-\w+",
            "In the lock's experiment minibatches are of transitions with pre-training and of "
            "episodes without, so that its two series differ in more than pre-training.",
        ),
        "Baselines that train to the end": (r".*-to-the-end", _ends(found)),
        "The paper's method with n = 10 000 at H = 10": (
            r"tasid-paper-n\d+",
            "The paper solves three of five with this n, and its count follows from that. Five "
            "seeds are too few to say whether the median lock is solved.",
        ),
    }
    columns = ("setting", "H", "episodes until solved", "median", "paper")
    columns += ("best / robust", "last / robust")
    sections = []
    for title, (pattern, text) in groups.items():
        rows = [_reading_row(r) for r in found if re.fullmatch(pattern, r.algorithm)]
        if rows:
            sections.append(Section(title, paragraphs=[text], tables=[Table(columns, rows)]))
    return Page(sections, table=[_json_row(result) for result in found])


def _ends(found: Sequence[Result]) -> str:
    """Returns after 500 000 episodes: does a baseline beat the robust policy?"""
    text = (
        "The paper says that no baseline converges to a policy clearly better than the robust one. "
        "Mean of the last hundred evaluations over the robust value (the optimum over it): "
    )
    shares = [
        f"{NAMES[result.family]} at H = {result.horizon} {late:.3f} ({most:.3f})"
        for result in found
        if result.algorithm.endswith("-to-the-end")
        for record in result.records
        for value in [record.result["robust_value"]]
        for late in [np.mean([mean for _, mean in evaluations(record)[-100:]]) / value]
        for most in [record.result["optimal_value"] / value]
    ]
    return text + ", ".join(shares) + "."


def _reading_row(result: Result) -> tuple[str, ...]:
    last = [r.result["last"] / r.result["robust_value"] for r in result.records]
    solved = sum(count is not None for count in result.episodes)
    many = f"{solved} of {len(result.episodes)} seeds solve"
    counts = many if len(result.episodes) > 5 else _counts(result.episodes)
    head = (result.label, str(result.horizon), counts)
    published = PUBLISHED.get((result.family, result.horizon))
    medians = [result.median, *([median_of(published)] if published else [])]
    shown = [_counts([count]) for count in medians] + [""] * (2 - len(medians))
    return (*head, *shown, spread(result.best), spread(last))


EXPERIMENT = Experiment(
    "combination-lock", "Which method solves the combination lock, and how soon", jobs, run, page
)
READINGS = Experiment(
    "readings", "What the paper leaves open about its baselines", reading_jobs, run, reading_page
)
