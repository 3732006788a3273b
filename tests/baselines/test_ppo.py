"""PPO against a slow, obvious reference, in probe environments, and on the lock."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import Bars, Cliff, probe
from tasid.baselines import ppo as algorithm
from tasid.baselines.by_name import Baseline, train_baseline
from tasid.baselines.ppo import Experience, PPOConfig, Rows
from tasid.baselines.rnd import RND
from tasid.baselines.training import ppo, stage_key
from tasid.files import ArtifactError
from tasid.models.fit import Descent
from tasid.models.networks import Camera, Dense, sight_of
from tasid.policies.ppo_policy import load_ppo_policy
from tasid.targets.target import episode_keys, seed_key

TINY = PPOConfig(
    batch=10, passes=3, minibatch=8, hidden=(7, 5), descent=Descent(0.02, 0.3), entropy=0.05
)
QUICK = PPOConfig(hidden=(16,), minibatch=50, descent=Descent(0.01, 0.5), discount=0.9)


def same(one, other):
    """Are two trees equal, bit for bit?"""
    return all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


# ---------------------------------------------------------------- the reference


class Net:
    """A dense network with Adam, backpropagation written out in float64."""

    def __init__(self, network: Dense, flat, descent: Descent) -> None:
        self.sizes = [network.inputs, *network.hidden, network.outputs]
        self.flat, self.descent = np.asarray(flat, np.float64), descent
        self.m, self.v, self.t = 0.0, 0.0, 0
        self.clipped = 0

    def layers(self):
        offset, found = 0, []
        for rows, columns in pairwise(self.sizes):
            weights = self.flat[offset : offset + rows * columns].reshape(rows, columns)
            offset += rows * columns
            found.append((weights, self.flat[offset : offset + columns]))
            offset += columns
        return found

    def forward(self, x):
        steps = [x]
        for number, (weights, bias) in enumerate(self.layers()):
            before = steps[-1] if number == 0 else np.maximum(steps[-1], 0)
            steps.append(before @ weights + bias)
        return steps

    def descend(self, steps, delta):
        """One clipped Adam step for a loss whose gradient at the outputs is `delta`."""
        gradient = []
        layers = self.layers()
        for number in reversed(range(len(layers))):
            before = steps[number] if number == 0 else np.maximum(steps[number], 0)
            gradient[:0] = [(before.T @ delta).ravel(), delta.sum(axis=0)]
            delta = (delta @ layers[number][0].T) * (steps[number] > 0)
        gradient = np.concatenate(gradient)
        norm = np.sqrt((gradient**2).sum())
        self.clipped += norm > self.descent.clip
        gradient = gradient * min(1.0, self.descent.clip / norm)
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        self.flat = self.flat - self.descent.learning_rate * m / (np.sqrt(v) + 1e-8)


def log_softmax(scores):
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def slow_improve(config, networks, state, experience, key):
    """One iteration of updates, a transition at a time; only the shuffling is borrowed."""
    policy = Net(networks[0], state.policy.parameters, config.descent)
    critic = Net(networks[1], state.critic.parameters, config.descent)
    seen = np.asarray(experience.seen, np.float64)
    horizon, number = experience.rewards.shape
    rows = []
    for b in range(number):
        values = [critic.forward(seen[t, b][None])[-1][0, 0] for t in range(horizon)] + [0.0]
        later = 0.0
        column = []
        for t in reversed(range(horizon)):
            error = float(experience.rewards[t, b]) + config.discount * values[t + 1] - values[t]
            later = error + config.discount * config.decay * later
            column.append((later, later + values[t]))
        rows.append(column[::-1])
    gained = np.array(rows).transpose(1, 0, 2).reshape(-1, 2)  # step-major, as the batch is
    advantage = gained[:, 0]
    if config.standardise:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    x, action = seen[:-1].reshape(horizon * number, -1), np.asarray(experience.actions).ravel()
    old = log_softmax(policy.forward(x)[-1])[np.arange(len(x)), action]
    bounds = []
    for number_of_pass in range(config.passes):
        order = algorithm.shuffled(jax.random.fold_in(key, number_of_pass), jnp.ones(len(x), bool))
        for begin in range(0, len(x), config.minibatch):
            i = np.asarray(order[begin : begin + config.minibatch])
            part = x[i], action[i], old[i], advantage[i], gained[i, 1]
            bounds += slow_update(config, policy, critic, *part)
    return policy, critic, np.array(bounds)


def slow_update(config, policy, critic, x, action, old, advantage, target):
    size = len(x)
    steps = policy.forward(x)
    log_pi = log_softmax(steps[-1])
    pi = np.exp(log_pi)
    ratio = np.exp(log_pi[np.arange(size), action] - old)
    bound = np.where(advantage > 0, ratio > 1 + config.clip, ratio < 1 - config.clip)
    slope = np.where(bound, 0.0, -advantage * ratio)  # of the loss in ln π(a|x)
    delta = slope[:, None] * (np.eye(pi.shape[1])[action] - pi)
    entropy = -(pi * log_pi).sum(axis=1, keepdims=True)
    delta += config.entropy * pi * (log_pi + entropy)  # −c·∂entropy/∂scores
    policy.descend(steps, delta / size)
    steps = critic.forward(x)
    critic.descend(steps, (steps[-1] - target[:, None]) / size)
    return list(bound)


def experience_of(horizon, number, size, actions, seed=0):
    rng = np.random.default_rng(seed)
    return Experience(
        seen=jnp.asarray(rng.normal(size=(horizon + 1, number, size)), jnp.float32),
        actions=jnp.asarray(rng.integers(actions, size=(horizon, number)), jnp.int32),
        rewards=jnp.asarray(rng.normal(size=(horizon, number)), jnp.float32),
        alive=None,
    )


def state_of(networks, bonus=None):
    keys = jax.random.split(jax.random.key(0), 3)
    return algorithm.PPOState(
        jnp.int32(0),
        TINY.descent.start(networks[0].init(keys[0])),
        TINY.descent.start(networks[1].init(keys[1])),
        bonus and bonus.start(keys[2], networks[0].inputs),
    )


@pytest.mark.parametrize("standardise", [False, True])
def test_updates_agree_with_the_reference(standardise):
    """GAE, both losses, entropy, clipped ratios, clipped gradients and Adam, over three passes."""
    config = replace(TINY, standardise=standardise)
    networks = Dense(4, 3, TINY.hidden), Dense(4, 1, TINY.hidden)
    experience = experience_of(5, 10, 4, 3)  # 50 transitions in minibatches of 8: the last has 2
    state, key = state_of(networks), jax.random.key(3)
    fast = algorithm.improve(config, networks, state, experience, key)
    policy, critic, bounds = slow_improve(config, networks, state, experience, key)
    assert 0.05 < bounds.mean() < 0.95  # the clip of the ratio takes part
    assert 0 < policy.clipped < policy.t == 21  # and so does that of the gradient
    assert critic.clipped > 0
    moved = np.abs(policy.flat - np.asarray(state.policy.parameters)).max()
    assert moved > 0.1
    np.testing.assert_allclose(fast.policy.parameters, policy.flat, atol=2e-4)
    np.testing.assert_allclose(fast.critic.parameters, critic.flat, atol=2e-4)
    assert fast.batches == 1


# ---------------------------------------------------------------- the parts


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95, 1.0])
def test_advantages_are_their_definition(decay):
    """A_t = Σ_k (γλ)^k δ_{t+k} up to the end of the episode, early ends included."""
    config = PPOConfig(discount=0.9, decay=decay)
    rng = np.random.default_rng(1)
    rewards, values = rng.normal(size=(2, 6, 3))
    ends = [6, 2, 1]  # steps each episode has
    alive = (np.arange(6)[:, None] < ends).astype(float)
    rewards = rewards * alive
    given = (jnp.asarray(table, jnp.float32) for table in (rewards, values, alive))
    found = algorithm.advantages(config, *given)
    for b, end in enumerate(ends):
        padded = [*values[:end, b], 0.0]
        delta = [rewards[t, b] + 0.9 * padded[t + 1] - padded[t] for t in range(end)]
        for t in range(end):
            exact = sum((0.9 * decay) ** k * d for k, d in enumerate(delta[t:]))
            assert found[t, b] == pytest.approx(exact, abs=1e-5)
            if decay == 1.0:
                earned = sum(0.9**k * r for k, r in enumerate(rewards[t:end, b]))
                assert found[t, b] == pytest.approx(earned - values[t, b], abs=1e-5)


def test_at_the_old_policy_the_gradient_is_the_policy_gradient():
    network = Dense(3, 4, (6,))
    parameters = network.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(20, 3)), jnp.float32)
    action = jnp.asarray(rng.integers(4, size=20))
    advantage = jnp.asarray(rng.normal(size=20), jnp.float32)

    def log_prob(p):
        log_pi = jax.nn.log_softmax(network.apply(p, x), axis=-1)
        return jnp.take_along_axis(log_pi, action[:, None], axis=-1)[:, 0]

    rows = Rows(x, None, action, log_prob(parameters), advantage, advantage, jnp.ones(20))
    loss = jax.grad(lambda p: algorithm.policy_loss(PPOConfig(entropy=0.0), network, p, rows))
    plain = jax.grad(lambda p: -(log_prob(p) * advantage).mean())
    np.testing.assert_allclose(loss(parameters), plain(parameters), atol=1e-6)
    # Beyond the clip in the direction that pays, nothing pulls any more.
    far = rows._replace(log_prob=rows.log_prob - 0.2 * jnp.sign(advantage))
    gradient = jax.grad(lambda p: algorithm.policy_loss(PPOConfig(entropy=0.0), network, p, far))
    assert np.abs(gradient(parameters)).max() == 0


def test_every_row_is_used_once_a_pass():
    weight = jnp.asarray(np.random.default_rng(0).random(500) < 0.3, jnp.float32)
    number = jnp.arange(500)
    blank = jnp.zeros(500)
    rows = Rows(number[:, None] * 1.0, None, number, blank, blank, blank, weight)
    orders = []
    for seed in range(2):
        cut = algorithm.minibatches(jax.random.key(seed), rows, 32)
        assert cut.x.shape == (16, 32, 1)
        used = np.asarray(cut.action).ravel()
        assert sorted(used[:500]) == list(range(500))
        kept = int(weight.sum())
        assert set(used[:kept]) == set(np.flatnonzero(weight))
        assert (cut.weight.ravel()[:kept] == 1).all()
        assert (cut.weight.ravel()[kept:] == 0).all()
        np.testing.assert_array_equal(cut.x.ravel()[:500], used[:500])
        orders.append(used[:kept])
    assert (orders[0] != orders[1]).mean() > 0.9


def test_orders_are_uniform():
    """Each of the 24 orders of four rows about as often as the others: χ² with 23 degrees."""
    keys = jax.random.split(jax.random.key(0), 12_000)
    orders = np.asarray(jax.vmap(lambda key: algorithm.shuffled(key, jnp.ones(4, bool)))(keys))
    _, counts = np.unique(orders @ [64, 16, 4, 1], return_counts=True)
    assert counts.size == 24
    assert ((counts - 500) ** 2 / 500).sum() < 49.7  # 99.9 %


def test_actions_are_drawn_from_the_policy():
    """Frequencies of 10 000 episodes against the network's own probabilities, step by step."""
    target = probe(lambda coin, action, h: action, actions=3)
    network = Dense(2, 3, (8,))
    parameters = 3 * network.init(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), 10_000)
    got = algorithm.collect(target, network, parameters, keys)
    first, second = np.asarray(got.actions)
    for coin in (-1.0, 1.0):
        mine = np.asarray(got.seen[0, :, 0]) == coin
        here, there = jax.nn.softmax(network.apply(parameters, jnp.asarray([[coin, 0], [coin, 1]])))
        pairs = np.bincount(3 * first[mine] + second[mine], minlength=9) / mine.sum()
        np.testing.assert_allclose(pairs.reshape(3, 3), np.outer(here, there), atol=0.02)
    np.testing.assert_array_equal(got.rewards, got.actions)
    assert got.seen.shape == (3, 10_000, 2)


# ---------------------------------------------------------------- probes


SEEN = jnp.asarray([[-1.0, 0.0], [1.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
"""Tails and heads at the first step, tails and heads at the second."""


def trained(target, episodes=4_000, config=QUICK, **options):
    return train(target, 1, episodes=episodes, config=config, **options)


def train(target, seed, callbacks=(), **options):
    """What training gave, with all that its checkpoints told."""
    seen = []
    result = ppo(target, seed=seed, callbacks=[seen.append, *callbacks], **options)
    return SimpleNamespace(
        policy=result.policy,
        state=result.state,
        episodes=result.episodes,
        stopped=result.stopped,
        returns=np.concatenate([here.returns for here in seen]),
        evaluations=[here.evaluation for here in seen if here.evaluation is not None],
        evaluated=[here.episodes for here in seen if here.evaluation is not None],
    )


def values(result, observations=SEEN):
    network = Dense(observations.shape[1], 1, QUICK.hidden)
    return np.asarray(network.apply(result.state.critic.parameters, observations))[:, 0]


def chances(result, observations=SEEN):
    scores = result.policy.actor.network.apply(result.state.policy.parameters, observations)
    return np.asarray(jax.nn.softmax(scores))


def test_probe_constant_reward():
    """A step that always pays 1, and then one that pays nothing."""
    result = trained(probe(lambda coin, action, h: 1 - h))
    np.testing.assert_allclose(values(result), [1, 1, 0, 0], atol=0.07)


def test_probe_reward_by_observation():
    """The critic tells observations apart, and a reward one step later is worth γ = 0.9 of it."""
    result = trained(probe(lambda coin, action, h: h * (2 * coin - 1)))
    np.testing.assert_allclose(values(result), [-0.9, 0.9, -1.0, 1.0], atol=0.1)


def test_probe_reward_by_action():
    """The policy takes the action that pays, and so does its greedy version."""
    result = trained(probe(lambda coin, action, h: action == 2))
    assert chances(result)[:, 2].min() > 0.95
    assert result.evaluations[-1].mean == 2.0
    assert result.returns[-100:].mean() > 1.9


def test_probe_reward_by_action_and_observation():
    """The policy takes the action that pays in what it sees: another for either side and step."""
    result = trained(probe(lambda coin, action, h: action == 2 * h + coin), episodes=6_000)
    assert chances(result)[[0, 1, 2, 3], [0, 1, 2, 3]].min() > 0.9
    np.testing.assert_allclose(values(result), [1.9, 1.9, 1.0, 1.0], atol=0.25)


def test_probe_late_reward_for_an_early_action():
    """Action 1 turns the coin up and costs 0.3 at once; then heads pay 1."""
    result = trained(
        probe(
            lambda coin, action, h: np.where(h == 0, -0.3 * (action == 1), coin),
            lambda coin, action, h: 1 * (action == 1),
        )
    )
    assert chances(result)[:2, 1].min() > 0.95
    np.testing.assert_allclose(values(result)[[0, 1, 3]], [0.6, 0.6, 1.0], atol=0.1)  # 0.9 − 0.3


@pytest.mark.parametrize("traceable", [True, False])
def test_probe_early_end(traceable):
    """Staying alive pays 1 a step; steps after an end teach nothing, and the values say so."""
    result = trained(Cliff(traceable=traceable), episodes=1_500, every=500, evaluation_episodes=50)
    places = jnp.arange(4.0)[:, None]
    assert chances(result, places)[:, 1].min() > 0.9
    np.testing.assert_allclose(values(result, places), [3.439, 2.71, 1.9, 1.0], atol=0.3)
    assert result.evaluations[-1].mean == 4.0


@pytest.mark.parametrize("standardise", [False, True])
def test_what_follows_an_end_is_not_learned_from(standardise):
    """Any nonsense after the end leaves the same networks, bit for bit."""
    config = replace(TINY, standardise=standardise)
    alive = np.arange(5)[:, None] < np.array([5, 1, 3, 2, 4, 5, 1, 2, 3, 4])
    networks = Dense(4, 3, TINY.hidden), Dense(4, 1, TINY.hidden)
    state = state_of(networks)
    results = []
    for seed in (1, 2):
        one, noise = experience_of(5, 10, 4, 3), experience_of(5, 10, 4, 3, seed=seed)
        results.append(
            algorithm.improve(
                config,
                networks,
                state,
                Experience(
                    seen=one.seen.at[:-1].set(
                        jnp.where(alive[..., None], one.seen[:-1], noise.seen[:-1])
                    ),
                    actions=jnp.where(alive, one.actions, noise.actions),
                    rewards=jnp.where(alive, one.rewards, 0.0),
                    alive=jnp.asarray(alive),
                ),
                jax.random.key(5),
            )
        )
    assert same(*results)


# ---------------------------------------------------------------- training


def lock_of(seed, horizon=3):
    return tasid.make("combination-lock", horizon=horizon, num_actions=3, seed=seed).target


SMALL = PPOConfig(batch=20, hidden=(8,), passes=2)


def run(seed=7, **options):
    options = {
        "episodes": 120,
        "every": 40,
        "evaluation_episodes": 100,
        "config": SMALL,
        **options,
    }
    return train(lock_of(seed), seed, **options)


def test_seeds_differ():
    assert not same(run(7).state, run(8).state)


def test_training_goes_on_where_it_was():
    """From any checkpoint, the same bytes as in one go."""
    seen = []
    whole = run(callbacks=[seen.append])
    assert [here.episodes for here in seen] == [40, 80, 120]
    for here in seen:
        rest = run(state=here.state)
        assert same(rest.state, whole.state)
        assert rest.episodes == 120
        assert (rest.returns == whole.returns[here.episodes :]).all()
        assert (rest.evaluations[-1].returns == whole.evaluations[-1].returns).all()
    shorter = run(episodes=80)
    assert same(shorter.state, seen[1].state)


def test_outside_of_compiled_code_it_is_the_same_training():
    """A target that JAX cannot trace is stepped through by the same functions."""

    inside, outside = (
        trained(
            probe(lambda coin, action, h: action == coin, actions=2, traceable=traceable),
            episodes=120,
            config=SMALL,
            every=40,
            evaluation_episodes=100,
        )
        for traceable in (True, False)
    )
    assert (inside.returns[:20] == outside.returns[:20]).all()
    np.testing.assert_allclose(
        inside.state.policy.parameters, outside.state.policy.parameters, atol=1e-3
    )
    assert inside.evaluated == outside.evaluated == [40, 80, 120]


def test_stages_draw_different_episodes():
    one, other = run(), run(stage=1)
    assert (one.returns != other.returns).any()


def test_checkpoints_stop_and_count():
    seen = []
    whole = run(callbacks=[seen.append])
    short = run(callbacks=[seen.append], stop=lambda here: here.episodes == 40)
    assert [one.stopped for one in (whole, short)] == [False, True]
    assert [one.episodes for one in (whole, short)] == [120, 40]
    assert [one.returns.size for one in (whole, short)] == [120, 40]
    assert [one.evaluated for one in (whole, short)] == [[40, 80, 120], [40]]
    assert [here.episodes for here in seen] == [40, 80, 120, 40]
    assert all(here.returns.size == 40 for here in seen)
    without = run(evaluation_episodes=0)
    assert without.evaluations == []
    assert same(without.state, whole.state)


def test_an_error_in_a_callback_ends_training():
    def fail(here):
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        run(callbacks=[fail])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 130}, "episodes: 130 is no multiple of the 20 episodes in a batch"),
        ({"every": 30}, "every: 30 is no multiple"),
        ({"episodes": 0}, "episodes: 0"),
        ({"evaluation_episodes": -1}, "evaluation_episodes: -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(**arguments)


def test_defaults_are_the_papers():
    """Tables 1 and 2 of the appendix."""
    config = PPOConfig()
    assert (config.batch, config.passes, config.minibatch) == (100, 4, 32)
    assert (config.clip, config.discount, config.entropy) == (0.1, 0.999, 0.001)
    assert (config.hidden, config.descent) == ((56, 56), Descent(3e-4, 0.25))
    target = tasid.make("combination-lock", horizon=20).target
    assert config.networks(target) == (Dense(32, 10, (56, 56)), Dense(32, 1, (56, 56)))


def test_what_a_minibatch_has_32_of():
    """Transitions; for RND without pre-training episodes, unless they may end early."""
    lock = tasid.make("combination-lock", horizon=20)
    exploring = Baseline("ppo+rnd").config_for(lock)
    assert (exploring.minibatch, exploring.decay) == (640, 0.5)
    others = [Baseline(name).config_for(lock) for name in ("ppo", "ppo+dr", "ppo+rnd+dr")]
    for config in (*others, Baseline("ppo+rnd").config_for(Cliff())):
        assert (config.minibatch, config.decay) == (32, 0.95)


# ---------------------------------------------------------------- the policy


def test_a_policy_is_saved_loaded_and_scored(tmp_path):
    env = tasid.make("combination-lock", horizon=3, num_actions=3, seed=7)
    result = train(env.target, 7, episodes=2_000, config=replace(SMALL, batch=100))
    origin = {"name": env.name, "options": dict(env.options)}
    policy = replace(result.policy, environment=origin)
    one, two = policy.save(tmp_path / "one"), policy.save(tmp_path / "two")
    assert all(f.read_bytes() == (two / f.name).read_bytes() for f in one.iterdir())
    loaded = load_ppo_policy(one)
    assert (loaded.horizon, loaded.num_actions, loaded.observation_shape) == (3, 3, (8,))
    assert loaded.environment == origin
    score, again = (tasid.evaluate(p, env, episodes=2_000, seed=1) for p in (policy, loaded))
    assert (score.returns == again.returns).all()
    last = result.evaluations[-1]
    low, high = last.ci95
    assert low - 0.3 < score.mean < high + 0.3
    with pytest.raises(ValueError, match="its horizon is 4, but the policy was learned with 3"):
        tasid.evaluate(loaded, tasid.make("combination-lock", horizon=4, num_actions=3))


def test_pictures_are_seen_by_convolutions(tmp_path):
    """Where a bar stands does not matter, how it stands does."""
    config = replace(QUICK, descent=Descent(0.003, 0.5), entropy=0.0)
    assert config.networks(Bars())[0] == Camera((24, 24, 1), 2)
    result = ppo(Bars(), seed=0, episodes=6_000, config=config)
    policy = load_ppo_policy(result.policy.save(tmp_path / "policy"))
    assert tasid.evaluate(policy, Bars(), episodes=2_000, seed=1).mean > 0.97
    upright, x = Bars().reset(episode_keys(seed_key(0), 9, jnp.arange(20)))
    agents = [policy.agent() for _ in range(20)]
    acted = [agent.act(picture) for agent, picture in zip(agents, np.asarray(x), strict=True)]
    assert acted == np.asarray(upright).tolist()


def test_pictures_too_small_for_convolutions_are_rows_of_numbers():
    assert sight_of((19, 40, 3), 2, (8,)) == Dense(19 * 40 * 3, 2, (8,))
    assert sight_of((20, 20, 3), 2, (8,)).init(seed_key(0)).ndim == 1
    with pytest.raises(ValueError, match="larger than its input"):
        Camera((19, 40, 3), 2).init(seed_key(0))


def test_files_that_are_no_policy_are_refused(tmp_path, learned):
    from tasid.files import read_artifact, write_artifact

    other = learned.policy.save(tmp_path / "other")
    with pytest.raises(ArtifactError, match="ppo-policy"):
        load_ppo_policy(other)
    saved = run(episodes=40).policy.save(tmp_path / "mine")
    artifact = read_artifact(saved)
    for change in (
        {"network": {"kind": "dense", "inputs": 8, "outputs": 3, "hidden": [9]}},
        {"network": {"kind": "dense", "inputs": 8, "outputs": 3, "hidden": [-8]}},
        {"network": {"kind": "dense"}},
        {"observation_shape": [9]},
        {"horizon": None},
    ):
        path = write_artifact(
            tmp_path / "bad",
            kind=artifact.kind,
            metadata={**artifact.metadata, **change},
            arrays=artifact.arrays,
        )
        with pytest.raises(ArtifactError, match="not a PPO policy of this version"):
            load_ppo_policy(path)


# ---------------------------------------------------------------- the lock


@pytest.mark.slow
def test_the_lock_at_h_5_is_solved_in_the_papers_ballpark():
    """The paper: 5000 to 8000 episodes."""
    for seed in (0, 1):
        env = tasid.make("combination-lock", horizon=5, seed=seed)
        enough = 0.95 * env.latent.robust_value(tasid.robust_dp(env.simulator, eta=0.1))
        stop = partial(lambda enough, here: here.evaluation.mean >= enough, enough)
        result = ppo(env.target, seed=seed, episodes=12_000, stop=stop)
        assert result.stopped
        assert 1_000 <= result.episodes <= 12_000


@pytest.mark.slow
def test_at_h_10_the_trap_holds_ppo_and_a_bonus_frees_it():
    """Falling at once pays 1, and PPO stays there; with RND it finds the way through the lock."""
    env = tasid.make("combination-lock", horizon=10, seed=0)
    trapped, free = (
        train(env.target, 0, episodes=8_000, config=PPOConfig(bonus=bonus))
        for bonus in (None, RND())
    )
    assert trapped.returns[-1_000:].mean() == pytest.approx(1.0, abs=0.1)
    assert free.returns[-1_000:].mean() > 5.0


def test_keys_of_stages_and_seeds_differ():
    keys = {
        tuple(np.asarray(jax.random.key_data(stage_key(seed, stage))).tolist())
        for seed in range(5)
        for stage in range(3)
    }
    assert len(keys) == 15


def test_a_target_that_does_not_say_how_long_an_episode_is_is_refused():
    class Endless(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

    target = tasid.wrap(Endless)
    with pytest.raises(ValueError, match="horizon: this target does not say how long an episode"):
        train_baseline(Baseline("ppo", target_episodes=100, every=100), target, seed=0)
