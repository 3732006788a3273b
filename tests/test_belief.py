"""The belief method end to end, and the parts that decide which fit is right and when to stop."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import jax
import numpy as np
import pytest
from scipy.stats import poisson

import tasid
from tasid.learning import belief, memory
from tasid.learning.base import Learner
from tasid.learning.belief import (
    BatchEnded,
    BeliefConfig,
    BeliefLearner,
    Evidence,
    HeldOutScore,
    Training,
    is_credible,
    longest_repeat,
)
from tasid.planning import robust_dp
from tasid.policies.evaluate import yardsticks
from tasid.policy import OpenLoopPolicy

ETA = 0.1


def ratio(result, env, episodes=4_000):
    score = tasid.evaluate(result.policy, env, episodes=episodes, seed=11)
    return score.mean / yardsticks(result.policy, env).robust_value


# End to end


def test_a_lock_of_twenty_steps():
    env = tasid.make("combination-lock", horizon=20, seed=5)
    events = []
    result = tasid.learn(env, eta=ETA, episodes=96, seed=5, callbacks=[events.append])
    assert ratio(result, env) >= 0.95
    assert result.episodes == 96
    assert result.diagnostics.warnings == ()
    assert [event.episodes for event in events] == [16, 32, 48, 72, 96]
    assert all(isinstance(event, BatchEnded) for event in events)
    assert tuple(events) == result.diagnostics.history


def test_a_small_lava_room_seen_in_pictures():
    text = "######\n#S...#\n#.LL.#\n#...G#\n######"
    env = tasid.make("lava-crossing", text_map=text, seed=2)
    result = tasid.learn(env, eta=ETA, episodes=108, seed=2)
    assert ratio(result, env) >= 0.95


def test_several_starts():
    env = tasid.make("combination-lock", horizon=10, starts=3, seed=4)
    result = tasid.learn(env, eta=ETA, episodes=162, starts=3, seed=4)
    assert ratio(result, env) >= 0.95
    agents = {result.policy.agent().act(np.zeros(result.policy.observation_shape))}
    assert len(agents) == 1


def test_a_stochastic_map():
    """FrozenLake as shipped: the table is the map, so nothing slips beyond it."""
    options = {"map_name": "4x4", "is_slippery": True}
    raw = gymnasium.make("FrozenLake-v1", **options)
    sim = tasid.AbstractSimulator.from_toy_text(raw, horizon=40)
    assert sim.stochastic
    with tasid.wrap("FrozenLake-v1", num_envs=16, horizon=40, **options) as env:
        result = tasid.learn(env, sim, eta=0.0, episodes=108, seed=1)
        assert ratio(result, env, episodes=1_000) >= 0.85  # ± 0.08
        exact = yardsticks(result.policy, env)
    assert exact.robust_value == pytest.approx(exact.optimal_value)


class Linear:
    """The user's model: logits are linear in the observation."""

    def init(self, key, num_classes):
        return {"w": jax.numpy.zeros((16, num_classes)), "b": jax.numpy.zeros(num_classes)}

    def apply(self, parameters, x):
        return x @ parameters["w"] + parameters["b"]


class NearestMean:
    """The user's model, as scikit-learn has them."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        self.means = np.stack([x[y == c].mean(axis=0) for c in self.classes_])

    def predict_proba(self, x):
        distance = ((x[:, None] - self.means) ** 2).sum(axis=-1)
        p = np.exp(-2 * (distance - distance.min(axis=1, keepdims=True)))
        return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("model", [Linear(), NearestMean()])
def test_a_model_of_the_users_own(model, tmp_path):
    env = tasid.make("combination-lock", horizon=5, seed=1)
    config = BeliefConfig(episodes=72, model=model)
    training = Training(config, env, robust_dp(env.simulator, eta=ETA, keep_values=True), seed=1)
    for _ in range(4):
        training.batch()
    best = SimpleNamespace(policy=training.policy(training.fits[0]))
    assert ratio(best, env) >= 0.9
    named = {fit.initialisation: fit for fit in training.fits}
    assert {"model", "model from actions", "warm", "forward", "anneal"} == set(named)
    policy = training.policy(named["model"])
    if isinstance(model, NearestMean):
        with pytest.raises(ValueError, match="save"):
            policy.save(tmp_path)
        return
    loaded = tasid.load(policy.save(tmp_path), model=Linear())
    frames = training.parts[0].observations[:, 0]
    assert (
        loaded.act(loaded.init(16), frames, 0)[1] == policy.act(policy.init(16), frames, 0)[1]
    ).all()
    with pytest.raises(ValueError, match="model"):
        tasid.load(tmp_path)


def test_networks_are_tried_where_gaussians_fail():
    env = tasid.make("combination-lock", horizon=5, seed=1)
    plan = robust_dp(env.simulator, eta=ETA, keep_values=True)
    training = Training(BeliefConfig(episodes=48, network_episodes=32), env, plan, seed=1)
    for _ in range(3):
        training.batch()
    best = training.fits[0]
    assert not training._needs_network(scored(best, gains=5.0, rewards=-0.1))
    assert training._needs_network(scored(best, gains=0.0, rewards=-0.1))
    assert training._needs_network(scored(best, gains=5.0, rewards=-3.0))
    names = [
        f.initialisation for f in training._network_fits(scored(best, gains=0.0), best.features)
    ]
    assert names == ["network", "network from actions"]


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    env = tasid.make("combination-lock", horizon=5, seed=1)
    first, second, other = (
        tasid.learn(env, eta=ETA, episodes=32, seed=seed, run_dir=tmp_path / name)
        for seed, name in ((3, "a"), (3, "b"), (4, "c"))
    )
    assert first.policy.digest == second.policy.digest != other.policy.digest
    for file in (tmp_path / "a" / "policy").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / "policy" / file.name).read_bytes()
    assert not (tmp_path / "a" / "episodes").exists()  # episodes of ours can be played again


def test_learning_that_does_not_fit_into_memory_plays_nothing(lock, monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 0)
    monkeypatch.setattr(belief, "rollout", None)
    with pytest.raises(ValueError, match="16 episodes would take"):
        tasid.learn(lock, eta=ETA, episodes=16)


# When to stop


def test_auto_stops_by_evidence(lock):
    result = tasid.learn(lock, eta=ETA, seed=3)
    assert 32 < result.episodes < 300
    assert ratio(result, lock) >= 0.95
    assert result.diagnostics.warnings == ()
    assert "estimated" in result.diagnostics.stopped


def test_auto_warns_at_its_limit(lock):
    config = BeliefConfig(max_episodes=48, tolerance=-1.0)
    result = tasid.learn(lock, eta=ETA, config=config)
    assert result.episodes == 48
    assert any("48" in warning for warning in result.diagnostics.warnings)


def scored(fit, *, gains=0.0, rewards=0.0, own=range(8), n=24):
    """The fit with a made-up score."""
    arrays = (np.full(n, float(x)) for x in (rewards, gains))
    return replace(fit, score=HeldOutScore(*arrays, own=own, mean_return=1.0))


@pytest.fixture(scope="module")
def trained():
    """A run of `auto` after three batches."""
    env = tasid.make("combination-lock", horizon=5, seed=3)
    plan = robust_dp(env.simulator, eta=ETA, keep_values=True)
    training = Training(BeliefConfig(), env, plan, seed=3)
    for _ in range(3):
        training.batch()
    return training


def confident(training, **changes):
    """The same run, with nothing left that keeps it from stopping but the last batch's evidence."""
    copy = object.__new__(Training)
    copy.__dict__.update(training.__dict__)
    good = Evidence(np.zeros(30), np.full(30, training.promise), 0.0)
    copy.evidence = [good, good._replace(**changes)]
    return copy


def test_auto_goes_on_where_evidence_is_missing(trained, monkeypatch):
    span, promise = trained.span, trained.promise
    assert confident(trained).stopping_reason() is not None
    for lacking in (
        {"regrets": np.full(30, 0.03 * span)},
        {"regrets": np.full(1_000, 0.025 * span)},
        {"regrets": np.append(np.zeros(29), 1.2 * span)},
        {"regrets": np.zeros(19)},
        {"returns": np.full(30, promise - 0.13 * span)},
        {"reward_log_likelihood": -1.0},
    ):
        assert confident(trained, **lacking).stopping_reason() is None
    early = confident(trained, regrets=np.zeros(100))
    early.evidence = early.evidence[1:]
    assert early.stopping_reason() is None
    for found in (
        SimpleNamespace(map_errors=("an error",), eta=SimpleNamespace(p_value=1.0), doubtful=()),
        SimpleNamespace(map_errors=(), eta=SimpleNamespace(p_value=1e-4), doubtful=()),
    ):
        monkeypatch.setattr(belief, "agreed_findings", lambda *_, found=found: found)
        assert confident(trained).stopping_reason() is None


def test_the_bound_of_the_regret_is_that_of_poisson(trained):
    """The share of failed episodes with which no more failures than these have 5 % probability."""
    for failures in (0, 1, 4):
        regrets = np.append(np.zeros(100 - failures), np.full(failures, trained.span))
        bound = trained._regret_bound(regrets)
        assert poisson.cdf(failures, 100 * bound) == pytest.approx(0.05)


def test_the_next_batch_completes_the_evidence(trained):
    for regret, missing in ((0.0, 35), (0.07, 0)):
        training = confident(trained, regrets=np.full(20, regret * trained.span))
        assert training._missing_evidence() == missing
    more = Evidence(np.zeros(35), np.full(35, trained.promise), 0.0)
    complete = confident(trained, regrets=np.zeros(20))
    complete.evidence = [complete.evidence[-1], more]
    assert complete.stopping_reason() is not None


def test_the_regret_is_that_of_the_credible_fit_that_sees_most(trained, monkeypatch):
    """A fit that predicts held-out episodes as well and calls the choices mistakes counts."""
    first, second, third = trained.fits[:3]
    fresh = trained.parts[-1][np.arange(16).repeat(2)[:24]]
    found = {id(first.emission): 0.0, id(second.emission): 0.3, id(third.emission): 9.0}
    monkeypatch.setattr(belief, "cross_regret", lambda _, judge: np.full(24, found[id(judge[1])]))

    def evidence(gains):
        best, other = scored(first), scored(second, own=range(8, 16), gains=gains)
        training = confident(trained)
        training.fits = [best, other, scored(third, gains=-50.0, own=range(16, 24))]
        return training._evidence(best, fresh)

    agreed = evidence(0.0)
    assert agreed.regrets.mean() == pytest.approx(0.3)
    np.testing.assert_array_equal(agreed.returns, fresh.returns[:16])
    wrong = evidence(-2.0)
    assert wrong.regrets.mean() == 0
    np.testing.assert_array_equal(wrong.returns, fresh.returns[:8])


def test_another_labelling_finds_fault_with_a_choice(trained):
    """A fit does as it would itself; one whose states are exchanged disagrees at a high cost."""
    fit, part = trained.fits[0], trained.parts[-1]
    model, sequences = trained.models[fit.kind], trained._sequences(fit.features, part)
    rows = np.arange(fit.emission.num_classes)
    exchanged = fit.emission.select(rows.reshape(-1, 3)[:, [1, 0, 2]].ravel()[: rows.size])
    readings = [(model, emission, sequences) for emission in (fit.emission, exchanged)]
    assert belief.cross_regret(readings[0], readings[0]).mean() < 0.01 * trained.span
    assert belief.cross_regret(readings[1], readings[0]).mean() > 0.1 * trained.span


def test_credibility_is_a_paired_test():
    rng = np.random.default_rng(0)
    common = rng.normal(scale=10, size=40)

    def score(better):
        return HeldOutScore(common, common + better)

    assert is_credible(score(rng.normal(size=40) * 0.1), score(np.zeros(40)), 5)
    assert is_credible(score(1.0), score(np.zeros(40)), 5)
    assert not is_credible(score(-0.1 + rng.normal(size=40) * 0.01), score(np.zeros(40)), 5)


def test_batches_are_divided_among_fits_that_are_not_hopeless(trained):
    training = confident(trained)
    hopeless = training.config.hopeless_gap
    training.fits = [
        replace(fit, initialisation=str(i), gap=gap)
        for i, (fit, gap) in enumerate(
            zip([trained.fits[0]] * 3, [None, hopeless, 0.9 * hopeless], strict=True)
        )
    ]
    episodes, players = training._play(9)
    assert len(episodes) == 9
    assert list(players.values()) == [range(5), range(5, 9)]


def test_repeats_are_counted_within_episodes(trained):
    part = trained.parts[0]
    assert longest_repeat(part) == 0
    frames = part.observations.copy()
    frames[3, 1:4] = frames[3, 1]
    frames[4, 2:] = frames[4, 2]
    lengths = part.lengths.copy()
    lengths[4] = 2
    assert longest_repeat(replace(part, observations=frames, lengths=lengths)) == 2


# Edges


class Mine(Learner):
    name = "mine"

    def run(self, target, plan, *, seed=0, callbacks=(), run_dir=None):
        result = BeliefLearner(BeliefConfig(episodes=16)).run(target, plan, seed=seed)
        return replace(result, policy=OpenLoopPolicy(target, plan))


def test_any_learner_serves(lock):
    result = tasid.learn(lock, eta=ETA, method=Mine())
    assert result.policy.method == "open loop"
    with pytest.raises(ValueError, match=r"^episodes:"):
        tasid.learn(lock, eta=ETA, method=Mine(), episodes=3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("eta", {"eta": -0.1}),
        ("eta", {"eta": 0.5}),
        ("eta", {"eta": float("nan")}),
        ("eta", {"eta": "0.1"}),
        ("seed", {"seed": -1}),
        ("seed", {"seed": 1.0}),
        ("episodes", {"episodes": 0}),
        ("episodes", {"episodes": "many"}),
        ("episodes", {"episodes": True}),
        ("method", {"method": "magic"}),
        ("simulator", {"simulator": "map"}),
        ("target", {"target": "env"}),
        ("starts", {"starts": 2}),
        ("config", {"config": {"episodes": 3}}),
        ("model", {"model": object()}),
        ("from_policy", {"from_policy": Mine()}),
        ("from_policy", {"from_policy": "x", "method": "paper"}),
    ],
)
def test_learn_names_what_it_refuses(lock, name, arguments):
    arguments = {"target": lock, "eta": ETA, **arguments}
    with pytest.raises((TypeError, ValueError), match=f"^{name}:") as error:
        tasid.learn(arguments.pop("target"), **arguments)
    if name == "eta":
        assert "[0, 0.5)" in str(error.value)


def test_a_map_of_another_target_is_refused(lock):
    with pytest.raises(ValueError, match=r"^simulator:"):
        tasid.learn(lock, tasid.make("combination-lock", horizon=8).simulator, eta=ETA)
