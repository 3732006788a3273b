"""Large maps: only the part that episodes were in, or next to it, takes part in a fit.

Most of a building is nowhere near the way. A class that no episode has met, to any degree that
would be seen in a mean, cannot learn anything from them, and nor can its neighbours' neighbours.
What is left out becomes wall: a step that would lead there stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes

LARGE = 512
"""Slots below which nothing is left out."""
_MET = 1e-3
"""Expected sightings, over all episodes, below which a class counts as not met."""
_SMALLEST = 256
"""Parts are padded to this times 1, 1.5, 2, 3, 4, 6, …: compiled code then serves many of them."""


def is_large(chain: Chain) -> bool:
    """Is the map large, and the same at every step?"""
    return not chain.layered and chain.num_slots > LARGE


def near(
    chain: Chain, classes: Classes, counts: NDArray[np.float64], *, steps: int
) -> NDArray[np.int32] | None:
    """The slots of classes seen so often [C], and all within so many steps of them.

    Padded by −1. None if that is most of the map.
    """
    met = (counts > _MET)[np.asarray(classes.members[0])] | (np.asarray(chain.start) > 0)
    exists = np.asarray(chain.share[0]) > 0
    own = np.arange(met.size)[:, None]
    successor = np.where(exists, np.asarray(chain.successor[0]), own)
    for _ in range(steps):
        further = met.copy()
        further[successor[met].ravel()] = True
        met = further
    slots = np.flatnonzero(met)
    room = next(size for size in _sizes() if size >= slots.size)
    if room > 0.8 * chain.num_slots:
        return None
    return np.pad(slots, (0, room - slots.size), constant_values=-1).astype(np.int32)


def _sizes() -> Iterator[int]:
    size = _SMALLEST
    while True:
        yield size
        yield size * 3 // 2
        size *= 2


def part_of(chain: Chain, classes: Classes, slots: NDArray[np.int32]) -> tuple[Chain, Classes]:
    """The map of these slots alone."""
    there = slots >= 0
    kept, own = np.maximum(slots, 0), np.arange(slots.size)
    place = np.full(chain.num_slots, -1)
    place[slots[there]] = own[there]
    after = place[np.asarray(chain.successor[0])[kept]]
    after = np.where((after >= 0) & there[:, None], after, own[:, None])
    successor = jnp.asarray(after[None], jnp.int32)

    def rows(table: jax.Array) -> jax.Array:
        return table[:, kept]

    part = replace(
        chain,
        states=jnp.where(there[None], rows(chain.states), -1),
        successor=successor,
        outcome=rows(chain.outcome),
        share=rows(chain.share),
        start=jnp.where(there, chain.start[kept], 0.0),
        pays=rows(chain.pays),
        final=rows(chain.final),
    )
    members = rows(classes.members)
    return part, replace(classes, members=members, of_edge=successor, first=members[0])
