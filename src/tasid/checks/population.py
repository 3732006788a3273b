"""What a perfect classifier would achieve: the limit of Algorithm 2 with unlimited data, exactly.

Definitions. `looks` says which states look alike. With unlimited data the model of step h is the
exact posterior of the action given what it sees: the looks before and after. It is taken over the
learner's own roll-ins, so true and tracked state are followed jointly: an ambiguity misleads ŝ, and
a misled ŝ chooses other actions.

The result needs no episode. A map whose limit is far below the robust value cannot be learned by
looking at two observations, however many there are; beliefs, which remember where one came from,
are not bound by it. Learners must not import this: it knows ξ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.checks.subject import Finding, fine, note, problem
from tasid.maps import (
    AbstractSimulator,
    PerturbedMDP,
    RobustPlan,
    perturb,
    policy_value,
    robust_dp,
)
from tasid.targets import BlockMDP, Target
from tasid.targets.block import looks_of

_SHOWN = 10
_NEGLIGIBLE = 1e-12
"""Pairs of true and tracked state rarer than this are followed no further; they grow too many."""
_LARGEST = 250_000
"""(step, state) pairs; the joint distribution of larger maps takes minutes."""
_TOLERATED = 0.05
"""Loss by looking alike, as a part of the robust value, before a map is called unfit for pairs."""
_ROUNDING = 1e-9
"""Actions this close in probability are a tie; without it, rounding would decide."""


@dataclass(frozen=True)
class Confusion:
    """A transition of a rightly tracked episode that is taken for another."""

    state: int
    successor: int
    taken_for: int
    """Where the decoder believes it led."""
    probability: float
    """How often it happens per episode."""


@dataclass(frozen=True, eq=False)
class PopulationLimit:
    """The value of π with perfect models, beside that of ρ with latent access."""

    value: float
    robust_value: float
    tracked: NDArray[np.float64]
    """P(ŝ_h = s_h) under π for h = 0 … H−1."""
    confusions: tuple[Confusion, ...]
    """The most frequent ones, most frequent first."""
    ignored: float
    """Probability of episodes not followed to their end; `value` is exact but for so much of the
    return range."""

    @property
    def ratio(self) -> float:
        """The limit over the robust value; meaningless where that is 0 or less."""
        return self.value / self.robust_value

    @property
    def loss(self) -> float:
        """What ambiguity costs: V^ρ − V^π."""
        return self.robust_value - self.value


class _Joint(NamedTuple):
    """The distribution of (s_h, ŝ_h) under π: distinct pairs and their probabilities."""

    states: NDArray[np.intp]
    tracked: NDArray[np.intp]
    mass: NDArray[np.float64]


def population_limit(world: PerturbedMDP, plan: RobustPlan, looks: ArrayLike) -> PopulationLimit:
    """The exact value of TASID with perfect models in a world whose states look like `looks` [S].

    Ties of the posterior, and transitions that exploration never shows, go to the lowest action; a
    learner's choice would be arbitrary there.
    """
    sim = world.simulator
    seen = _checked_looks(looks, sim)
    start = np.array([sim.start], dtype=np.intp)
    joint = _Joint(start, start, np.ones(1))
    value, tracked = 0.0, []
    confused: dict[tuple[int, int, int], float] = {}
    for h in range(sim.horizon):
        value += _paid(world, plan, joint, h)
        tracked.append(float(joint.mass[joint.states == joint.tracked].sum()))
        if h + 1 < sim.horizon:
            joint = _advanced(world, plan, joint, seen, h, confused)
    worst = sorted(confused.items(), key=lambda item: -item[1])[:_SHOWN]
    return PopulationLimit(
        value=value,
        robust_value=policy_value(world, plan),
        tracked=np.array(tracked),
        confusions=tuple(Confusion(*where, mass) for where, mass in worst),
        ignored=max(1.0 - float(joint.mass.sum()), 0.0),
    )


def _paid(world: PerturbedMDP, plan: RobustPlan, joint: _Joint, h: int) -> float:
    """The expected reward of step h."""
    chances = world.xi_at(h)[joint.states, plan.actions[h, joint.tracked]]
    rewards = world.simulator.reward_at(h)[joint.states]
    return float(joint.mass @ (chances * rewards).sum(axis=1))


def _advanced(
    world: PerturbedMDP,
    plan: RobustPlan,
    joint: _Joint,
    looks: NDArray[np.intp],
    h: int,
    confused: dict[tuple[int, int, int], float],
) -> _Joint:
    """The joint distribution after π's step h and the decoding of it; notes what it confuses."""
    code, best = _posterior(world, joint, looks, h)
    leads = world.simulator.successor_at(h)
    chances = world.xi_at(h)[joint.states, plan.actions[h, joint.tracked]]
    pair, action = np.nonzero(chances > 0)
    states, tracked = joint.states[pair], joint.tracked[pair]
    after = leads[states, action].astype(np.intp)
    mass = joint.mass[pair] * chances[pair, action]

    wanted = _sights(looks, states, after)
    place = np.minimum(np.searchsorted(code, wanted), code.size - 1)
    decoded = np.where(code[place] == wanted, best[place], 0)
    believed = leads[tracked, decoded].astype(np.intp)

    for i in np.flatnonzero((states == tracked) & (believed != after)):
        where = (int(states[i]), int(after[i]), int(believed[i]))
        confused[where] = confused.get(where, 0.0) + float(mass[i])
    size = world.simulator.num_states
    pairs, place = np.unique(after * size + believed, return_inverse=True)
    total = np.bincount(place.reshape(-1), mass).astype(np.float64)
    kept = total >= _NEGLIGIBLE
    return _Joint(pairs[kept] // size, pairs[kept] % size, total[kept])


def _posterior(
    world: PerturbedMDP, joint: _Joint, looks: NDArray[np.intp], h: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Everything that exploration at step h shows, sorted, and the likeliest action of each.

    Roll-ins come from π; then an action is drawn uniformly and commanded.
    """
    number = world.simulator.num_actions
    chances = world.xi_at(h)[joint.states] / number
    pair, command, action = np.nonzero(chances > 0)
    states = joint.states[pair]
    after = world.simulator.successor_at(h)[states, action].astype(np.intp)
    code, row = np.unique(_sights(looks, states, after), return_inverse=True)
    mass = joint.mass[pair] * chances[pair, command, action]
    weights = np.bincount(row.reshape(-1) * number + command, mass, code.size * number)
    weights = weights.reshape(code.size, number)
    best = weights.max(axis=1, keepdims=True)
    return code, (weights >= best * (1.0 - _ROUNDING)).argmax(axis=1)


def _sights(
    looks: NDArray[np.intp], states: NDArray[np.intp], after: NDArray[np.intp]
) -> NDArray[np.intp]:
    """One number for all that the model sees: both looks."""
    sights: NDArray[np.intp] = looks[states] * (int(looks.max()) + 1) + looks[after]
    return sights


def _checked_looks(looks: ArrayLike, sim: AbstractSimulator) -> NDArray[np.intp]:
    seen = np.asarray(looks)
    if seen.shape != (sim.num_states,) or seen.dtype.kind not in "iu" or seen.min() < 0:
        raise ValueError(
            f"looks: shape {seen.shape} of {seen.dtype} is not a number 0, 1, … for each of the "
            f"{sim.num_states} states"
        )
    return seen.astype(np.intp)


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
    foreign = isinstance(env, BlockMDP) and not env.brings(sim)
    latent = None if foreign else env.latent_on(sim)
    world = perturb(sim, eta=eta) if latent is None else latent.world
    chosen = plan if plan is not None else robust_dp(sim, eta=eta)
    return population_limit(world, chosen, looks), ""


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


def weigh(limit: PopulationLimit, *, method: str) -> Finding:
    """Is looking at two observations enough on this map? Beliefs look at all of them."""
    said = (
        f"perfect models of two observations would earn {limit.value:.4g}, where the robust plan "
        f"with the state in view earns {limit.robust_value:.4g}"
    )
    if limit.loss <= _TOLERATED * abs(limit.robust_value) + limit.ignored:
        return fine("population limit", said)
    where = "".join(
        f"; most often the step from state {worst.state} to {worst.successor} looks like one to "
        f"{worst.taken_for}"
        for worst in limit.confusions[:1]
    )
    said += f": states look too much alike for method 'paper', however many episodes{where}"
    if method == "belief":
        unbound = "Beliefs, which remember where one came from, are not bound by this"
        return note("population limit", f"{said}. {unbound}")
    return problem("population limit", said)
