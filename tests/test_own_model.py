"""Models of a user's own: a network of two functions, and a classifier with scikit-learn's face."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid


@pytest.fixture(scope="module")
def lock():
    return tasid.make("combination-lock", horizon=5, num_actions=4, seed=2)


class Bilinear:
    """Parameters are a dictionary, scores a product with x' alone."""

    def __init__(self, shape, labels):
        self.size, self.labels = int(np.prod(shape)), labels

    def init(self, key):
        table = 0.01 * jax.random.normal(key, (self.size, self.labels))
        return {"table": table, "bias": jnp.zeros(self.labels)}

    def apply(self, parameters, x, x_next):
        return x_next @ parameters["table"] + parameters["bias"][None]


class NearestMean:
    """A classifier nobody needs a package for: softmax of minus squared distances to means."""

    def __init__(self, *_):
        self.classes_ = np.zeros(0, int)

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.means = np.stack([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def predict_proba(self, X):
        scores = -((X[:, None] - self.means[None]) ** 2).sum(axis=-1) / 8.0
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)


def ratio(policy, env):
    exact = env.latent.robust_value(policy.plan)
    return tasid.evaluate(policy, env, episodes=2_000, seed=1).mean / exact


def test_a_network_of_ones_own(lock, tmp_path):
    result = tasid.learn(lock, eta=0.1, episodes=1_500, seed=0, model=Bilinear)
    assert result.diagnostics.model.startswith("Bilinear")
    assert ratio(result.policy, lock) > 0.9
    folder = result.policy.save(tmp_path / "policy")
    with pytest.raises(ValueError, match="its network, Bilinear, is one of your own"):
        tasid.load(folder)
    again = tasid.load(folder, model=Bilinear)
    one, two = (
        tasid.evaluate(policy, lock, episodes=200, seed=3) for policy in (result.policy, again)
    )
    assert (one.returns == two.returns).all()


def test_a_classifier_of_ones_own(lock, tmp_path):
    result = tasid.learn(
        lock, eta=0.1, episodes=1_200, seed=0, model=NearestMean, labels="outcomes by place"
    )
    assert result.diagnostics.model.startswith("NearestMean")
    assert ratio(result.policy, lock) > 0.9
    agent = result.policy.agent()
    assert 0 <= agent.act(np.zeros(lock.target.observation_shape, np.float32)) < 4
    with pytest.raises(ValueError, match="a classifier of your own, which cannot be saved"):
        result.policy.save(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def test_what_is_neither_is_refused(lock):
    with pytest.raises(TypeError, match="it made a dict, which has neither fit and predict_proba"):
        tasid.learn(lock, eta=0.1, episodes=500, model=lambda shape, labels: {})
    with pytest.raises(ValueError, match="model: with method 'paper'"):
        tasid.learn(lock, eta=0.1, episodes=500, method="paper", model=Bilinear)

    class Wrong(Bilinear):
        def apply(self, parameters, x, x_next):
            return super().apply(parameters, x, x_next)[:, :1]

    with pytest.raises(ValueError, match=r"apply gives scores of shape \(\d+, 1\)"):
        tasid.learn(lock, eta=0.1, episodes=500, model=Wrong)
