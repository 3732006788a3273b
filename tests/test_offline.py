"""Learning without playing from scratch: from recorded episodes, and from a saved policy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.learning import memory
from tasid.learning.belief import BeliefConfig, HeldOutScore, Training, models
from tasid.learning.offline import AmbiguousLogError, CrossValidationConfig, coverage, record
from tasid.planning import robust_dp
from tasid.policy import OpenLoopPolicy
from tasid.simulator import AbstractSimulator
from tasid.storage import EpisodeLog
from tasid.targets.block import BlockMDP
from test_paper import Noisy

ETA = 0.2
OPEN = "S.....\n...L..\n.L....\n....L.\n..L...\n.....G"
SHUT = OPEN.replace(".L....", ".L.#..")


def rooms(text=OPEN, instance=0, noise=0.8, size=8):
    """Cells that look the same on every map that has them."""
    sim = AbstractSimulator.from_text_map(text, horizon=14)
    cells = [np.random.default_rng([instance, *cell]) for cell in sim.states]
    vectors = jnp.asarray([cell.normal(size=(1, size)) for cell in cells], jnp.float32)
    world = tasid.perturb(sim, eta=ETA, seed=1)
    return BlockMDP(world, Noisy(vectors, noise), name="rooms", options={})


def score(policy, env):
    """Mean return in units of that of an oracle that sees the true state, above a loss of 1."""
    robust = env.latent.robust_value(robust_dp(env.simulator, eta=ETA))
    return (tasid.evaluate(policy, env, episodes=2000).mean + 1) / (robust + 1)


@pytest.fixture(scope="module")
def env():
    return rooms()


@pytest.fixture(scope="module")
def log(env, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log") / "log"
    actor = OpenLoopPolicy(env, robust_dp(env.simulator, eta=ETA))
    record(env, folder, policy=actor, episodes=160, seed=2)
    return EpisodeLog.open(folder)


@pytest.fixture(scope="module")
def saved(env):
    return tasid.learn(env, eta=ETA, episodes=96, seed=0).policy


# Recorded episodes


def test_a_policy_is_learned_from_a_log(env, log, tmp_path):
    events = []
    result = tasid.learn_from_episodes(log, env.simulator, eta=ETA, callbacks=[events.append])
    assert (result.episodes, result.logged_episodes) == (0, 160)
    assert score(result.policy, env) > 0.93
    found = result.diagnostics
    assert found.details["coverage"] > 0.95
    assert found.eta.low < 0.2
    assert not found.map_errors
    assert found.history == tuple(events)
    again = tasid.learn_from_episodes(log.path, env.simulator, eta=ETA)
    assert again.policy.digest == result.policy.digest
    assert tasid.load(result.policy.save(tmp_path)).digest == result.policy.digest


def test_what_a_log_cannot_show_is_a_warning(tmp_path):
    """Random actions fall out of a lock within a few steps."""
    env = tasid.make("combination-lock", horizon=10, seed=3)
    record(env, tmp_path / "log", policy=None, episodes=60)
    result = tasid.learn_from_episodes(tmp_path / "log", env.simulator, eta=0.1)
    assert result.diagnostics.details["coverage"] < 0.7
    assert any("log" in warning for warning in result.diagnostics.warnings)


def test_coverage_by_hand():
    """Two steps to the right, and slips stay; only the middle state is known."""
    sim = AbstractSimulator([[0, 1], [1, 2], [2, 2]], [[0, 0], [0, 1], [0, 0]], horizon=2, start=0)
    model = models(robust_dp(sim, eta=0.2), BeliefConfig())["state"]
    # An action has its outcome with 0.9. Whoever slipped at first stays: nothing is left to earn.
    known = 0.9 + (0.9 * 0.1 + 0.1 * 0.1)
    assert coverage(model, np.array([0, 9.0, 0]), 3) == pytest.approx(known / 2)
    assert coverage(model, np.full(3, 9.0), 3) == pytest.approx(1)
    assert coverage(model, np.zeros(3), 3) == 0


@pytest.mark.parametrize(
    ("noise", "episodes", "judging"),
    [(0.8, 7, {}), (1e3, 80, {"max_regret": np.inf}), (0.8, 80, {"max_regret": -1.0})],
)
def test_ambiguous_logs_are_refused(noise, episodes, judging, tmp_path):
    """Too few episodes; observations without information; no fit that is certain enough."""
    env, judging = rooms(noise=noise), CrossValidationConfig(**judging)
    actor = OpenLoopPolicy(env, robust_dp(env.simulator, eta=ETA))
    record(env, tmp_path / "log", policy=actor, episodes=episodes)
    with pytest.raises(AmbiguousLogError, match="log"):
        tasid.learn_from_episodes(tmp_path / "log", env.simulator, eta=ETA, judging=judging)


def test_a_map_without_rewards_is_a_warning(env, log, tmp_path):
    sim = env.simulator.replace(reward=np.zeros_like(env.simulator.reward), hazards=None)
    paid = log.read()
    unpaid = EpisodeLog.create(tmp_path / "log", log.header)
    unpaid.append(replace(paid, rewards=np.zeros_like(paid.rewards)), [(0, i) for i in range(160)])
    result = tasid.learn_from_episodes(unpaid, sim, eta=ETA)
    assert any("every plan" in warning for warning in result.diagnostics.warnings)


def test_a_log_that_does_not_fit_into_memory_is_refused(env, log, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 0)
    with pytest.raises(ValueError, match="160 episodes would take"):
        tasid.learn_from_episodes(log, env.simulator, eta=ETA)


def test_a_log_that_does_not_fit_the_map_is_refused(env, log):
    for simulator in (env.simulator.replace(horizon=13), tasid.make("combination-lock").simulator):
        with pytest.raises(ValueError, match="simulator"):
            tasid.learn_from_episodes(log, simulator, eta=ETA)
    with pytest.raises(ValueError, match="eta"):
        tasid.learn_from_episodes(log, env.simulator, eta=0.5)
    with pytest.raises(ValueError, match="config"):
        tasid.learn_from_episodes(log, env.simulator, eta=ETA, config=BeliefConfig(model=object()))


LOCK = ("combination-lock", "--horizon", "5", "--set", "num_actions=4", "--seed", "7")


def command(*arguments, code=0):
    call = (sys.executable, "-m", "tasid", *map(str, arguments), "--json")
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_record_train_evaluate(tmp_path):
    log, run = tmp_path / "log", tmp_path / "run"
    assert command("record", *LOCK, "--episodes", 40, "--out", log)["episodes"] == 40
    result = command("train", "--from", log, "--out", run)
    assert (result["episodes"], result["logged_episodes"]) == (0, 40)
    assert result["return_mean"] is None
    assert command("evaluate", run, "--episodes", 500)["ratio"] > 0.9
    source = ("--simulator", LOCK[0], "--set", "map.num_actions=3")
    assert "simulator" in command("train", "--from", log, *source, "--out", run / "b", code=2)
    assert "method" in command("train", "--from", log, "--method", "paper", code=2)


# A saved policy


def test_a_right_policy_is_kept_without_warnings(env, saved):
    for episodes in (16, 40):
        result = tasid.learn(env, eta=ETA, episodes=episodes, seed=1, from_policy=saved)
        assert not any("tell states apart" in text for text in result.diagnostics.warnings)
        assert result.policy.digest == saved.digest
        assert result.episodes == episodes


def test_a_wrong_policy_is_replaced(saved):
    other = rooms(instance=1)
    assert score(saved, other) < 0.6
    result = tasid.learn(other, eta=ETA, episodes=96, seed=1, from_policy=saved)
    assert score(result.policy, other) > 0.9


def test_a_policy_is_replaced_by_one_that_earns_more(env, saved, monkeypatch):
    """Behind a closed door others may predict what follows better, and earn less."""
    plan = robust_dp(env.simulator, eta=ETA, keep_values=True)
    training = Training(BeliefConfig(episodes=96), env, plan, 1, saved)
    training.batch()
    earned = training.parts[0].returns.mean()
    others = [earned - 0.5, earned + 0.5, earned - 0.5]

    def scored(fresh, players):
        fits = []
        for fit in training.fits:
            old, n = fit.initialisation == "saved", len(fresh)
            score = HeldOutScore(np.zeros(n), np.full(n, -1.0 if old else 0.0))
            score = replace(score, own=players[fit.name], mean_return=others[0])
            fits.append(replace(fit, score=score))
        return fits

    monkeypatch.setattr(training, "_scored", scored)
    for kept in (True, False, True):
        training.batch()
        others.pop(0)
        assert (training.result("").best.initialisation == "saved") == kept
        assert training.history[-1].best != "saved, by state"


def test_a_corrected_map_keeps_what_its_cells_look_like(saved):
    """A cell is gone, and those after it have other numbers."""
    shut = rooms(SHUT)
    assert shut.simulator.num_states == saved.simulator.num_states - 1
    result = tasid.learn(shut, eta=ETA, episodes=1, seed=1, from_policy=saved)
    assert score(result.policy, shut) > 0.93
    assert score(tasid.learn(shut, eta=ETA, episodes=1, seed=1).policy, shut) < 0.6


def test_episodes_are_other_ones(env, saved):
    """Those of the seed taught the policy already, and those of another policy another one."""
    returns = [
        tasid.learn(env, eta=ETA, episodes=16, seed=0, from_policy=policy).diagnostics.history[0]
        for policy in (None, saved, replace(saved, kidnap=1e-4))
    ]
    assert len({event.mean_return for event in returns}) == 3


def test_policies_that_cannot_continue_are_refused(env, saved):
    sim = saved.simulator
    renamed = sim.replace(states=[f"cell {i}" for i in range(sim.num_states)])
    wrong = (
        replace(saved, observation_shape=(9,)),
        replace(saved, observation_dtype="uint8"),
        replace(saved, plan=robust_dp(renamed, eta=ETA)),
        replace(saved, features=replace(saved.features, components=None)),
    )
    for policy in wrong:
        with pytest.raises(ValueError, match="from_policy"):
            tasid.learn(env, eta=ETA, episodes=16, from_policy=policy)
