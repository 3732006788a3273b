"""What classes look like: a Gaussian each, of one covariance, in the directions that matter.

Fitted to what was seen by probabilistic linear discriminant analysis (`moments`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float


class Gaussians(NamedTuple):
    """A fitted emission over C classes in d directions."""

    centre: Float[Array, " D"]
    """m, [D]."""
    directions: Float[Array, "D d"]
    """Columns that whiten W and diagonalise B, [D, d]."""
    linear: Float[Array, "C d"]
    """Coefficients of y, [C, d]: mean / variance."""
    square: Float[Array, "C d"]
    """Coefficients of y², [C, d]: −1 / (2 variance)."""
    constant: Float[Array, " C"]
    """[C]."""
    spread: Float[Array, " d"]
    """b, the variance of the means along the kept directions in units of W, [d]."""
    log_volume: Float[Array, ""]
    """ln |det| of the whitening: makes densities of different fits comparable, []."""
    whitening: Float[Array, "D D"]
    """All directions, [D, D]; its columns whiten W."""

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> Gaussians:
        """From NumPy's, in single precision."""
        return cls(**jax.device_put({n: np.asarray(x, np.float32) for n, x in numbers.items()}))

    @staticmethod
    def shapes(num_classes: int, size: int, kept: int) -> dict[str, tuple[int, ...]]:
        """Of the numbers, for C classes, D features and d directions."""
        return {
            "centre": (size,),
            "directions": (size, kept),
            "linear": (num_classes, kept),
            "square": (num_classes, kept),
            "constant": (num_classes,),
            "spread": (kept,),
            "log_volume": (),
            "whitening": (size, size),
        }

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.linear.shape[0])

    def scores(self, features: Any, members: Any) -> Any:
        """ln p(x | c) up to what all classes share, [L, N], for features [N, D], classes [L].

        This and `shared` compute in NumPy, if the numbers are NumPy's.
        """
        y = ((features - self.centre[None]) @ self.directions).T
        return (
            self.square[members] @ (y * y)
            + self.linear[members] @ y
            + self.constant[members][:, None]
        )

    def exact_scores(self, features: jax.Array, members: jax.Array) -> jax.Array:
        """The same in one order of summation, whatever the number of rows: same bits."""
        y = summed_in_order((features - self.centre[None]).T, self.directions)
        square, linear = self.square[members], self.linear[members]
        total = jnp.broadcast_to(self.constant[members][:, None], (members.size, y.shape[1]))
        for j in range(y.shape[0]):
            total = total + (square[:, j, None] * y[j][None] + linear[:, j, None]) * y[j][None]
        return total

    def shared(self, features: Any) -> Any:
        """What `scores` left out of ln p(x | c), [N]."""
        centred = features - self.centre[None]
        whole, kept = centred @ self.whitening, centred @ self.directions
        rest = (whole * whole).sum(axis=-1) - (kept * kept).sum(axis=-1)
        return self.log_volume - 0.5 * rest - 0.5 * features.shape[-1] * math.log(2 * math.pi)


def summed_in_order(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """Σ_p weights[p, j] · rows[p, n] as [J, N], added up in the order of p.

    A matrix product would be faster and sum up in an order that depends on the shape.
    """

    def add(p: jax.Array, total: jax.Array) -> jax.Array:
        return total + weights[p][:, None] * rows[p][None, :]

    return jax.lax.fori_loop(0, rows.shape[0], add, jnp.zeros((weights.shape[1], rows.shape[1])))


def flat_gaussians(num_classes: int, size: int, dimensions: int) -> Gaussians:
    """An emission that knows nothing: all classes look alike."""
    shapes = Gaussians.shapes(num_classes, size, min(dimensions, size))
    return Gaussians.of({name: np.zeros(shape) for name, shape in shapes.items()})
