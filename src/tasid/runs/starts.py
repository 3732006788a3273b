"""Several starts: what is asked for; what the paper's method learned of them, written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.learning.paper.initial_state_test import StartCounts, StartsFound
from tasid.learning.paper.start_clusters import start_margins
from tasid.maps import AbstractSimulator


def check_starts(sim: AbstractSimulator, given: int | None) -> None:
    """Refuse a wrong number of starts."""
    number = sim.starts.size
    if given is not None and given != number:
        raise ValueError(
            f"starts: {given} given, but the simulator has {number} start state(s): "
            f"{', '.join(str(sim.states[s]) for s in sim.starts[:20])}"
        )


def start_counts(sim: AbstractSimulator, episodes: Any) -> StartCounts:
    """For Algorithms 3 and 4: the given counts, those that fit a total, or practical ones."""
    horizon, number = sim.horizon, sim.starts.size
    if isinstance(episodes, StartCounts):
        return episodes
    if episodes == "auto":
        return StartCounts.practical(horizon, number)
    if isinstance(episodes, int):
        return StartCounts.within(episodes, horizon, number)
    raise ValueError(
        f"episodes: {episodes!r} with method 'paper' and several starts, which needs a number, "
        "'auto' or StartCounts"
    )


def start_warnings(sim: AbstractSimulator, found: StartsFound) -> Iterator[str]:
    """What a user should know about the starts."""
    chances = dict(zip(sim.starts.tolist(), sim.start_probabilities.tolist(), strict=True))
    for start in found.unseen:
        yield (
            f"start {sim.states[start]} (state {start}, probability {chances[start]:g} on the "
            "map) seems never to have appeared, or was taken for another: none of the clusters of "
            f"first observations in {found.episodes} episodes is it; where it does appear, the "
            "policy will take it for another start"
        )


def starts_record(
    sim: AbstractSimulator,
    found: StartsFound,
    *,
    accuracy: float | None = None,
    purity: float | None = None,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What is written down about the starts: a summary ready for JSON, and arrays to draw.

    Where somebody can know, `accuracy` is how often the first state was right, and `purity` how
    often a cluster holds the start that most of it are.
    """
    margins, clusters = start_margins(sim), found.clusters
    summary = {
        "episodes": found.episodes,
        "margin": min(margin.mean for margin in margins),
        "margin_least": min(margin.least for margin in margins),
        "accuracy": accuracy,
        "purity": purity,
        "error": clusters.error,
        "error_alone": clusters.error_alone,
        "clusters": [
            {"start": start, "state": str(sim.states[start]), "share": share}
            for start, share in zip(found.starts, clusters.shares, strict=True)
        ],
        "hypotheses": [
            asdict(one) | {"state": str(sim.states[one.start])} for one in found.hypotheses
        ],
        "unseen": [str(sim.states[start]) for start in found.unseen],
    }
    places = flattened(clusters.features, clusters.members, len(found.starts))
    return summary, {"starts.places": places, "starts.clusters": clusters.members}


def flattened(x: NDArray[np.float32], group: NDArray[np.int64], groups: int) -> NDArray[np.float32]:
    """Points [n, d] on the plane in which their groups' means lie farthest apart, [n, 2].

    Two means lie on a line; the direction beside it is that of the largest spread that is left.
    """
    centred = x.astype(np.float64) - x.mean(axis=0)
    means = [centred[group == k].mean(axis=0) for k in range(groups) if (group == k).any()]
    between = np.linalg.svd(np.stack(means), full_matrices=False)[2][: min(2, len(means) - 1)]
    rest = centred - centred @ between.T @ between
    axes = np.concatenate([between, np.linalg.svd(rest, full_matrices=False)[2][:2]])[:2]
    flat = centred @ axes.T
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    return flat.astype(np.float32)
