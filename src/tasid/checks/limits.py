"""Are two observations enough? The population limit for whoever knows what states look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.checks.population import PopulationLimit, population_limit
from tasid.checks.subject import Finding, fine, note, problem
from tasid.maps import AbstractSimulator, PerturbedMDP, RobustPlan, perturb, robust_dp
from tasid.targets import BlockMDP, Target
from tasid.targets.aliasing import looks_of

_LARGEST = 250_000
"""(step, state) pairs; the joint distribution of larger maps takes minutes."""
_TOLERATED = 0.05
"""Loss by looking alike, as a part of the robust value, before a map is called unfit for pairs."""


def limit_of(
    env: Target,
    sim: AbstractSimulator,
    *,
    eta: float,
    plan: RobustPlan | None = None,
    render: Callable[[Any], ArrayLike] | None = None,
) -> tuple[PopulationLimit | None, str]:
    """What perfect models of two observations would earn, or why that is not known.

    The perturbation is the true one where it is known, else a random one of this η.
    """
    if len(sim.starts) > 1:
        return None, "only computed for maps with one start"
    if sim.num_states * sim.horizon > _LARGEST:
        return None, f"not computed for a map of {sim.num_states} states and {sim.horizon} steps"
    looks = _looks(env, sim, render)
    if looks is None:
        return None, "unknown, because what states look like is; give render(state) to know it"
    chosen = plan if plan is not None else robust_dp(sim, eta=eta)
    return population_limit(_world(env, sim, eta), chosen, looks), ""


def _looks(
    env: Target, sim: AbstractSimulator, render: Callable[[Any], ArrayLike] | None
) -> NDArray[np.int32] | None:
    if render is not None:
        return looks_of(render(state) for state in sim.states)
    if not isinstance(env, BlockMDP) or not env.brings(sim):
        return None
    emission = env.target.emission
    if hasattr(emission, "look"):
        return np.asarray(emission.look)
    return looks_of(np.asarray(emission.clean)) if hasattr(emission, "clean") else None


def _world(env: Target, sim: AbstractSimulator, eta: float) -> PerturbedMDP:
    foreign = isinstance(env, BlockMDP) and not env.brings(sim)
    latent = None if foreign else env.latent_on(sim)
    return perturb(sim, eta=eta) if latent is None else latent.world


def weigh(limit: PopulationLimit, *, method: str) -> Finding:
    """Is looking at two observations enough on this map? Beliefs look at all of them."""
    said = (
        f"perfect models of two observations would earn {limit.value:.4g}, where the robust plan "
        f"with the state in view earns {limit.robust_value:.4g}"
    )
    if limit.loss <= _TOLERATED * abs(limit.robust_value) + limit.ignored:
        return fine("population limit", said)
    worst = limit.confusions[0] if limit.confusions else None
    where = (
        ""
        if worst is None
        else f"; most often the step from state {worst.state} to {worst.successor} looks like one "
        f"to {worst.taken_for}"
    )
    if method == "belief":
        return note(
            "population limit",
            f"{said}: states look too much alike for method 'paper', however many episodes{where}. "
            "Beliefs, which remember where one came from, are not bound by this",
        )
    return problem(
        "population limit",
        f"{said}: states look too much alike for method 'paper', however many episodes{where}",
    )
