"""Does the learner know when it is wrong? Calibration, the two tests, and lost agents.

All on the combination lock with the outcome method; every seed is an instance of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np

import tasid
from tasid.algorithms.budget import FixedQuota
from tasid.algorithms.decoder import WIDTH, Decoder
from tasid.algorithms.surprise import EtaEstimate, Surprises
from tasid.envs import BlockMDP
from tasid.envs.rollout import trace
from tasid.envs.target import DIAGNOSIS, MONITORING, Target, episode_keys, seed_key
from tasid.mdp.outcomes import outcomes
from tasid.mdp.visitation import choice_mass

_VISITS = 50
_EPISODES = 20


def run(arguments: Sequence[str]) -> None:
    """Print what was measured, seed by seed and in all."""
    options = _parse(arguments)
    horizon, episodes = options.horizon, options.episodes
    errors, false, true, seen, lost = [], [], [], [], []
    for seed in options.seeds:
        env = tasid.make("combination-lock", horizon=horizon, seed=seed)
        policy = tasid.learn(env, eta=0.1, episodes=episodes, seed=seed).policy
        errors.append(tasid.calibrate(policy, env, seed=seed).expected_error)
        worse = tasid.make("combination-lock", horizon=horizon, seed=seed, eta=0.2)
        false += [tasid.estimate_eta(policy, env, seed=s).exceeded for s in range(20)]
        true += [tasid.estimate_eta(policy, worse, seed=s).exceeded for s in range(20)]
        seen += [_in_view(policy, worse, s).exceeded for s in range(20)]
        lost.append(_lost(policy, env))
    print(f"H = {horizon}, {episodes} episodes, seeds {options.seeds}")
    print("expected calibration error   " + " ".join(f"{error:.3f}" for error in errors))
    print(f"'η exceeded' in 20 episodes  power {np.mean(true):.3f}, false {np.mean(false):.4f}")
    print(f"  with latent states in view power {np.mean(seen):.3f}")
    alarms, right, delays, unnoticed = zip(*lost, strict=True)
    print(f"lost: false alarms           {sum(alarms)} in {sum(right)} rightly tracked episodes")
    print(f"lost: delays in steps        {sorted(chain(*delays))}")
    print(f"  never noticed, wrong for   {sorted(chain(*unnoticed))} steps")
    missed = [seed for seed in options.seeds if not _wrong_map(horizon, episodes, seed)]
    found, of = len(options.seeds) - len(missed), len(options.seeds)
    print(f"'wrong map' found            {found} of {of}, {_VISITS} visits or more; not {missed}")


def _in_view(policy: tasid.Policy, env: BlockMDP, seed: int) -> EtaEstimate:
    """What `tasid.estimate_eta` would say of the same episodes if it saw the latent states."""
    keys = episode_keys(seed_key(seed), MONITORING, jnp.arange(WIDTH))
    states = _states(env.target, policy.decoder, keys)
    seen = Surprises(policy.plan, outcomes(policy.simulator).number)
    seen.add_path(np.asarray(states).T[:_EPISODES].astype(np.int32))
    return seen.eta()


@jax.jit
def _states(target: Target, decoder: Decoder, keys: jax.Array) -> jax.Array:
    """Latent states before every step, [H, W]."""
    return trace(target, decoder, keys, record=lambda before, *_: before.state)[1]


def _lost(policy: tasid.Policy, env: BlockMDP) -> tuple[int, int, list[int], list[int]]:
    """False alarms, rightly tracked episodes, delays of true alarms, wrong steps unnoticed."""
    keys = episode_keys(seed_key(1), DIAGNOSIS, jnp.arange(WIDTH))
    observations, states = (
        np.asarray(x)
        for x in jax.jit(
            lambda target, decoder: trace(
                target, decoder, keys, record=lambda b, a, c, h: (b.observations, b.state)
            )[1]
        )(env.target, policy.decoder)
    )
    alarms, right, delays, unnoticed = 0, 0, [], []
    for slot in range(WIDTH):
        agent = policy.agent(slot=slot)
        tracked, lost = [], []
        for h in range(policy.simulator.horizon):
            agent.act(observations[h, slot])
            tracked.append(agent.state)
            lost.append(agent.lost)
        wrong = np.flatnonzero(np.array(tracked) != states[:, slot])
        if not wrong.size:
            right, alarms = right + 1, alarms + any(lost)
        elif any(lost[wrong[0] :]):
            delays.append(lost[wrong[0] :].index(True))
        else:
            unnoticed.append(wrong.size)
    return alarms, right, delays, unnoticed


def _wrong_map(horizon: int, episodes: int, seed: int) -> bool:
    """One successor on the plan's route is otherwise than on the map: is it named?"""
    env = tasid.make("combination-lock", horizon=horizon, seed=seed)
    sim = env.simulator
    rng = np.random.default_rng(seed)
    plan = tasid.robust_dp(sim, eta=0.1)
    last = _last_visited(plan, episodes)
    step = plan.route()[int(rng.integers(1, last + 1))]
    state = sim.states.index(step.state)
    truth = np.array(sim.successor)
    layer = sim.states[truth[state, step.action]][0]
    elsewhere = [
        i
        for i, label in enumerate(sim.states)
        if label[0] == layer and i != truth[state, step.action]
    ]
    truth[state, step.action] = rng.choice(elsewhere)
    real = replace(env.target, successor=jnp.asarray(truth, jnp.int32))
    found = tasid.learn(real, sim, eta=0.1, episodes=episodes, seed=seed).diagnostics.map_errors
    return any(error.step in (step.step, step.step + 1) for error in found)


def _last_visited(plan: tasid.RobustPlan, episodes: int) -> int:
    """The last step whose place on the route at least so many roll-ins are expected to visit."""
    mass = choice_mass(plan)
    quota = FixedQuota(episodes, tuple(mass[:-1]))
    own = np.array([quota.wants(h, 0, None) for h in range(mass.size - 1)])  # type: ignore[arg-type]
    later = own.sum() - np.cumsum(own)
    # Half of the roll-ins follow the plan throughout; slips take some of them off the route.
    return int(np.flatnonzero(0.5 * later * mass[:-1] >= _VISITS)[-1])


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks trust", description=__doc__)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 120)))
    return parser.parse_args(arguments)
