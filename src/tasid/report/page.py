"""Self-contained HTML pages: of a run, of runs side by side, and of anything else in sections.

A page holds its style, figures and scripts; it fetches nothing.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure as MatplotlibFigure

import tasid
from tasid.planning import robust_dp
from tasid.policies import load
from tasid.policies.evaluate import FIGURES
from tasid.policy import Policy
from tasid.report.figures import REFERENCES, is_number, line_chart, svg
from tasid.report.maps import action_name, graph_figure, means_figure, plan_figure, state_name
from tasid.report.watch import watch
from tasid.simulator import AbstractSimulator
from tasid.storage import ArtifactError, read_artifact, read_json, write_bytes_atomically
from tasid.targets.registry import ENVIRONMENTS, make

PAGE = "report.html"
MOST_FRAMES = 48
"""Of the episode on a run's page."""
QUANTITIES = {
    "mean_return": "mean return of the batch",
    "estimated_regret": "estimated regret per episode",
    "validation_loss": "validation loss",
}
"""Fields of a learner's events that are drawn."""
UNSHOWN = "total_episodes seconds_playing estimated_regret_error likelihood_gain_error".split()
"""Fields of events that are not in the table."""
NOTES = {
    **{key: note for key, (_, note) in FIGURES.items()},
    "episodes": "spent on learning; evaluation not included",
    "seconds": "of learning, compilation included",
}
"""Numbers at the top of a run's page, and what they mean."""


@dataclass(frozen=True)
class Figure:
    """A drawing and its caption."""

    svg: str
    """One `<svg>` element, as `tasid.report.figures.svg` makes it."""
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows; numbers are formatted by `number`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what follows it, in the order of the fields."""

    heading: str
    warnings: Sequence[str] = ()
    paragraphs: Sequence[str] = ()
    numbers: Sequence[tuple[str, Any, str]] = ()
    """Results that stand out: name, value, note."""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    code: str = ""
    player: Sequence[bytes] = ()
    """PNG files of an episode's frames (`WatchedEpisode.player`)."""


def render_page(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """One HTML page. All texts are escaped."""
    environment = Environment(
        loader=PackageLoader("tasid.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    count, shown = 0, []
    for section in sections:
        figures = []
        for figure in section.figures:
            count += 1
            # Elements of a page need distinct ids; matplotlib's repeat from figure to figure.
            unique = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>f{count}-", figure.svg)
            label = escape(figure.caption or section.heading)
            drawing = unique.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
            figures.append(replace(figure, svg=Markup(drawing)))
        shown.append(replace(section, figures=figures))
    return environment.get_template("template.html").render(
        title=title, subtitle=subtitle, sections=shown, version=tasid.__version__
    )


def figure(drawing: MatplotlibFigure, caption: str = "") -> Figure:
    """A matplotlib figure as a figure of a page."""
    return Figure(svg(drawing), caption)


def number(value: Any) -> str:
    """A value as text: four significant digits, whole numbers in full, "unknown" for None."""
    if value is None or value != value:  # NaN differs from itself
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return str(value)
    value = float(value)
    whole = value.is_integer() or abs(value) >= 1e4
    text = f"{value:,.0f}" if whole else f"{value:.4g}"
    return text.replace(",", "\u202f").replace("-", "−")


def write_report(run_dir: str | Path) -> Path:
    """Write `report.html` into a run folder or a folder of several, and return its path.

    Of a folder whose subfolders are run folders, the page compares the runs. The page of an
    experiment (`python -m reproduction`) is written with it.
    """
    folder = Path(run_dir)
    runs = sorted(path.parent for path in folder.glob("*/result.json"))
    if (folder / "result.json").exists():
        page = _run_page(folder)
    elif (folder / "discovery").exists():
        page = _discovery_page(folder)
    elif runs:
        page = _comparison_page(folder, runs)
    elif (folder / "experiment.json").exists() and (folder / PAGE).exists():
        return folder / PAGE
    else:
        raise ArtifactError(
            f"run_dir: {folder} holds neither a result.json, nor folders that do, nor a "
            "discovered map; is the run finished?"
        )
    return write_bytes_atomically(folder / PAGE, page.encode())


def _run_page(folder: Path) -> str:
    config, result = read_json(folder / "config.json"), read_json(folder / "result.json")
    policy = load(folder / "policy")
    sections = [_headline(result), _learning(result)]
    if policy.plan is not None:
        caption = "Routes if every action has its intended outcome."
        sections.append(Section("Plan", figures=[figure(plan_figure(policy.plan), caption)]))
    sections.append(_diagnostics(result, policy))
    environment = policy.environment or {}
    if environment.get("name") in ENVIRONMENTS:
        episode = watch(policy, make(environment["name"], **environment["options"]))
        text = f"Return {number(episode.total)} after {episode.steps} steps."
        sections.append(
            Section("One episode", paragraphs=(text,), player=episode.player(MOST_FRAMES))
        )
    code = f"tasid train --config {shlex.quote(str(folder / 'config.json'))} --out ANOTHER-FOLDER"
    rows = [(key, _plain(value)) for key, value in config.items() if value]
    sections.append(Section("Run it again", tables=[Table(("config", ""), rows)], code=code))
    name = config.get("environment") or environment.get("name") or "episodes of a log"
    return render_page(f"{name}, {policy.horizon} steps", sections)


def _headline(result: Mapping[str, Any]) -> Section:
    low, high = result.get("return_ci95") or [None] * 2
    notes = NOTES | {"return_mean": f"95 % interval {number(low)} … {number(high)}"}
    known = {key: note for key, note in notes.items() if result.get(key) is not None}
    numbers = [(_title(key), result[key], note) for key, note in known.items()]
    paragraphs = []
    open_loop: Any = result.get("open_loop_value")
    if is_number(open_loop) and open_loop > result["robust_value"] / 2:
        text = "A policy that ignores observations earns more than half of the robust value here: "
        paragraphs.append(text + "a high return is weak evidence of learning. Judge by the skill.")
    return Section("Result", result.get("warnings", ()), paragraphs, numbers)


def _learning(result: Mapping[str, Any]) -> Section:
    """How the return, the regret or the loss developed, and the accuracy at the end."""
    history, drawings = result.get("history", ()), []
    exact = {key: result[key] for key in REFERENCES if is_number(result.get(key))}
    for key, name in QUANTITIES.items():
        rows = [event for event in history if is_number(event.get(key))]
        x, xlabel = ("step", "step h") if key == "validation_loss" else ("episodes", "episodes")
        if len(rows) > 1:
            line = [row[x] for row in rows], [row[key] for row in rows]
            references = exact if key == "mean_return" else {}
            drawings.append(line_chart(*line, xlabel=xlabel, ylabel=name, references=references))
    if accuracy := result.get("decoder_accuracy_by_step"):
        line = list(range(1, len(accuracy) + 1)), accuracy
        name, limits = "decoder accuracy", (0.0, 1.04)
        drawings.append(line_chart(*line, xlabel="step h", ylabel=name, limits=limits))
    names = {"model": "Model", "stopped": "Learning ended"}
    text = [f"{name}: {result[key]}." for key, name in names.items() if result.get(key)]
    events = [{key: v for key, v in event.items() if key not in UNSHOWN} for event in history]
    tables = [_table(events)] if events else []
    return Section("Learning", (), text, (), [figure(drawing) for drawing in drawings], tables)


def _diagnostics(result: Mapping[str, Any], policy: Policy) -> Section:
    """η, the certificate and map errors."""
    sim, tables = None if policy.plan is None else policy.plan.simulator, []
    for key in ("eta_estimate", "certificate"):
        rows = [(_title(name), _plain(value)) for name, value in (result.get(key) or {}).items()]
        if rows:
            tables.append(Table((_title(key), ""), rows))
    errors = [dict(e, action=action_name(sim, e["action"])) for e in result.get("map_errors", ())]
    if errors:
        caption = "State-action pairs whose outcomes contradict the map; step −1 is any."
        tables.append(_table(errors, caption))
    return Section("Diagnostics", tables=tables)


def _comparison_page(folder: Path, runs: Sequence[Path]) -> str:
    """Runs side by side."""
    keys = "return_mean robust_value optimal_value ratio skill episodes decoder_accuracy seconds"
    results = {run.name: read_json(run / "result.json") for run in runs}
    rows = [{"run": name} | {k: r.get(k) for k in keys.split()} for name, r in results.items()]
    warnings = [f"{name}: {text}" for name, r in results.items() for text in r.get("warnings", ())]
    if (folder / "sweep.json").exists():
        errors = read_json(folder / "sweep.json")["errors"]
        warnings += [f"seed {seed} failed: {text}" for seed, text in errors.items()]
    section = Section("Runs", warnings, tables=[_table(rows)])
    return render_page(f"{folder.resolve().name}: {len(runs)} runs", [section])


def _discovery_page(folder: Path) -> str:
    """A discovered map: graph, plan, mean observations of the states, doubts, and exploration."""
    sim, artifact = AbstractSimulator.load(folder), read_artifact(folder / "discovery")
    found, arrays = artifact.metadata, artifact.arrays
    confidence, tried, history = arrays["confidence"], arrays["tried"], found["history"]
    keys = ("episodes", "states", "eta", "finished")
    plan = robust_dp(sim, eta=found["eta"])
    caption = "States and where actions lead; those that stay are not drawn."
    drawings = [figure(graph_figure(sim, confidence), caption)]
    drawings.append(figure(plan_figure(plan), "Routes if every action has its intended outcome."))
    drawings.append(figure(means_figure(arrays["means"]), "Mean observations of the states."))
    for key in ("states", "open_pairs"):
        line = [event["episodes"] for event in history], [event[key] for event in history]
        drawings.append(figure(line_chart(*line, xlabel="episodes", ylabel=key.replace("_", " "))))
    least = np.argsort(confidence, axis=None, kind="stable")[:20]
    rows = []
    for s, a in np.transpose(np.unravel_index(least, confidence.shape)).tolist():
        names = (state_name(sim, s), action_name(sim, a), state_name(sim, sim.intended(0)[s, a]))
        rows.append((*names, confidence[s, a], tried[s, a]))
    measure = "share of the likeliest outcome" if sim.stochastic else "confidence"
    columns = ("state", "action", "likeliest successor", measure, "tried")
    section = Section(
        "Discovered map",
        found["warnings"],
        numbers=[(key, found[key], "") for key in keys],
        figures=drawings,
        tables=[Table(columns, rows, "The least sure actions.")],
        code=f"tasid train TARGET --simulator {shlex.quote(str(folder))}",
    )
    return render_page(f"{folder.resolve().name}: a discovered map", [section])


def _title(key: str) -> str:
    return FIGURES[key][0] if key in FIGURES else key.replace("_", " ")


def _table(records: Sequence[Mapping[str, Any]], caption: str = "") -> Table:
    """Records as rows; their keys are the columns."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    rows = [[_plain(record.get(key)) for key in keys] for record in records]
    return Table([_title(key) for key in keys], rows, caption)


def _plain(value: Any) -> Any:
    """A JSON value for a table: numbers as they are, lists in parentheses, None as a dash."""
    if isinstance(value, list):
        text = f"({', '.join(number(_plain(part)) for part in value)})"
        return text if len(text) <= 80 else text[:79] + "…"
    return "–" if value is None else value
