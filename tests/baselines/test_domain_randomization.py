"""Domain randomisation: what a draw changes, EPOpt's filter, and the two stages."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_ppo import TINY, experience_of, same, state_of

import tasid
from tasid.baselines import ppo as algorithm
from tasid.baselines.by_name import Baseline, train_baseline
from tasid.baselines.domain_randomization import FINE_TUNING, PRE_TRAINING, EPOpt, restart
from tasid.baselines.families import DrawnFamily, Randomized, family_of
from tasid.baselines.ppo import PPOConfig
from tasid.baselines.rnd import RND
from tasid.baselines.training import ppo
from tasid.maps import PerturbedMDP, is_perturbation
from tasid.models.networks import Dense
from tasid.targets.target import seed_key


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bernoulli"])
def kin(request):
    env = tasid.make("combination-lock", horizon=6, seed=7, bernoulli=request.param)
    return env, family_of(env)


def draws(family, number=3):
    draw = jax.jit(lambda family, key: family.draw(key))
    return [draw(family, jax.random.key(i)) for i in range(number)]


def test_a_draw_changes_permutation_and_perturbation_only(kin):
    env, family = kin
    for drawn in draws(family):
        for field in fields(drawn):
            if field.name not in ("outcome", "emission"):
                assert same(getattr(drawn, field.name), getattr(env.target, field.name))
        for field in fields(drawn.emission):
            if field.name not in ("mixing", "clean"):
                old, new = (
                    getattr(env.target.emission, field.name),
                    getattr(drawn.emission, field.name),
                )
                assert same(old, new)
        assert jax.tree.structure(drawn) == jax.tree.structure(env.target)


def test_a_draw_permutes_the_code(kin):
    """The same rows of the Hadamard matrix in another order, and noiseless codes to match."""
    env, family = kin
    old = np.asarray(env.target.emission.mixing)
    orders = set()
    for drawn in draws(family):
        new = np.asarray(drawn.emission.mixing)
        order = tuple(int(np.flatnonzero((old == row[None]).all(axis=1))[0]) for row in new)
        assert sorted(order) == list(range(len(old)))
        orders.add(order)
        layer, kind = np.divmod(np.arange(3 * 7), 3)
        np.testing.assert_array_equal(drawn.emission.clean, new[kind] + new[3 + layer])
    assert len(orders) == 3
    assert tuple(range(len(old))) not in orders


def test_a_draw_perturbs_as_the_builder_does(kin):
    """ξ = η p + (1−η)·1 with p uniform and normalised; type 2 of the last decision is spared."""
    env, family = kin
    spared = 3 * 5 + 1
    shares = []
    for drawn in draws(family, 30):
        xi = np.diff(np.asarray(drawn.outcome, np.float64), axis=-1, prepend=0.0)
        world = PerturbedMDP(env.simulator, xi / xi.sum(axis=-1, keepdims=True))
        assert is_perturbation(world, env.simulator, eta=0.1, atol=1e-5)
        np.testing.assert_allclose(xi[spared], np.eye(10), atol=1e-6)
        others = np.delete(xi, spared, axis=0)
        assert (np.einsum("saa->sa", others) < 1.0).all()
        shares.append((others - 0.9 * np.eye(10)) / 0.1)
    p = np.stack(shares)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, atol=1e-4)
    np.testing.assert_allclose(p.mean(axis=(0, 1, 2)), 0.1, atol=3.5e-3)  # 4.5 standard errors
    # The spread of uniform numbers divided by their sum, by NumPy.
    uniform = np.random.default_rng(0).random((100_000, 10))
    assert p.std() == pytest.approx((uniform / uniform.sum(axis=1, keepdims=True)).std(), rel=0.02)


def test_a_source_redraws_every_hundred_episodes(kin):
    _, family = kin
    source, key = Randomized(family, 100), seed_key(1)
    target = jax.jit(lambda episode: source.target(key, episode))
    turns = [target(episode) for episode in (0, 50, 99, 100, 199, 200)]
    alike = [same(turns[0], turn) for turn in turns]
    assert alike == [True, True, True, False, False, False]
    assert same(turns[3], turns[4])
    assert not same(turns[3], turns[5])
    assert not same(turns[0], source.target(seed_key(2), 0))


@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.4, 0.5, 0.6, 1.0])
def test_epopt_keeps_the_worst_by_enumeration(epsilon):
    """All batches of five returns in {0, 1, 2}: kept are those at or below the ε-quantile."""
    every = np.array(list(product([0.0, 1.0, 2.0], repeat=5)))
    kept = np.asarray(jax.vmap(EPOpt(epsilon))(jnp.asarray(every)))
    for returns, mask in zip(every, kept, strict=True):
        # The smallest value that at least the fraction ε of the batch does not exceed.
        quantile = min(v for v in returns if (returns <= v).mean() >= epsilon - 1e-12)
        np.testing.assert_array_equal(mask, returns <= quantile)
    if epsilon == 1.0:
        assert kept.all()


def test_epopt_counts_in_a_batch_of_a_hundred():
    returns = jnp.asarray(np.random.default_rng(0).permutation(100), jnp.float32)
    for epsilon, number in ((0.1, 10), (0.2, 20), (0.3, 30), (0.5, 50), (0.7, 70), (1.0, 100)):
        mask = EPOpt(epsilon)(returns)
        assert int(mask.sum()) == number
        assert float(returns[mask].max()) == number - 1
    for epsilon, batch, number in ((0.55, 100, 55), (0.07, 100, 7)):  # εB rounds upwards
        assert int(EPOpt(epsilon)(jnp.arange(float(batch))).sum()) == number
    for epsilon in (0.0, 1.1):
        with pytest.raises(ValueError, match=f"epsilon: {epsilon} is outside"):
            Baseline("ppo+dr", epopt_epsilon=epsilon)


@pytest.mark.parametrize("bonus", [None, RND(hidden=(6,))])
def test_episodes_above_the_quantile_do_not_matter(bonus):
    """Whatever they saw and did, the same networks come out, bit for bit."""
    config = replace(TINY, keep=EPOpt(0.4), bonus=bonus)
    networks = Dense(4, 3, TINY.hidden), Dense(4, 1, TINY.hidden)
    state, key = state_of(networks, bonus), jax.random.key(3)
    one, two = (experience_of(5, 10, 4, 3, seed=seed) for seed in (0, 1))
    kept = np.asarray(config.keep(one.rewards.sum(axis=0)))
    assert kept.sum() == 4
    other = one._replace(
        seen=jnp.where(kept[None, :, None], one.seen, two.seen),
        actions=jnp.where(kept[None], one.actions, two.actions),
        rewards=jnp.where(kept[None], one.rewards, 10 + two.rewards),
    )
    results = [algorithm.improve(config, networks, state, got, key) for got in (one, other)]
    assert same(*results)
    everything = algorithm.improve(replace(config, keep=None), networks, state, one, key)
    assert not same(results[0].policy, everything.policy)
    uniform = algorithm.improve(replace(config, keep=EPOpt(1.0)), networks, state, one, key)
    np.testing.assert_allclose(uniform.policy.parameters, everything.policy.parameters, atol=1e-5)


SMALL = PPOConfig(batch=20, hidden=(8,), passes=2)


def locks(seeds=(7, 8)):
    envs = [tasid.make("combination-lock", horizon=3, num_actions=3, seed=s) for s in seeds]
    return [family_of(env) for env in envs], [env.target for env in envs]


@pytest.mark.parametrize("epsilon", [1.0, 0.5])
def test_two_stages(epsilon):
    """Pre-training on the family, with EPOpt there alone, then the target from its networks."""
    env = tasid.make("combination-lock", horizon=3, num_actions=3, seed=7)
    seen = []
    baseline = Baseline(
        "ppo+dr", 300, 200, epopt_epsilon=epsilon, every=100, evaluation_episodes=50
    )
    trained = train_baseline(
        baseline,
        env,
        seed=7,
        stop=lambda here: here.episodes == 200,
        callbacks=[lambda here: seen.append((here.stage, here.episodes, here.evaluation is None))],
    )
    assert seen == [
        (PRE_TRAINING, 200, True),
        (FINE_TUNING, 100, False),
        (FINE_TUNING, 200, False),
    ]
    config = baseline.config(env.target.horizon)
    tiny = {"seed": 7, "episodes": 200, "evaluation_episodes": 0}
    filtered = config if epsilon == 1.0 else replace(config, keep=EPOpt(epsilon))
    source = Randomized(family_of(env), 100)
    before = ppo(source, config=filtered, every=200, stage=PRE_TRAINING, **tiny).state
    state = restart(config, before, env.target, 7)
    after = ppo(env.target, config=config, every=100, state=state, **tiny).state
    assert same(trained.state, after)


@pytest.mark.parametrize("per_step", [False, True])
def test_relatives_of_a_grid_differ_in_the_perturbation_alone(per_step):
    env = tasid.make("lava-crossing", seed=1, height=10, horizon=30, per_step=per_step)
    drawn = family_of(env).draw(seed_key(3))
    xi = np.diff(np.asarray(drawn.outcome, np.float64), axis=-1, prepend=0.0)
    xi /= xi.sum(axis=-1, keepdims=True)  # float32 sums
    assert is_perturbation(PerturbedMDP(env.simulator, xi), env.simulator, eta=0.1 + 1e-6)
    assert not same(drawn.outcome, env.target.outcome)
    assert same(replace(drawn, outcome=env.target.outcome), env.target)


def test_relatives_of_a_wrapped_environment_are_what_a_function_makes():
    made = []

    def make(number):
        made.append(number)
        rate = 0.5 + 0.1 * (number % 5)
        return tasid.wrap("FrozenLake-v1", num_envs=2, horizon=5, success_rate=rate)

    baseline = Baseline("ppo+dr", 100, 200, every=100, evaluation_episodes=0)
    target = make(0)
    with pytest.raises(
        ValueError, match="only you know of a wrapped environment; give them as fam"
    ):
        train_baseline(baseline, target, seed=0)
    trained = train_baseline(baseline, target, seed=0, family=DrawnFamily(make))
    assert len(set(made)) >= 3, "two batches, two relatives"
    assert trained.episodes == 100
    assert trained.policy.environment["name"] == "gym:FrozenLake-v1"


def test_a_restart_keeps_the_networks_and_nothing_else():
    config = replace(SMALL, bonus=RND(hidden=(6,)))
    families, targets = locks([7])
    source = Randomized(families[0], 20)
    before = ppo(source, seed=7, episodes=40, every=20, config=config).state
    after = restart(config, before, targets[0], 7)
    assert same(after.policy.parameters, before.policy.parameters)
    assert same(after.critic.parameters, before.critic.parameters)
    assert after.batches == 0
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(after.policy.optimiser))
    assert not same(after.bonus.predictor.parameters, before.bonus.predictor.parameters)
    assert after.bonus.observations.number == 0


def test_every_batch_has_its_own_lock():
    """Training on a family is not training on its first member."""
    families, _ = locks([7])
    source = Randomized(families[0], 20)
    first = source.target(jax.random.key(0), 0)
    states = [
        ppo(one, seed=7, episodes=40, every=20, config=SMALL, evaluation_episodes=0).state
        for one in (source, first)
    ]
    assert not same(*states)
