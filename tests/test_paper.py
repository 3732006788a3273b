"""The paper's method: Algorithm 2 and Theorem 2, Algorithms 3 and 4, and their policies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.keys import Phase, episode_keys
from tasid.learning.paper import StartTested, StepEnded, TasidConfig, TasidLearner
from tasid.learning.paper import tasid as algorithm
from tasid.learning.paper.starts import fit_clusters
from tasid.learning.paper.tasid import ClusteringConfig
from tasid.networks import CNN, MLP, FlatModel, convolve, to_blocks
from tasid.planning import PerturbedMDP, robust_dp
from tasid.policies import load
from tasid.policies.decoder_policy import DecoderPolicy
from tasid.simulator import AbstractSimulator
from tasid.storage import ArtifactError, read_artifact, write_artifact
from tasid.targets.block import BlockMDP
from tasid.targets.rollout import rollout
from tasid.theory import Setting, decoding_budget, value_loss_bound

ETA = 0.1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Noisy:
    """x = one of the V vectors of the state + Gaussian noise."""

    vectors: jax.Array
    """[S, V, d]."""
    noise: Any = 0.05
    dtype = "float32"
    bounds = (-10.0, 10.0)

    @property
    def shape(self):
        return self.vectors.shape[2:]

    def __call__(self, keys, states, circumstances):
        def emit(key, state):
            chosen, noise = jax.random.split(key)
            variant = jax.random.randint(chosen, (), 0, self.vectors.shape[1])
            return self.vectors[state, variant] + self.noise * jax.random.normal(noise, self.shape)

        return jax.vmap(emit)(keys, states)


def block(simulator, vectors=None, eta=ETA, seed=0):
    """A target on a map whose observations are one-hot vectors, or these."""
    world = tasid.perturb(simulator, eta=eta, seed=seed)
    vectors = np.eye(simulator.num_states)[:, None] if vectors is None else vectors
    emission = Noisy(jnp.asarray(vectors, jnp.float32))
    return BlockMDP(world, emission, name="test", options={}), robust_dp(simulator, eta=eta)


def ring(horizon=4, states=3):
    """Action a moves a steps around a ring; each step in state 0 has reward 1."""
    successor = (np.arange(states)[:, None] + np.arange(states)) % states
    reward = (successor == 0).astype(float)
    return AbstractSimulator(successor, reward, horizon=horizon, start=1)


def mean_return(target, policy, episodes=4096):
    keys = episode_keys(0, Phase.EVALUATION, 0, episodes)
    return rollout(target, policy, keys, keep_from=10**6, width=1024).returns.mean()


@dataclass(eq=False)
class FiniteClass:
    """A finite class of tables f(a | s, s') on observations whose nearest unit vector is s."""

    tables: Any = None
    """[|F|, S, S, A], rows sum to 1 over A."""

    def init(self, key, observation_shape, num_actions):
        return jnp.zeros(1)

    def apply(self, parameters, x, x_next):
        member = jnp.round(parameters[0]).astype(int)
        return jnp.log(jnp.asarray(self.tables)[member, x.argmax(1), x_next.argmax(1)])

    def fit(self, observations, actions, weights):
        states = observations.argmax(axis=2)
        log_f = np.log(self.tables[:, states[:, 0], states[:, 1], actions])
        return np.array([(log_f * weights).sum(axis=1).argmax()], np.float32)


def posterior(world: PerturbedMDP):
    """f*(a | s, s') of a world that is the same at all steps, [S, S, A]."""
    states, actions = world.simulator.successor.shape
    kernel = np.zeros((states, actions, states))
    rows = np.arange(states)[:, None, None], np.arange(actions)[:, None]
    np.add.at(kernel, (*rows, world.simulator.successor[:, None, :]), world.xi)
    table = kernel.transpose(0, 2, 1) + 1e-12
    return table / table.sum(axis=-1, keepdims=True)


def finite_class(world, size=24, seed=0):
    """f* among near misses (other perturbations) and models with relabelled actions."""
    rng, sim = np.random.default_rng(seed), world.simulator
    others = [posterior(tasid.perturb(sim, eta=ETA, seed=100 + i)) for i in range(size - 1)]
    others = [
        o if i % 2 else o[..., rng.permutation(sim.num_actions)] for i, o in enumerate(others)
    ]
    return FiniteClass(np.stack([posterior(world), *others]).astype(np.float32))


class TestTheorem2:
    """Algorithm 2 with an optimisation oracle for a finite class that contains f*."""

    epsilon, delta, runs = 0.6, 0.1, 30

    def setup_method(self):
        self.target, self.plan = block(ring(horizon=3))
        self.model = finite_class(self.target.latent.world)
        self.log_size = math.log(len(self.model.tables))
        self.value = self.target.latent.robust_value(self.plan)
        self.setting = Setting(
            horizon=3,
            actions=3,
            eta=ETA,
            log_class_size=self.log_size,
            delta=self.delta,
            return_range=3,
        )

    def losses(self, config, runs):
        results = [TasidLearner(config).run(self.target, self.plan, seed=s) for s in range(runs)]
        return results, [self.value - mean_return(self.target, r.policy, 2048) for r in results]

    def test_the_printed_count_suffices(self):
        config = TasidConfig(
            epsilon=self.epsilon,
            delta=self.delta,
            log_class_size=self.log_size,
            model=self.model,
        )
        announced = []
        results, losses = self.losses(config, self.runs)
        n_decode = decoding_budget(self.setting, epsilon=self.epsilon).n_decode
        print(f"n_D = {n_decode}; losses up to {max(losses):.4f}, ε = {self.epsilon}")
        assert {r.episodes for r in results} == {2 * n_decode}
        assert np.mean(np.array(losses) > self.epsilon) <= self.delta
        # The likelihood bound beneath it: E TV(f̂, f*)² ≤ 2 ln(|F|/δ) / n, in each run.
        bound = 2 * (self.log_size - math.log(self.delta)) / n_decode
        table = self.model.tables
        errors = [
            (np.abs(table[int(m[0])] - table[0]).sum(-1) / 2).max() ** 2
            for r in results
            for m in r.policy.models[0]
        ]
        assert np.mean(np.array(errors) > bound) <= self.delta

        def stop(event):
            announced.append(event)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            TasidLearner(config).run(self.target, self.plan, callbacks=[stop])
        assert announced[0].episodes == 0
        assert announced[0].total_episodes == 2 * n_decode

    def test_wrong_starts_cost_no_more_than_their_share(self):
        """Theorem with ε₀: V^π ≥ V^{ρ∘φ*} − ε − G ε₀, and each wrong start does cost something."""
        share, sim = 0.2, self.plan.simulator
        elsewhere = sim.with_start([1, 2], [1 - share, share])
        world = PerturbedMDP(elsewhere, self.target.latent.world.xi)
        target = BlockMDP(world, self.target.emission, name="test", options={})
        config = TasidConfig(episodes=6000, model=self.model)
        policy = TasidLearner(config).run(target, self.plan).policy
        loss = target.latent.robust_value(self.plan) - mean_return(target, policy, 8192)
        assert 0.1 * share < loss < value_loss_bound(self.setting, n_decode=2000, start_error=share)
        assert loss < 3 * share + 0.05, "the exact decoder loses at most G ε₀"

    def test_a_handful_of_episodes_does_not(self):
        """Two actions tell two of six relabellings of actions apart, and ties go to the wrong."""
        right = self.model.tables[0]
        relabelled = [right[..., list(order)] for order in permutations(range(3))]
        model = FiniteClass(np.stack(relabelled[::-1]))
        _, losses = self.losses(TasidConfig(episodes=6, model=model), 8)
        assert max(losses) > self.epsilon


def test_exact_models_track_every_state():
    target, plan = block(ring(horizon=6))
    network = FlatModel(FiniteClass(posterior(target.latent.world)[None]), (3,), 3)
    models = np.zeros((1, 5, 1), np.float32)
    policy = DecoderPolicy(plan, network, models, starts=target.simulator.starts)

    def states(state, memory, h):
        return target.latent.states(state), memory.states

    keys = episode_keys(3, Phase.EVALUATION, 0, 500)  # fewer than a power of two
    episodes = rollout(target, policy, keys, trace=states, width=500)
    true, tracked = episodes.trace
    assert (true == tracked).all()
    assert len(np.unique(true)) == 3
    assert not policy.estimate(policy.init(2), 0).lost.any()

    misled = DecoderPolicy(plan, network, models, starts=np.array([2]))
    assert mean_return(target, misled) < mean_return(target, policy) - 1


def test_doubt_grows_where_outcomes_contradict_the_map():
    target, plan = block(ring(horizon=12))
    # The model decodes actions as if every action moved one step further.
    shifted = np.roll(posterior(target.latent.world), 1, axis=-1)[None]
    models = np.zeros((1, 11, 1), np.float32)
    lost = []
    for tables in (posterior(target.latent.world)[None], shifted):
        network = FlatModel(FiniteClass(tables), (3,), 3)
        policy = DecoderPolicy(plan, network, models, starts=target.simulator.starts)
        keys = episode_keys(0, Phase.EVALUATION, 0, 256)
        trace = rollout(target, policy, keys, trace=lambda s, m, h: m.doubt).trace
        lost.append((trace[:, -1] >= policy.lost_at).mean())
    assert lost[0] < 0.1
    assert lost[1] > 0.9


@pytest.fixture(scope="module")
def lock():
    env = tasid.make("combination-lock", horizon=4, num_actions=4, seed=3)
    return env, robust_dp(env.simulator, eta=ETA)


@pytest.fixture(scope="module")
def learned(lock, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return TasidLearner(TasidConfig(episodes=8000)).run(*lock, seed=1, run_dir=folder)


def test_a_lock_is_learned(lock, learned):
    env, plan = lock
    assert mean_return(env, learned.policy) > 0.95 * env.latent.robust_value(plan)
    assert learned.episodes == 6000
    history = learned.diagnostics.history
    assert [(e.step, e.episodes) for e in history] == [(0, 2000), (1, 4000), (2, 6000)]
    assert all(e.validation_loss < math.log(4) and e.epochs >= 11 for e in history)
    agent = learned.policy.agent()
    assert agent.state == env.simulator.start
    _, x = env.reset(episode_keys(0, 9, 0, 1))
    assert agent.act(x[0]) == plan.action(0, env.simulator.start)


def test_a_saved_policy_acts_the_same(lock, learned, tmp_path):
    folder = learned.policy.save(tmp_path / "policy")
    again = load(folder)
    assert mean_return(lock[0], again) == mean_return(lock[0], learned.policy)
    assert (
        again.save(tmp_path / "again").joinpath("manifest.json").read_bytes()
        == (folder / "manifest.json").read_bytes()
    )


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("models", lambda a: np.where(np.arange(a.size).reshape(a.shape) == 7, np.nan, a)),
        ("models", lambda a: a[:, :, 1:]),
        ("starts", lambda a: a + 10**6),
    ],
)
def test_wrong_arrays_are_refused(learned, tmp_path, name, damage):
    artifact = read_artifact(learned.policy.save(tmp_path / "policy"))
    arrays = artifact.arrays | {
        name: damage(artifact.arrays[name]).astype(artifact.arrays[name].dtype)
    }
    write_artifact(tmp_path / "bad", kind=artifact.kind, metadata=artifact.metadata, arrays=arrays)
    with pytest.raises(ArtifactError):
        load(tmp_path / "bad")


def test_a_resumed_run_has_the_same_bytes(lock, tmp_path, monkeypatch):
    learner = TasidLearner(TasidConfig(episodes=400, max_epochs=3))
    whole = learner.run(*lock, seed=2, run_dir=tmp_path / "whole").policy.save(tmp_path / "a")

    def interrupt(event):
        if isinstance(event, StepEnded) and event.step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.run(*lock, seed=2, callbacks=[interrupt], run_dir=tmp_path / "run")
    collected, collect = [], algorithm.collect
    monkeypatch.setattr(
        algorithm, "collect", lambda *args: collected.append(args[3]) or collect(*args)
    )
    resumed = learner.run(*lock, seed=2, run_dir=tmp_path / "run").policy.save(tmp_path / "b")
    assert collected == [2]
    for file in whole.iterdir():
        assert file.read_bytes() == (resumed / file.name).read_bytes()
    learner.run(*lock, seed=3, run_dir=tmp_path / "run")
    assert collected == [2, 0, 1, 2], "another seed does not use these models"


def test_a_model_of_the_users_own(tmp_path):
    """A linear model cannot tell actions on the ring apart, one with products of inputs can."""

    class Products:
        def init(self, key, observation_shape, num_actions):
            return {"weights": jnp.zeros((math.prod(observation_shape) ** 2, num_actions))}

        def apply(self, parameters, x, x_next):
            return (x[:, :, None] * x_next[:, None]).reshape(len(x), -1) @ parameters["weights"]

    target, plan = block(ring())
    config = TasidConfig(episodes=4000, model=Products(), learning_rate=0.03)
    result = TasidLearner(config).run(target, plan)
    assert mean_return(target, result.policy) > 0.95 * target.latent.robust_value(plan)
    folder = result.policy.save(tmp_path / "policy")
    with pytest.raises(ArtifactError, match="model"):
        load(folder)
    again = load(folder, model=Products())
    assert mean_return(target, again) == mean_return(target, result.policy)


class CountedPairs:
    """As in scikit-learn: shares of each action among equal pairs of nearest unit vectors."""

    def fit(self, pairs, actions):
        self.classes_ = np.unique(actions)
        self.counts = np.full((9, len(self.classes_)), 1e-3)
        np.add.at(self.counts, (self.which(pairs), np.searchsorted(self.classes_, actions)), 1.0)

    def which(self, pairs):
        return pairs[:, :3].argmax(axis=1) * 3 + pairs[:, 3:].argmax(axis=1)

    def predict_proba(self, pairs):
        counts = self.counts[self.which(pairs)]
        return counts / counts.sum(axis=1, keepdims=True)


def test_any_classifier_of_pairs_is_a_model_class(tmp_path):
    target, plan = block(ring())
    config = {"method": "paper", "episodes": 800}
    result = tasid.learn(target, eta=ETA, model=CountedPairs(), **config)
    assert mean_return(target, result.policy) > 0.97 * target.latent.robust_value(plan)
    with pytest.raises(ValueError, match="save: CountedPairs keeps"):
        result.policy.save(tmp_path / "policy")
    episodes = []
    with pytest.raises(ValueError, match="save: CountedPairs keeps"):
        tasid.learn(
            target,
            eta=ETA,
            model=CountedPairs(),
            run_dir=tmp_path / "run",
            callbacks=[episodes.append],
            **config,
        )
    assert not episodes
    with pytest.raises(ValueError, match="model: object has neither"):
        tasid.learn(target, eta=ETA, model=object(), **config)


def test_the_networks_are_those_of_the_paper():
    """Table 4: 56 × 56 × 6 → 13 × 13 × 16 → 5 × 5 × 32 → 800 → |A|; [56, 56] for vectors."""
    shape = (56, 56, 3)
    assert CNN().shapes(shape) == [(56, 56, 6), (13, 13, 16), (5, 5, 32)]
    network = FlatModel(CNN(), shape, 5)
    assert network.num_parameters == (8 * 8 * 6 + 1) * 16 + (4 * 4 * 16 + 1) * 32 + 801 * 5
    assert FlatModel(MLP(), (16,), 10).num_parameters == 33 * 56 + 57 * 56 + 57 * 10
    key = jax.random.key(0)
    parameters = network.init(key)
    kernel = parameters[: 8 * 8 * 6 * 16]
    assert 0.99 / math.sqrt(384) < float(jnp.abs(kernel).max()) <= 1 / math.sqrt(384)
    pair = jax.random.randint(key, (2, 4, *shape), 0, 256, jnp.uint8)
    logits = network.apply(parameters, *pair)
    assert logits.shape == (4, 5)
    assert not np.allclose(logits, network.apply(parameters, pair[1], pair[0]))


@pytest.mark.parametrize(("size", "stride", "rows"), [(8, 4, 26), (4, 2, 13), (3, 1, 7)])
def test_convolutions_as_matrix_products(size, stride, rows):
    keys = jax.random.split(jax.random.key(1), 3)
    x, y = (jax.random.normal(k, (2, rows, rows + 4, 3)) for k in keys[:2])
    kernel = jax.random.normal(keys[2], (size, size, 6, 5))
    expected = jax.lax.conv_general_dilated(
        jnp.concatenate([x, y], axis=-1),
        kernel,
        (stride, stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    blocks = jnp.concatenate([to_blocks(image, stride) for image in (x, y)], axis=-1)
    np.testing.assert_allclose(convolve(blocks, kernel, stride, images=2), expected, atol=2e-3)


def xor_starts():
    """Two starts, each with two appearances: the sign of a product of two coordinates tells them.

    All first successors differ; the better action differs, too.
    """
    successor = np.array([[2, 3], [4, 5], [6, 6], [7, 7], [7, 7], [6, 6], [6, 6], [7, 7]])
    reward = np.where(successor == 6, 1.0, 0.0)
    sim = AbstractSimulator(successor, reward, horizon=4, start=[0, 1])
    vectors = np.tile(np.eye(10)[2:, None], (1, 2, 1))
    vectors[:2] = 0
    vectors[0, :, :2] = [(1, 1), (-1, -1)]
    vectors[1, :, :2] = [(1, -1), (-1, 1)]
    return block(sim, vectors)


def test_starts_that_are_not_linearly_separable(tmp_path):
    target, plan = xor_starts()
    config = TasidConfig(cluster_episodes=1024, start_episodes=2000, test_episodes=200)
    result = TasidLearner(config).run(target, plan, seed=0, run_dir=tmp_path / "run")
    state, x = target.reset(episode_keys(0, Phase.EVALUATION, 0, 1000))
    starts = result.policy.starts[result.policy.clusterer(x)]
    assert (starts == target.latent.states(state)).mean() > 0.99
    assert mean_return(target, result.policy) > 0.95 * target.latent.robust_value(plan)
    tests = [e for e in result.diagnostics.history if isinstance(e, StartTested)]
    assert len(tests) == 4
    assert result.episodes >= 1024 + 4 * 2200
    again = load(result.policy.save(tmp_path / "policy"))
    assert mean_return(target, again) == mean_return(target, result.policy)


def test_groups_follow_behaviour_and_not_appearance():
    """x has a large bit without meaning and a small one that decides what action 1 does."""
    rng = np.random.default_rng(0)
    large, small, action = (rng.integers(0, 2, 2000) for _ in range(3))
    x = np.stack([4.0 * large, 1.0 * small], axis=1) + 0.1 * rng.normal(size=(2000, 2))
    x_next = np.stack([2.0 * (action & small), rng.normal(size=2000)], axis=1)
    data = x.astype(np.float32), action.astype(np.int32), x_next.astype(np.float32)
    result = fit_clusters(*data, 2, 2, ClusteringConfig())
    agreement = (result.clusterer(data[0]) == small).mean()
    assert max(agreement, 1 - agreement) > 0.97
    assert result.error < 0.24


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (TasidConfig(episodes=7), "episodes"),
        (TasidConfig(log_class_size=1000.0, epsilon=1e-3), "max_episodes"),
        (TasidConfig(episodes=40, model=FiniteClass(np.full((1, 3, 3, 3), np.nan))), "model"),
    ],
)
def test_what_cannot_be_learned_is_refused(config, name):
    with pytest.raises(ValueError, match=name):
        TasidLearner(config).run(*block(ring()))


def test_stochastic_maps_are_refused():
    half = AbstractSimulator(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=3)
    target, _ = block(ring())
    with pytest.raises(ValueError, match="stochastic"):
        TasidLearner().run(target, robust_dp(half, eta=ETA))
