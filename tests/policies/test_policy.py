"""The policy as a value and as an agent: same actions everywhere, same bytes, clear refusals."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.files import ArtifactError, read_artifact, write_artifact
from tasid.policies.decoder import WIDTH
from tasid.targets.rollout import trace
from tasid.targets.streams import EVALUATION
from tasid.targets.target import episode_keys, seed_key


@pytest.fixture(scope="module")
def weak(lock):
    """A badly trained policy: near-ties abound, so that any difference in arithmetic shows."""
    return tasid.learn(lock, eta=0.1, episodes=60, seed=1, method="paper").policy


def batched(policy, env, seed=5):
    import jax

    @jax.jit
    def run(target, decoder):
        keys = episode_keys(seed_key(seed), EVALUATION, jnp.arange(WIDTH))
        return trace(
            target, decoder, keys, record=lambda b, a, c, h: (b.observations, a, c.carry.states)
        )[1]

    return [np.asarray(x) for x in run(env.target, policy.decoder)]


def test_agent_acts_as_the_compiled_batch(lock, learned, weak):
    for policy in (learned.policy, weak):
        observations, actions, states = batched(policy, lock)
        for slot in range(0, WIDTH, 5):
            agent = policy.agent(slot=slot)
            for h in range(5):
                assert agent.act(observations[h, slot]) == actions[h, slot]
                assert agent.state == states[h, slot]
                assert 0 < agent.confidence <= 1


def test_agent_in_another_slot_decodes_the_same_here(lock, learned):
    observations, actions, _ = batched(learned.policy, lock)
    agent = learned.policy.agent()
    for slot in range(20):
        agent.reset()
        assert [agent.act(observations[h, slot]) for h in range(5)] == actions[:, slot].tolist()


def test_agent_refuses(learned):
    agent = learned.policy.agent()
    assert agent.state == learned.policy.simulator.start
    with pytest.raises(ValueError, match=r"observation: shape \(3,\) at step 0.*\(16,\)"):
        agent.act(np.zeros(3))
    with pytest.raises(ValueError, match="not finite at step 0"):
        agent.act(np.full(16, np.nan))
    with pytest.raises(TypeError, match="dtype"):
        agent.act(np.array(["a"] * 16))
    for _ in range(5):
        agent.act(np.zeros(16))
    with pytest.raises(ValueError, match="horizon is 5 steps; call reset"):
        agent.act(np.zeros(16))
    agent.reset()
    assert agent.act(np.zeros(16)) == learned.policy.plan.action(0, 0)
    with pytest.raises(ValueError, match="slot: 128"):
        learned.policy.agent(slot=128)


def test_save_and_load(lock, learned, tmp_path):
    learned.policy.save(tmp_path / "policy")
    again = tasid.load(tmp_path / "policy")
    assert again.environment == learned.policy.environment
    assert again.plan.start_value == learned.policy.plan.start_value
    one = tasid.evaluate(learned.policy, lock, episodes=500, seed=3)
    two = tasid.evaluate(again, lock, episodes=500, seed=3)
    assert (one.returns == two.returns).all()
    again.save(tmp_path / "twice")
    assert sorted(f.read_bytes() for f in (tmp_path / "policy").iterdir()) == sorted(
        f.read_bytes() for f in (tmp_path / "twice").iterdir()
    )


def test_any_flipped_byte_is_refused(learned, tmp_path):
    folder = learned.policy.save(tmp_path / "policy")
    rng = np.random.default_rng(0)
    for file in folder.iterdir():
        whole = file.read_bytes()
        for place in [0, len(whole) - 1, *rng.integers(len(whole), size=40)]:
            broken = bytearray(whole)
            broken[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(bytes(broken))
            with pytest.raises(ArtifactError, match=file.name.split("-")[0]):
                tasid.load(folder)
        file.write_bytes(whole)
    tasid.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda m, a: m.pop("network"),
        lambda m, a: m.update(network={"kind": "tree"}),
        lambda m, a: m["network"].update(num_labels=3),
        lambda m, a: m["simulator"].update(horizon=9),
        lambda m, a: a.update(models=a["models"][:, :-1]),
        lambda m, a: a.update({"plan.actions": a["plan.actions"] + np.uint8(9)}),
        lambda m, a: a.update({"simulator.successor": a["simulator.successor"] + 99}),
        lambda m, a: a.pop("models"),
        lambda m, a: m.update(observation_shape=None),
        lambda m, a: a.update(models=a["models"] * np.float32(np.nan)),
        lambda m, a: a.update(models=a["models"].astype(np.float16)),
        lambda m, a: a.update({"plan.actions": a["plan.actions"].astype(np.float32)}),
        lambda m, a: a.update({"plan.actions": a["plan.actions"].astype(np.int8) - np.int8(9)}),
        lambda m, a: m.update(eta=5.0),
    ],
)
def test_intact_files_that_are_no_policy(learned, tmp_path, change):
    artifact = read_artifact(learned.policy.save(tmp_path / "policy"))
    metadata, arrays = dict(artifact.metadata), dict(artifact.arrays)
    change(metadata, arrays)
    write_artifact(tmp_path / "odd", kind="policy", metadata=metadata, arrays=arrays)
    with pytest.raises(ArtifactError, match="intact, but not a policy"):
        tasid.load(tmp_path / "odd")


def test_other_kinds_are_refused(lock, tmp_path):
    lock.simulator.save(tmp_path / "map")
    with pytest.raises(ArtifactError, match="simulator"):
        tasid.load(tmp_path / "map")


def test_evaluation_checks_its_environment(learned):
    other = tasid.make("combination-lock", horizon=6, num_actions=4)
    with pytest.raises(ValueError, match="horizon is 6, but the policy was learned with 5"):
        tasid.evaluate(learned.policy, other)
    with pytest.raises(ValueError, match="episodes: 0"):
        tasid.evaluate(learned.policy, other, episodes=0)


def test_episodes_of_an_evaluation_do_not_depend_on_their_number(lock, learned):
    few = tasid.evaluate(learned.policy, lock, episodes=100, seed=9)
    many = tasid.evaluate(learned.policy, lock, episodes=300, seed=9)
    assert (few.returns == many.returns[:100]).all()
