"""The far side of the wall around latent states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax

from tasid.maps import PerturbedMDP, RobustPlan, blind_value, policy_value
from tasid.targets.target import State

Worlds = tuple[tuple[float, PerturbedMDP], ...]
"""Latent MDPs and how likely an episode is in each of them."""


@dataclass(frozen=True)
class Latent:
    """The far side of the wall: for evaluation and diagnosis, never for a learner."""

    world: PerturbedMDP
    """The only one, or that of an episode whose circumstances hinder nobody."""
    _worlds: Callable[[], Worlds] | None = None

    @property
    def worlds(self) -> Worlds:
        """All of them, by the circumstances of an episode."""
        return ((1.0, self.world),) if self._worlds is None else self._worlds()

    def robust_value(self, plan: RobustPlan) -> float:
        """What the plan earns here with latent access, exactly."""
        return sum(chance * policy_value(world, plan) for chance, world in self.worlds)

    def blind_value(self) -> float:
        """What the best constant action or the open-loop nominal plan earns here, exactly."""
        return blind_value(self.worlds)

    @staticmethod
    def states(state: State) -> jax.Array:
        """The latent states [W] inside a block target's opaque state."""
        return state
