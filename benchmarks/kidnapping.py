"""Carried away in mid-episode: does one know soon where one is, and could one know?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.followed import Carried, Followed, final_states, follow
from tasid.beliefs.actor import BeliefActor
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import fit_features
from tasid.beliefs.moments import Moments
from tasid.learning.belief.fits import BeliefFit, actor_of, setting_for
from tasid.maps import RobustPlan
from tasid.policies.belief_policy import LOST, BeliefPolicy
from tasid.runs.learn import LearningResult
from tasid.targets import BlockMDP
from tasid.targets.target import seed_key

_SHOWN = 32
"""Observations of every place that the informed filter is shown."""
_VISITS = 5.0
"""Where learning has been less often than this, nobody is put."""

Table = np.ndarray


def kidnapped(
    env: BlockMDP,
    result: LearningResult,
    right: Callable[[Followed], Table],
    *,
    episodes: int,
    seed: int,
    spare: int,
    within: int,
    in_a_row: int,
) -> dict[str, float]:
    """How often `right` [H, N] is true so soon after, for so many steps in a row.

    Each robot is carried away once, before a step drawn from 1 … H − `spare`, if it is still going.
    """
    policy, visits = result.policy, result.diagnostics.visits
    assert isinstance(policy, BeliefPolicy)
    assert visits is not None
    going = np.flatnonzero(~final_states(env.simulator) & (np.asarray(reached(policy)) > 0))
    known = going[visits[going] >= _VISITS]
    rng = np.random.default_rng(seed)
    when = rng.integers(1, policy.horizon - spare + 1, episodes)
    carried: Carried = (when, rng.choice(known, episodes))
    ours, told = (
        follow(env, actor, episodes=episodes, seed=seed, carried=carried)
        for actor in (policy.actor, informed(env, policy.plan))
    )
    rows = np.arange(episodes)
    # Both are carried away if they were going then; who had arrived before was left alone.
    away = ours.going[when, rows] & told.going[when, rows]
    found, possible = (_soon(right(one), when, within, in_a_row)[away] for one in (ours, told))
    return {
        "coverage": len(known) / len(going),
        "kidnapped": float(away.mean()),
        "found": float(found.mean()),
        "informed": float(possible.mean()),
        "found where informed do": float(found[possible].mean()) if possible.any() else np.nan,
        "lost raised": float((ours.doubt >= LOST).any(axis=0)[away].mean()),
    }


def reached(policy: BeliefPolicy) -> Table:
    """1 for every state that the map can lead to, [S]."""
    slots = np.asarray(policy.actor.chain.states)
    there = np.zeros(policy.simulator.num_states)
    there[slots[slots >= 0]] = 1
    return there


def _soon(right: Table, when: Table, within: int, in_a_row: int) -> Table:
    padded = np.concatenate([right, np.ones((in_a_row, right.shape[1]), bool)])
    runs = np.stack([padded[k : k + len(right)] for k in range(in_a_row)]).all(axis=0)
    steps = np.arange(len(right))[:, None]
    found: Table = (runs & (steps >= when) & (steps <= when + within)).any(axis=0)
    return found


def informed(env: BlockMDP, plan: RobustPlan) -> BeliefActor:
    """The policy of one who was shown every place, so many times, with its name."""
    setting = setting_for(plan)
    classes = Classes.of(setting.chain, "place", plan.simulator)
    states = np.asarray(setting.chain.states[0])
    shown = [_shown(env.target, jnp.asarray(states), number) for number in range(_SHOWN)]
    looks = fit_features(np.concatenate(shown[:2]))
    features = [np.asarray(looks(jnp.asarray(x), jnp.int32(0)), np.float64) for x in shown]
    counts = np.full(classes.number, float(_SHOWN))
    rows = np.concatenate(features)
    moments = Moments(
        counts, np.sum(features, axis=0), float(len(rows)), rows.sum(0), rows.T @ rows
    )
    emission = setting.gaussians(classes, moments)
    return actor_of(setting, BeliefFit("informed", classes, looks, emission, counts))


def _shown(target: Any, states: jax.Array, number: int) -> Table:
    keys = jax.random.split(jax.random.fold_in(seed_key(2), number), states.size)
    return np.asarray(_look(target, keys, states))


@jax.jit
def _look(target: Any, keys: jax.Array, states: jax.Array) -> jax.Array:
    seen: jax.Array = target._seen(states, keys, 1, target._episodes(keys))
    return seen
