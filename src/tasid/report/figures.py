"""Charts as matplotlib figures, and figures as SVG text or files.

Figures are built with matplotlib's object interface under a style of their own: the user's pyplot
state and settings stay as they are.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from tasid.policies.evaluate import FIGURES
from tasid.storage import write_bytes_atomically

PALETTE = {
    "ink": "#1f2328",
    "muted": "#5f646a",
    "line": "#e2e0da",
    "learned": "#2f5d9e",
    "robust": "#0b7a75",
    "optimal": "#8a6d00",
    "nominal": "#c2571a",
    "open_loop": "#77649f",
    "alarm": "#b3261e",
}
"""Colours by meaning."""

REFERENCES = {
    "robust_value": PALETTE["robust"],
    "optimal_value": PALETTE["optimal"],
    "open_loop_value": PALETTE["open_loop"],
}
"""Colours of the exact values that are drawn beside the return."""

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "tasid",  # equal figures give equal bytes
    "svg.fonttype": "none",
    "text.parse_math": False,  # labels of states may contain dollar signs
    "font.family": "DejaVu Sans",  # ships with matplotlib
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": PALETTE["line"],
    "xtick.color": PALETTE["muted"],
    "ytick.color": PALETTE["muted"],
    "legend.frameon": False,
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's defaults with our settings; also a decorator."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
        yield


@style()
def svg(figure: Figure) -> str:
    """The figure as one `<svg>` element."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)


@style()
def save_figure(figure: Figure, path: str | Path, *, dpi: int = 144) -> Path:
    """Write the figure in the format that the file's ending names (.png, .svg, .pdf)."""
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"path: {str(path)!r} should end in .png, .svg or .pdf")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix[1:].lower(), dpi=dpi)
    return write_bytes_atomically(path, buffer.getvalue())


@style()
def line_chart(
    x: ArrayLike,
    y: ArrayLike,
    *,
    xlabel: str,
    ylabel: str,
    references: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """One line with markers, and horizontal lines for exact values.

    Parameters
    ----------
    references
        Heights of the horizontal lines, by the keys of `REFERENCES`.
    limits
        Lower and upper end of the y axis.
    """
    figure = Figure(figsize=(4.8, 2.9), layout="constrained")
    axes = figure.add_subplot(xlabel=xlabel, ylabel=ylabel)
    axes.plot(x, y, "o-", color=PALETTE["learned"], markersize=4, linewidth=1.6)
    for key, value in (references or {}).items():
        name, _ = FIGURES[key]
        axes.axhline(value, color=REFERENCES[key], linestyle="--", linewidth=1.3, label=name)
    axes.set_ylim(limits)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if references:
        figure.legend(fontsize=8.5, loc="outside upper right", ncols=3)
    return figure


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number; JSON files have null where a value is unknown."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
