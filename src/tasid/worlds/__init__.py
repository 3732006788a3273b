"""What our worlds share: routes of plans on grid maps, and cheap random bits for observations.

**Random bits** are a hash of a key and a counter, many times cheaper than threefry on CPUs: number
i is mix(i φ + k₀, k₁) for a key (k₀, k₁) whose words are mixed first. `mix` is two rounds of
xor-shift and multiplication with the constants of C. Wellons' lowbias32, k₁ added in between. With
threefry, noise would take nearly all the time of an observation with thousands of pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tasid.layout import GOAL
from tasid.planning import RobustPlan, robust_dp
from tasid.simulator import AbstractSimulator, SimulatorError

ROUTE_ETA = 0.1
"""Horizons follow from the robust plan for this η, so that one map has one horizon."""
ROUTES = 3
"""An episode lasts this many times the route."""


def robust_horizon(sim: AbstractSimulator, *, shortest: int, longest: int) -> int:
    """Three times the longest route of the robust plan that is made for that horizon or more.

    Horizons are doubled from `shortest` to `longest`.
    """
    horizon = shortest
    while horizon <= longest:
        steps = route_steps(robust_dp(sim.with_horizon(horizon), eta=ROUTE_ETA))
        if steps is not None and ROUTES * steps <= horizon:
            return ROUTES * steps
        horizon *= 2
    steps = route_steps(robust_dp(sim.with_horizon(longest), eta=0.0))
    reason = f"the shortest ways there take {steps} steps"
    if steps is None or ROUTES * steps <= longest:
        reason = "on every way a slip into a hazard costs more than the goal earns"
    raise SimulatorError(
        f"horizon: None, and the robust plan for η = {ROUTE_ETA:g} does not lead to a goal from "
        f"every start: {reason}; give a horizon"
    )


def route_steps(plan: RobustPlan) -> int | None:
    """Steps to a goal without slips, from the farthest start; None if one does not arrive."""
    assert plan.simulator.layout is not None, "grid maps have a layout"
    routes = (plan.simulator.layout.kinds == GOAL)[plan.path(plan.simulator.starts)]
    return int(routes.argmax(axis=0).max()) if routes.any(axis=0).all() else None


def check_options(
    options: Mapping[str, Any],
    limits: Mapping[str, tuple[float, float]],
    choices: Mapping[str, Sequence[str]],
) -> None:
    """Raise `ValueError` unless options are within limits, ends included, and among choices."""
    for name, (low, high) in limits.items():
        if not low <= options[name] <= high:
            raise ValueError(f"{name}: {options[name]} is not in {low:g} … {high:g}")
    for name, known in choices.items():
        if options[name] not in known:
            raise ValueError(f"{name}: {options[name]!r} is none of {', '.join(known)}")


def random_bits(keys: jax.Array, count: int) -> jax.Array:
    """Random 32-bit numbers for each key [n], uint32 [n, count]."""
    first, second = jnp.split(jax.random.key_data(keys), 2, axis=-1)
    first = mix(first, second)
    second = mix(second, first)
    counters = jnp.arange(count, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    return mix(counters + first, second)


def uniform(bits: jax.Array) -> jax.Array:
    """Numbers in [0, 1) from the upper 24 bits of each number, float32."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def mix(bits: jax.Array, salt: jax.Array) -> jax.Array:
    """A hash whose every bit depends on every bit of `bits`."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D) + salt
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)
