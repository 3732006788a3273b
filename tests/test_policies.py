"""Acting, storing and scoring: agents, policies, artifacts, evaluation and exact yardsticks."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import tasid
from tasid.hmm import TransitionGraph, filter
from tasid.hmm.emissions import GaussianEmission
from tasid.hmm.features import FeatureMap
from tasid.keys import Phase, episode_keys
from tasid.planning import policy_value, robust_dp
from tasid.policies.belief_policy import Advantages, BeliefPolicy
from tasid.policies.evaluate import Score, Yardsticks, summary, tracking_accuracy, yardsticks
from tasid.policy import OpenLoopPolicy, Policy
from tasid.storage import ArtifactError, read_artifact, write_artifact
from tasid.targets.base import Target
from tasid.targets.rollout import rollout


def keys(n, seed=3):
    return episode_keys(seed, Phase.EVALUATION, 0, n)


def observed(env, policy, n=8, **options):
    return rollout(env, policy, keys(n), width=32, **options)


def room_policy(horizon=12, eta=0.1, noise=0.05, size=4):
    """A policy in an empty room whose emission is known: the state's one-hot code and noise."""
    rows = ["." * size] * (size - 1)
    rows = [f"S{rows[0][1:]}", *rows[1:], f"{rows[0][1:]}G"]
    text = "\n".join(["#" * (size + 2), *(f"#{row}#" for row in rows), "#" * (size + 2)])
    sim = tasid.AbstractSimulator.from_text_map(text, horizon=horizon)
    classes = TransitionGraph.from_simulator(sim).places
    size = sim.num_states
    variance = 1 / noise**2
    means = np.eye(size, dtype=np.float32)[classes]
    emission = GaussianEmission(
        centre=np.zeros(size, np.float32),
        projection=np.eye(size, dtype=np.float32),
        linear=means * np.float32(variance),
        quadratic=np.full_like(means, -variance / 2),
        constant=-(means**2).sum(axis=1) * np.float32(variance) / 2,
        between=np.ones(size, np.float32),
        whitening=np.eye(size, dtype=np.float32),
        log_det=0.0,
    )
    eye = np.eye(size, dtype=np.float32)
    features = FeatureMap(np.zeros(size, np.float32), eye, np.zeros((1, size), np.float32), 0)
    policy = BeliefPolicy(
        plan=robust_dp(sim, eta=eta, keep_values=True),
        class_kind="state",
        features=features,
        emission=emission,
        eta=max(eta, 0.02),
        observation_shape=(size,),
        observation_dtype="float32",
        max_repeats=0,
    )
    return policy, lambda state, rng: np.eye(size)[state] + rng.normal(scale=noise, size=size)


# Acting


def test_an_agent_acts_as_the_batched_policy(lock, lock_policy):
    episodes = observed(lock, lock_policy, trace=lambda state, memory, h: memory.doubt)
    agent = lock_policy.agent()
    for row in range(len(episodes)):
        agent.reset()
        for h in range(lock.horizon):
            assert agent.act(episodes.observations[row, h]) == episodes.actions[row, h]
            assert agent.step == h + 1
            expected = (episodes.trace[row, h] >= lock_policy.lost_threshold).any()
            assert agent.lost == expected
        assert agent.belief[agent.state] == pytest.approx(max(agent.belief.values()))
        odds = math.expm1(episodes.trace[row, -1].max()) / math.exp(lock_policy.half_confidence)
        assert agent.confidence == pytest.approx(agent.belief[agent.state] / (1 + odds))


def test_an_agent_refuses_what_it_cannot_use(lock_policy):
    agent, blank = lock_policy.agent(), np.zeros(lock_policy.observation_shape)
    wrong = {
        "shape": blank[:-1],
        "type": np.full(blank.shape, "x"),
        "not finite": np.full(blank.shape, np.nan),
        "too large": np.full(blank.shape, 1e60),
    }
    for observation in wrong.values():
        with pytest.raises(ValueError, match="observation"):
            agent.act(observation)
        assert agent.step == 0
    for _ in range(lock_policy.horizon):
        agent.act(blank)
    with pytest.raises(ValueError, match="act"):
        agent.act(blank)
    agent.reset()
    assert agent.act(blank) in range(lock_policy.num_actions)


def test_reprs_hold_no_arrays(lock, lock_policy):
    found = tasid.learn(lock, eta=0.1, episodes=16)
    for thing in (lock, lock_policy, lock_policy.agent(), found, found.diagnostics):
        assert len(repr(thing)) < 500


def test_the_belief_is_that_of_the_filter(lock, lock_policy):
    """In noise that leaves several states possible, so that the actions matter."""
    policy, episodes = replace(lock_policy, kidnap=0.0), observed(lock, lock_policy)
    noise = np.random.default_rng(0).normal(scale=8.0, size=episodes.observations.shape)
    frames = (episodes.observations + noise).astype(np.float32)
    features = replace(episodes, observations=policy.features.sequences(frames))
    posterior = filter(
        policy.graph, policy.emission, features, eta=policy.eta, use_rewards=False
    ).filtered_probs
    assert (posterior.max(axis=2) < 0.99).mean() > 0.1
    memory = policy.init(len(episodes))
    for h in range(lock.horizon):
        memory, _ = policy.act(memory, frames[:, h], h)
        memory = policy.override(memory, episodes.actions[:, h])
        np.testing.assert_allclose(memory.belief, posterior[:, h], atol=1e-5)
        by_state = policy.belief(memory, h)
        np.testing.assert_allclose(by_state.sum(axis=1), 1.0)
        assert (by_state.argmax(axis=1) == policy.estimate(memory, h).state).all()


def test_a_certain_belief_plays_the_plan():
    rng = np.random.default_rng(0)
    successor, reward = rng.integers(5, size=(5, 4)), rng.integers(2, size=(5, 4)).astype(float)
    sim = tasid.AbstractSimulator(successor, reward, horizon=6)
    plan = robust_dp(sim, eta=0.2, keep_values=True)
    graph = TransitionGraph.from_simulator(sim)
    for cache_bytes in (0, 1 << 20):
        advantages = Advantages(plan, graph, cache_bytes)
        for h in range(sim.horizon):
            states = graph.states_at(h)
            table = advantages.at(h)[states >= 0]
            states = states[states >= 0]
            q = plan.q_values(h)[states]
            chosen = plan.actions[h, states]
            assert (table.argmax(axis=1) == chosen).all()
            loss = q - np.take_along_axis(q, chosen[:, None].astype(int), axis=1)
            np.testing.assert_allclose(table, np.minimum(loss, 0), atol=1e-5)


def test_a_kidnapped_agent_acts_by_the_complete_plan():
    policy, observe = room_policy()
    sim, rng = policy.simulator, np.random.default_rng(1)
    start, distances = sim.start, shortest(sim, sim.start)
    far = int(np.argsort(distances)[-2])  # the goal is the farthest
    agent = policy.agent()
    state = start
    for h in range(sim.horizon):
        if h == 2:  # to a state that the start does not reach within two steps
            state = far
            assert distances[state] > 2
        action = agent.act(observe(state, rng))
        assert agent.state == state
        q = policy.plan.q_values(h)[state]
        assert q[action] >= q.max() - 1e-4
        state = int(sim.successor_at(h)[state, action])
    assert (sim.successor_at(0)[state] == state).all()  # the goal


def shortest(sim, start):
    distances = np.full(sim.num_states, -1)
    frontier, step = [start], 0
    while frontier:
        distances[frontier] = step
        after = np.unique(sim.successor_at(0)[frontier])
        frontier, step = [s for s in after if distances[s] < 0], step + 1
    return distances


@pytest.mark.parametrize("fault", ["zeros", "stuck"])
def test_a_broken_sensor_is_noticed_within_six_steps(lock, lock_policy, fault):
    episodes, agent, broken_at = observed(lock, lock_policy, n=32), lock_policy.agent(), 3
    noticed = []
    for row in episodes.observations:
        agent.reset()
        shown = row[broken_at - 1] if fault == "stuck" else np.zeros_like(row[0])
        lost = []
        for h in range(broken_at + 6):
            agent.act(row[h] if h < broken_at else shown)
            lost.append(agent.lost)
        noticed.append(any(lost[broken_at:]))
        assert not any(lost[:broken_at])
    assert np.mean(noticed) == 1.0


def test_repeats_and_unfamiliar_observations_count_by_themselves(lock, lock_policy):
    frames = observed(lock, lock_policy, n=1).observations[0]
    agent = replace(lock_policy, lost_threshold=1e9).agent()
    lost = []
    for h in range(7):
        agent.act(frames[min(h, 1)])
        lost.append(agent.lost)
    assert lost == [False] * 5 + [True] * 2
    memory = lock_policy.init(1)
    for h in range(3):
        memory, _ = lock_policy.act(memory, np.zeros_like(frames[:1]), h)
    assert memory.doubt[0, 0] >= 3 * lock_policy.unfamiliar_surprise


def walk(policy, observe, episodes, *, slips, stuck_at=None):
    """Was the agent lost? [episodes, H] in a simulated room, where uniform actions replace some."""
    sim, rng, agent, lost = policy.simulator, np.random.default_rng(0), policy.agent(), []
    for _ in range(episodes):
        agent.reset()
        state, shown = sim.start, None
        for h in range(sim.horizon):
            if stuck_at is None or h < stuck_at:
                shown = observe(state, rng)
            action = agent.act(shown)
            lost.append(agent.lost)
            if rng.random() < slips:
                action = rng.integers(sim.num_actions)
            state = int(sim.successor_at(h)[state, action])
    return np.reshape(lost, (episodes, sim.horizon))


def test_drift_is_signalled_and_planned_slips_are_not():
    policy, observe = room_policy(horizon=40, size=9)
    assert walk(policy, observe, 40, slips=0.1).mean() <= 0.005
    assert walk(policy, observe, 10, slips=0.8).any(axis=1).mean() >= 0.9


def test_confidence_falls_before_the_policy_is_lost():
    policy, _ = room_policy()
    memory = policy.init(4)
    doubt = np.zeros((4, 2))
    doubt[1:, 1] = policy.half_confidence, policy.lost_threshold - 0.1, policy.lost_threshold
    estimate = policy.estimate(memory._replace(doubt=doubt), 0)
    np.testing.assert_allclose(estimate.confidence[:2], [1.0, 0.5], atol=0.01)
    assert estimate.confidence[2] < 0.1
    assert estimate.lost.tolist() == [False] * 3 + [True]


def test_a_sensor_without_noise_that_hangs_is_noticed():
    policy, observe = room_policy(horizon=12)
    policy.__dict__["max_repeats"] = 100  # bumping into walls repeats observations, too
    still = walk(policy, observe, 20, slips=0.0, stuck_at=1)
    assert still[:, 1:7].any(axis=1).all()


# Storing


def test_a_saved_policy_has_the_same_bytes_and_acts_the_same(lock, lock_policy, tmp_path):
    first, second = (lock_policy.save(tmp_path / name) for name in "ab")
    files = sorted(path.name for path in first.iterdir())
    assert files == sorted(path.name for path in second.iterdir())
    assert all((first / f).read_bytes() == (second / f).read_bytes() for f in files)
    loaded = tasid.load(first)
    assert loaded.digest == lock_policy.digest
    assert loaded.plan.start_value == lock_policy.plan.start_value
    played, again = (observed(lock, policy) for policy in (lock_policy, loaded))
    np.testing.assert_array_equal(played.actions, again.actions)


def test_no_mutated_policy_loads(lock_run, tmp_path):
    rng, whole = np.random.default_rng(0), lock_run / "policy"
    names = sorted(path.name for path in whole.iterdir() if path.stat().st_size)
    for i in range(300):
        folder = tmp_path / str(i)
        shutil.copytree(whole, folder)
        path = folder / names[i % len(names)]
        data = bytearray(path.read_bytes())
        place = int(rng.integers(len(data)))
        if i % 3 == 0:
            data[place] ^= 1 << int(rng.integers(8))
        elif i % 3 == 1:
            del data[place:]
        else:
            data[place:place] = bytes(rng.integers(256, size=4, dtype=np.uint8))
        path.write_bytes(data)
        with pytest.raises(ArtifactError):
            tasid.load(folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("eta", 1.5),
        ("class_kind", "colour"),
        ("observation_shape", [10**6, 10**6]),
        ("observation_shape", [3]),
        ("observation_dtype", "nothing"),
        ("max_repeats", "many"),
        ("plan_eta", -1),
        ("simulator", {}),
        ("emission.linear", None),
        ("emission.constant", np.float32(np.nan)),
        ("features.components", np.ones((2, 2), np.float32)),
    ],
)
def test_forged_policies_are_refused(lock_run, tmp_path, name, value):
    artifact = read_artifact(lock_run / "policy")
    metadata, arrays = json.loads(json.dumps(artifact.metadata)), dict(artifact.arrays)
    if name in arrays:
        arrays[name] = (
            arrays[name][:-1]
            if value is None
            else arrays[name] * value
            if (np.ndim(value) == 0)
            else value
        )
    else:
        metadata[name] = value
    write_artifact(tmp_path, kind=artifact.kind, metadata=metadata, arrays=arrays)
    with pytest.raises(ArtifactError):
        tasid.load(tmp_path)


def test_loading_names_what_is_wrong(lock, lock_run, tmp_path):
    with pytest.raises(ArtifactError, match="nowhere"):
        tasid.load(tmp_path / "nowhere")
    lock.simulator.save(tmp_path / "map")
    with pytest.raises(ArtifactError, match="simulator"):
        tasid.load(tmp_path / "map")
    with pytest.raises(ArtifactError, match="model"):
        tasid.load(lock_run, model=object())


def test_policies_that_are_not_stored(lock):
    plan = robust_dp(lock.simulator, eta=0.1)
    for policy in (OpenLoopPolicy(lock, plan), lock.latent.robust_policy(plan)):
        with pytest.raises(TypeError):
            policy.save("somewhere")


# Scoring


class Coin(Target):
    """One step; action 1 earns 1 with probability 0.7, by the episode's key."""

    num_actions, horizon, observation_shape, observation_dtype = 2, 1, (), "float32"

    def reset(self, keys):
        return len(keys), np.zeros(len(keys), np.float32)

    def step(self, state, actions, h, keys):
        lucky = keys[:, 1] < 0.7 * 2**32
        rewards = (actions * lucky).astype(np.float32)
        return state, np.zeros(len(keys), np.float32), rewards, np.ones(len(keys), bool)


class Constant(Policy):
    observation_shape, observation_dtype, method = (), "float32", "constant"
    horizon, num_actions = 1, 2

    def init(self, n):
        return None

    def act(self, memory, observations, h):
        return None, np.ones(len(observations), np.int32)

    def save(self, path):
        raise TypeError


def test_mean_and_interval_on_a_known_mdp():
    score = tasid.evaluate(Constant(), Coin(), episodes=4_000, seed=5)
    assert set(score.returns) == {0.0, 1.0}
    assert score.mean == score.returns.mean()
    half = 1.96 * math.sqrt(score.mean * (1 - score.mean) / 3_999)
    assert score.ci95 == pytest.approx((score.mean - half, score.mean + half))
    covered = []
    for seed in range(200):
        low, high = tasid.evaluate(Constant(), Coin(), episodes=200, seed=seed).ci95
        covered.append(low <= 0.7 <= high)
    assert 0.9 <= np.mean(covered) <= 0.99
    assert Score(np.ones(1)).ci95 == (-math.inf, math.inf)


def test_evaluation_does_not_depend_on_the_width(lock, lock_policy):
    few, many = (tasid.evaluate(lock_policy, lock, episodes=n, seed=2) for n in (32, 600))
    np.testing.assert_array_equal(few.returns, many.returns[:32])


def test_exact_yardsticks_in_a_block_mdp(lock, lock_policy):
    exact, world = yardsticks(lock_policy, lock), lock.latent.world
    assert exact.robust_value == pytest.approx(policy_value(world, lock_policy.plan))
    assert exact.worst_case_value <= exact.robust_value <= exact.optimal_value
    assert exact.open_loop_value < exact.robust_value
    oracle = lock.latent.robust_policy(lock_policy.plan)
    score = tasid.evaluate(oracle, lock, episodes=4_000)
    own_target = tasid.evaluate(
        lock.latent.robust_policy(), lock.latent.oracle_target(), episodes=4_000
    )
    np.testing.assert_array_equal(score.returns, own_target.returns)
    assert score.ci95[0] - 0.1 < exact.robust_value < score.ci95[1] + 0.1
    open_loop = OpenLoopPolicy(lock, robust_dp(lock.simulator, eta=0.0))
    score = tasid.evaluate(open_loop, lock, episodes=4_000)
    assert score.mean <= exact.open_loop_value + 3 * (score.mean - score.ci95[0]) / 1.96
    result = summary(score, exact)
    assert result["optimal_value"] == exact.optimal_value
    assert result["ratio"] == score.mean / exact.robust_value
    json.dumps(result)


@pytest.mark.parametrize("slippery", [False, True])
def test_exact_yardsticks_of_a_toy_text_table(slippery):
    make = "FrozenLake-v1"
    raw = gymnasium.make(make, is_slippery=slippery)
    sim = tasid.AbstractSimulator.from_toy_text(raw, horizon=20)
    with tasid.wrap(make, num_envs=4, horizon=20, is_slippery=slippery) as env:
        policy = OpenLoopPolicy(env, robust_dp(sim, eta=0.0))
        exact = yardsticks(policy, env)
    value = np.zeros(16)
    for _ in range(20):
        value = np.array(
            [
                max(
                    sum(p * (r + (0 if end else value[t])) for p, t, r, end in row)
                    for row in raw.unwrapped.P[s].values()
                )
                for s in range(16)
            ]
        )
    assert exact.optimal_value == pytest.approx(value[0])
    assert exact.robust_value == pytest.approx(value[0])  # for η = 0 the plan is optimal
    assert exact.optimal_value > 0.1


def test_summaries_where_values_are_unknown_or_no_scale():
    score = Score(np.array([1.0, 3.0]))
    unknown = summary(score, None, worst_case=0.5)
    assert unknown["return_mean"] == 2.0
    assert unknown["worst_case_value"] == 0.5
    for name in ("ratio", "skill", "robust_value", "optimal_value"):
        assert unknown[name] is None
    negative = Yardsticks(-1.0, 0.0, -2.0, -3.0, -1.5)
    assert summary(score, negative)["ratio"] is None
    assert summary(score, negative)["skill"] == pytest.approx((2 + 3) / 2)


def test_diagnosis_follows_the_true_states(lock, lock_policy):
    accuracy = tracking_accuracy(lock_policy, lock, episodes=512)
    assert accuracy.shape == (lock.horizon,)
    assert accuracy[1:].min() > 0.9
    unaware = OpenLoopPolicy(lock, lock_policy.plan)
    unaware.estimate = lambda memory, h: lock_policy.estimate(lock_policy.init(512), 0)
    assert tracking_accuracy(unaware, lock, episodes=512)[1:].max() < 0.1


def test_evaluate_names_what_it_refuses(lock, lock_policy):
    for name, arguments in (
        ("policy", ("policy", lock)),
        ("env", (lock_policy, "lock")),
        ("env", (lock_policy, tasid.make("combination-lock", horizon=10, num_actions=4))),
        ("env", (lock_policy, tasid.make("combination-lock", horizon=20))),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{name}:"):
            tasid.evaluate(*arguments, episodes=4)
    for name, options in (
        ("episodes", {"episodes": 0}),
        ("episodes", {"episodes": 1.5}),
        ("seed", {"seed": -1}),
        ("seed", {"seed": 2**32}),
    ):
        with pytest.raises(ValueError, match=f"^{name}:"):
            tasid.evaluate(lock_policy, lock, **options)
