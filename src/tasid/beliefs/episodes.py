"""Whole episodes as the smoother reads them: steps first, episodes second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int


class Episodes(NamedTuple):
    """N episodes of H steps; rows with weight 0 are padding."""

    features: Float[Array, "H+1 N D"]
    """Of the observations x_0 … x_H, [H+1, N, D]."""
    commands: Int[Array, "H N"]
    """a_0 … a_{H−1}, int32 [H, N]."""
    paid: Int[Array, "H N"]
    """The number of each reward among the map's payments, int32 [H, N]; −1 if it is none."""
    ended: Int[Array, " N"]
    """The step after which nothing more happened, int32 [N]; H if the episode did not end."""
    tells: Bool[Array, ""]
    """Would the target have told an end? bool []."""
    own: Float[Array, "H N"]
    """Was the command the policy's own choice, and not an experiment? [H, N]"""
    weight: Float[Array, " N"]
    """[N]."""

    @property
    def live(self) -> Any:
        """Which observations are of the episode, not repeated after its end, [H+1, N].

        In NumPy, if the tables are.
        """
        steps = np.arange(self.features.shape[0])[:, None]
        return (steps <= self.ended[None]) * self.weight[None]


def payment_numbers(rewards: NDArray[np.floating], payments: NDArray[np.floating]) -> np.ndarray:
    """The place of each reward among the sorted payments; −1 where none is as large."""
    if not payments.size:
        return np.full(rewards.shape, -1, np.int32)
    nearest = np.abs(rewards[..., None] - payments).argmin(axis=-1)
    scale = max(1e-6, 1e-3 * float(np.ptp(payments)))
    matches = np.abs(rewards - payments[nearest]) <= scale
    return np.where(matches, nearest, -1).astype(np.int32)
