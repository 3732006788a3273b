"""How much memory and time learning takes, estimated before anything is played."""

from __future__ import annotations

import math
import os
import resource
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tasid.hmm.features import is_picture
from tasid.hmm.transitions import TransitionGraph
from tasid.simulator import SizeError
from tasid.targets.base import Target

if TYPE_CHECKING:
    from tasid.learning.belief import BeliefConfig

PROCESS_BYTES = 750 << 20
"""What a process takes at most that has loaded everything and played a batch: 430 MB with a lock,
740 MB with the building."""

CONTAINER_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""Where control groups, version 2 and 1, say how much memory a container may take."""

PAIRS_AN_HOUR = 4e9
"""Observations times states of a step that learning gets through, roughly, on two cores: the
building's 4 324 poses, 136 steps and 200 episodes take two minutes."""


def memory_needed(
    graph: TransitionGraph, num_states: int, target: Target, config: BeliefConfig
) -> dict[str, int]:
    """Bytes that learning takes at most, by what takes them."""
    steps, slots, classes = graph.horizon + 1, graph.num_slots, graph.places.size
    observations = steps * (config.episodes or config.max_episodes)
    numbers, c = math.prod(target.observation_shape), config.features
    picture = is_picture(target.observation_shape)
    most = c.picture_components if picture else c.vector_components
    features, itemsize = min(numbers, most), np.dtype(target.observation_dtype).itemsize
    model, few = config.model is not None, classes <= config.max_network_classes
    return {
        "the plan": 9 * steps * num_states,
        # In batches, and all of them together.
        "observations": 2 * observations * numbers * itemsize,
        "features": observations * 4 * (3 * features + model * 2 * numbers),
        # Labels of all observations, of the valid ones, and padded to a power of two.
        "labels": few * 16 * min(config.max_labels, observations * classes),
        # Filtered probabilities and likelihoods in double precision, one episode a thread at least.
        "smoothing": config.em.threads * max(32 << 20, 16 * steps * slots) * 3 // 2,
        # Means, variances and sums of every class in double precision, and pairs of regressors.
        "emissions": 8 * classes * (16 * features + (0 if graph.layered else 1200)),
    }


def memory_limit() -> int:
    """Bytes that this process may take: the machine's memory, its container's, or its own limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            limits.append(int(Path(file).read_text()))
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min(limits if own == resource.RLIM_INFINITY else [*limits, own])


def check_memory(
    graph: TransitionGraph, num_states: int, target: Target, config: BeliefConfig
) -> None:
    """Raise `SizeError` if learning would not fit into memory; warn if it may take hours."""
    if config.model is not None and graph.places.size > config.max_network_classes:
        raise SizeError(
            f"model: the map has {graph.places.size} states, classifiers are fitted to at most "
            f"BeliefConfig.max_network_classes = {config.max_network_classes}"
        )
    needed, limit = memory_needed(graph, num_states, target, config), memory_limit()
    episodes = config.episodes or config.max_episodes
    total, largest = PROCESS_BYTES + sum(needed.values()), max(needed, key=lambda n: needed[n])
    if total > limit:
        raise SizeError(
            f"simulator: learning on {graph.places.size} states over {graph.horizon} steps from up "
            f"to {episodes} episodes would take {total / 2**30:.3g} GiB, "
            f"{needed[largest] / 2**30:.3g} of them for {largest}; this process may take "
            f"{limit / 2**30:.3g}. Use fewer episodes, a shorter horizon, a coarser map or smaller "
            "observations"
        )
    hours = graph.num_slots * (graph.horizon + 1) * episodes / PAIRS_AN_HOUR
    if hours >= 1:
        warnings.warn(
            f"learning on {graph.places.size} states over {graph.horizon} steps from up to "
            f"{episodes} episodes may take {hours:.1f} hours on two cores and {total / 2**30:.2g} "
            "GiB; a coarser map, a shorter horizon or fewer episodes take less",
            stacklevel=2,
        )
