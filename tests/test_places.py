"""Places by their looks: right in spite of wrong labels, and new ones by exclusion."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tasid.learning.choices import Choices
from tasid.learning.networks import network_from
from tasid.learning.places import Places, command_scores, fit_places


def looks(rng, places=6, size=24):
    return rng.standard_normal((places, size)).astype(np.float32)


def moves(rng, means, candidates, commanded, happened, noise=0.05):
    """What is seen after transitions, and the labels that commands gave them."""
    seen = means[happened] + noise * rng.standard_normal((len(happened), means.shape[1]))
    valid = np.zeros((len(happened), len(means)), bool)
    valid[:, candidates] = True
    return seen.astype(np.float32), Choices(np.asarray(commanded), valid)


def joined(parts):
    seen = np.concatenate([part[0] for part in parts])
    label = np.concatenate([part[1].label for part in parts])
    return seen, Choices(label, np.concatenate([part[1].valid for part in parts]))


def decoded(parameters, seen, valid):
    network = Places(seen.shape[1], valid.shape[1])
    scores = np.asarray(network.apply(parameters, seen, seen))
    return np.where(valid, scores, -np.inf).argmax(axis=1), scores


def slipped(rng, commanded, candidates, eta):
    """Another candidate with probability η."""
    candidates = np.asarray(candidates)
    at = np.searchsorted(candidates, commanded)
    other = (at + rng.integers(1, candidates.size, at.size)) % candidates.size
    return candidates[np.where(rng.random(at.size) < eta, other, at)]


@pytest.mark.parametrize("eta", [0.0, 0.2, 0.4])
def test_labels_that_are_often_wrong(eta):
    rng = np.random.default_rng(0)
    means, some = looks(rng), [0, 2, 5]
    commanded = rng.choice(some, 120)
    happened = slipped(rng, commanded, some, eta)
    seen, choices = moves(rng, means, some, commanded, happened)
    parameters = fit_places(seen, choices, eta=eta).parameters
    told, scores = decoded(parameters, seen, choices.valid)
    assert (told == happened).all()
    # What it says about the command is honest: about the entropy of the slips, not less.
    share = 1.0 - max(eta, 0.02)
    entropy = -share * np.log(share) - (1 - share) * np.log((1 - share) / 2)
    assert choices.losses(scores).mean() < entropy + 0.1


def test_places_in_a_row_some_of_them_rare():
    """Labels alone pull the rare place to the middle, and looks differ in nothing but one number.

    All of it lies far from 0.
    """
    rng = np.random.default_rng(3)
    means, all_of = np.array([[50.0], [53.0], [54.0]], np.float32), [0, 1, 2]
    commanded = rng.choice(all_of, 200, p=[0.8, 0.15, 0.05])
    happened = slipped(rng, commanded, all_of, 0.3)
    seen, choices = moves(rng, means, all_of, commanded, happened)
    told, _ = decoded(fit_places(seen, choices, eta=0.3).parameters, seen, choices.valid)
    assert (told == happened).all()


def test_a_new_place_wins_by_exclusion():
    """All that was seen of place 4 was labelled as another one, which is known from elsewhere."""
    rng = np.random.default_rng(1)
    means = looks(rng)
    commanded = rng.choice([0, 1, 2], 200)
    known = moves(rng, means, [0, 1, 2], commanded, slipped(rng, commanded, [0, 1, 2], 0.2))
    new = moves(rng, means, [0, 1, 4], [0, 0, 1, 1, 0], [4, 4, 4, 1, 0])
    seen, choices = joined([known, new])
    told, _ = decoded(fit_places(seen, choices, eta=0.2).parameters, seen, choices.valid)
    assert told[-5:].tolist() == [4, 4, 4, 1, 0]
    # Even before the first look: what is unlike all known places is the one that was never seen.
    told, _ = decoded(fit_places(*known, eta=0.2).parameters, new[0], new[1].valid)
    assert told.tolist() == [4, 4, 4, 1, 0]


def test_slips_that_are_not_alike_are_counted():
    """Command 0 slips to 1 only, and 2 to 1 only: who is seen at 1 was never told to go to 3."""
    rng = np.random.default_rng(4)
    means, some = looks(rng), [0, 1, 2, 3]
    commanded = rng.choice(some, 800)
    slips = (rng.random(800) < 0.4) & np.isin(commanded, [0, 2])
    seen, choices = moves(rng, means, some, commanded, np.where(slips, 1, commanded))
    found, network = fit_places(seen, choices, eta=0.4), Places(24, 6)
    scores = command_scores(network, found, means[:4], choices.valid[:4])
    odds = np.exp(scores - scores.diagonal()[:, None])
    np.testing.assert_allclose(odds[1, [0, 2]], 0.4, atol=0.08)
    assert odds[1, 3] < 0.02
    assert odds[0, [1, 2, 3]].max() < 0.02
    # Who can only be at 0 or 3 is at one of them, whatever it looks like.
    apart = np.isin(np.arange(6), [0, 3])[None]
    scores = command_scores(network, found, means[1:2], apart)[0]
    assert np.exp(scores[[0, 3]]).sum() == pytest.approx(1.0, abs=0.02)


def test_nothing_to_see():
    seen = np.zeros((10, 3), np.float32)
    choices = Choices(np.arange(10) % 2, np.ones((10, 2), bool))
    parameters = fit_places(seen, choices, eta=0.1).parameters
    assert np.isfinite(parameters).all()
    losses = choices.losses(decoded(parameters, seen, choices.valid)[1])
    np.testing.assert_allclose(losses, np.log(2), atol=1e-3)


def test_described_and_built_again():
    network = Places(24, 6)
    assert network_from(network.describe()) == network
    assert network.init(jax.random.key(0)).shape == (network.num_parameters,)
