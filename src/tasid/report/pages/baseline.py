"""The page of a baseline's run: what it earned, and its reward curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tasid.files import ArtifactError, write_bytes_atomically
from tasid.report.figures.drawing import LIGHT, axes_inside, blank, house_style
from tasid.report.figures.pictures import WIDE
from tasid.report.pages.content import Content, Panel, Plate, Section, Table, render, twin_panel
from tasid.report.pages.template import PAGE_NAME
from tasid.report.text.command import rerun_command
from tasid.report.text.wording import count, duration, episodes_of, flat, number, percent
from tasid.runs.record import Run

_STAGES = {"source": ("relatives of the target", "nominal"), "target": ("the target", "learned")}
_OF_PARTS = {"rnd_coefficient": "+rnd", "source_episodes": "+dr", "epopt_epsilon": "+dr"}
"""Settings that only algorithms with this part go by."""
_CAPTION = (
    "The mean return of training episodes, which draw actions at random; "
    "what is scored takes the likeliest ones."
)


def is_baseline(folder: str | Path) -> bool:
    """Does this folder hold a run of a baseline?"""
    return bool(Run(folder).asked().get("algorithm", "tasid") != "tasid")


def build_baseline_report(folder: str | Path) -> Path:
    """Write `report.html` into a finished run's folder, from its recorded files alone."""
    run = Run(folder)
    asked, figures, rows = run.asked(), run.evaluation().metadata, run.training()
    try:
        content = _content(asked, figures, rows)
        with house_style():
            page = render(content, kind="a run", made_from="the files of this run")
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{run.folder}: not the files of a baseline's run ({error!r})"
        ) from None
    return write_bytes_atomically(Path(folder) / PAGE_NAME, page.encode(errors="replace"))


def _content(
    asked: Mapping[str, Any], figures: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> Content:
    name, earned = str(asked["algorithm"]).upper(), float(figures["return_mean"])
    value, ratio = figures.get("robust_value"), figures.get("ratio")
    against = "What a robust plan earns here is not known."
    if value is not None:
        blind, skill = number(figures["blind_value"]), percent(figures["skill"])
        against = (
            f"The robust plan with the latent state in view earns {number(value)}, the best blind "
            f"policy {blind}: skill {skill}."
        )
    share = "" if ratio is None else f", {percent(ratio)} of what a robust plan earns"
    before = int(figures["source_episodes"])
    spent = f"{episodes_of(figures['episodes'])} in the target"
    if before:
        spent += f" after {count(before)} in relatives of it"
    tried, (low, high) = episodes_of(figures["evaluation_episodes"]), figures["return_ci95"]
    interval = "" if low is None else f", 95 % interval {number(low)} … {number(high)}"
    return Content(
        title=f"{name} on {asked['environment']['name']}",
        headline=f"It earns {number(earned)}{share}.",
        state=f"Mean of {tried} after learning{interval}. {against}",
        sections=(
            Section(
                "How it learned",
                (f"It learned from {spent}, in {duration(figures['seconds'])}.",),
                (Plate((_curve(rows, value),), _CAPTION),) if rows else (),
            ),
            Section("What it is", (), (), (_settings(asked),)),
        ),
        command=rerun_command(asked) or "",
        note="Everything is drawn from the seed: the same versions on the same machine repeat it.",
        versions=(str(asked["versions"]["tasid"]),),
    )


def _curve(rows: Sequence[Mapping[str, Any]], value: float | None) -> Panel:
    def draw(width: float) -> Figure:
        columns = 3 if width >= WIDE else 1
        figure = blank(width, 300.0)
        axes = axes_inside(figure, left=56, right=14, top=30 + 54 / columns, bottom=44)
        for stage, (label, colour) in _STAGES.items():
            here = [row for row in rows if row["stage"] == stage]
            x = [float(row["episodes"]) for row in here]
            y = [float(row["training"]) for row in here]
            if here:
                marker = "o" if len(here) < 30 else None
                axes.plot(x, y, color=LIGHT[colour], label=f"in {label}", marker=marker)
        if value is not None:
            axes.axhline(value, color=LIGHT["robust"], linewidth=1.2, label="robust plan, latent")
        axes.set_xlabel("episodes of the stage")
        axes.set_ylabel("mean return")
        axes.set_xlim(left=0)
        axes.grid(axis="y")
        figure.legend(loc="upper left", ncols=columns, columnspacing=1.6, borderaxespad=0.2)
        return figure

    last = rows[-1]
    seen = f"After {episodes_of(last['episodes'])} it is {number(last['training'])}."
    title = "Mean return against training episodes"
    return twin_panel("curve", title, seen, draw)


def _settings(asked: Mapping[str, Any]) -> Table:
    """The environment and hyper-parameters that play a role, those of parts as part.name."""
    algorithm, baseline = str(asked["algorithm"]), asked["baseline"]
    idle = {name for name, part in _OF_PARTS.items() if part not in algorithm}
    if not baseline.get("evaluation_episodes"):
        idle |= {"evaluation_episodes", "every"}
    baseline = {name: value for name, value in baseline.items() if name not in idle}
    known = flat({"environment": asked["environment"], **baseline})
    rows = tuple((key, str(value)) for key, value in known if value is not None)
    return Table("settings", "Everything that decides the result beside the seed.", ("", ""), rows)
