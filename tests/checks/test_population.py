"""The population limit against hand calculation, a tabular learner, and the lava maps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tasid.checks.population import population_limit
from tasid.maps import AbstractSimulator, PerturbedMDP, perturb, policy_value, robust_dp
from tasid.targets.block import looks_of
from tasid.targets.worlds.lava_crossing import lava_crossing, lava_map


def random_world(seed, *, states=7, actions=3, horizon=6, eta=0.25):
    rng = np.random.default_rng(seed)
    sim = AbstractSimulator(
        rng.integers(0, states, (states, actions)),
        rng.random((states, actions)),
        horizon=horizon,
    )
    return perturb(sim, eta=eta, seed=seed, per_step=True)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_where_nothing_looks_alike(seed):
    """η < ½ and distinct looks: the posterior is right everywhere (Theorem 2 with n = ∞)."""
    world = random_world(seed, eta=0.45)
    plan = robust_dp(world.simulator, eta=0.45)
    limit = population_limit(world, plan, np.arange(7))
    assert limit.value == pytest.approx(policy_value(world, plan), abs=1e-9)
    assert limit.robust_value == policy_value(world, plan)
    np.testing.assert_allclose(limit.tracked, 1.0, atol=1e-9)
    assert limit.confusions == ()


def fork(xi_start):
    """Start 0; action 0 leads to 1, action 1 to 2; there, the action of that number − 1 pays 1."""
    sim = AbstractSimulator([[1, 2], [1, 1], [2, 2]], [[0, 0], [1, 0], [0, 1]], horizon=2, start=0)
    return PerturbedMDP(sim, [xi_start, np.eye(2), np.eye(2)])


def test_a_fork_by_hand():
    """Both ends alike: every action is equally likely, the lowest is believed, so ŝ = 1 always."""
    world = fork([[0.8, 0.2], [0.3, 0.7]])
    plan = robust_dp(world.simulator, eta=0.3)
    assert plan.action(0, 0) == 0
    limit = population_limit(world, plan, [0, 1, 1])
    assert limit.robust_value == pytest.approx(1.0)
    assert limit.value == pytest.approx(0.8)
    assert limit.loss == pytest.approx(0.2)
    np.testing.assert_allclose(limit.tracked, [1.0, 0.8])
    (confusion,) = limit.confusions
    assert (confusion.state, confusion.successor, confusion.taken_for) == (0, 2, 1)
    assert confusion.probability == pytest.approx(0.2)
    assert population_limit(world, plan, [0, 1, 2]).ratio == pytest.approx(1.0)


def test_the_posterior_weighs_roll_ins_by_hand():
    """After an ambiguous first step, the model of the second is wrong where that is rarer.

    From 0, action 0 leads to 1 or, slipping, to 2; these look alike, and so do their successors
    3 and 4. From 1 action 0 leads to 3 and action 1 to 4, from 2 the other way round. Actions are
    drawn at ŝ = 1 (believed always), so what follows "3" was action 0 with probability 0.9 and
    action 1 with probability 0.1, the mass of 1 and 2: the decoder believes in 1's map throughout.
    """
    successor = [[1, 2], [3, 4], [4, 3], [3, 3], [4, 4]]
    reward = [[0, 0], [0, 0], [0, 0], [1, 0], [0, 1]]
    sim = AbstractSimulator(successor, reward, horizon=3)
    xi = np.tile(np.eye(2), (5, 1, 1))
    xi[0] = [[0.9, 0.1], [0.1, 0.9]]
    world = PerturbedMDP(sim, xi)
    plan = robust_dp(sim, eta=0.1)
    # 3 and 4 can be told apart: ŝ₃ is where the action leads from ŝ₂ = 1, right in spite of it.
    seen = population_limit(world, plan, [0, 1, 1, 2, 3])
    assert seen.tracked[1] == pytest.approx(0.9)
    assert seen.value == pytest.approx(1.0)
    np.testing.assert_allclose(seen.tracked, [1.0, 0.9, 1.0])


def sampled_limit(world, plan, looks, episodes, rng):
    """TASID with a table for a model: sample, count actions by what is seen, decode by the mode."""
    sim, leads = world.simulator, world.simulator.successor
    cumulative = np.cumsum(world.xi, axis=-1)

    def executed(h, s, a):
        drawn = rng.random(len(s))[:, None]
        return np.minimum((drawn > cumulative[h, s, a]).sum(axis=1), sim.num_actions - 1)

    def seen(s, after):
        return list(zip(looks[s], looks[after], strict=True))

    models = []

    def follow(steps):
        s = np.full(episodes, sim.start)
        t, total = s.copy(), np.zeros(episodes)
        for h in range(steps):
            happened = executed(h, s, plan.actions[h, t])
            total += sim.reward_at(h)[s, happened]
            after = sim.successor_at(h)[s, happened]
            if h < len(models):
                t = leads[t, [models[h].get(sight, 0) for sight in seen(s, after)]]
            s = after
        return s, t, total

    for h in range(sim.horizon - 1):
        s, _, _ = follow(h)
        command = rng.integers(sim.num_actions, size=episodes)
        after = sim.successor_at(h)[s, executed(h, s, command)]
        counts = {}
        for sight, one in zip(seen(s, after), command.tolist(), strict=True):
            counts.setdefault(sight, Counter())[one] += 1
        models.append({sight: found.most_common(1)[0][0] for sight, found in counts.items()})
    return follow(sim.horizon)[2]


@pytest.mark.parametrize("seed", [2, 3, 4])  # where the posterior has no ties
def test_a_tabular_learner_comes_to_the_limit(seed):
    """Independent of the exact sweep: counts from sampled episodes instead of probabilities."""
    world = random_world(seed, states=6, horizon=5, eta=0.3)
    plan = robust_dp(world.simulator, eta=0.3)
    looks = np.array([0, 1, 2, 0, 1, 2])
    limit = population_limit(world, plan, looks)
    assert limit.loss > 0.01
    returns = sampled_limit(world, plan, looks, 30_000, np.random.default_rng(seed))
    assert returns.mean() == pytest.approx(limit.value, abs=4.5 * returns.std() / 30_000**0.5)
    assert limit.ignored < 1e-6


@pytest.mark.parametrize("height", [10, 11, 20, 100])
def test_lava_maps_can_be_learned(height):
    env = lava_crossing(height=height, seed=1)
    looks = np.asarray(env.target.emission.look)
    plan = robust_dp(env.simulator, eta=0.1)
    limit = population_limit(env.latent.world, plan, looks)
    assert limit.ratio >= 0.995
    assert limit.ratio == pytest.approx(1.0, abs=2e-4)
    assert limit.ignored < 1e-6


def test_an_empty_tall_room_cannot():
    """Facing its far wall, turning looks like turning and moving; it costs a few per cent."""
    rows = lava_map(height=20).split("\n")
    empty = "\n".join([*rows[:9], *["#.....#"] * 10, rows[-1]])
    ratios = []
    for seed in range(3):
        env = lava_crossing(text_map=empty, seed=seed)
        plan = robust_dp(env.simulator, eta=0.1)
        looks = np.asarray(env.target.emission.look)
        limit = population_limit(env.latent.world, plan, looks)
        ratios.append(limit.ratio)
        assert limit.confusions
    assert 0.94 < np.mean(ratios) < 0.98


def test_looks():
    pictures = np.zeros((4, 2, 2, 3), np.uint8)
    pictures[1, 0, 0, 0] = 1
    pictures[3, 0, 0, 0] = 1
    assert looks_of(pictures).tolist() == [0, 1, 0, 1]
    assert looks_of([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]).tolist() == [0, 0, 1]


@pytest.mark.parametrize("looks", [[0, 1], [0.0, 1.0, 2.0], [0, -1, 1]])
def test_bad_looks(looks):
    world = fork(np.eye(2))
    with pytest.raises(ValueError, match="for each of the 3 states"):
        population_limit(world, robust_dp(world.simulator, eta=0.1), looks)
