"""Classifiers as emissions: p(c | x) over the share of c, and learning where Gaussians cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from test_beliefs_smoother import a_case

import tasid
from mdps import quick, seeds
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.features import AsSeen, fit_features
from tasid.beliefs.scaled import Differentiable, Layers, Predicting, Scaled, fit_scaled
from tasid.beliefs.smoother import labelled, smoothed
from tasid.files import ArtifactError, read_artifact
from tasid.maps import robust_dp
from tasid.policies.belief_policy import BeliefPolicy

MEANS = np.array([-1.5, 0.0, 2.0])
SHARES = np.array([0.5, 0.3, 0.2])


@dataclass(frozen=True)
class Known:
    """p(c | x) of three Gaussians on a line, by Bayes' rule."""

    def fit(self, features: Any, labels: Any) -> Any:
        return jnp.zeros(())

    def __call__(self, parameters: Any, features: jax.Array) -> jax.Array:
        joint = (
            jnp.log(jnp.asarray(SHARES))[None]
            - 0.5 * (features[:, :1] - jnp.asarray(MEANS)[None]) ** 2
        )
        return jax.nn.log_softmax(joint)


def density(x: np.ndarray) -> np.ndarray:
    """p(x | c), [C, N]."""
    return np.exp(-0.5 * (x[None] - MEANS[:, None]) ** 2) / np.sqrt(2 * np.pi)


def test_scaled_likelihoods_are_densities_up_to_what_all_classes_share() -> None:
    emission = Scaled(0.0, jnp.log(jnp.asarray(SHARES)), jnp.ones(3), Known(), 1)
    x = np.linspace(-3, 3, 40)
    scores = np.asarray(emission.scores(jnp.asarray(x[:, None]), jnp.arange(3)))
    expected = np.log(density(x)) - np.log(SHARES @ density(x))
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_a_class_never_seen_is_neither_likely_nor_unlikely() -> None:
    trust = jnp.array([0.9, 0.0, 0.9])
    emission = Scaled(0.0, jnp.log(jnp.asarray(SHARES)), trust, Known(), 1)
    scores = np.asarray(emission.scores(jnp.linspace(-9, 9, 7)[:, None], jnp.arange(3)))
    np.testing.assert_allclose(scores[1], 0.0, atol=1e-6)
    assert scores[0].min() >= np.log(0.1) - 1e-6  # one that was seen nine times is never ruled out


def test_the_same_bits_for_any_number_of_rows() -> None:
    layers = Layers(24)
    parameters = layers.init(jax.random.key(3), 7)
    emission = Scaled(parameters, jnp.zeros(7), jnp.full(7, 0.9), Differentiable(layers), 24)
    x = jax.random.normal(jax.random.key(4), (128, 24))
    exact = jax.jit(lambda x: emission.exact_scores(x, jnp.arange(7)))
    whole = np.asarray(exact(x))
    for rows in (1, 7, 32, 96):
        np.testing.assert_array_equal(np.asarray(exact(x[:rows])), whole[:, :rows])
    np.testing.assert_allclose(whole, emission.scores(x, jnp.arange(7)), atol=1e-5)


@quick
@given(seed=seeds)
def test_labels_are_posteriors_of_places(seed: int) -> None:
    case = a_case(seed, "place")
    parts = case.smoother(eta=0.2)
    told = np.asarray(labelled(*parts))
    places = np.asarray(smoothed(*parts).after)
    live = np.asarray(case.arrays.live) > 0
    members = np.asarray(case.classes.members)
    for h, n in np.argwhere(live):
        expected = np.zeros(case.classes.number)
        row = members[h if len(members) > 1 else 0]
        np.add.at(expected, row, places[h, :, n])
        np.testing.assert_allclose(told[h, n], expected, atol=1e-5)
    assert np.abs(told[~live]).max(initial=0) == 0


def test_fitted_classifiers_come_near_the_densities() -> None:
    """Two that know nothing of Gaussians, from true labels."""
    rng = np.random.default_rng(5)
    classes = rng.choice(3, size=4_000, p=SHARES)
    x = (MEANS[classes] + rng.normal(size=classes.size)).astype(np.float32)
    episodes = Episodes(
        features=jnp.asarray(x[None, :, None]),
        commands=jnp.zeros((0, x.size), jnp.int32),
        paid=jnp.zeros((0, x.size), jnp.int32),
        ended=jnp.zeros(x.size, jnp.int32),
        tells=jnp.bool_(False),
        own=jnp.zeros((0, x.size)),
        weight=jnp.ones(x.size),
    )
    labels = [jax.nn.one_hot(jnp.asarray(classes), 3)[None]]
    grid = np.linspace(-2.5, 3, 20)
    expected = np.log(density(grid)) - np.log(SHARES @ density(grid))
    for classifier in (Differentiable(Layers(1)), Predicting(Histogram())):
        emission = fit_scaled(classifier, [episodes], labels)
        found = np.asarray(emission.scores(jnp.asarray(grid[:, None]), jnp.arange(3)))
        seen = expected > -3  # rare combinations are not known well
        assert np.abs(found - expected)[seen].mean() < 0.15


class Histogram:
    """A classifier as scikit-learn has them, for one feature."""

    def fit(self, rows: np.ndarray, labels: np.ndarray) -> None:
        self.classes_ = np.unique(labels)
        self._edges = np.linspace(-4, 5, 31)
        self._table = np.stack(
            [np.histogram(rows[labels == c, 0], self._edges)[0] for c in self.classes_], axis=1
        )

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        bins = np.clip(np.searchsorted(self._edges, rows[:, 0]) - 1, 0, 29)
        table = self._table[bins] + 0.1
        return table / table.sum(axis=1, keepdims=True)


@partial(jax.tree_util.register_dataclass, data_fields=["of"], meta_fields=[])
@dataclass(frozen=True)
class Mirrored:
    """Observations times ±1: the mean of every place is 0, and Gaussians see nothing."""

    of: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape

    def __call__(self, key: jax.Array, state: jax.Array) -> jax.Array:
        flip = jax.random.bernoulli(jax.random.fold_in(key, 77))
        return self.of(key, state) * jnp.where(flip, 1.0, -1.0)


class Own:
    """A user's model."""

    def init(self, key: jax.Array, num_classes: int) -> dict[str, jax.Array]:
        return Layers(16).init(key, num_classes)

    def apply(self, parameters: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return Layers(16).apply(parameters, x)


def mirrored_lock(seed: int) -> tasid.BlockMDP:
    lock = tasid.make("combination-lock", horizon=8, seed=seed)
    return replace(lock, target=replace(lock.target, emission=Mirrored(lock.target.emission)))


@pytest.mark.parametrize("model", [None, Own()], ids=["ours", "own"])
def test_networks_learn_where_gaussians_cannot(model: Any, tmp_path: Any) -> None:
    env = mirrored_lock(9311)
    assert env.target.observation_shape == (16,)
    result = tasid.learn(env, eta=0.1, episodes=243 if model is None else 108, seed=3, model=model)
    score = tasid.evaluate(result.policy, env, episodes=1_024, seed=4)
    assert score.mean >= 0.95 * robust_dp(env.simulator, eta=0.1).start_value
    assert ("network" if model is None else "model") in result.diagnostics.model
    again = tasid.load(result.policy.save(tmp_path / "policy"), model=model)
    returns = tasid.evaluate(again, env, episodes=1_024, seed=4).returns
    np.testing.assert_array_equal(returns, score.returns)


def test_models_that_do_not_fit_are_named() -> None:
    class Pairs:
        def init(self, key: jax.Array) -> None: ...

        def apply(self, parameters: Any, x: jax.Array, x_next: jax.Array) -> None: ...

    env = tasid.make("combination-lock", horizon=5)
    learn = partial(tasid.learn, env, eta=0.1, episodes=16)
    with pytest.raises(ValueError, match=r"apply\(parameters, x, x_next\).*not pairs"):
        learn(model=Pairs())
    with pytest.raises(ValueError, match="predict_proba"):
        learn(model="network")
    with pytest.raises(ValueError, match="run_dir"):
        learn(model=Own(), run_dir="somewhere")
    with pytest.raises(ValueError, match="method 'paper'"):
        learn(model=Own(), method="paper")


def policy_by(model: Any, *, feature_map: Any = None) -> tuple[BeliefPolicy, np.ndarray]:
    """A policy on a small lock that sees by a model as `init` makes it, and observations."""
    env = tasid.make("combination-lock", horizon=4)
    plan = robust_dp(env.simulator, eta=0.1)
    size = env.target.observation_shape[0]
    number = Classes.of(Chain.of(env.simulator), "place", env.simulator).number
    seen = np.random.default_rng(0).normal(size=(6, size)).astype(np.float32)
    emission = Scaled(
        model.init(jax.random.key(7), number),
        jnp.zeros(number),
        jnp.full(number, 0.5),
        Differentiable(model, None if feature_map else (size,)),
        size,
    )
    features = feature_map(seen) if feature_map else AsSeen((size,))
    return BeliefPolicy(plan, "place", features, emission, 0.1, (size,), "float32"), seen


def assert_equal_agents(one: BeliefPolicy, other: BeliefPolicy, seen: np.ndarray) -> None:
    agents = one.agent(), other.agent()
    for row in seen[:4]:
        assert agents[0].act(row) == agents[1].act(row)
        assert agents[0].belief == agents[1].belief


SIZE = tasid.make("combination-lock", horizon=4).target.observation_shape[0]


def test_a_network_is_saved(tmp_path: Any) -> None:
    policy, seen = policy_by(Layers(SIZE, 8), feature_map=fit_features)
    assert_equal_agents(policy, tasid.load(policy.save(tmp_path / "policy")), seen)
    with pytest.raises(ValueError, match=r"Nested given, but the policy .* none of your own"):
        tasid.load(tmp_path / "policy", model=Nested())


@dataclass(frozen=True)
class Nested:
    """Parameters in a tree of dictionaries and lists, two of one shape, whose order matters."""

    width: int = 8

    def init(self, key: jax.Array, num_classes: int) -> dict[str, Any]:
        keys = jax.random.split(key, 3)
        wide = [jax.random.normal(k, (SIZE, self.width)) for k in keys[:2]]
        return {"wide": wide, "last": {"w": jax.random.normal(keys[2], (self.width, num_classes))}}

    def apply(self, parameters: dict[str, Any], x: jax.Array) -> jax.Array:
        first, second = parameters["wide"]
        return (jnp.tanh(x @ first) - 2 * jnp.tanh(x @ second)) @ parameters["last"]["w"]


def test_a_users_model_is_saved_by_its_parameters(tmp_path: Any) -> None:
    policy, seen = policy_by(Nested())
    folder = policy.save(tmp_path / "policy")
    assert {n for n in read_artifact(folder).arrays if n.startswith("model")} == {
        "model.wide.0",
        "model.wide.1",
        "model.last.w",
    }
    assert_equal_agents(policy, tasid.load(folder, model=Nested()), seen)
    with pytest.raises(ArtifactError, match=r"of your own, Nested,.*tasid\.load\(path, model=…\)"):
        tasid.load(folder)
    with pytest.raises(
        ValueError, match=r"^model: Nested has float32 \[9, .*the policy float32 \[8,"
    ):
        tasid.load(folder, model=Nested(9))
    with pytest.raises(
        ValueError, match=r"^model: Layers has .* for model\.b0, the policy nothing"
    ):
        tasid.load(folder, model=Layers(SIZE, 8))
    with pytest.raises(ValueError, match=r"^model: Histogram has no init"):
        tasid.load(folder, model=Histogram())


def test_a_classifier_that_keeps_what_it_learned_is_not_saved(tmp_path: Any) -> None:
    policy, _ = policy_by(Nested())
    assert isinstance(policy.emission, Scaled)
    other = replace(policy.emission, classifier=Predicting(Histogram()))
    with pytest.raises(ValueError, match=r"by a Histogram of your own.*apply\(parameters, x\)"):
        replace(policy, emission=other).save(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
