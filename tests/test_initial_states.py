"""Several start states: clusters of first observations, their assignment, and policies for all."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import one_hot
from tasid.algorithms import initial_state_test, return_test
from tasid.algorithms.initial_state_test import StartCounts
from tasid.algorithms.initial_states import (
    Hypothesis,
    StartsFound,
    assign,
    behind,
    find_starts,
    start_margins,
)
from tasid.algorithms.return_test import assignments, decide
from tasid.algorithms.start_evidence import reward_evidence
from tasid.algorithms.wander import wander
from tasid.envs.block import block_mdp
from tasid.envs.target import episode_keys, seed_key
from tasid.learning.contrastive import Contrast, fit_groups
from tasid.report.command import rerun_command
from tasid.report.findings import read_findings
from tasid.runs.diagnosis import diagnose, start_purity
from tasid.runs.scoring import score
from tasid.runs.starts import flattened
from tasid.runs.train import Order, train
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
def learned():
    env = lock(seed=3)
    return env, tasid.learn(env, eta=0.1, episodes="auto", seed=3, starts=2)


def test_the_policy_knows_where_it_starts_and_earns_the_robust_value(learned):
    env, result = learned
    _, figures = score(result.policy, env, episodes=2000, seed=0)
    assert figures["ratio"] > 0.95
    assert figures["skill"] > 0.9
    assert diagnose(result.policy, env, episodes=512).tracking_accuracy[0] == 1.0


def test_all_episodes_count(learned):
    _, result = learned
    steps = sum(step.episodes for step in result.diagnostics.steps)
    assert result.episodes == steps + result.diagnostics.starts.episodes
    assert result.diagnostics.starts.episodes >= 128


def test_a_saved_policy_and_its_agent_pick_the_start_by_the_first_observation(learned, tmp_path):
    env, result = learned
    policy = tasid.load(result.policy.save(tmp_path / "policy"))
    states, x = first_looks(env, 16)
    agent = policy.agent()
    for state, observation in zip(states, x, strict=True):
        agent.reset()
        agent.act(observation)
        assert agent.state == state
    again = policy.save(tmp_path / "again")
    for file in sorted((tmp_path / "policy").iterdir()):
        assert file.read_bytes() == (again / file.name).read_bytes()


def test_a_policy_with_a_broken_clusterer_is_refused(learned, tmp_path):
    from tasid.storage import ArtifactError, read_artifact, write_artifact

    _, result = learned
    kept = read_artifact(result.policy.save(tmp_path / "policy"), kind="policy")
    arrays = {**kept.arrays, "clusterer.starts": np.array([0, 1], np.int32)}
    write_artifact(tmp_path / "bad", kind="policy", metadata=kept.metadata, arrays=arrays)
    with pytest.raises(ArtifactError, match=r"clusterer.starts are \[0, 1\]"):
        tasid.load(tmp_path / "bad")


def test_one_start_is_the_single_start_algorithm(tmp_path):
    plain = tasid.make("combination-lock", horizon=4, seed=2)
    one = tasid.make("combination-lock", horizon=4, seed=2, starts=1)
    results = [
        tasid.learn(env, eta=0.1, episodes=200, seed=0, starts=starts)
        for env, starts in ((plain, None), (one, 1))
    ]
    folders = [r.policy.save(tmp_path / str(i)) for i, r in enumerate(results)]
    for file in sorted(folders[0].iterdir()):
        assert file.read_bytes() == (folders[1] / file.name).read_bytes()
    assert results[0].diagnostics.starts is None
    assert results[0].policy.decoder.clusterer is None


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


def test_reward_evidence_is_the_likelihood_of_a_brute_force_sum():
    env = lock(horizon=2, num_actions=3, layout="layer0", seed=4)
    sim, eta = env.simulator, 0.2
    seen = wander(env.target, seed=0, first=0, episodes=20)
    found = reward_evidence(sim, seen.actions, seen.rewards, eta=eta)
    for i in range(20):
        for j, start in enumerate(sim.starts):
            total = 0.0
            for happened in itertools.product(range(3), repeat=2):
                state, chance = int(start), 1.0
                for h, (asked, did) in enumerate(zip(seen.actions[i], happened, strict=True)):
                    chance *= (1 - eta) * (asked == did) + eta / 3
                    paid = sim.reward_at(h)[state, did]
                    chance *= 1.0 if abs(paid - seen.rewards[i, h]) < 1e-3 else 1e-3
                    state = int(sim.successor_at(h)[state, did])
                total += chance
            assert found[i, j] == pytest.approx(math.log(total), abs=1e-5)


def test_the_best_assignment_is_one_to_one_unless_evidence_is_clear():
    assert assign(np.array([[0.0, -1.0], [0.0, -3.0]]))[0].tolist() == [1, 0]
    # Both groups are clearly the first start: the second one never appeared.
    clear = np.array([[0.0, -50.0], [0.0, -60.0]])
    assert assign(clear)[0].tolist() == [0, 0]


def test_how_far_a_hypothesis_is_behind_is_that_of_the_best_assignment_with_it():
    rng = np.random.default_rng(0)
    evidence = -3 * rng.random((3, 3))
    found = behind(evidence)
    totals = {
        p: sum(evidence[k, s] for k, s in enumerate(p)) for p in itertools.permutations(range(3))
    }
    for k, s in itertools.product(range(3), repeat=2):
        best_with = max(total for p, total in totals.items() if p[k] == s)
        assert found[k, s] == pytest.approx(max(totals.values()) - best_with)


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


def test_starts_with_the_same_first_step_are_named_and_need_returns():
    sim = twins()
    assert start_margins(sim) == [(0, 1, 0.0, 0.0)]
    half = tasid.AbstractSimulator(
        [[2, 1], [2, 2], [2, 2]], np.zeros((3, 2)), horizon=2, start=[0, 1, 2]
    )
    assert start_margins(half) == [(0, 1, 0.5, 0.0), (0, 2, 0.5, 0.0), (1, 2, 0.0, 0.0)]
    env = lock(num_actions=3)
    small = tasid.AbstractSimulator(
        np.tile([[1, 1, 2]], (3, 1)), np.zeros((3, 3)), horizon=4, start=[0, 1]
    )
    with pytest.raises(ValueError, match=r"0 and 1 .*Γ = 0.*starts_by='return'"):
        tasid.learn(env, small, eta=0.1, episodes=500)


def test_too_many_starts_are_refused_at_once():
    rooms = np.arange(33)
    onwards = np.stack([(rooms + 1) % 33, rooms, rooms], axis=1)
    sim = tasid.AbstractSimulator(onwards, np.zeros((33, 3)), horizon=4, start=rooms)
    with pytest.raises(ValueError, match=r"starts: .* has 33, and 32 at most .*with_start"):
        tasid.learn(lock(num_actions=3), sim, eta=0.1, episodes="auto")


def test_a_start_that_never_appeared_is_named():
    env = lock(start_probabilities=[0.9999, 0.0001], seed=0)
    result = tasid.learn(env, eta=0.1, episodes="auto", seed=0)
    found = result.diagnostics.starts
    assert found.unseen == (int(env.simulator.starts[1]),)
    assert set(found.starts) == {int(env.simulator.starts[0])}
    assert any(
        "never to have appeared" in text and "0.0001" in text
        for text in result.diagnostics.warnings
    )
    assert score(result.policy, env, episodes=2000, seed=0)[1]["ratio"] > 0.95


def seen_through(sim, noise=0.1):
    """Every state as a 1 of its own, with noise; the perturbation is drawn."""
    return block_mdp(
        "made", {}, tasid.perturb(sim, eta=0.1, seed=0), one_hot(sim.num_states, noise)
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_starts_that_only_returns_can_tell_are_grouped_by_their_looks(seed):
    """Γ = 0: nothing that follows says anything, and k-means has the last word."""
    env = seen_through(twins())
    result = tasid.learn(env, eta=0.1, episodes=2_000, seed=seed, starts_by="return")
    assert start_purity(result.policy, env) == 1.0
    assert diagnose(result.policy, env, episodes=256).tracking_accuracy[0] == 1.0
    told = " ".join(result.diagnostics.warnings)
    assert "returns alone decided the start of cluster(s) 0, 1" in told
    assert "evidence did not" not in told


def test_states_with_one_outcome_are_neither_blamed_nor_in_the_way():
    """All of the second step: no row is judged there, and nothing looks strange."""
    successor = np.array([[2, 3], [3, 2], [4, 4], [4, 4], [4, 4]])
    reward = np.array([[1.0, 1.0], [0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.0]])
    for start in (0, [0, 1]):
        sim = tasid.AbstractSimulator(successor, reward, horizon=3, start=start)
        result = tasid.learn(seen_through(sim), eta=0.1, episodes=1_000, seed=0)
        assert result.diagnostics.map_errors == ()


def test_open_hypotheses_are_all_tested_in_few_assignments():
    env = lock(starts=3, seed=0)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    found = find_starts(env.target, plan, seed=0, most=144, by_return=True)
    assert found.unsettled == (0, 1, 2)
    tried = assignments(found)
    assert len(tried) == 3  # a Latin square
    assert {(k, s) for one in tried for k, s in enumerate(one)} == {
        (k, int(s)) for k in range(3) for s in env.simulator.starts
    }
    assert all(h.nats is None for h in found.hypotheses), "evidence was not asked"


def test_returns_alone_find_the_starts_too():
    env = lock(seed=1)
    result = tasid.learn(env, eta=0.1, episodes=1500, seed=1, starts_by="return")
    assert diagnose(result.policy, env, episodes=256).tracking_accuracy[0] == 1.0
    values = {(h.cluster, h.accepted): h for h in result.diagnostics.starts.hypotheses}
    for cluster in range(2):
        right, wrong = values[cluster, True], values[cluster, False]
        assert right.low > wrong.high
    assert result.episodes <= 1500


def test_a_run_decided_by_returns_keeps_the_events_of_the_policy_that_was_kept(tmp_path):
    """Several policies were learned on the way; its page shows the values of all hypotheses."""
    options = {"horizon": 4, "num_actions": 3, "starts": 2, "seed": 1}
    order = Order("combination-lock", options, 0.1, 1_500, 1, starts_by="return")
    train(order, tmp_path / "run")
    found = read_findings(tmp_path / "run")
    assert [row.step for row in found.steps] == [0, 1, 2]
    assert len({row.seed for row in found.steps}) == 1
    assert found.asked["starts_by"] == "return"
    assert "--starts-by return" in rerun_command(found.asked)


def test_returns_may_say_that_a_start_never_appeared():
    """Both clusters earn far more as start 0: one to one would spoil half of the episodes."""

    def asked(cluster, start):
        return Hypothesis(cluster, start, accepted=cluster == start, nats=0.0)

    found = StartsFound(
        clusterer=None,
        starts=(0, 1),
        shares=(0.5, 0.5),
        hypotheses=tuple(asked(k, s) for k in range(2) for s in range(2)),
        episodes=100,
        error=0.2,
        error_alone=0.25,
        features=np.zeros((0, 1), np.float32),
        clusters=np.zeros(0, np.int64),
    )

    def earned(starts, *values, half=0.5):
        number = np.array([64, 64])
        return return_test.Tested(starts, np.array(values), np.full(2, half), number)

    decided = decide(found, [earned((0, 1), 8.0, 1.0), earned((1, 0), 1.0, 8.0)])
    assert (decided.starts, decided.unseen) == ((0, 0), (1,))
    unsure = decide(found, [earned((0, 1), 5.0, 4.6), earned((1, 0), 4.9, 5.0)])
    assert (unsure.starts, unsure.unseen) == ((1, 0), ())


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


def test_the_paper_takes_for_granted_that_every_start_appears(monkeypatch):
    """Everything in one group has no error here, and a group that gets nothing."""
    env = lock(seed=0)
    usual = initial_state_test.groupings
    lumped = []

    def tempted(sim, seen, seed):
        found = usual(sim, seen, seed)
        one = np.zeros_like(found.contrast.parameters[:1])
        one[0, -2] = 1.0
        lumped.append(one[0])
        contrast = Contrast(
            np.concatenate([one, found.contrast.parameters]),
            np.append(np.float32(0.0), found.contrast.errors),
            found.contrast.alone,
            looks=0,
        )
        return found._replace(contrast=contrast)

    monkeypatch.setattr(initial_state_test, "groupings", tempted)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    clusterer, found = initial_state_test._clusters(env.target, plan, 256, 0)
    assert min(found.shares) > 0.3
    assert found.error > 0.0
    # With that grouping the stream of episodes would never end.
    empty = replace(clusterer, parameters=jnp.asarray(lumped[0]))
    counts = StartCounts(cluster=256, learn=1000, test=128)
    with pytest.raises(ValueError, match=r"only 0 began in cluster 1.*too rare to be tested"):
        initial_state_test._deal(env.target, empty, counts, 2, 0)


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


def test_docking_stations_look_different_and_are_found():
    env = tasid.make("lava-crossing", starts=4, horizon=6, seed=0)
    look = np.asarray(env.target.emission.look)[env.simulator.starts]
    assert len(set(look.tolist())) == 4
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    found = find_starts(env.target, plan, seed=0, most=384)
    assert not found.unsettled
    assert not found.unseen
    states, x = first_looks(env, 128)
    np.testing.assert_array_equal(
        np.array(found.starts)[np.asarray(found.clusterer(jnp.asarray(x)))], states
    )


def test_text_maps_with_several_starts_keep_their_number():
    text = "#####\n#S.G#\n#..S#\n#####"
    env = tasid.make("lava-crossing", text_map=text, horizon=6)
    assert env.simulator.starts.size == 2
    with pytest.raises(ValueError, match=r"starts: 3 given, but the map has 2 'S'"):
        tasid.make("lava-crossing", text_map=text, horizon=6, starts=3)
    with pytest.raises(ValueError, match=r"starts: 7 is not in 1 … 6"):
        tasid.make("lava-crossing", starts=7)


class OnHost:
    """A target that JAX is not allowed to trace, with room for few episodes at a time."""

    traceable, num_envs = False, 7

    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return getattr(self._target, name)


def test_wandering_is_the_same_on_targets_that_cannot_be_traced():
    target = lock(seed=5).target
    compiled = wander(target, seed=2, first=3, episodes=10)
    stepped = wander(OnHost(target), seed=2, first=3, episodes=10)
    for one, other in zip(compiled, stepped, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert compiled.actions.shape == (10, 4)


def test_flattening_keeps_groups_apart():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(3), 30)
    centres = 5 * np.eye(10)[:3]
    x = (centres[group] + rng.normal(size=(90, 10))).astype(np.float32)
    flat = flattened(x, group, 3)
    means = np.stack([flat[group == k].mean(axis=0) for k in range(3)])
    near = ((flat[:, None] - means[None]) ** 2).sum(axis=-1).argmin(axis=1)
    assert (near == group).mean() > 0.95
