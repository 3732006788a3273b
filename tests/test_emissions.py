"""Emissions and features against closed forms, NumPy and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal

from tasid.hmm.classifier import (
    ClassifierEmission,
    DifferentiableClassifier,
    Network,
    TrainingConfig,
    classifier_from,
    network_classifier,
)
from tasid.hmm.emissions import GaussianEmission, MapViews, Moments, PLDAConfig
from tasid.hmm.features import FeatureConfig, FeatureMap
from tasid.hmm.transitions import TransitionGraph
from tasid.simulator import AbstractSimulator

EXACT = PLDAConfig(ridge=0.0, iterations=50)


def labelled(rng, *, classes=6, size=3, each=20, spread=2.0):
    """Features [n, D], one-hot labels [n, C], true means [C, D] and covariance [D, D]."""
    means = spread * rng.normal(size=(classes, size)) + 5.0
    root = rng.normal(size=(size, size)) + np.eye(size)
    labels = np.repeat(np.arange(classes), each)
    x = means[labels] + rng.normal(size=(len(labels), size)) @ root.T
    return x.astype(np.float32), np.eye(classes)[labels], means, root @ root.T


def covariances(emission):
    """W and B in the units of the features."""
    back = np.linalg.inv(emission.whitening.astype(float))
    return back.T @ back, back.T @ np.diag(emission.between) @ back


def class_moments(emission):
    """Mean and covariance of the prediction of every class, in the units of the features."""
    variance = -0.5 / emission.quadratic.astype(float)
    back = np.linalg.inv(emission.whitening.astype(float))
    mean = emission.centre + (emission.linear * variance) @ back
    return mean, np.stack([back.T @ np.diag(v) @ back for v in variance])


def test_balanced_classes_have_a_closed_form():
    """Maximum likelihood of the balanced one-way model: W = S_w / (C(n−1)), B = S_b / C − W / n."""
    classes, each = 8, 6
    x, labels, _, _ = labelled(np.random.default_rng(0), classes=classes, each=each, spread=6.0)
    groups = x.reshape(classes, each, -1).astype(float)
    centred = groups - groups.mean(axis=1, keepdims=True)
    within = np.einsum("cni,cnj->ij", centred, centred) / (classes * (each - 1))
    deviation = groups.mean(axis=1) - groups.mean(axis=(0, 1))
    between = deviation.T @ deviation / classes - within / each
    emission = GaussianEmission.fit(x, labels, EXACT)
    fitted = covariances(emission)
    np.testing.assert_allclose(fitted[0], within, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fitted[1], between, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(emission.centre, x.mean(axis=0), rtol=1e-5)


def test_log_prob_is_the_predictive_density_of_each_class():
    """N(E[μ_c], W + cov(μ_c)) given the data of the class; the prior for a class never seen."""
    x, labels, _, _ = labelled(np.random.default_rng(1), each=5)
    labels[-5:] = 0  # the last class has no observations, and its rows no label
    emission = GaussianEmission.fit(x, labels, PLDAConfig(ridge=0.0, iterations=10))
    within, between = covariances(emission)
    counts, points = labels.sum(axis=0), x[::7].astype(float)
    scores = emission.log_prob(points.astype(np.float32), np.arange(6))
    scores = scores + emission.log_prob_shared(points.astype(np.float32))[:, None]
    for c in range(6):
        precision = np.linalg.inv(between) + counts[c] * np.linalg.inv(within)
        deviations = (labels[:, c] @ (x - emission.centre)) @ np.linalg.inv(within)
        mean = emission.centre + np.linalg.solve(precision, deviations)
        covariance = within + np.linalg.inv(precision)
        density = multivariate_normal(mean, covariance).logpdf(points)
        np.testing.assert_allclose(scores[:, c], density, atol=5e-3)


def test_means_and_covariance_are_recovered():
    x, labels, means, covariance = labelled(np.random.default_rng(2), classes=10, each=400)
    emission = GaussianEmission.fit(x, labels)
    fitted, spread = class_moments(emission)
    np.testing.assert_allclose(fitted, means, atol=0.4)
    np.testing.assert_allclose(spread[0], covariance, atol=0.08 * np.abs(covariance).max())
    softly = GaussianEmission.fit(x, 0.9 * labels + 0.01).log_prob(x, np.arange(10))
    assert (softly.argmax(axis=1) == labels.argmax(axis=1)).mean() > 0.7


def test_the_directions_kept_are_those_in_which_classes_differ():
    rng = np.random.default_rng(3)
    means = np.zeros((5, 6))
    means[:, 2] = np.arange(5) * 4
    labels = np.repeat(np.arange(5), 50)
    x = (means[labels] + rng.normal(size=(250, 6)) * [1, 30, 1, 9, 1, 1]).astype(np.float32)
    emission = GaussianEmission.fit(x, np.eye(5)[labels], PLDAConfig(dimensions=1))
    direction = np.abs(emission.projection[:, 0])
    assert emission.projection.shape == (6, 1)
    assert direction[2] > 10 * np.delete(direction, 2).max()
    scores = emission.log_prob(x, np.arange(5))
    assert (scores.argmax(axis=1) == labels).mean() > 0.9


def test_an_emission_that_knows_nothing_prefers_nothing():
    flat = GaussianEmission.flat(4, size=3, dimensions=2)
    x = np.random.default_rng(4).normal(size=(5, 3)).astype(np.float32)
    assert (flat.log_prob(x, np.array([2, 0])) == 0).all()
    assert flat.least_log_prob(np.ones(4)) is None
    none = GaussianEmission.fit(x, np.zeros((5, 4)))
    assert np.ptp(none.log_prob(x, np.arange(4)), axis=1).max() < 1e-5


def test_the_least_log_prob_is_that_of_the_mean():
    x, labels, _, _ = labelled(np.random.default_rng(5))
    emission = GaussianEmission.fit(x, labels)
    means, _ = class_moments(emission)
    peaks = emission.log_prob(means.astype(np.float32), np.arange(6)).diagonal()
    least = emission.least_log_prob(np.array([0, 1, 20, 20, 20, 20]))
    assert np.isinf(least[0])
    np.testing.assert_allclose(least[1:], peaks[1:], atol=1e-3)


def test_moments_add_up_and_can_be_recovered_from_a_fit():
    x, labels, _, _ = labelled(np.random.default_rng(6), each=12)
    parts = Moments.of(x[:30], labels[:30]) + Moments.of(x[30:], labels[30:])
    for part, whole in zip(parts, Moments.of(x, labels), strict=True):
        np.testing.assert_allclose(part, whole)
    emission = GaussianEmission.fit(x, labels)
    moments = emission.moments(PLDAConfig(), has_views=False)
    np.testing.assert_allclose(moments.counts, labels.sum(axis=0), rtol=1e-3)
    means = moments.sums / moments.counts[:, None]
    np.testing.assert_allclose(means, labels.T @ x / 12, atol=1e-2)
    again = GaussianEmission.from_moments(moments, PLDAConfig())
    scores, expected = (e.log_prob(x, np.arange(6)) for e in (again, emission))
    assert (scores.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.95
    assert emission.moments(PLDAConfig(prior_count=3.0), False).counts.max() <= 3.0


def test_a_gaussian_survives_storage_and_selection():
    x, labels, _, _ = labelled(np.random.default_rng(7))
    labels[:, 5] = 0
    emission = GaussianEmission.fit(x, labels)
    stored = GaussianEmission.from_arrays(emission.arrays())
    every = np.arange(6)
    np.testing.assert_array_equal(stored.log_prob(x, every), emission.log_prob(x, every))
    np.testing.assert_allclose(stored.log_prob_shared(x), emission.log_prob_shared(x), rtol=1e-6)
    chosen = emission.select(np.array([3, -1, 0]))
    scores = chosen.log_prob(x, np.arange(3))
    np.testing.assert_array_equal(scores[:, [0, 2]], emission.log_prob(x, np.array([3, 0])))
    np.testing.assert_allclose(scores[:, 1], emission.log_prob(x, every)[:, 5], atol=1e-3)


def regression_by_brute_force(regressors, counts, sums, between):
    """Bayesian linear regression of every direction on its own, with the same fixed point."""
    mean, variance = np.zeros((2, len(counts), len(between)))
    rows = counts > 1e-3
    x, n = regressors[rows], counts[rows]
    for d, b in enumerate(between):
        noise = np.diag(1 / (1 / n + b))  # precision of a class's average around its prediction
        target, prior = sums[rows, d] / n, max(b, 1e-6)
        for _ in range(5):
            covariance = np.linalg.inv(x.T @ noise @ x + np.eye(x.shape[1]) / prior)
            weights = covariance @ x.T @ noise @ target
            determined = x.shape[1] - np.trace(covariance) / prior
            prior = np.clip((weights**2).sum() / max(determined, 1e-9), 1e-9, 1e6)
        covariance = np.linalg.inv(x.T @ noise @ x + np.eye(x.shape[1]) / prior)
        mean[:, d] = regressors @ covariance @ x.T @ noise @ target
        variance[:, d] = np.einsum("cp,pq,cq->c", regressors, covariance, regressors)
    return mean, variance


def test_views_predict_by_bayesian_regression():
    rng = np.random.default_rng(8)
    regressors = np.column_stack([np.ones(40), rng.normal(size=(40, 3))])
    counts = rng.integers(0, 5, size=40) * 1.0
    sums = counts[:, None] * (regressors @ rng.normal(size=(4, 2))) + rng.normal(size=(40, 2))
    sums[counts == 0] = 0
    between = np.array([0.5, 2.0])
    ours = MapViews(regressors).regress(counts, sums, between, doubts=True)
    theirs = regression_by_brute_force(regressors, counts, sums, between)
    np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_views_help_with_poses_that_were_never_observed():
    rng = np.random.default_rng(9)
    views = MapViews(np.column_stack([np.ones(60), rng.normal(size=(60, 4))]))
    means = views.regressors @ rng.normal(size=(5, 8)) * 3
    labels = np.repeat(np.arange(30), 8)  # the other thirty never
    x = (means[labels] + rng.normal(size=(240, 8))).astype(np.float32)
    moments = Moments.of(x, np.eye(60)[labels])
    new = (means + rng.normal(size=means.shape)).astype(np.float32)
    right = []
    for given in (views, None):
        emission = GaussianEmission.from_moments(moments, PLDAConfig(), given)
        right.append((emission.log_prob(new, np.arange(60)).argmax(axis=1) == np.arange(60))[30:])
    assert right[0].mean() > 0.9 > 0.2 > right[1].mean()


def test_views_are_the_standardised_distances_of_the_map():
    text = "#######\n#S....#\n#.##..#\n#....G#\n#######"
    sim = AbstractSimulator.from_text_map(text, horizon=60, moves="turn")
    graph = TransitionGraph.from_simulator(sim)
    views = MapViews.from_simulator(sim, graph)
    assert len(views.regressors) == graph.places.size
    np.testing.assert_allclose(views.regressors[:, 1:].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(views.regressors[:, 1:].std(axis=0), 1)
    ahead = sim.layout.views()[graph.places, 0]
    assert np.corrcoef(ahead, views.regressors[:, 1])[0, 1] == pytest.approx(1)
    compass = AbstractSimulator.from_text_map(text, horizon=60)
    assert MapViews.from_simulator(compass, TransitionGraph.from_simulator(compass)) is None


# Features


def test_long_vectors_become_principal_components():
    rng = np.random.default_rng(10)
    x = (rng.normal(size=(300, 5)) * [9, 7, 5, 3, 2]) @ rng.normal(size=(5, 40))
    x = (x + 0.01 * rng.normal(size=x.shape) + 7).astype(np.float32)
    for rows in (300, 25):  # more and fewer rows than columns
        features = FeatureMap.fit(x[:rows], FeatureConfig(vector_components=3))
        centred = x[:rows].astype(float) - x[:rows].mean(axis=0)
        values, basis = np.linalg.svd(centred, full_matrices=False)[1:]
        unit = np.sqrt((values[:3] ** 2).mean() / rows)
        projected = np.abs(centred @ basis[:3].T / unit)
        np.testing.assert_allclose(np.abs(features(x[:rows], 0)), projected, atol=1e-3)
    short = FeatureMap.fit(x, FeatureConfig())(x, 0)
    np.testing.assert_allclose(short, (x - x.mean(axis=0)) / x.std(), rtol=1e-3, atol=1e-3)


def test_pictures_are_averaged_over_squares():
    rng = np.random.default_rng(11)
    pictures = rng.integers(256, size=(30, 28, 42, 3), dtype=np.uint8)
    features = FeatureMap.fit(pictures, FeatureConfig(picture_components=4))
    assert features.pool == 2
    flat = pictures.reshape(30, 14, 2, 21, 2, 3).mean(axis=(2, 4)).reshape(30, -1) / 255
    np.testing.assert_allclose(features.centre, flat.mean(axis=0), atol=1e-6)
    expected = (flat - flat.mean(axis=0)) @ features.components
    np.testing.assert_allclose(features(pictures, 0), expected, atol=1e-4)


def test_steps_are_centred_on_their_valid_observations():
    rng = np.random.default_rng(12)
    observations = rng.normal(size=(8, 5, 3)).astype(np.float32) + np.arange(5)[:, None]
    valid = np.arange(5) <= np.array([4, 4, 2, 2, 4, 1, 4, 4])[:, None]
    features = FeatureMap.fit(observations.reshape(-1, 3), FeatureConfig())
    by_step = features.centred_by_step(observations, valid)
    sequences = by_step.sequences(observations)
    for h in range(5):
        np.testing.assert_allclose(sequences[valid[:, h], h].mean(axis=0), 0, atol=1e-5)
        np.testing.assert_array_equal(sequences[:, h], by_step(observations[:, h], h))
    pairs = rng.normal(size=(4, 2, 3))
    np.testing.assert_array_equal(
        FeatureMap.raw((2, 3))(pairs, 0), pairs.reshape(4, 6).astype(np.float32)
    )


# Classifiers


class NearestCentroid:
    """As in scikit-learn: classes are those of the labels that `fit` was given."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        self.centroids = np.stack([x[y == c].mean(axis=0) for c in self.classes_])
        return self

    def predict_proba(self, x):
        distances = ((x[:, None] - self.centroids) ** 2).sum(axis=2)
        return np.exp(log_softmax(-distances, axis=1))


class LinearModel:
    """A model of the user, in JAX, over observations [2, 2]."""

    def __init__(self, outputs=1):
        self.outputs = outputs

    def init(self, key, num_classes):
        return {"layers": [np.zeros((4, self.outputs * num_classes), np.float32)]}

    def apply(self, parameters, x):
        assert x.shape[1:] == (2, 2)
        return x.reshape(-1, 4) @ parameters["layers"][0]


@pytest.fixture(scope="module")
def blobs():
    """Four separate classes of which the last is never seen, and a few rows without label."""
    rng = np.random.default_rng(13)
    means = np.array([[3, 0, 0, 0], [0, 3, 0, 0], [0, 0, 3, 0], [0, 0, 0, 3]])
    counts = [120, 60, 20]
    labels = np.repeat(np.eye(4)[:3], counts, axis=0)
    x = (np.repeat(means[:3], counts, axis=0) + 0.5 * rng.normal(size=(200, 4))).astype(np.float32)
    labels[::50] = 0
    return x, labels.astype(np.float32)


TRAINING = TrainingConfig(steps=150, batch_size=64, hidden=16, learning_rate=2e-2)


CLASSIFIERS = {
    "network": network_classifier(4, TRAINING),
    "user's": DifferentiableClassifier(LinearModel(), (2, 2), TRAINING),
    "predicting": classifier_from(NearestCentroid(), (4,)),
}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def fitted(request, blobs):
    return ClassifierEmission.fit(CLASSIFIERS[request.param], *blobs)


def test_a_classifier_gives_scaled_likelihoods(fitted, blobs):
    x, labels = blobs
    counts = labels.sum(axis=0)
    np.testing.assert_allclose(fitted.counts, counts, rtol=1e-4)
    posterior = np.exp(fitted.classifier.log_probabilities(fitted.parameters, x))
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-4)
    ratio = posterior[:, :3] / (counts[:3] / counts.sum())
    trust = counts[:3] / (counts[:3] + 1)
    scores = fitted.log_prob(x, np.arange(4, dtype=np.int32))
    np.testing.assert_allclose(np.exp(scores[:, :3]), trust * ratio + 1 - trust, rtol=1e-3)
    np.testing.assert_allclose(scores[:, 3], 0, atol=1e-5)  # neither likely nor unlikely
    np.testing.assert_array_equal(scores[:, [2, 0]], fitted.log_prob(x, np.array([2, 0])))
    known = labels.any(axis=1)
    assert (scores[known].argmax(axis=1) == labels[known].argmax(axis=1)).mean() > 0.97


def test_a_classifier_survives_storage(fitted, blobs):
    x, _ = blobs
    if not isinstance(fitted.classifier, DifferentiableClassifier):
        with pytest.raises(ValueError, match="NearestCentroid"):
            fitted.arrays()
        return
    own = None if isinstance(fitted.classifier.model, Network) else LinearModel()
    stored = ClassifierEmission.from_arrays(fitted.arrays(), own, (2, 2))
    every = np.arange(4, dtype=np.int32)
    np.testing.assert_allclose(stored.log_prob(x, every), fitted.log_prob(x, every), rtol=1e-6)
    if own is not None:
        with pytest.raises(ValueError, match="model"):
            ClassifierEmission.from_arrays(fitted.arrays(), BiasedModel(), (2, 2))
        return
    scores = fitted.select(np.array([1, -1, 0, 2])).log_prob(x, every)
    np.testing.assert_allclose(scores[:, 1], 0, atol=1e-5)
    np.testing.assert_allclose(
        scores[:, [0, 2, 3]], fitted.log_prob(x, every[[1, 0, 2]]), atol=1e-2
    )


def test_labels_without_a_class_do_not_train_a_predicting_model(blobs):
    x, labels = blobs
    soft = np.where(labels > 0, 0.5, 0.5 / 3).astype(np.float32)
    emission = ClassifierEmission.fit(classifier_from(NearestCentroid(), (4,)), x, soft)
    model, number = emission.parameters
    assert (number, model.classes_.tolist()) == (4, [0, 1, 2, 3])


class BiasedModel(LinearModel):
    def init(self, key, num_classes):
        return {**super().init(key, num_classes), "bias": np.zeros(1, np.float32)}


class PairModel(LinearModel):
    def apply(self, parameters, x, y):
        return x


@pytest.mark.parametrize("model", [object(), PairModel(), LinearModel(outputs=3)])
def test_unusable_models_are_refused(model):
    with pytest.raises(ValueError, match="model"):
        classifier_from(model, (2, 2))
