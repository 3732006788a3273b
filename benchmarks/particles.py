"""Monte Carlo localisation as robots do it today, acting by the same plan: a peer, not a part.

It is told what the belief method has to learn: the laser's position, its noise, the map at full
resolution, how far the robot stands from the middle of its cell. Weights are those of a likelihood
field. With `recovers`, particles are drawn anew when recent weights fall behind older ones, as AMCL
does if it is asked to (augmented MCL, with the sum of cubes that AMCL keeps for it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

from tasid.beliefs.actor import advantages
from tasid.beliefs.chain import Chain
from tasid.maps import RobustPlan
from tasid.targets import BlockMDP
from tasid.targets.target import seed_key
from tasid.targets.worlds.building.pose import DRAWS, Whereabouts

_HIT, _RANDOM = 0.95, 0.05
"""Shares of readings that are of the map, and of anything."""
_SIGMA = 0.1
"""Metres: the sensor's noise and half a pixel."""
_EVERY = 2
"""One beam of so many is used: neighbours are not independent."""
_BEAMS = 8.0
"""All of a scan's beams count as so many, for the same reason."""
_SLOW, _FAST = 0.001, 0.1


class Cloud(NamedTuple):
    """Particles of N episodes."""

    states: jax.Array
    """[N, P]."""
    commands: jax.Array
    """The last ones, [N]."""
    slow: jax.Array
    fast: jax.Array
    """Running means of the mean weight, [N]."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["successor", "docks", "free", "field", "advantage", "whereabouts"],
    meta_fields=["particles", "eta", "limit", "beams", "recovers"],
)
@dataclass(frozen=True)
class MonteCarlo:
    """An actor by particles."""

    successor: jax.Array
    docks: jax.Array
    """States that episodes begin in."""
    free: jax.Array
    """States that new particles are drawn from."""
    field: jax.Array
    """ln p(a beam that ends there), for each pixel."""
    advantage: jax.Array
    whereabouts: Whereabouts
    particles: int
    eta: float
    limit: float
    beams: int
    recovers: bool

    @classmethod
    def of(
        cls, env: BlockMDP, plan: RobustPlan, *, particles: int, recovers: bool = False
    ) -> MonteCarlo:
        """For a building with a lidar."""
        lidar, sim = env.target.emission, env.simulator
        chain = Chain.of(sim)
        assert not chain.layered
        assert chain.num_slots == sim.num_states
        solid = np.asarray(lidar.whereabouts.rays.table)[..., 0] == 0
        off = ndimage.distance_transform_edt(~solid) * lidar.whereabouts.pixel / _SIGMA
        field = np.log(_HIT * np.exp(-0.5 * off**2) + _RANDOM / lidar.limit)
        return cls(
            successor=jnp.asarray(sim.successor, jnp.int32),
            docks=jnp.asarray(sim.starts, jnp.int32),
            free=jnp.arange(sim.num_states, dtype=jnp.int32),
            field=jnp.asarray(field, jnp.float32),
            advantage=advantages(plan, chain),
            whereabouts=lidar.whereabouts,
            particles=particles,
            eta=plan.eta,
            limit=lidar.limit,
            beams=lidar.beams,
            recovers=recovers,
        )

    def start(self, observations: jax.Array) -> Cloud:
        """Particles at the docks, as many at each."""
        rows = observations.shape[0]
        states = self.docks[jnp.arange(self.particles) % self.docks.size]
        states = jnp.broadcast_to(states[None], (rows, self.particles))
        return Cloud(states, jnp.zeros(rows, jnp.int32), jnp.zeros(rows), jnp.zeros(rows))

    def likeliest(self, cloud: Cloud) -> jax.Array:
        """The state with the most particles, [N]."""
        number = self.successor.shape[0]

        def one(states: jax.Array) -> jax.Array:
            return jnp.zeros(number, jnp.int32).at[states].add(1).argmax()

        return jax.vmap(one)(cloud.states)

    def act(self, cloud: Cloud, observations: jax.Array, h: jax.Array) -> tuple[Cloud, jax.Array]:
        """Move the particles, weigh them by the scan, draw them again, and do what is best."""
        rows = observations.shape[0]
        keys = jax.random.split(jax.random.fold_in(seed_key(1), h), (rows, 5))
        moved = jax.vmap(self._moved)(keys[:, 0], cloud.states, cloud.commands)
        states = jnp.where(h == 0, cloud.states, moved)
        logs, cubes = jax.vmap(self._weights)(keys[:, 1], states, observations)
        mean = cubes.mean(axis=1)
        first = cloud.slow == 0
        slow = jnp.where(first, mean, cloud.slow + _SLOW * (mean - cloud.slow))
        fast = jnp.where(first, mean, cloud.fast + _FAST * (mean - cloud.fast))
        anew = jnp.maximum(0.0, 1.0 - fast / slow) * self.recovers
        states = jax.vmap(self._drawn)(keys[:, 2], keys[:, 3], keys[:, 4], states, logs, anew)
        worth = self.advantage[h][states].mean(axis=1)
        commands = worth.argmax(axis=1).astype(jnp.int32)
        return Cloud(states, commands, slow, fast), commands

    def _moved(self, key: jax.Array, states: jax.Array, command: jax.Array) -> jax.Array:
        slips, which = jax.random.split(key)
        number = self.successor.shape[1]
        other = jax.random.randint(which, states.shape, 0, number)
        happened = jnp.where(jax.random.uniform(slips, states.shape) < self.eta, other, command)
        return self.successor[states, happened]

    def _weights(
        self, key: jax.Array, states: jax.Array, scan: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The logarithms, and those that AMCL compares over time, [P] each."""
        bits = jax.random.bits(key, (self.particles, DRAWS))
        stand = jax.vmap(self.whereabouts.stand)(bits, states)
        angle = 2 * np.pi * np.arange(0, self.beams, _EVERY) / self.beams
        ranges = scan[::_EVERY]
        ahead, left = jnp.asarray(np.cos(angle))[None], jnp.asarray(np.sin(angle))[None]
        far = ranges[None] / self.whereabouts.pixel
        x = stand.x[:, None] + far * (
            stand.ahead_x[:, None] * ahead - stand.ahead_y[:, None] * left
        )
        y = stand.y[:, None] + far * (
            stand.ahead_y[:, None] * ahead + stand.ahead_x[:, None] * left
        )
        high, wide = self.field.shape
        row = jnp.clip(jnp.floor(y).astype(jnp.int32), 0, high - 1)
        column = jnp.clip(jnp.floor(x).astype(jnp.int32), 0, wide - 1)
        used = (ranges > 0) & (ranges < self.limit)
        fits = self.field[row, column]
        logs = jnp.where(used[None], fits, 0.0).sum(axis=1) * (_BEAMS / jnp.maximum(used.sum(), 1))
        if not self.recovers:
            return logs, jnp.ones(self.particles)
        return logs, 1.0 + jnp.where(used[None], jnp.exp(3 * fits), 0.0).sum(axis=1)

    def _drawn(
        self, turn: Any, fresh: Any, where: Any, states: jax.Array, logs: jax.Array, anew: jax.Array
    ) -> jax.Array:
        """Low-variance resampling, with some particles anywhere."""
        weights = jnp.cumsum(jax.nn.softmax(logs))
        ticks = (jnp.arange(self.particles) + jax.random.uniform(turn)) / self.particles
        chosen = states[jnp.minimum(jnp.searchsorted(weights, ticks), self.particles - 1)]
        lost = jax.random.uniform(fresh, (self.particles,)) < anew
        random = self.free[jax.random.randint(where, (self.particles,), 0, self.free.size)]
        return jnp.where(lost, random, chosen)
