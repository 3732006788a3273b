"""Random bits as a pure function of a key and a counter, many times cheaper than JAX's own.

Number i is mix(i·φ + k₀, k₁), where (k₀, k₁) is the key with its words mixed into each other, and
mix is two rounds of xor-shift and multiply (constants: C. Wellons' lowbias32) with k₁ added in
between. JAX's generator would take nearly all the time of a step of a picture.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def random_bits(key: jax.Array, number: int) -> jax.Array:
    """So many times 32 bits, uint32 [number]."""
    first, second = jax.random.key_data(key)
    first = mixed(first, second)
    second = mixed(second, first)
    counter = jnp.arange(number, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    return mixed(counter + first, second)


def uniform(bits: jax.Array) -> jax.Array:
    """In [0, 1), from the upper 24 bits of each number, float32."""
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def mixed(bits: jax.Array, salt: jax.Array) -> jax.Array:
    """Every bit of the result depends on every bit given."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D) + salt
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)
