"""TASID as in the paper: known answers, its procedure step by step, the wall, and its errors."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import one_hot
from tasid.checks.diagnosis import diagnose
from tasid.learning.paper.method import PaperLearner
from tasid.learning.paper.tasid import (
    EpochEnded,
    Explored,
    StepEnded,
    collect,
)
from tasid.learning.paper.tasid import tasid as algorithm_2
from tasid.models import FitConfig
from tasid.targets.block import BlockMDP, Latent, block_mdp
from tasid.targets.target import episode_keys, seed_key

GOLDEN = Path(__file__).with_name("golden") / "paper_step_one.json"


def first_step(env: BlockMDP, seed: int, *, episodes: int) -> Explored:
    """What the paper's method collects at step 0."""
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    learner = PaperLearner(env.target, plan, episodes=10_000, seed=seed)
    return collect(env.target, learner.decoder, seed_key(seed), 0, episodes=episodes)


def test_reaches_the_robust_value(lock, learned):
    score = tasid.evaluate(learned.policy, lock, episodes=10_000, seed=1)
    exact = lock.latent.robust_value(learned.policy.plan)
    assert score.mean > 0.95 * exact
    assert score.ci95[0] < score.mean < score.ci95[1]
    assert diagnose(learned.policy, lock).decoder_accuracy.min() > 0.95


def test_decoding_is_perfect_on_a_probe_without_noise():
    """A corridor seen through one-hot observations: nothing to confuse, nothing to lose."""
    cells, horizon = 4, 6
    step = np.array([-1, 0, 1])
    successor = np.clip(np.arange(cells)[:, None] + step, 0, cells - 1)
    reward = (successor == cells - 1).astype(float)
    sim = tasid.AbstractSimulator(successor, reward, horizon=horizon)
    world = tasid.perturb(sim, eta=0.2, seed=1)

    env = block_mdp("corridor", {}, world, one_hot(cells))
    result = tasid.learn(env, eta=0.2, episodes=6_000, seed=0, method="paper")
    accuracy = diagnose(result.policy, env)
    np.testing.assert_array_equal(accuracy.decoder_accuracy, 1.0)
    np.testing.assert_array_equal(accuracy.tracking_accuracy, 1.0)
    score = tasid.evaluate(result.policy, env, episodes=20_000)
    assert (
        score.ci95[0] - 0.01 < tasid.policy_value(world, result.policy.plan) < score.ci95[1] + 0.01
    )


def test_counts_and_events(lock):
    events = []
    result = tasid.learn(
        lock, eta=0.1, episodes=503, seed=2, callbacks=[events.append], method="paper"
    )
    steps = [event for event in events if isinstance(event, StepEnded)]
    assert [step.step for step in steps] == [0, 1, 2, 3]
    assert {step.episodes for step in steps} == {100}
    assert result.episodes == 400
    assert result.diagnostics.steps == tuple(steps)
    for step in steps:
        epochs = [e for e in events if isinstance(e, EpochEnded) and e.step == step.step]
        assert [e.epoch for e in epochs] == list(range(step.epochs))
        assert min(e.validation_loss for e in epochs) == step.validation_loss


def test_exploration_is_uniform_and_rolls_in_with_the_plan(lock):
    """Step-0 labels are uniform over actions and the transition is the label's (mostly)."""
    data = first_step(lock, 3, episodes=6_000)
    counts = np.bincount(np.asarray(data.command), minlength=4)
    assert np.abs(counts - 1_500).max() < 4.5 * np.sqrt(6_000 * 0.25 * 0.75)
    assert data.x.shape == (6_000, 16)
    assert (data.states == lock.simulator.start).all()


def test_data_do_not_depend_on_how_many_are_asked_for(lock):
    few, many = first_step(lock, 3, episodes=200), first_step(lock, 3, episodes=500)
    assert (few.command == many.command[:200]).all()
    assert (few.x_next == many.x_next[:200]).all()


def test_golden_first_step_of_the_papers_method():
    """The procedure is pinned: integers of the first dataset exactly, losses to 1e-5.

    Five epochs each: where patience ends a fit, rounding may choose the epoch.
    """
    env = tasid.make("combination-lock", horizon=5, seed=21)
    labels = np.asarray(first_step(env, 21, episodes=400).command)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    config = FitConfig(max_epochs=5)
    learner = PaperLearner(env, plan, episodes=2_000, seed=21, config=config)
    losses = [step.validation_loss for step in algorithm_2(env, plan, learner, seed=21).steps]
    golden = json.loads(GOLDEN.read_text())
    assert labels.tolist() == golden["labels"]
    np.testing.assert_allclose(losses, golden["losses"], atol=1e-5)


def test_seeds_side_by_side_are_what_they_are_alone(lock):
    """Bit by bit, and every event is told, one at a time."""
    other = tasid.make("combination-lock", horizon=5, num_actions=4, seed=8)
    told, telling = [], threading.Lock()

    def tell(event):
        assert telling.acquire(blocking=False)
        told.append(event)
        telling.release()

    both = tasid.learn(
        [lock, other], eta=0.1, episodes=1_000, seeds=[7, 8], method="paper", callbacks=[tell]
    )
    for env, seed, result in zip((lock, other), (7, 8), both, strict=True):
        alone = tasid.learn(env, eta=0.1, episodes=1_000, seed=seed, method="paper")
        one, two = (x.policy.decoder.models for x in (alone, result))
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
        assert result.policy.environment["options"]["seed"] == seed
        steps = [e for e in told if isinstance(e, StepEnded) and e.seed == seed]
        assert tuple(steps) == result.diagnostics.steps


def test_one_seeds_trouble_ends_all(lock):
    seen = []

    def fail(event):
        seen.append(event)
        if len(seen) == 3:
            raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        tasid.learn(
            lock, eta=0.1, episodes=1_000, seeds=[1, 2, 3], method="paper", callbacks=[fail]
        )
    assert len(seen) == 3


def test_the_learner_never_opens_the_latent_door(lock, learned, tmp_path, monkeypatch):
    """With the door made to raise, the same bytes come out."""

    def closed(*_):
        raise AssertionError("a learner looked at latent states")

    monkeypatch.setattr(BlockMDP, "latent", property(closed))
    monkeypatch.setattr(Latent, "states", closed)
    again = tasid.learn(lock, eta=0.1, episodes=4_000, seed=7, method="paper")
    one, two = learned.policy.save(tmp_path / "one"), again.policy.save(tmp_path / "two")
    assert {f.name: f.read_bytes() for f in one.iterdir()} == {
        f.name: f.read_bytes() for f in two.iterdir()
    }


def test_a_horizon_of_one_needs_no_episodes():
    env = tasid.make("combination-lock", horizon=1, seed=1)
    result = tasid.learn(env, eta=0.1, episodes=10, seed=1, method="paper")
    assert result.episodes == 0
    exact = env.latent.robust_value(result.policy.plan)
    assert tasid.evaluate(result.policy, env).mean == pytest.approx(exact, abs=0.1)
    assert result.policy.agent().act(np.zeros(8)) == result.policy.plan.action(0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 9}, "episodes: 9 leave 1 for each of the 5 steps.*give 10 or more"),
        ({"episodes": 2.5}, "episodes: 2.5 with method 'paper', which needs a number or 'auto'"),
    ],
)
def test_bad_arguments(lock, arguments, message):
    with pytest.raises(ValueError, match=message):
        tasid.learn(lock, **{"eta": 0.1, "episodes": 1_000, "method": "paper", **arguments})


def test_a_map_that_does_not_fit(lock):
    fewer = tasid.make("combination-lock", horizon=5, num_actions=3).simulator
    longer = tasid.make("combination-lock", horizon=6, num_actions=4).simulator
    with pytest.raises(ValueError, match="3 actions on the map, 4 in the target"):
        tasid.learn(lock, fewer, eta=0.1, episodes=1_000, method="paper")
    with pytest.raises(ValueError, match="horizon 6 on the map, 5 in the target"):
        tasid.learn(lock, longer, eta=0.1, episodes=1_000, method="paper")
    with pytest.raises(ValueError, match="brings no map of its own"):
        tasid.learn(lock.target, eta=0.1, episodes=1_000, method="paper")
    with pytest.raises(ValueError, match="target: 1 given for 2 seeds"):
        tasid.learn([lock], eta=0.1, episodes=1_000, seeds=[1, 2], method="paper")


def test_keys_are_distinct():
    seen = set()
    for phase in (0, 1, 2, 1 << 30):
        keys = episode_keys(seed_key(1), phase, jnp.arange(300))
        seen |= {tuple(row) for row in np.asarray(jax.random.key_data(keys)).tolist()}
    assert len(seen) == 4 * 300
