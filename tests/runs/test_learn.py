"""What `tasid.learn` promises by default: known answers, the same bytes, the wall, its errors."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import OneHot, OnHost
from tasid.checks.diagnosis import diagnose
from tasid.checks.population import population_limit
from tasid.checks.scoring import score
from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.initial_state_test import StartCounts
from tasid.targets.block import BlockMDP, Latent, block_mdp


def files(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_it_reaches_the_robust_value(lock, believed):
    _, figures = score(believed.policy, lock, episodes=10_000, seed=1)
    assert figures["ratio"] > 0.97
    assert figures["skill"] > 0.93
    assert diagnose(believed.policy, lock).tracking_accuracy.min() > 0.95


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Encumbered(tasid.Target):
    """A target of somebody's whose state is more than one number an episode."""

    inner: tasid.Target

    traceable = True
    num_actions = property(lambda self: self.inner.num_actions)
    horizon = property(lambda self: self.inner.horizon)
    observation_shape = property(lambda self: self.inner.observation_shape)

    def reset(self, keys):
        state, seen = self.inner.reset(keys)
        return {"state": state, "clock": jnp.zeros(())}, seen

    def step(self, state, actions, h, keys):
        inner, seen, paid = self.inner.step(state["state"], actions, h, keys)
        return {"state": inner, "clock": state["clock"] + 1}, seen, paid


def test_scores_do_not_look_into_states(lock, believed):
    """The same returns, whatever a target carries from step to step."""
    expected = tasid.evaluate(believed.policy, lock, episodes=200)
    found = tasid.evaluate(believed.policy, Encumbered(lock.target), episodes=200)
    np.testing.assert_array_equal(found.returns, expected.returns)


def test_the_learner_never_opens_the_latent_door(lock, believed, tmp_path, monkeypatch):
    """With the door made to raise, the same bytes come out: twice the same, and without a look."""

    def closed(*_):
        raise AssertionError("a learner looked at latent states")

    monkeypatch.setattr(BlockMDP, "latent", property(closed))
    monkeypatch.setattr(Latent, "states", closed)
    again = tasid.learn(lock, eta=0.1, episodes=64, seed=7)
    one, two = believed.policy.save(tmp_path / "one"), again.policy.save(tmp_path / "two")
    assert files(one) == files(two)
    assert [b.return_mean for b in again.diagnostics.batches] == [
        b.return_mean for b in believed.diagnostics.batches
    ]


def test_every_episode_counts_and_every_batch_is_told(lock):
    events = []
    result = tasid.learn(lock, eta=0.1, episodes=37, seed=2, callbacks=[events.append])
    assert result.episodes == 37
    assert all(isinstance(event, BatchEnded) for event in events)
    assert result.diagnostics.batches == tuple(events)
    assert [event.batch for event in events] == list(range(len(events)))
    assert (events[-1].episodes, events[-1].of, events[-1].seed) == (37, 37, 2)


def test_one_policy_a_seed_as_if_learned_alone(lock, believed, tmp_path):
    other = tasid.make("combination-lock", horizon=5, num_actions=4, seed=8)
    both = tasid.learn([lock, other], eta=0.1, episodes=64, seeds=[7, 8], run_dir=tmp_path)
    assert [result.policy.environment["options"]["seed"] for result in both] == [7, 8]
    alone = believed.policy.save(tmp_path / "alone")
    assert files(tmp_path / "seed-7" / "policy") == files(alone)
    assert files(tmp_path / "seed-8" / "policy") != files(alone)


def test_episodes_of_an_evaluation_do_not_depend_on_their_number(lock, believed):
    few = tasid.evaluate(believed.policy, lock, episodes=100, seed=9)
    many = tasid.evaluate(believed.policy, lock, episodes=300, seed=9)
    assert (few.returns == many.returns[:100]).all()


def test_a_target_that_cannot_be_traced_gives_the_same_policy(lock, believed):
    """Step by step, a few at a time; up to float32, which may round otherwise."""
    target = OnHost(lock.target)
    result = tasid.learn(target, lock.simulator, eta=0.1, episodes=64, seed=7)
    assert result.episodes == 64
    ours, theirs = (
        tasid.evaluate(one.policy, lock, episodes=2_000).mean for one in (believed, result)
    )
    assert ours == pytest.approx(theirs, rel=0.02)


def test_a_map_with_tables_for_every_step(lock, believed):
    """The same lock, written out step by step, is the same lock."""
    sim = lock.simulator
    wide = tasid.AbstractSimulator(
        np.repeat(sim.successor[None], 5, axis=0),
        np.repeat(sim.reward[None], 5, axis=0),
        horizon=5,
        start=sim.start,
    )
    result = tasid.learn(lock.target, wide, eta=0.1, episodes=64, seed=7)
    earned = tasid.evaluate(result.policy, lock, episodes=4_000).mean
    assert earned > 0.95 * lock.latent.robust_value(believed.policy.plan)


def test_a_horizon_of_one_has_nothing_to_learn():
    env = tasid.make("combination-lock", horizon=1, seed=1)
    result = tasid.learn(env, eta=0.1, episodes=16, seed=1)
    exact = env.latent.robust_value(result.policy.plan)
    assert tasid.evaluate(result.policy, env).mean == pytest.approx(exact, abs=0.1)
    assert result.policy.agent().act(np.zeros(8)) == result.policy.plan.action(0, 0)


def test_places_that_look_alike_are_told_apart_by_where_one_came_from():
    """Four cells of a corridor look the same: three before a landmark, and the one that pays.

    Action 0 goes on and action 1 waits, so that a slip among the three cannot be seen. Who decodes
    pairs of observations is off by one ever after, however good its models; at the landmark a
    belief knows again. One step beyond the cell that pays is a pit.
    """
    successor = np.array([[min(cell + 1, 6), cell] for cell in range(7)])
    reward = np.zeros((7, 2))
    reward[5, 1] = 1.0
    sim = tasid.AbstractSimulator(successor, reward, horizon=10)
    world, looks = tasid.perturb(sim, eta=0.2, seed=1), np.array([0, 1, 1, 1, 2, 1, 3])
    emission = OneHot(jnp.eye(4)[looks], 0.1)
    env = block_mdp("corridor", {}, world, emission)
    result = tasid.learn(env, eta=0.2, episodes=96, seed=0)
    _, figures = score(result.policy, env, episodes=4_000, seed=0)
    assert population_limit(world, result.policy.plan, looks).ratio < 0.9
    assert figures["ratio"] > 0.95


# ---------------------------------------------------------------- the agent


def test_an_agent_says_where_it_believes_to_be(lock, believed):
    agent = believed.policy.agent()
    assert agent.belief == {lock.simulator.start: 1.0}
    agent.act(np.zeros(16))
    assert sum(agent.belief.values()) == pytest.approx(1.0, abs=1e-4)
    assert agent.state == max(agent.belief, key=agent.belief.get)
    assert agent.confidence == pytest.approx(max(agent.belief.values()))


def test_an_agent_refuses(believed):
    agent = believed.policy.agent()
    with pytest.raises(ValueError, match=r"observation: shape \(3,\) at step 0.*\(16,\)"):
        agent.act(np.zeros(3))
    for bad in (np.nan, np.inf, 1e300):
        with pytest.raises(ValueError, match="not finite at step 0"):
            agent.act(np.full(16, bad))
    agent.act(np.zeros(16))
    belief = agent.belief
    with pytest.raises(ValueError, match=r"observation: numbers up to 1e\+19 at step 1, too large"):
        agent.act(np.full(16, 1e19, np.float32))
    assert agent.belief == belief
    agent.reset()
    for _ in range(5):
        agent.act(np.zeros(16))
    with pytest.raises(ValueError, match="horizon is 5 steps; call reset"):
        agent.act(np.zeros(16))
    agent.reset()
    assert agent.act(np.zeros(16)) == believed.policy.plan.action(0, 0)


# ---------------------------------------------------------------- files


def test_save_and_load(lock, believed, tmp_path):
    folder = believed.policy.save(tmp_path / "policy")
    again = tasid.load(folder)
    assert again.environment == believed.policy.environment
    assert again.plan.start_value == believed.policy.plan.start_value
    one, two = (tasid.evaluate(p, lock, episodes=500, seed=3) for p in (believed.policy, again))
    assert (one.returns == two.returns).all()
    assert files(again.save(tmp_path / "twice")) == files(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda m, a: m.pop("classes"),
        lambda m, a: m.update(classes="colours"),
        lambda m, a: m.update(eta=0.7),
        lambda m, a: m["simulator"].update(horizon=9),
        lambda m, a: a.pop("emission.linear"),
        lambda m, a: a.update({"emission.linear": a["emission.linear"][:, :-1]}),
        lambda m, a: a.update({"emission.spread": a["emission.spread"] * np.nan}),
        lambda m, a: a.update({"plan.actions": a["plan.actions"] + np.uint8(9)}),
        lambda m, a: m.update(observation_shape=None),
    ],
)
def test_intact_files_that_are_no_policy(believed, tmp_path, change):
    artifact = read_artifact(believed.policy.save(tmp_path / "policy"))
    metadata, arrays = dict(artifact.metadata), dict(artifact.arrays)
    change(metadata, arrays)
    write_artifact(tmp_path / "odd", kind=artifact.kind, metadata=metadata, arrays=arrays)
    with pytest.raises(ArtifactError, match="intact, but not a policy"):
        tasid.load(tmp_path / "odd")


def test_policies_of_the_method_that_is_gone_are_refused_by_name(learned, tmp_path):
    artifact = read_artifact(learned.policy.save(tmp_path / "policy"))
    old = {**artifact.metadata, "method": "outcome", "labels": "outcomes by place"}
    write_artifact(tmp_path / "old", kind="policy", metadata=old, arrays=artifact.arrays)
    with pytest.raises(ArtifactError, match=r"method 'outcome', which is gone; .* 'belief'"):
        tasid.load(tmp_path / "old")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 0}, "episodes: 0 is below 1"),
        ({"episodes": True}, "episodes: True is neither a whole number nor 'auto'"),
        ({"episodes": 2.5}, "episodes: 2.5 is neither"),
        ({"episodes": "many"}, "episodes: 'many' is neither"),
        ({"episodes": StartCounts(64, 64, 16)}, "episodes: StartCounts.* is neither"),
        ({"eta": 0.5}, r"eta: 0.5 is outside \[0, 0.5\)"),
        ({"eta": -0.1}, "eta: -0.1"),
        ({"eta": "little"}, "eta: 'little' is not a number"),
        ({"method": "magic"}, "method: 'magic' is none of belief, paper"),
        ({"method": "outcome"}, "method: 'outcome' is gone; 'belief'"),
        ({"classes": "colour"}, "classes: 'colour' is none of place, rank, action"),
        ({"classes": "place", "method": "paper"}, "classes: 'place' with method 'paper'"),
        ({"seeds": [1, 1]}, r"seeds: \[1, 1\]"),
        ({"seeds": []}, r"seeds: \[\]"),
        ({"starts": 2}, "starts: 2 given, but the simulator has 1 start state"),
    ],
)
def test_bad_arguments(lock, arguments, message):
    with pytest.raises(ValueError, match=message):
        tasid.learn(lock, **{"eta": 0.1, "episodes": 64, **arguments})


@pytest.mark.parametrize("seed", [1.5, "a", True, None])
def test_what_is_no_seed_is_named(lock, seed):
    with pytest.raises(TypeError, match=f"seed: {seed!r} is not a whole number"):
        tasid.learn(lock, eta=0.1, episodes=64, seed=seed)


def test_what_is_no_policy_is_named(lock, believed):
    with pytest.raises(TypeError, match="policy: RobustPlan is none"):
        tasid.evaluate(believed.policy.plan, lock)
    for episodes in (1.5, "many", None):
        with pytest.raises(TypeError, match=f"episodes: {episodes!r} is not a whole number"):
            tasid.evaluate(believed.policy, lock, episodes=episodes)


def test_what_is_no_map_is_named(lock):
    with pytest.raises(TypeError, match="simulator: str is no map"):
        tasid.robust_dp("floor", eta=0.1)
    with pytest.raises(TypeError, match="simulator: str is no map"):
        tasid.learn(lock, "floor", eta=0.1, episodes=16)
    with pytest.raises(TypeError, match="simulator: NoneType is no map"):
        tasid.learn_from_episodes([], None, eta=0.1)


def test_labels_that_no_file_holds_are_refused_before_anything_is_learned(lock, tmp_path):
    sim, heard = lock.simulator, []
    odd = sim.replaced(states=[frozenset([number]) for number in range(sim.num_states)])
    with pytest.raises(ValueError, match=r"states: label .* of type frozenset cannot be saved"):
        tasid.learn(
            lock, odd, eta=0.1, episodes=16, run_dir=tmp_path / "run", callbacks=[heard.append]
        )
    assert not heard
    assert not (tmp_path / "run").exists()
