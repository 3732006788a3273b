"""Discovery of maps: the lock's graph, look-alike states, transfer, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from tasid.episodes import Episodes
from tasid.learning.discovery import split_look_alikes
from tasid.learning.mixture import Rows

HORIZON = 6


@pytest.fixture(scope="module")
def source():
    return tasid.make("combination-lock", horizon=HORIZON, seed=5)


@pytest.fixture(scope="module")
def discovery(source):
    return tasid.discover(source, eta=0.1, seed=5)


def matched(discovery, true):
    """The true state of every state that known pairs lead to; None where the maps disagree."""
    sim = discovery.simulator
    match, frontier = {sim.start: true.start}, [sim.start]
    while frontier:
        s = frontier.pop()
        for a in np.flatnonzero((discovery.confidence[s] > 0.99) & (discovery.tried[s] > 0)):
            after, truth = int(sim.successor[s, a]), int(true.successor[match[s], a])
            if after not in match:
                match[after] = truth
                frontier.append(after)
            if match[after] != truth:
                return None
    return match


def test_the_map_of_a_lock_is_found(discovery, source):
    assert discovery.finished
    assert discovery.layered
    assert not discovery.warnings
    assert discovery.episodes <= 300
    match = matched(discovery, source.simulator)
    assert match is not None
    assert len(set(match.values())) == len(match)
    plan = tasid.robust_dp(discovery.simulator, eta=0.1)
    true = tasid.robust_dp(source.simulator, eta=0.1)
    assert abs(plan.start_value - true.start_value) < 0.05 * true.start_value
    assert abs(discovery.eta - 0.09) < 0.04  # a slip to the same outcome does not show


def test_the_map_serves_in_another_lock(discovery):
    """The same graph with other observations and slips, as only the seed of ξ and q differ."""
    source = tasid.make("combination-lock", horizon=HORIZON, seed=5)
    result = tasid.learn(source, discovery.simulator, eta=0.1, episodes=96, seed=1)
    score = tasid.evaluate(result.policy, source, episodes=4000, seed=1)
    robust = source.latent.robust_value(tasid.robust_dp(source.simulator, eta=0.1))
    assert score.mean >= 0.95 * robust


def test_the_same_seed_gives_the_same_map(discovery, source):
    again = tasid.discover(source, eta=0.1, seed=5)
    assert again.episodes == discovery.episodes
    assert again.simulator.same_tables(discovery.simulator)


def test_too_few_episodes_are_undecided(source):
    with pytest.raises(tasid.Undecided, match=r"^source"):
        tasid.discover(source, eta=0.1, episodes=40)
    forced = tasid.discover(source, eta=0.1, episodes=40, force=True)
    assert not forced.finished
    assert forced.warnings
    assert forced.episodes == 40


def test_look_alike_states_are_split_by_context():
    """A ring of four cells, two of which look alike.

    A slip between the two leaves no trace in the context, so a tenth of some visits is mislabelled.
    """
    rng = np.random.default_rng(0)
    n, steps = 60, 12
    actions = rng.integers(2, size=(n, steps)).astype(np.int32)
    states = np.zeros((n, steps + 1), int)
    for h in range(steps):
        slipped = np.where(rng.random(n) < 0.1, 1 - actions[:, h], actions[:, h])
        states[:, h + 1] = (states[:, h] + np.where(slipped == 1, 1, -1)) % 4
    looks = np.array([0, 1, 2, 1])[states]
    episodes = Episodes(
        looks[..., None].astype(np.float32),
        actions,
        np.zeros((n, steps), np.float32),
        np.full(n, steps, np.int32),
        actions < 0,
    )
    labels, component = split_look_alikes(Rows().append(episodes, 0), looks.ravel(), 3, 2, 0.1)
    assert component.tolist() == [0, 1, 2, 1]
    alike = looks.ravel() == 1
    agreement = (labels == 1)[alike] == (states.ravel() == 1)[alike]
    assert max(agreement.mean(), 1 - agreement.mean()) > 0.88
    unsplit, parts = split_look_alikes(Rows().append(episodes, 0), states.ravel(), 4, 2, 0.1)
    assert parts.tolist() == [0, 1, 2, 3]
    assert (unsplit == states.ravel()).all()


def test_a_collapsed_mixture_is_undecided():
    """Random bits behind a layer of tanh are not Gaussian: the states of a layer become one."""
    source = tasid.make("combination-lock", horizon=6, seed=1, bernoulli=True, depth=1)
    with pytest.raises(tasid.Undecided, match="states that differ may"):
        tasid.discover(source, eta=0.1, seed=1)
