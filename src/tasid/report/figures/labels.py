"""Labelled vertical lines above an axis, placed so that no label is crossed or cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

from matplotlib.axes import Axes

from tasid.report.figures.drawing import LIGHT
from tasid.report.text.wording import number

ROW = 17.0
"""Pixels from one label's row to the next."""
_FIRST_ROW = 12.0
_FONT_SIZE = 11.0
_OFFSET = 6.0
_OVERFLOW, _CROSSING, _RIGHTWARD = 100, 10, 1


@dataclass(frozen=True)
class Mark:
    """A value to show on an axis."""

    name: str
    value: float
    colour: str

    @property
    def text(self) -> str:
        """What the label says."""
        return f"{self.name} {number(self.value)}"

    @property
    def width(self) -> float:
        """At least as wide as the label in any common font."""
        return 0.64 * _FONT_SIZE * len(self.text) + _OFFSET


@dataclass(frozen=True)
class Placing:
    """Where a label goes: its row, from 0, and the side of its line."""

    row: int
    leftward: bool


def arrange(places: Sequence[float], widths: Sequence[float], room: float) -> list[Placing]:
    """The best of all placings: every label in its row and inside 0 … room, crossed by no line.

    A line reaches from the axis to its own row, so it passes all rows below. All placings are
    tried, which for the handful of marks of a figure is nothing.
    """
    number = len(places)

    def cost(placings: Sequence[Placing]) -> int:
        total = 0
        for i, own in enumerate(placings):
            left = places[i] - widths[i] if own.leftward else places[i]
            right = left + widths[i]
            total += _OVERFLOW * (left < 0 or right > room) + _RIGHTWARD * (not own.leftward)
            total += _CROSSING * sum(
                other.row > own.row and left < places[j] < right
                for j, other in enumerate(placings)
                if j != i
            )
        return total

    candidates = (
        [Placing(row, left) for row, left in zip(rows, sides, strict=True)]
        for rows in permutations(range(number))
        for sides in product((True, False), repeat=number)
    )
    return min(candidates, key=cost)


def height(marks: Sequence[Mark]) -> float:
    """Pixels needed above the axes."""
    return _FIRST_ROW + ROW * len(marks)


def draw_marks(axes: Axes, marks: Sequence[Mark], *, width: float, tall: float) -> None:
    """Draw the marks on axes of this width and height in pixels; their x limits must be set."""
    low, high = axes.get_xlim()
    places = [(mark.value - low) / (high - low) * width for mark in marks]
    placings = arrange(places, [mark.width for mark in marks], width)
    for mark, placing in zip(marks, placings, strict=True):
        rise = _FIRST_ROW + ROW * placing.row
        axes.plot(
            [mark.value, mark.value],
            [0, 1 + (rise + 5) / tall],
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            color=LIGHT[mark.colour],
            linewidth=1.5,
            zorder=3,
        )
        axes.annotate(
            mark.text,
            (mark.value, 1),
            (-_OFFSET if placing.leftward else _OFFSET, rise),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="right" if placing.leftward else "left",
            va="center",
            color=LIGHT[mark.colour],
            fontsize=_FONT_SIZE,
            annotation_clip=False,
            zorder=4,
        )
