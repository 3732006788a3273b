"""What a saved policy knows of looks, for learning that goes on: in its target, or on a new map.

Looks belong to places, not to the map's arrows: with other successors, another η or other rewards a
place looks as it did. Places are found again by their labels, so cells may have come or gone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.described import descriptions, sharpness
from tasid.beliefs.features import AsSeen, FeatureMap
from tasid.beliefs.fitting import BeliefSetting
from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.moments import Moments, moments_of
from tasid.beliefs.nearby import is_large
from tasid.beliefs.scaled import Scaled
from tasid.maps import AbstractSimulator
from tasid.policies.belief_policy import BeliefPolicy

_SHARED = 0.5
"""The part of the places of either map that the other must have."""
_NEVER = -30.0
"""The bias of a class that a network has never heard of."""


class TakenOver(NamedTuple):
    """What a policy knows, in terms of a map's classes."""

    classes: Classes
    feature_map: FeatureMap
    emission: Gaussians | Scaled
    known: Moments | None
    """What it was fitted to; None if that cannot be told."""


def check_saved(
    policy: BeliefPolicy, sim: AbstractSimulator, shape: tuple[int, ...], dtype: str
) -> None:
    """Refuse a policy that saw or did something else than what is to be learned."""
    if isinstance(policy.feature_map, AsSeen):
        raise ValueError("from_policy: sees by a model of your own, which does not go on learning")
    seen, sees = (policy.observation_shape, policy.observation_dtype), (tuple(shape), dtype)
    if seen != sees:
        raise ValueError(
            f"from_policy: observes {seen[1]} {list(seen[0])}, the target shows "
            f"{sees[1]} {list(sees[0])}"
        )
    if policy.num_actions != sim.num_actions:
        raise ValueError(
            f"from_policy: has {policy.num_actions} actions, the map has {sim.num_actions}"
        )
    before = policy.simulator
    if before.num_states != sim.num_states and None in (before.labels, sim.labels):
        raise ValueError(
            f"from_policy: its map has {before.num_states} states, this one {sim.num_states}, and "
            "without labels on both there is no telling which are the same"
        )
    steps = len(policy.feature_map.usual) - 1
    if steps not in (0, sim.horizon):
        raise ValueError(
            f"from_policy: knows the looks of each of {steps} steps, the map's horizon is "
            f"{sim.horizon}"
        )


def taken_over(policy: BeliefPolicy, setting: BeliefSetting, sim: AbstractSimulator) -> TakenOver:
    """What a checked policy knows, for this setting of this map."""
    assert isinstance(policy.feature_map, FeatureMap)
    before = policy.actor.filter
    classes = Classes.of(setting.chain, policy.classes, sim)
    if policy.classes == "place":
        rows = _found_again(_places(before.chain, policy.simulator), _places(setting.chain, sim))
    elif classes.number == before.classes.number:
        rows = np.arange(classes.number)
    else:
        raise ValueError(
            f"from_policy: tells {before.classes.number} classes apart by {policy.classes}, on the "
            f"map there are {classes.number}"
        )
    emission = policy.emission
    if isinstance(emission, Scaled):
        return TakenOver(classes, policy.feature_map, _network(emission, rows), None)
    described = descriptions(policy.simulator, before.chain) if is_large(before.chain) else None
    chosen = _gaussians(emission, rows, sharpness(described, emission.spread.size))
    blind = not bool((chosen.spread > 0).all())
    known = None if blind else moments_of(chosen, described)
    return TakenOver(classes, policy.feature_map, chosen, known)


def _places(chain: Chain, sim: AbstractSimulator) -> list[object]:
    """The labels of places, class by class."""
    states = np.unique(np.asarray(chain.states))
    return [sim.states[state] for state in states[states >= 0]]


def _found_again(old: list[object], new: list[object]) -> NDArray[np.intp]:
    """The old number of every new place; −1 for those that are new indeed."""
    number = {label: row for row, label in enumerate(old)}
    rows = np.array([number.get(label, -1) for label in new], np.intp)
    shared = int((rows >= 0).sum())
    if shared < _SHARED * max(len(old), len(new)):
        raise ValueError(
            f"from_policy: was learned on a map with {len(old)} places, of which {shared} are on "
            f"this one with its {len(new)}; it is another map, so begin without the policy"
        )
    return rows


def _gaussians(emission: Gaussians, rows: NDArray[np.intp], sharp: float) -> Gaussians:
    """The looks of some classes; one never seen is scored by the broad prior."""
    met, variance = jnp.asarray(rows >= 0), 1 + emission.spread
    broad = -0.5 * sharp / variance
    return emission._replace(
        linear=jnp.where(met[:, None], emission.linear[rows], 0.0),
        square=jnp.where(met[:, None], emission.square[rows], broad[None]),
        constant=jnp.where(met, emission.constant[rows], -0.5 * sharp * jnp.log(variance).sum()),
    )


def _network(emission: Scaled, rows: NDArray[np.intp]) -> Scaled:
    """The same of a network."""
    met, weights = jnp.asarray(rows >= 0), emission.parameters
    chosen = {
        **weights,
        "w1": jnp.where(met[None], weights["w1"][:, rows], 0.0),
        "b1": jnp.where(met, weights["b1"][rows], _NEVER),
    }
    return Scaled(
        chosen,
        jnp.where(met, emission.log_prior[rows], 0.0),
        jnp.where(met, emission.trust[rows], 0.0),
        emission.classifier,
        emission.size,
    )
