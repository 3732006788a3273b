"""Tables on their way from NumPy to compiled code."""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import ArrayLike, DTypeLike


def on_device(table: ArrayLike, dtype: DTypeLike | None = None) -> jax.Array:
    """A copy of a table for JAX.

    Nothing is compiled for it, as `jnp.asarray` does for every new shape: there are dozens of them.
    """
    return jax.device_put(np.array(table, dtype))
