"""Several start states: the first belief, and Algorithms 3 and 4 of the paper."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import OnHost, one_hot
from tasid.checks.diagnosis import diagnose, start_purity
from tasid.checks.scoring import score
from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.learning.paper import initial_state_test, start_clusters
from tasid.learning.paper.initial_state_test import StartCounts
from tasid.learning.paper.start_clusters import cluster_starts, first_steps, start_margins
from tasid.models.contrastive import Contrast, fit_groups
from tasid.runs.starts import flattened
from tasid.targets.block import block_mdp
from tasid.targets.target import episode_keys, seed_key
from tasid.theory import Setting, StartSetting, start_budget


def lock(**options):
    # One shape for most tests, so that they share compiled code.
    small = {"horizon": 4, "num_actions": 4, "starts": 2, "layout": "copies"}
    return tasid.make("combination-lock", **{**small, **options})


def first_looks(env, number, phase=99):
    """First observations and the latent states behind them."""
    states, x = env.target.reset(episode_keys(seed_key(0), phase, jnp.arange(number)))
    return np.asarray(states), np.asarray(x)


@pytest.fixture(scope="module")
def by_belief():
    env = lock(seed=3)
    return env, tasid.learn(env, eta=0.1, episodes=96, seed=3, starts=2)


def test_the_policy_knows_where_it_starts_and_earns_the_robust_value(by_belief):
    env, result = by_belief
    _, figures = score(result.policy, env, episodes=2000, seed=0)
    assert figures["ratio"] > 0.95
    assert figures["skill"] > 0.9
    assert diagnose(result.policy, env, episodes=512).tracking_accuracy[0] > 0.99
    assert result.episodes == 96
    assert result.diagnostics.starts is None


def test_an_agent_sees_where_it_starts(by_belief):
    env, result = by_belief
    agent = result.policy.agent()
    chances = dict(zip(env.simulator.starts.tolist(), [0.5, 0.5], strict=True))
    assert agent.belief == pytest.approx(chances), "before it looks"
    for state, observation in zip(*first_looks(env, 16), strict=True):
        agent.reset()
        agent.act(observation)
        assert agent.state == state


def test_one_start_is_the_single_start_algorithm(tmp_path):
    plain = tasid.make("combination-lock", horizon=4, seed=2)
    one = tasid.make("combination-lock", horizon=4, seed=2, starts=1)
    folders = [
        tasid.learn(env, eta=0.1, episodes=32, seed=0, starts=starts).policy.save(
            tmp_path / str(starts)
        )
        for env, starts in ((plain, None), (one, 1))
    ]
    for file in sorted(folders[0].iterdir()):
        assert file.read_bytes() == (folders[1] / file.name).read_bytes()


def test_starts_that_go_on_alike_are_told_by_what_they_pay():
    """Γ = 0: no step tells them apart, only rewards and the first look do."""
    env = seen_through(twins())
    result = tasid.learn(env, eta=0.1, episodes=64, seed=0)
    assert score(result.policy, env, episodes=2000, seed=0)[1]["ratio"] > 0.95


@pytest.mark.slow
def test_docking_stations_look_different_and_are_found():
    env = tasid.make("lava-crossing", starts=4, horizon=6, seed=0)
    look = np.asarray(env.target.emission.look)[env.simulator.starts]
    assert len(set(look.tolist())) == 4
    result = tasid.learn(env, eta=0.1, episodes=96, seed=0)
    assert diagnose(result.policy, env, episodes=256).tracking_accuracy[0] > 0.95


@pytest.mark.parametrize("layout", ["layer0", "copies"])
def test_locks_with_several_starts(layout):
    env = lock(starts=3, layout=layout, num_actions=10, seed=1)
    sim = env.simulator
    kinds = {sim.states[s][:2] for s in sim.starts}
    assert kinds == {(0, 1)}
    assert len(sim.starts) == 3
    good = [sim.successor[s] for s in sim.starts]
    if layout == "layer0":
        # One action stays on type 1, and no two starts share it.
        stays = [np.flatnonzero([sim.states[t] == (1, 1) for t in row]) for row in good]
        assert all(stay.size == 1 for stay in stays)
        assert len({int(stay[0]) for stay in stays}) == 3
    else:
        reach = [set(row.tolist()) for row in good]
        assert all(not (a & b) for a, b in itertools.combinations(reach, 2))
    states, x = first_looks(env, 400)
    means = [x[states == s].mean(axis=0) for s in sim.starts]
    # Two marks differ, each by the length of a Hadamard column.
    width = x.shape[1]
    for a, b in itertools.combinations(means, 2):
        assert np.linalg.norm(a - b) == pytest.approx(math.sqrt(2 * width), rel=0.05)


def test_contrast_groups_by_what_follows_and_not_by_looks():
    """x has a loud bit that means nothing and a quiet one that decides what action 1 does."""
    rng = np.random.default_rng(0)
    loud, quiet, action = (rng.integers(0, 2, 2000) for _ in range(3))
    x = np.stack([4.0 * loud, 1.0 * quiet], axis=1) + 0.1 * rng.normal(size=(2000, 2))
    leads = np.where(action == 1, quiet, 0)
    x_next = np.stack([2.0 * leads, rng.normal(size=2000)], axis=1) + 0.1
    found = fit_groups(
        x.astype(np.float32),
        action.astype(np.int32),
        x_next.astype(np.float32),
        groups=2,
        actions=2,
        seed=0,
    )
    weights = found.parameters[found.errors.argmin()]
    group = (x @ weights[:-2].reshape(2, 2) + weights[-2:]).argmax(axis=1)
    agree = (group == quiet).mean()
    assert max(agree, 1 - agree) > 0.97
    assert found.errors.min() < found.alone - 0.01


def test_a_wrong_number_of_starts_is_refused():
    with pytest.raises(ValueError, match=r"starts: 3 given, but the simulator has 2 start state"):
        tasid.learn(lock(), eta=0.1, episodes=500, starts=3)


def twins(horizon=4):
    """Two starts with the same first step, which pay differently."""
    successor = np.array([[2, 3], [2, 3], [4, 4], [4, 4], [4, 4]])
    reward = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.0]])
    return tasid.AbstractSimulator(successor, reward, horizon=horizon, start=[0, 1])


def test_margins_of_starts_by_hand():
    assert start_margins(twins()) == [(0, 1, 0.0, 0.0)]
    half = tasid.AbstractSimulator(
        [[2, 1], [2, 2], [2, 2]], np.zeros((3, 2)), horizon=2, start=[0, 1, 2]
    )
    assert start_margins(half) == [(0, 1, 0.5, 0.0), (0, 2, 0.5, 0.0), (1, 2, 0.0, 0.0)]


def seen_through(sim, noise=0.1):
    """Every state as a 1 of its own, with noise; the perturbation is drawn."""
    return block_mdp(
        "made", {}, tasid.perturb(sim, eta=0.1, seed=0), one_hot(sim.num_states, noise)
    )


@pytest.fixture(scope="module")
def by_paper():
    env = lock(seed=0)
    counts = StartCounts(cluster=256, learn=1000, test=128)
    return env, tasid.learn(env, eta=0.1, episodes=counts, seed=0, method="paper")


def test_algorithms_3_and_4_pick_the_right_start_for_every_cluster(by_paper):
    env, result = by_paper
    found = result.diagnostics.starts
    assert diagnose(result.policy, env, episodes=256).tracking_accuracy[0] == 1.0
    assert result.policy.decoder.models.shape[0] == 2  # every cluster has its own
    # All N² hypotheses ran to the end, and the rarer cluster set the pace.
    assert all(h.episodes == 1128 for h in found.hypotheses)
    assert len(found.hypotheses) == 4
    assert 256 + 4 * 1128 <= result.episodes < 256 + 4 * 1128 * 1.2
    assert score(result.policy, env, episodes=2000, seed=0)[1]["ratio"] > 0.9


def test_clusters_are_of_one_start_each(by_paper):
    env, result = by_paper
    assert start_purity(result.policy, env) == 1.0
    assert min(result.diagnostics.starts.clusters.shares) > 0.4
    agent = result.policy.agent()
    for state, observation in zip(*first_looks(env, 16), strict=True):
        agent.reset()
        agent.act(observation)
        assert agent.state == state


def test_the_right_hypothesis_earns_more(by_paper):
    _, result = by_paper
    values = {(h.cluster, h.accepted): h for h in result.diagnostics.starts.hypotheses}
    for cluster in range(2):
        assert values[cluster, True].low > values[cluster, False].high


def test_a_policy_with_a_broken_clusterer_is_refused(by_paper, tmp_path):
    _, result = by_paper
    kept = read_artifact(result.policy.save(tmp_path / "policy"), kind="policy")
    arrays = {**kept.arrays, "clusterer.starts": np.array([0, 1], np.int32)}
    write_artifact(tmp_path / "bad", kind="policy", metadata=kept.metadata, arrays=arrays)
    with pytest.raises(ArtifactError, match=r"clusterer.starts are \[0, 1\]"):
        tasid.load(tmp_path / "bad")


def test_the_paper_takes_for_granted_that_every_start_appears(monkeypatch):
    """Everything in one group has no error here, and a group that gets nothing."""
    env = lock(seed=0)
    lumped = []

    def tempted(*data, **given):
        found = fit_groups(*data, **given)
        one = np.zeros_like(found.parameters[:1])
        one[0, -2] = 1.0
        lumped.append(one[0])
        return Contrast(
            np.concatenate([one, found.parameters]),
            np.append(np.float32(0.0), found.errors),
            found.alone,
        )

    monkeypatch.setattr(start_clusters, "fit_groups", tempted)
    found = cluster_starts(env.target, env.simulator, episodes=256, seed=0)
    assert min(found.shares) > 0.3
    assert found.error > 0.0
    # With that grouping the stream of episodes would never end.
    empty = replace(found.clusterer, parameters=jnp.asarray(lumped[0]))
    counts = StartCounts(cluster=256, learn=1000, test=128)
    with pytest.raises(ValueError, match=r"only 0 began in cluster 1.*too rare to be tested"):
        initial_state_test._deal(env.target, empty, counts, 2, 0)


def test_first_steps_are_the_same_on_targets_that_cannot_be_traced():
    target = lock(seed=5).target
    compiled = first_steps(target, seed=2, episodes=10)
    stepped = first_steps(OnHost(target), seed=2, episodes=10)
    for one, other in zip(compiled, stepped, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert compiled.action.shape == (10,)


def test_a_hypothesis_cannot_be_tested_by_one_episode():
    counts = StartCounts(cluster=256, learn=100, test=1)
    with pytest.raises(ValueError, match="episodes: 1 to test a hypothesis with; 2 are the fewest"):
        tasid.learn(lock(), eta=0.1, episodes=counts, method="paper")


def test_a_policy_with_models_for_every_cluster_is_kept_and_acts_alike(by_paper, tmp_path):
    env, result = by_paper
    policy = result.policy
    loaded = tasid.load(policy.save(tmp_path / "policy"))
    kept = [tasid.evaluate(one, env, episodes=300, seed=5).returns for one in (policy, loaded)]
    np.testing.assert_array_equal(*kept)
    calibration = tasid.calibrate(loaded, env, episodes=256)
    assert calibration.confidence.size == calibration.correct.size > 0


def test_the_paper_keeps_to_its_episodes_and_names_a_start_too_rare_to_appear():
    env = lock(seed=0, start_probabilities=[0.9999, 0.0001])
    result = tasid.learn(env, eta=0.1, episodes=600, seed=0, method="paper")
    assert result.episodes <= 600
    rare = int(env.simulator.starts[1])
    assert rare in result.diagnostics.starts.unseen
    assert any(
        "never to have appeared, or was taken for another" in text and "0.0001" in text
        for text in result.diagnostics.warnings
    )


def test_the_papers_counts_can_be_had():
    setting = Setting(horizon=3, actions=4, eta=0.1, log_class_size=10.0, delta=0.1)
    start = StartSetting(
        setting=setting, starts=2, min_probability=0.5, margin=0.5, complexity=10.0
    )
    budget = start_budget(start, epsilon=1.0)
    counts = StartCounts.of_theory(budget)
    assert (counts.cluster, counts.learn, counts.test) == (
        budget.n_cluster,
        budget.n_learn,
        budget.n_test,
    )


def test_text_maps_with_several_starts_keep_their_number():
    text = "#####\n#S.G#\n#..S#\n#####"
    env = tasid.make("lava-crossing", text_map=text, horizon=6)
    assert env.simulator.starts.size == 2
    with pytest.raises(ValueError, match=r"starts: 3 given, but the map has 2 'S'"):
        tasid.make("lava-crossing", text_map=text, horizon=6, starts=3)
    with pytest.raises(ValueError, match=r"starts: 7 is not in 1 … 6"):
        tasid.make("lava-crossing", starts=7)


def test_flattening_keeps_groups_apart():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(3), 30)
    centres = 5 * np.eye(10)[:3]
    x = (centres[group] + rng.normal(size=(90, 10))).astype(np.float32)
    flat = flattened(x, group, 3)
    means = np.stack([flat[group == k].mean(axis=0) for k in range(3)])
    near = ((flat[:, None] - means[None]) ** 2).sum(axis=-1).argmin(axis=1)
    assert (near == group).mean() > 0.95
