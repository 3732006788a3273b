"""How every figure is drawn: one palette, one style, equal bytes for equal data.

Colours are drawn in the light palette. In a page they become CSS variables, so that one figure
serves light and dark alike.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_PALETTE = {
    "paper": ("#fcfbf8", "#17191d"),
    "ink": ("#1f2328", "#e7e5df"),
    "muted": ("#5f646a", "#a2a7ad"),
    "line": ("#dddbd4", "#30343a"),
    "edge": ("#c6c3ba", "#4a4f57"),
    "learned": ("#2f5d9e", "#8bb4ee"),
    "fill": ("#c5d5e9", "#31496a"),
    "robust": ("#0b6e6e", "#5cc2ba"),
    "nominal": ("#b4501e", "#e8996a"),
    "blind": ("#6f5f95", "#b6a7de"),
    "wall": ("#474c53", "#7b828c"),
    "hazard": ("#e59a76", "#a65c3c"),
    "goal": ("#8cc7a0", "#3d8258"),
    "heat": ("#4577b8", "#6f9fe0"),
}
LIGHT, DARK = ({name: codes[n] for name, codes in _PALETTE.items()} for n in (0, 1))
DOT: dict[str, Any] = {
    "marker": "o",
    "markeredgecolor": LIGHT["paper"],
    "markeredgewidth": 0.8,
    "zorder": 3,
}

_STYLE: Any = {  # matplotlib types the keys one by one
    "svg.hashsalt": "tasid",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine measures alike
    "font.size": 11.0,
    "text.parse_math": False,  # a state's label may hold a dollar sign
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["edge"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.labelsize": 11.0,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": LIGHT["line"],
    "xtick.color": LIGHT["edge"],
    "ytick.color": LIGHT["edge"],
    "xtick.labelcolor": LIGHT["muted"],
    "ytick.labelcolor": LIGHT["muted"],
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": 11.0,
}
# matplotlib up to 3.10 writes one `font`, later versions write its parts.
_FONT = re.compile(r"(font: (?:[\w-]+ )*[\d.]+px )[^;]*|(font-family: )[^;]*")
_REFERENCE = re.compile(r"(?<=url\(#)[^)]+|(?<=^#).+")
_POINTS_PER_INCH = 72
PANEL_WIDTH = 336.0


@contextmanager
def house_style() -> Iterator[None]:
    """Our settings and nobody else's, for the length of a block; a user's own stay out of it."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A label may be in any script; the page shows it, whatever our measuring font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def blank(width: float, height: float) -> Figure:
    """A figure of so many CSS pixels, transparent."""
    return Figure(
        figsize=(width / _POINTS_PER_INCH, height / _POINTS_PER_INCH),
        dpi=_POINTS_PER_INCH,
        facecolor="none",
    )


def axes_inside(figure: Figure, *, left: float, right: float, top: float, bottom: float) -> Axes:
    """One pair of axes with these margins in pixels."""
    width, height = figure.get_size_inches() * _POINTS_PER_INCH
    return figure.add_axes(
        (
            left / width,
            bottom / height,
            (width - left - right) / width,
            (height - top - bottom) / height,
        )
    )


def panel(title: str, height: float, *, left: float, right: float) -> tuple[Figure, Axes]:
    """One of several drawings side by side: titled, with lines across, margins in pixels."""
    figure = blank(PANEL_WIDTH, height)
    axes = axes_inside(figure, left=left, right=right, top=32, bottom=40)
    inner = PANEL_WIDTH - left - right
    axes.set_title(title, loc="left", fontsize=11.5, color=LIGHT["ink"], x=-left / inner)
    axes.grid(axis="y")
    return figure, axes


def label(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    rise: float,
    colour: str,
    *,
    size: float = 10.5,
    ha: str = "center",
    **style: Any,
) -> None:
    """Text so many points above a place, or below it."""
    style |= {"color": LIGHT[colour], "fontsize": size, "va": "bottom" if rise > 0 else "top"}
    axes.annotate(text, place, (0, rise), textcoords="offset points", ha=ha, **style)


def draw_legend(
    figure: Figure, entries: Sequence[tuple[Any, str]], columns: int, **style: Any
) -> None:
    """Keys and their names in the upper left corner."""
    handles, names = zip(*entries, strict=True)
    tight = {"borderaxespad": 0.2, "borderpad": 0, "labelspacing": 0.4, "bbox_to_anchor": (0, 1)}
    figure.legend(handles, names, loc="upper left", ncols=columns, **tight | style)


def picture_bytes(figure: Figure, kind: str) -> bytes:
    """The figure on paper, as a PNG or SVG file."""
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(
        buffer,
        format=kind,
        dpi=3 * _POINTS_PER_INCH,
        facecolor=LIGHT["paper"],
        bbox_inches="tight",
        pad_inches=0.3,
        metadata=metadata,
    )
    return buffer.getvalue()


def inline_svg(figure: Figure, *, name: str, title: str, description: str) -> Markup:
    """The figure as an element for a page: named, described, in the page's colours and fonts.

    `name` goes in front of every id, so figures on one page cannot take each other's parts.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in [one for one in parent if _local(one.tag) in ("metadata", "style")]:
            parent.remove(child)
    used = {
        reference
        for element in root.iter()
        for value in element.attrib.values()
        for reference in _REFERENCE.findall(value)
    }
    for element in root.iter():
        _make_native(element, name, used)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        child = ET.Element(tag, id=f"{name}-{tag}")
        child.text = text
        root.insert(place, child)
    return Markup(ET.tostring(root, encoding="unicode"))


def _make_native(element: ET.Element, name: str, used: set[str]) -> None:
    """Without name spaces, which HTML does not need; ids, colours and fonts as the page wants."""
    element.tag = _local(element.tag)
    if element.text is not None and not element.text.strip():
        element.text = None
    element.tail = None
    attributes = {_local(key): value for key, value in element.attrib.items()}
    element.attrib.clear()
    for key, value in attributes.items():
        value = " ".join(value.split())
        if key == "id" and value not in used:
            continue
        if key == "id":
            value = f"{name}-{value}"
        elif key == "href" and value.startswith("data:"):
            value = value.replace(" ", "")  # a picture
        elif key == "href":
            value = f"#{name}-{value.removeprefix('#')}"
        else:
            value = value.replace("url(#", f"url(#{name}-")
            value = _FONT.sub(r"\1\2var(--sans)", value)
            for colour, code in LIGHT.items():
                value = value.replace(code, f"var(--{colour})")
        element.set(key, value)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
