"""The combination lock against the paper's description and its readings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import hadamard

import tasid
from tasid.targets.rollout import trace
from tasid.targets.streams import DIAGNOSIS
from tasid.targets.target import episode_keys, seed_key
from tasid.targets.worlds.combination_lock import lock_simulator


class Uniform:
    """An actor without eyes: uniformly random actions from a key of its own."""

    def __init__(self, num_actions: int, key: jax.Array) -> None:
        self.num_actions, self.key = num_actions, key

    def start(self, observations):
        return jnp.zeros(observations.shape[0])

    def act(self, carry, observations, h):
        key = jax.random.fold_in(self.key, h)
        return carry, jax.random.randint(key, (observations.shape[0],), 0, self.num_actions)


def wander(env, episodes, *, first=0, seed=0):
    """Latent states before and after, actions, rewards-so-far and observations of random walks."""
    keys = episode_keys(seed_key(seed), DIAGNOSIS, first + jnp.arange(episodes))
    actor = Uniform(env.target.num_actions, seed_key(99))

    def record(before, actions, after, h):
        return (
            before.state,
            actions,
            after.state,
            after.returns - before.returns,
            after.observations,
        )

    return trace(env.target, actor, keys, record=record)


@pytest.mark.parametrize("horizon", [1, 2, 5, 12])
def test_map_is_the_papers(horizon):
    sim = lock_simulator(horizon, 6, seed=4)
    where = {label: i for i, label in enumerate(sim.states)}
    assert sim.states[sim.start] == (0, 1)
    for (layer, kind), s in where.items():
        if layer == horizon:
            continue
        to = [sim.states[t] for t in sim.successor[s]]
        assert all(t[0] == layer + 1 for t in to)
        kinds = sorted(t[1] for t in to)
        assert kinds == {1: [1, 2, 2, 2, 2, 2], 2: [1, 2, 3, 3, 3, 3], 3: [3] * 6}[kind]
        for a, (_, arrived) in enumerate(to):
            if layer + 1 == horizon:
                expected = {1: 9.5, 2: 10.0, 3: 0.0}[arrived]
            else:
                expected = {(2, 3): 1.0, (1, 1): -1.0 / horizon}.get((kind, arrived), 0.0)
            assert sim.reward[s, a] == expected


@pytest.mark.parametrize(
    ("horizon", "worst", "low", "high"),
    [(5, 8.95, 9.05, 9.25), (10, 8.51, 8.65, 8.95), (20, 7.78, 8.0, 8.4), (40, 6.56, 7.0, 7.5)],
)
def test_known_values(horizon, worst, low, high):
    """One random instance each, computed by others (readings 4): worst case and in the target."""
    env = tasid.make("combination-lock", horizon=horizon, seed=11)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    assert plan.start_value == pytest.approx(worst, abs=0.01)
    assert low < env.latent.robust_value(plan) < high
    nominal = tasid.robust_dp(env.simulator, eta=0.0)
    assert nominal.start_value == 10.0
    assert env.latent.robust_value(nominal) < env.latent.robust_value(plan)
    # The robust plan keeps to type 1 until the last decision, where 10 beats 9.5.
    assert [step.state[1] for step in plan.route()] == [1] * horizon


def test_perturbation_options():
    spared = {}
    for option in ("last", "none", "all"):
        env = tasid.make("combination-lock", horizon=6, unperturbed=option, seed=1)
        assert tasid.is_perturbation(env.latent.world, env.simulator, eta=0.1)
        exact = np.isclose(np.einsum("saa->sa", env.latent.world.xi), 1.0).all(axis=1)
        spared[option] = {env.simulator.states[s] for s in np.flatnonzero(exact)}
    assert spared["none"] == set()
    assert spared["last"] == {(5, 2)}
    assert spared["all"] == {(layer, 2) for layer in range(6)}


@pytest.mark.parametrize(("horizon", "size"), [(5, 16), (10, 16), (20, 32), (40, 64), (4, 8)])
def test_observation_sizes(horizon, size):
    assert tasid.make("combination-lock", horizon=horizon).target.observation_shape == (size,)


def test_bernoulli_sizes():
    env = tasid.make("combination-lock", horizon=20, bernoulli=True)
    assert env.target.observation_shape == (64,)


@pytest.mark.parametrize("bernoulli", [False, True])
def test_emission_is_a_noisy_code_in_a_hadamard_mixture(bernoulli):
    """Undo the mixture with an independently made matrix: one-hots, noise 0.1, fair bits."""
    horizon = 9
    env = tasid.make("combination-lock", horizon=horizon, bernoulli=bernoulli, seed=5)
    size = env.target.observation_shape[0]
    _, (_, _, states, _, observations) = wander(env, 4096)
    code = np.asarray(observations, np.float64)[3] @ hadamard(size) / size
    states = np.asarray(states)[3]
    entries = (horizon + 4) * (2 if bernoulli else 1)
    spread = code.std(axis=0)
    assert (spread > 1e-3).sum() == entries, "padding carries no noise"
    mean = np.array([code[states == s].mean(axis=0) for s in np.unique(states)])
    layer_bits = mean.min(axis=0) > 0.9
    assert layer_bits.sum() == 1, "all states of one layer share its bit"
    for row in mean:
        ones, bits = (np.abs(row - 1) < 0.05).sum(), (np.abs(row - 0.5) < 0.1).sum()
        assert (ones, bits) == (2, horizon + 4 if bernoulli else 0)
    one_state = code[states == states[0]]
    noisy = one_state.std(axis=0)
    quiet = noisy[(noisy > 1e-3) & (noisy < 0.3)]
    np.testing.assert_allclose(quiet, 0.1, rtol=0.15)


def test_dynamics_follow_xi():
    """Frequencies of successors and mean rewards against the exact perturbed MDP."""
    env = tasid.make("combination-lock", horizon=4, num_actions=3, eta=0.4, seed=2)
    _, (before, actions, after, rewards, _) = wander(env, 40_000)
    before, actions, after = (np.asarray(x) for x in (before, actions, after))
    for h in range(4):
        exact, pay = env.latent.world.transition_at(h), env.latent.world.reward_at(h)
        for s in np.unique(before[h]):
            for a in range(3):
                here = (before[h] == s) & (actions[h] == a)
                if here.sum() < 500:
                    continue
                seen = np.bincount(after[h][here], minlength=env.simulator.num_states) / here.sum()
                np.testing.assert_allclose(seen, exact[s, a], atol=4.5 * 0.5 / here.sum() ** 0.5)
                mean = np.asarray(rewards)[h][here].mean()
                assert mean == pytest.approx(pay[s, a], abs=4.5 * 5 / here.sum() ** 0.5)


def test_returns_agree_with_exact_value():
    env = tasid.make("combination-lock", horizon=4, num_actions=3, seed=2)
    moment, _ = wander(env, 40_000)
    uniform = np.full((4, env.simulator.num_states, 3), 1 / 3)
    exact = tasid.policy_value(env.latent.world, uniform)
    error = float(np.asarray(moment.returns).std()) / 200
    assert float(moment.returns.mean()) == pytest.approx(exact, abs=4.5 * error)


def test_an_episode_does_not_depend_on_its_batch():
    """(seed, phase, index) decides the latent path, whatever else runs beside it."""
    env = tasid.make("combination-lock", horizon=6, seed=3)
    actor_free = tasid.make("combination-lock", horizon=6, seed=3).target
    keys = episode_keys(seed_key(5), 2, jnp.arange(64))
    whole, _ = env.target.reset(keys)
    actions = jnp.arange(64) % 10
    for h in range(6):
        whole, seen, paid = env.target.step(whole, actions, jnp.int32(h), keys)
    part, _ = actor_free.reset(keys[40:43])
    for h in range(6):
        part, seen_part, paid_part = actor_free.step(
            part, actions[40:43], jnp.int32(h), keys[40:43]
        )
    assert (whole[40:43] == part).all()
    assert (paid[40:43] == paid_part).all()
    np.testing.assert_allclose(seen[40:43], seen_part, atol=1e-4)


def test_instances():
    one, same, other = (tasid.make("combination-lock", horizon=8, seed=s) for s in (1, 1, 2))
    assert (one.simulator.successor == same.simulator.successor).all()
    assert (one.latent.world.xi == same.latent.world.xi).all()
    assert (one.simulator.successor != other.simulator.successor).any()
    assert (one.target.emission.mixing != other.target.emission.mixing).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon: 0"),
        ({"num_actions": 2}, "num_actions: 2"),
        ({"noise": -1.0}, "noise: -1.0"),
        ({"unperturbed": "some"}, "unperturbed: 'some'"),
        ({"eta": 1.5}, "eta: 1.5"),
        ({"colour": 1}, "no option 'colour'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tasid.make("combination-lock", **options)


def test_unknown_environment():
    with pytest.raises(ValueError, match="no environment 'lock'; there are: combination-lock"):
        tasid.make("lock")
