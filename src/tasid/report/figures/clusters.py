"""Where episodes start: the clusters of first observations, and what each was taken for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tasid.files import ArtifactError
from tasid.report.figures.drawing import axes_inside, blank, inline_svg, label
from tasid.report.text.wording import count, number, percent

_PANEL = (520.0, 330.0)
_COLOURS = ("#3f7fbf", "#c8642f", "#2f9a7f", "#9a6fc0", "#b08a1e", "#c25a86", "#5f8f3a", "#7f7f86")
_MARKERS = "os^Dv<>P"


@dataclass(frozen=True, eq=False)
class Starts:
    """How several starts were told apart, as a run recorded it."""

    summary: Mapping[str, Any]
    places: NDArray[np.float64]
    """First observations on a plane, [m, 2]."""
    clusters: NDArray[np.int64]
    """Their clusters, [m]."""

    @property
    def names(self) -> list[str]:
        """The state that each cluster was taken for."""
        return [str(cluster["state"]) for cluster in self.summary["clusters"]]

    def sentence(self) -> str:
        """What was found, in words."""
        told = f"Episodes start in one of {len(self.names)} states, and nobody says which. "
        spent = f"{count(self.summary['episodes'])} episodes went into telling them apart"
        accuracy, purity = self.summary["accuracy"], self.summary["purity"]
        right = "." if accuracy is None else f"; the start was right in {percent(accuracy)}."
        if purity is not None:
            right += f" A cluster is of one start to {percent(purity)}."
        return told + spent + right

    def picture(self) -> Markup:
        """First observations as dots, by cluster."""
        title = "First observations, by cluster"
        return inline_svg(
            clusters_panel(self), name="clusters", title=title, description=self._in_words()
        )

    def rows(self) -> list[tuple[str, ...]]:
        """The hypotheses: cluster, start, value with interval, episodes, verdict."""
        return [
            (
                str(one["cluster"]),
                str(one["state"]),
                _value(one),
                count(one["episodes"]),
                "accepted" if one["accepted"] else "rejected",
            )
            for one in self.summary["hypotheses"]
        ]

    def _in_words(self) -> str:
        parts = [
            f"cluster {k} is start {one['state']} with {percent(one['share'])} of the episodes"
            for k, one in enumerate(self.summary["clusters"])
        ]
        return f"{count(len(self.places))} first observations on a plane: " + "; ".join(parts) + "."


def read_starts(
    summary: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], where: str
) -> Starts | None:
    """The record of several starts; None where there was one."""
    told = summary.get("starts")
    if told is None:
        return None
    try:
        places, clusters = arrays["starts.places"], arrays["starts.clusters"]
        fits = places.ndim == 2 and places.shape[1] == 2 and clusters.shape == places.shape[:1]
        if not fits or clusters.dtype.kind not in "iu" or not np.isfinite(places).all():
            raise ValueError(
                "starts.places and starts.clusters should be points and their clusters"
            )
        if not ((clusters >= 0) & (clusters < len(told["clusters"]))).all():
            raise ValueError("starts.clusters names a cluster that there is not")
        starts = Starts(told, places.astype(np.float64), clusters.astype(np.int64))
        # Whatever is missing or of the wrong kind shows itself here.
        starts.sentence(), starts.rows(), starts._in_words()
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{where}: starts are not those of a run ({error})") from None
    return starts


def clusters_panel(starts: Starts) -> Figure:
    """Dots on the plane in which the clusters lie farthest apart, each cluster named."""
    figure = blank(*_PANEL)
    axes = axes_inside(figure, left=12, right=12, top=12, bottom=12)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    for k, name in enumerate(starts.names):
        here = starts.places[starts.clusters == k]
        if not here.size:
            continue
        axes.plot(
            here[:, 0],
            here[:, 1],
            linestyle="none",
            marker=_MARKERS[k % len(_MARKERS)],
            markersize=4.0,
            markeredgewidth=0,
            alpha=0.55,
            color=_COLOURS[k % len(_COLOURS)],
        )
        above = float(here[:, 0].mean()), float(here[:, 1].max())
        label(axes, f"{k}: {name}", above, 7, "ink", size=11.0)
    axes.margins(0.12, 0.16)
    return figure


def _value(one: Mapping[str, Any]) -> str:
    return f"{number(one['value'])} ({number(one['low'])} … {number(one['high'])})"
