"""An episode as pictures: a GIF that plays it, or a PNG with a row of its frames.

A frame shows the observation, the map with the belief and the likeliest position (and the true one
where it is known), the action, and the confidence so far.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from PIL import Image

from tasid.files import write_bytes_atomically
from tasid.report.figures.drawing import LIGHT, axes_inside, blank, house_style
from tasid.report.figures.filmstrip_beliefs import HEAT, Show, together
from tasid.report.figures.filmstrip_panels import BELIEF, TRUTH, map_panel, observation_panel
from tasid.report.text.wording import printable, shortened
from tasid.runs.watch import Episode

_SCALE = 1.5
"""Pixels of a file for each of the drawing's."""
_MILLISECONDS, _PAUSE = 450, 2500
STRIP_FRAMES = 12
_STRIP_COLUMNS = 3
_PANEL, _LEFT, _GAP, _RIGHT = 210.0, 34.0, 46.0, 18.0
_HEAD, _TIMELINE, _FOOT = 56.0, 46.0, 44.0
_ALARM = "#b3261e"


def episode_gif(episode: Episode, path: str | os.PathLike[str]) -> Path:
    """Play the episode, from its start until nothing can happen any more."""
    target = _checked(path, ".gif")
    first, *others = _frames(episode, range(_shown(episode)), timeline=True)
    buffer = io.BytesIO()
    # Frames are numbered by step: equal neighbours must not be merged into one.
    first.save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=others,
        duration=[_MILLISECONDS] * len(others) + [_PAUSE],
        loop=0,
        optimize=False,
    )
    return write_bytes_atomically(target, buffer.getvalue())


def episode_strip(
    episode: Episode, path: str | os.PathLike[str], *, frames: int = STRIP_FRAMES
) -> Path:
    """At most so many frames, evenly spread over the episode, side by side and row by row."""
    if frames < 1:
        raise ValueError(f"frames: {frames} is below 1")
    target = _checked(path, ".png")
    number = _shown(episode)
    steps = np.unique(np.linspace(0, number - 1, min(frames, number)).round().astype(int))
    pictures = list(_frames(episode, steps.tolist(), timeline=False))
    columns = min(_STRIP_COLUMNS, len(pictures))
    wide, tall = pictures[0].size
    sheet = Image.new("RGB", (wide * columns, tall * -(-len(pictures) // columns)), LIGHT["paper"])
    for place, picture in enumerate(pictures):
        row, column = divmod(place, columns)
        sheet.paste(picture, (column * wide, row * tall))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG", optimize=True)
    return write_bytes_atomically(target, buffer.getvalue())


def _checked(path: str | os.PathLike[str], ending: str) -> Path:
    target = Path(path)
    if target.suffix.lower() != ending:
        raise ValueError(f"path: {str(target)!r} should end in {ending}")
    return target


def _shown(episode: Episode) -> int:
    """One frame more than there are steps, to see where it ended."""
    return min(episode.steps + 1, len(episode.actions))


def _frames(episode: Episode, steps: Sequence[int], *, timeline: bool) -> Iterator[Image.Image]:
    """One figure, moved from step to step."""
    with house_style():
        sight, ground = observation_panel(episode), map_panel(episode)
        across, wide = _PANEL * sight.aspect, _PANEL * ground.aspect
        width = _LEFT + across + _GAP + wide + _RIGHT
        bottom = _FOOT + (_TIMELINE + 34 if timeline else 0)
        height = _HEAD + _PANEL + bottom
        figure = blank(width, height)
        figure.set_facecolor(LIGHT["paper"])
        figure.set_dpi(_SCALE * figure.dpi)
        canvas = FigureCanvasAgg(figure)
        edges = {"top": _HEAD, "bottom": bottom}
        left = axes_inside(figure, left=_LEFT, right=width - _LEFT - across, **edges)
        right = axes_inside(figure, left=width - _RIGHT - wide, right=_RIGHT, **edges)
        shows = [sight.draw(left), ground.draw(right), _write(figure, episode)]
        if timeline:
            top = height - _TIMELINE - 34
            below = axes_inside(figure, left=_LEFT + 12, right=_RIGHT, top=top, bottom=34)
            shows.append(_confidence(below, episode))
        show = together(*shows)
        for h in steps:
            show(h)
            canvas.draw()  # type: ignore[no-untyped-call]
            pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
            yield Image.fromarray(pixels[..., :3].copy())


def _write(figure: Figure, episode: Episode) -> Show:
    """The lines above and below the panels."""
    width, height = figure.get_size_inches() * 72

    def line(x: float, y: float, size: float, **style: Any) -> Text:
        return figure.text(x / width, 1 - y / height, "", fontsize=size, va="center", **style)

    title = line(_LEFT, 18, 12.5, color=LIGHT["ink"], weight="bold")
    alarm = line(width - _RIGHT, 18, 12.5, color=_ALARM, weight="bold", ha="right")
    where = line(_LEFT, 38, 10.0, color=LIGHT["muted"])
    handles: list[Any] = [Line2D([], [], markersize=6, **BELIEF)]
    names = ["belief"]
    if episode.beliefs is not None:
        handles.append(Patch(facecolor=HEAT, edgecolor="none", alpha=0.7))
        names = ["likeliest", "belief"]
    if episode.truth is not None:
        handles.append(Line2D([], [], markersize=8, **TRUTH))
        names.append("truth (not shown to the policy)")
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1 - _RIGHT / width, 0)}
    figure.legend(
        handles, names, ncols=3, fontsize=9, handletextpad=0.2, borderaxespad=0.3, **place
    )

    def show(h: int) -> None:
        believed = printable(episode.policy.simulator.states[int(episode.states[h])])
        earned, pay = float(episode.rewards[:h].sum()), float(episode.rewards[h])
        doing = "over" if h >= episode.steps else episode.action_name(h)
        title.set_text(f"step {h} · {doing}" + (f" · earns {pay:+.3g}" if pay else ""))
        where.set_text(
            f"believes {shortened(believed, 28)} · "
            f"confidence {episode.confidence[h]:.2f} · return so far {earned:.4g}"
        )
        alarm.set_text(_warning(episode, h))

    return show


def _warning(episode: Episode, h: int) -> str:
    wrong = episode.truth is not None and episode.truth[h] != episode.states[h]
    if episode.lost[h]:
        return "says it is lost" if wrong or episode.truth is None else "says it is lost, is not"
    return "wrong" if wrong else ""


def _confidence(axes: Axes, episode: Episode) -> Show:
    """A bar for every step so far; those at which it called itself lost stand out."""
    number = len(episode.confidence)
    colours = [_ALARM if lost else LIGHT["learned"] for lost in episode.lost]
    bars = axes.bar(range(number), np.zeros(number), width=0.8, color=colours)
    axes.set_xlim(-0.6, number - 0.4)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 1])
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.tick_params(labelsize=8.5)
    axes.set_title("confidence", fontsize=9, loc="left", pad=3, color=LIGHT["muted"])

    def show(h: int) -> None:
        for place, bar in enumerate(bars):
            bar.set_height(episode.confidence[place] if place <= h else 0.0)

    return show
