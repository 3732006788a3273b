"""The reliability diagram: does what the model is sure of come true as often as it says?"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from tasid.learning.monitor import Calibration
from tasid.report.figures.drawing import DOT, LIGHT, label, panel
from tasid.report.text.wording import count, percent
from tasid.theory.binomial import chance_interval

_CONFIDENCE = 0.95
_EDGES = [tenth / 10 for tenth in range(11)]


def reliability_panel(calibration: Calibration) -> Figure:
    """Fraction that came true against confidence, with 95 % intervals, beside the diagonal."""
    figure, axes = _panel("came true, by confidence")
    axes.plot([0, 1], [0, 1], color=LIGHT["muted"], linewidth=1.0, dashes=(2, 2))
    note: dict[str, Any] = {"va": "top", "color": LIGHT["muted"], "fontsize": 10.5}
    axes.annotate("dashed: perfectly calibrated", (0.03, 0.97), **note)
    counted = calibration.correct.dtype == bool
    for said, was, number in calibration.bins:
        if counted:  # probabilities of whole episodes are no independent coins
            ends = chance_interval(round(was * number), number, confidence=_CONFIDENCE)
            axes.plot([said, said], ends, color=LIGHT["learned"], linewidth=1.4, alpha=0.6)
        axes.plot([said], [was], markersize=6.0, color=LIGHT["learned"], **DOT)
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    axes.yaxis.set_major_formatter(FuncFormatter(_as_percent))
    return figure


def counts_panel(calibration: Calibration, what: str = "transitions") -> Figure:
    """How many transitions or decisions had which confidence."""
    figure, axes = _panel(f"{what}, by confidence")
    bars = [(min(int(said * 10), 9), number) for said, _, number in calibration.bins]
    most = max(number for _, number in bars)
    for place, number in bars:
        middle = (place + 0.5) / 10
        axes.bar([middle], [number], width=0.088, color=LIGHT["fill"])
        label(axes, short_count(number), (middle, number), 3, "muted", size=10.0)
    axes.set_ylim(0, 1.14 * most)
    axes.yaxis.set_major_locator(FixedLocator([]))
    axes.grid(visible=False)
    return figure


def short_count(number: int) -> str:
    """At most four characters: 999, 1.2k, 35k, 1.2M."""
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if number >= 0.9995 * size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(number)


def in_words(calibration: Calibration) -> str:
    """The diagram for those who do not see it."""
    rows = (
        f"confidence {percent(said)} came true {percent(was)} of {count(number)} times"
        for said, was, number in calibration.bins
    )
    return f"In bins of equal width: {'; '.join(rows)}."


def _panel(title: str) -> tuple[Figure, Axes]:
    figure, axes = panel(title, 250.0, left=46, right=14)
    axes.set_xlabel("confidence")
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_locator(FixedLocator(_EDGES[::2]))
    axes.xaxis.set_major_formatter(FuncFormatter(_as_percent))
    return figure, axes


def _as_percent(value: float, _: object) -> str:
    return f"{100 * value:.0f} %"
