"""Discovery of maps: the lock's graph, look-alike states, transfer, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from tasid.episodes import Episodes
from tasid.learning.discovery import split_look_alikes
from tasid.learning.mixture import DiscoveryConfig, Rows

HORIZON = 6


@pytest.fixture(scope="module")
def source():
    return tasid.make("combination-lock", horizon=HORIZON, seed=5)


@pytest.fixture(scope="module")
def discovery(source):
    return tasid.discover(source, eta=0.1, seed=5)


def test_its_repr_is_short(discovery):
    assert len(repr(discovery)) < 300


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
    labels, component = split_look_alikes(Rows.of(episodes, 0), looks.ravel(), 3, 2, 0.1)
    assert component.tolist() == [0, 1, 2, 1]
    alike = looks.ravel() == 1
    agreement = (labels == 1)[alike] == (states.ravel() == 1)[alike]
    assert max(agreement.mean(), 1 - agreement.mean()) > 0.88
    unsplit, parts = split_look_alikes(Rows.of(episodes, 0), states.ravel(), 4, 2, 0.1)
    assert parts.tolist() == [0, 1, 2, 3]
    assert (unsplit == states.ravel()).all()


def test_a_rare_look_alike_does_not_hide_among_slips():
    """Two states look alike; eight of a hundred visits are of the second."""
    second = np.arange(100) % 25 < 2
    action = np.arange(100) // 25 % 2
    looks = np.stack([np.zeros(100, int), np.ones(100, int), 2 + (action ^ second)], axis=1)
    episodes = Episodes(
        looks[..., None].astype(np.float32),
        np.stack([second, action], axis=1).astype(np.int32),
        np.zeros((100, 2), np.float32),
        np.full(100, 2, np.int32),
        np.zeros((100, 2), bool),
    )
    labels, component = split_look_alikes(Rows.of(episodes, 0), looks.ravel(), 4, 2, 0.1)
    assert component.tolist() == [0, 1, 2, 3, 1]
    assert ((labels.reshape(looks.shape)[:, 1] == 4) == second).all()


def test_a_collapsed_mixture_is_undecided():
    """Random bits behind a layer of tanh are not Gaussian: the states of a layer become one."""
    source = tasid.make("combination-lock", horizon=6, seed=1, bernoulli=True, depth=1)
    with pytest.raises(tasid.Undecided, match="states that differ may"):
        tasid.discover(source, eta=0.1, seed=1)


def test_a_wrong_arrow_is_named_by_learning_and_mended(discovery, source):
    sim = discovery.simulator
    plan = tasid.robust_dp(sim, eta=0.1)
    state = int(plan.path([sim.start])[1, 0])
    good = int(plan.actions[1, state])
    bad = next(a for a in range(good) if sim.successor[state, a] != sim.successor[state, good])
    successor, reward = sim.successor.copy(), sim.reward.copy()
    successor[state, bad], reward[state, bad] = successor[state, good], reward[state, good]
    wrong = sim.replace(successor=successor, reward=reward)
    assert tasid.robust_dp(wrong, eta=0.1).actions[1, state] == bad
    errors, none = (
        tasid.learn(source, map_, eta=0.1, episodes=128, seed=3).diagnostics.map_errors
        for map_ in (wrong, sim)
    )
    assert [(error.state, error.action) for error in errors] == [(sim.states[state], bad)]
    assert not none
    successor[state, bad] = sim.states.index(errors[0].usual_outcome)
    assert successor[state, bad] == sim.successor[state, bad]
    mended = wrong.replace(successor=successor)
    assert tasid.robust_dp(mended, eta=0.1).actions[1, state] == good


def test_random_outcomes_are_discovered():
    """The lock with coin flips: the map is stochastic, and its plan opens the lock."""
    source = tasid.make("combination-lock", horizon=4, eta=0.0, coin_flips=True, seed=2)
    found = tasid.discover(source, eta=0.0, seed=2, config=DiscoveryConfig(standard_error=0.15))
    sim = found.simulator
    assert sim.stochastic
    assert found.finished
    assert sim.starts.size == 2
    assert sim.num_states == 14  # layer 0 has no bad state
    assert tasid.robust_dp(sim, eta=0.0).start_value == pytest.approx(1.0)
    random = (found.confidence < 0.9).sum()
    assert random == 2 * 4  # one good action in each of the two good states of a layer


def test_a_log_says_what_it_does_not_cover(source, tmp_path):
    tasid.record(source, tmp_path / "log", episodes=60, seed=1)
    found = tasid.discover(tasid.EpisodeLog.open(tmp_path / "log"), eta=0.1)
    assert found.episodes == 60
    assert not found.finished
    assert "untried" in found.warnings[0]
    assert (found.confidence[found.tried == 0] <= 1).all()
    assert 0 < (found.tried > 0).mean() < 1


def test_a_discovered_map_is_a_source_of_the_command_line(discovery, tmp_path):
    from tasid.report.page import write_report

    folder = discovery.save(tmp_path / "map")
    assert tasid.AbstractSimulator.load(folder).same_tables(discovery.simulator)
    page = write_report(folder).read_text()
    assert "Discovered map" in page
    assert page.count("<svg") == 5  # graph, plan, means, states, open pairs
