"""The worlds that other learners are given: the same as ours, by what is known of ours exactly."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from benchmarks.learners.tables import write
from benchmarks.learners.world import World

import tasid

ETA = 0.3
EPISODES = 40_000


@pytest.fixture(params=[("combination-lock", {"horizon": 6}), ("lava-crossing", {"height": 10})])
def both(request, tmp_path):
    name, settings = request.param
    env = tasid.make(name, eta=ETA, seed=4, **settings)
    write(env, tmp_path / "tables.npz", eta=ETA)
    return env, World(str(tmp_path / "tables.npz"), seed=0)


def test_the_plan_earns_its_exact_value(both):
    env, world = both
    states, returns = np.full(EPISODES, world.start), np.zeros(EPISODES)
    for h in range(world.horizon):
        states, rewards = world.step(states, world.plan[h][states], np.full(EPISODES, h))
        returns += rewards
    exact = env.latent.robust_value(tasid.robust_dp(env.simulator, eta=ETA))
    assert world.robust_value == exact
    assert abs(returns.mean() - exact) < 4 * returns.std() / EPISODES**0.5
    assert not np.any(
        world.step(states, world.plan[-1][states], world.horizon - 1)[1][world.final[states]]
    )


def test_states_look_as_they_do_in_ours(both):
    env, world = both
    target = env.target

    keys = jax.random.split(jax.random.key(0), 2_000)
    for state in (int(env.simulator.start), env.simulator.num_states // 2):
        ours = np.asarray(jax.vmap(target.emission, (0, None))(keys, state), np.float64)
        theirs = world.observe(np.full(2_000, state)).astype(np.float64)
        error = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / 2_000)
        assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) <= 6 * error)
        assert np.allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.15)
