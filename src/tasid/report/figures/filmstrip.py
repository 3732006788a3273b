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
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from PIL import Image

from tasid.files import write_bytes_atomically
from tasid.report.figures.drawing import LIGHT, axes_inside, blank, house_style
from tasid.report.figures.filmstrip_beliefs import HEAT
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
    with house_style():
        scene = _Scene(episode, timeline=timeline)
        for h in steps:
            yield scene.frame(h)


class _Scene:
    """One figure, moved from step to step."""

    def __init__(self, episode: Episode, *, timeline: bool) -> None:
        self._episode = episode
        self._sight, self._map = observation_panel(episode), map_panel(episode)
        sight, ground = _PANEL * self._sight.aspect, _PANEL * self._map.aspect
        width = _LEFT + sight + _GAP + ground + _RIGHT
        bottom = _FOOT + (_TIMELINE + 34 if timeline else 0)
        height = _HEAD + _PANEL + bottom
        self._figure = blank(width, height)
        self._figure.set_facecolor(LIGHT["paper"])
        self._figure.set_dpi(_SCALE * self._figure.dpi)
        self._canvas = FigureCanvasAgg(self._figure)
        left = axes_inside(
            self._figure, left=_LEFT, right=width - _LEFT - sight, top=_HEAD, bottom=bottom
        )
        right = axes_inside(
            self._figure, left=width - _RIGHT - ground, right=_RIGHT, top=_HEAD, bottom=bottom
        )
        self._sight.draw(left)
        self._map.draw(right)
        self._write(width, height)
        self._bars: _Confidence | None = None
        if timeline:
            below = axes_inside(
                self._figure, left=_LEFT + 12, right=_RIGHT, top=height - _TIMELINE - 34, bottom=34
            )
            self._bars = _Confidence(below, episode)

    def _write(self, width: float, height: float) -> None:
        """The lines above and below the panels; those that change are kept."""

        def line(x: float, y: float, size: float, **style: Any) -> Text:
            return self._figure.text(
                x / width, 1 - y / height, "", fontsize=size, va="center", **style
            )

        self._title = line(_LEFT, 18, 12.5, color=LIGHT["ink"], weight="bold")
        self._alarm = line(width - _RIGHT, 18, 12.5, color=_ALARM, weight="bold", ha="right")
        self._where = line(_LEFT, 38, 10.0, color=LIGHT["muted"])
        handles: list[Any] = [Line2D([], [], markersize=6, **BELIEF)]
        names = ["belief"]
        if self._episode.beliefs is not None:
            handles.append(Patch(facecolor=HEAT, edgecolor="none", alpha=0.7))
            names = ["likeliest", "belief"]
        if self._episode.truth is not None:
            handles.append(Line2D([], [], markersize=8, **TRUTH))
            names.append("truth (not shown to the policy)")
        self._figure.legend(
            handles,
            names,
            loc="lower right",
            bbox_to_anchor=(1 - _RIGHT / width, 0),
            ncols=3,
            fontsize=9,
            handletextpad=0.2,
            borderaxespad=0.3,
        )

    def frame(self, h: int) -> Image.Image:
        """The picture of step h."""
        episode, sim = self._episode, self._episode.policy.simulator
        self._sight.show(h)
        self._map.show(h)
        earned, pay = float(episode.rewards[:h].sum()), float(episode.rewards[h])
        doing = "over" if h >= episode.steps else episode.action_name(h)
        self._title.set_text(f"step {h} · {doing}" + (f" · earns {pay:+.3g}" if pay else ""))
        self._where.set_text(
            f"believes {shortened(printable(sim.states[int(episode.states[h])]), 28)} · "
            f"confidence {episode.confidence[h]:.2f} · return so far {earned:.4g}"
        )
        self._alarm.set_text(self._warning(h))
        if self._bars is not None:
            self._bars.show(h)
        self._canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(self._canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        return Image.fromarray(pixels[..., :3].copy())

    def _warning(self, h: int) -> str:
        episode = self._episode
        wrong = episode.truth is not None and episode.truth[h] != episode.states[h]
        if episode.lost[h]:
            return (
                "says it is lost" if wrong or episode.truth is None else "says it is lost, is not"
            )
        return "wrong" if wrong else ""


class _Confidence:
    """A bar for every step so far; those at which it called itself lost stand out."""

    def __init__(self, axes: Axes, episode: Episode) -> None:
        self._confidence = episode.confidence
        number = len(episode.confidence)
        colours = [_ALARM if lost else LIGHT["learned"] for lost in episode.lost]
        self._bars = axes.bar(range(number), np.zeros(number), width=0.8, color=colours)
        axes.set_xlim(-0.6, number - 0.4)
        axes.set_ylim(0, 1)
        axes.set_yticks([0, 1])
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.tick_params(labelsize=8.5)
        axes.set_title("confidence", fontsize=9, loc="left", pad=3, color=LIGHT["muted"])

    def show(self, h: int) -> None:
        for place, bar in enumerate(self._bars):
            bar.set_height(self._confidence[place] if place <= h else 0.0)
