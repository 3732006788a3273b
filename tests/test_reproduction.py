"""The paper's experiments and baselines: `reproduction/`."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from reproduction import lock_page, records
from reproduction.__main__ import experiments, main
from reproduction.baselines import BaselineConfig, train_baseline
from reproduction.domain_randomization import relative
from reproduction.networks import Adam
from reproduction.population import observation_classes, population_limit
from reproduction.ppo import PPO, PPOConfig, gae, worst_episodes
from reproduction.ppo_policy import PPOPolicy
from reproduction.records import Job, Outcome, Records
from reproduction.rnd import RND, Moments
from tasid.keys import episode_keys
from tasid.report.figures import svg
from tasid.storage import ArtifactError
from tasid.targets.base import JaxTarget, Target
from tasid.targets.rollout import rollout

RESULTS = Path(__file__).parents[1] / "results"


@partial(jax.tree_util.register_dataclass, data_fields=["goal"], meta_fields=["horizon"])
class Corridor(JaxTarget):
    """Cells 0 … goal, observed one-hot; action 1 moves right, 0 left; the goal cell pays 1 a step.

    Optimal return: the goal is entered by step `goal`, so that H − goal + 1 steps are rewarded.
    """

    num_actions, observation_shape, observation_dtype = 2, (6,), "float32"

    def __init__(self, goal: Any, horizon: int) -> None:
        self.goal, self.horizon = goal, horizon

    def initial(self, keys: jax.Array) -> tuple[Any, jax.Array]:
        cell = jnp.zeros(keys.shape[0], jnp.int32)
        return cell, jax.nn.one_hot(cell, 6)

    def transition(
        self, state: Any, actions: jax.Array, h: jax.Array, keys: jax.Array
    ) -> tuple[Any, jax.Array, jax.Array]:
        cell = jnp.clip(state + 2 * actions - 1, 0, self.goal)
        return cell, jax.nn.one_hot(cell, 6), (cell == self.goal).astype(jnp.float32)


class OnHost(Target):
    """The same as a target that is not compiled."""

    def __init__(self, corridor: Corridor) -> None:
        self.corridor, self.horizon = corridor, corridor.horizon
        self.num_actions, self.observation_shape = 2, (6,)
        self.observation_dtype = "float32"

    def reset(self, keys: Any) -> Any:
        return self.corridor.reset(keys)

    def step(self, state: Any, actions: Any, h: int, keys: Any) -> Any:
        return self.corridor.step(state, actions, h, keys)


def test_gae_by_hand() -> None:
    """A_t = Σ_k (γλ)^k δ_{t+k} within an episode, with V = 0 after its last step."""
    rewards, values = np.random.default_rng(0).normal(size=(2, 5, 3))
    lengths = np.array([5, 3, 1])
    valid = (np.arange(5)[:, None] < lengths).astype(float)
    expected = np.zeros((5, 3))
    for b, length in enumerate(lengths):
        following = np.append(values[1:length, b], 0.0)
        delta = rewards[:length, b] + 0.9 * following - values[:length, b]
        for t in range(length):
            expected[t, b] = sum(0.72**k * delta[t + k] for k in range(length - t))
    actual = gae(*map(jnp.asarray, (rewards, values, valid)), 0.9, 0.8)
    np.testing.assert_allclose(actual * valid, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "kept"), [(0.1, [1]), (0.3, [1, 3, 4]), (1.0, [0, 1, 2, 3, 4])]
)
def test_epopt_keeps_the_worst_quantile_and_ties(epsilon: float, kept: list[int]) -> None:
    returns = jnp.array([2.0, 0.0, 5.0, 1.0, 1.0])
    assert np.flatnonzero(worst_episodes(returns, epsilon)).tolist() == kept


def test_moments_of_all_values_so_far() -> None:
    values = np.random.default_rng(1).normal(3, 2, size=(50, 4))
    weight = np.arange(50) % 3 > 0
    moments = Moments.empty((4,))
    for part in (slice(0, 20), slice(20, 50)):
        moments = moments.update(jnp.asarray(values[part]), jnp.asarray(weight[part], jnp.float32))
    np.testing.assert_allclose(moments.mean, values[weight].mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, values[weight].var(axis=0), rtol=1e-4)


def test_rnd_bonus_decreases_with_visits_and_stays_for_new_observations() -> None:
    rnd = RND()
    often, rare = jnp.eye(8)[:4], jnp.eye(8)[4:]
    state = rnd.init(jax.random.key(0), 8)
    state, _ = rnd.bonus(state, jnp.eye(8), jnp.ones(8))
    _, before = rnd.bonus(state, jnp.eye(8), jnp.zeros(8))
    train = jax.jit(lambda state: rnd.train(state, often, jnp.ones(4)))
    for _ in range(600):
        state = train(state)
    _, after = rnd.bonus(state, jnp.concatenate([often, rare]), jnp.zeros(8))
    assert (after[:4] < 0.3 * before[:4]).all()
    assert after[4:].mean() > 3 * after[:4].mean()


@pytest.mark.parametrize(
    ("target", "options", "updates"),
    [
        (
            Corridor(np.int32(4), 10),
            {"rnd": RND(1.0), "minibatch_of": "episodes", "minibatch": 4},
            4 * 25,
        ),
        (Corridor(np.int32(4), 10), {"updates_are": "minibatches", "updates": 24}, 24),
        (OnHost(Corridor(np.int32(2), 6)), {}, 4 * 19),
    ],
)
def test_ppo_finds_the_optimal_policy_of_a_corridor(
    target: Any, options: dict[str, Any], updates: int
) -> None:
    """And takes as many Adam steps per batch of 100 episodes as each reading says."""
    adam = Adam(learning_rate=3e-3)
    ppo = PPO.of(PPOConfig(adam=adam, hidden=(16,), **options), target)
    state = ppo.init(jax.random.key(0))
    for iteration in range(20):
        keys = episode_keys(0, 0, 100 * iteration, 100)
        state, returns = ppo.iterate(state, target, keys, jax.random.key(iteration))
    assert int(jax.tree.leaves(state.policy.optimiser)[0]) == 20 * updates
    goal = 4 if target.horizon == 10 else 2
    optimal = target.horizon - goal + 1
    assert returns.mean() > 0.9 * optimal
    policy = PPOPolicy(
        np.asarray(state.policy.parameters),
        hidden=(16,),
        observation_shape=(6,),
        observation_dtype="float32",
        num_actions=2,
        horizon=target.horizon,
    )
    assert (rollout(target, policy, episode_keys(1, 0, 0, 8)).returns == optimal).all()


def test_ppo_solves_a_lock_of_three_steps() -> None:
    env = tasid.make("combination-lock", horizon=3, seed=0)
    threshold = 0.95 * env.latent.robust_value(tasid.robust_dp(env.simulator, eta=0.1))
    config = BaselineConfig(target_episodes=4_000, evaluate_every=500, evaluation_episodes=256)
    trained = train_baseline(config, env, seed=0, threshold=threshold)
    assert trained.solved_after == trained.episodes == trained.rows[-1]["episodes"] <= 4_000
    assert trained.rows[0]["training"] < threshold <= trained.rows[-1]["mean"]


def test_an_interrupted_training_continues_with_the_same_result(tmp_path: Path) -> None:
    target, folder = Corridor(np.int32(4), 10), tmp_path / "checkpoint"
    config = BaselineConfig(
        target_episodes=400, evaluate_every=100, evaluation_episodes=16, updates_are="minibatches"
    )
    whole = train_baseline(config, target, seed=3)

    def interrupt(row: dict[str, Any]) -> None:
        if row["episodes"] == 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_baseline(
            config, target, seed=3, checkpoint=folder, checkpoint_seconds=0, report=interrupt
        )
    rows: list[int] = []
    continued = train_baseline(
        config, target, seed=3, checkpoint=folder, report=lambda row: rows.append(row["episodes"])
    )
    assert rows == [300, 400]
    assert not folder.exists()
    np.testing.assert_array_equal(continued.policy.parameters, whole.policy.parameters)
    assert [row["mean"] for row in continued.rows] == [row["mean"] for row in whole.rows]
    loaded = PPOPolicy.load(whole.policy.save(tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.parameters, whole.policy.parameters)


def test_relatives_differ_in_perturbation_and_permutation_only() -> None:
    env = tasid.make("combination-lock", horizon=4, seed=5)
    other = relative(env, 9)
    ours, theirs = env.latent.world, other.latent.world
    np.testing.assert_array_equal(theirs.simulator.successor, ours.simulator.successor)
    identity = np.eye(env.num_actions)
    spared = [(world.xi == identity).all(axis=(1, 2)) for world in (ours, theirs)]
    assert spared[0].sum() == 1
    assert (spared[0] == spared[1]).all()
    assert theirs.eta == pytest.approx(ours.eta, abs=0.02)
    assert (ours.xi != theirs.xi).any()
    a, b = np.asarray(env.emission.mixing), np.asarray(other.emission.mixing)
    assert (a != b).any()
    assert sorted(a.tolist()) == sorted(b.tolist())
    distances = [
        np.linalg.norm(clean[:, None] - clean[None], axis=-1)
        for clean in (np.asarray(env.emission.clean), np.asarray(other.emission.clean))
    ]
    np.testing.assert_allclose(*distances, rtol=1e-5)


def test_population_limit_of_distinct_and_of_equal_observations() -> None:
    """Distinct observations give the robust value. If all states look alike, the decoder always
    answers with the lowest action, and the policy is open loop."""
    env = tasid.make("combination-lock", horizon=6, seed=2)
    world, plan = env.latent.world, tasid.robust_dp(env.simulator, eta=0.1)
    limit = population_limit(world, plan, observation_classes(env))
    assert limit.value == pytest.approx(limit.robust_value)
    assert limit.tracked.min() > 1 - 1e-9
    blind = population_limit(world, plan, np.zeros(env.simulator.num_states, int))
    state, actions = env.simulator.start, []
    for h in range(6):
        actions.append([plan.action(h, state)])
        state = int(env.simulator.successor[state, 0])
    assert blind.value == pytest.approx(tasid.policy_value(world, np.array(actions)))
    assert blind.value < limit.value
    assert blind.confusions


SMOKE = {
    "belief": ["lock-H10-auto"],
    "population": None,
    "combination-lock": ["tasid-paper"],
    "readings": ["ppo-to-the-end"],
    "minigrid": ["belief"],
    "starts": ["belief-xor"],
    "building": None,
}


@pytest.mark.parametrize("name", SMOKE)
def test_smoke_runs_write_records_and_are_not_run_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [name, "--size", "smoke", "--workers", "1", "--out", str(tmp_path), "--json"]
    if SMOKE[name]:
        command += ["--settings", *SMOKE[name]]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["ran"] > 0
    assert first["table"]
    assert Path(first["page"]).exists()
    for record in Records(tmp_path):
        assert record.method
        assert record.result
    assert main(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["ran"] == 0
    assert again["table"] == first["table"]
    assert main([*command[:2], "quick", *command[3:]]) == 2  # records of another size


@pytest.mark.parametrize("experiment", experiments().values(), ids=lambda e: e.name)
@pytest.mark.parametrize("size", ["smoke", "quick", "full"])
def test_jobs_are_distinct_and_plain(experiment: Any, size: str) -> None:
    jobs = experiment.jobs(size)
    assert len({job.name for job in jobs}) == len(jobs) > 0
    assert all(json.loads(json.dumps(job.configuration)) for job in jobs)


def test_a_record_belongs_to_one_configuration(tmp_path: Path) -> None:
    """It says which code made it; what JSON cannot express becomes null."""
    records, job = Records(tmp_path), Job("s-H5", 3, {"method": "paper", "n": 1})
    records.write(job, Outcome({"mean": float("nan")}, [{"loss": float("inf")}]), 1.0)
    (record,) = records
    assert (record.method, record.seed, record.version) == ("paper", 3, tasid.__version__)
    assert record.result == {"mean": None}
    assert record.rows == [{"loss": None}]
    assert records.finished(job)
    assert not records.finished(job, version="0.1.0")
    assert not records.finished(Job("s-H5", 3, {"method": "paper", "n": 2}))
    records.path(job).write_text('{"setting": "s-H5"}')
    with pytest.raises(ArtifactError):
        records.finished(job)


def test_records_that_change_do_not_make_the_code_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / folder / "file" for folder in ("src", "reproduction", "results")]
    for file in files:
        file.parent.mkdir()
        file.write_text("as committed")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(records, "__file__", str(files[1]))
    clean = records.commit()
    assert clean
    files[2].write_text("recorded again")
    assert records.commit() == clean
    files[0].write_text("other code")
    assert records.commit() == f"{clean}-dirty"


def test_committed_records_give_the_medians_of_the_lock() -> None:
    """Smallest solving n of the paper's method; seeds solved with EPOpt's ε 1 and 0.2."""
    found = lock_page.results(list(Records(RESULTS / "combination-lock")))
    medians = {(r.family, r.horizon): r.median for r in lock_page.main_results(found)}
    assert [medians["tasid-paper", h] for h in (5, 10, 20, 40)] == [8_000, 45_000, 47_500, 97_500]
    assert [medians["ppo-rnd", h] for h in (10, 20, 40)] == [21_000, 204_000, None]
    solved = {r.algorithm: sum(n is not None for n in r.episodes) for r in found if r.horizon == 10}
    assert (solved["ppo-rnd-dr"], solved["ppo-rnd-dr-epopt-0.2"]) == (2, 3)
    labels = re.findall("n = [\\d\u202f]+", svg(lock_page.curve_figure(40, found, 500_000)))
    assert labels == ["n = 400\u202f000"]


def test_hyper_parameters_are_those_of_tables_1_and_2() -> None:
    ours = tasid.TasidConfig()
    assert (ours.hidden, ours.learning_rate, ours.validation) == ((56, 56), 3e-4, 0.2)
    assert (ours.patience, ours.max_epochs) == (10, 100)
    for name in ("ppo", "ppo-rnd", "ppo-dr", "ppo-rnd-dr"):
        config = BaselineConfig(name).ppo()
        assert (config.batch_episodes, config.updates, config.minibatch) == (100, 4, 32)
        assert (config.clip, config.discount, config.entropy) == (0.1, 0.999, 0.001)
        assert (config.hidden, config.epopt_epsilon) == ((56, 56), 1.0)
        assert config.adam == Adam(learning_rate=3e-4, max_gradient_norm=0.25)
        assert (config.rnd.coefficient if config.rnd else 0.0) == (500.0 if "rnd" in name else 0.0)
    budget = BaselineConfig()
    assert (budget.target_episodes, budget.source_episodes) == (500_000, 500_000)


def test_training_a_baseline_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "train combination-lock --horizon 3 --algorithm epopt --episodes 200 --json".split()
    command += "--source-episodes 200 --evaluate-every 100 --evaluation-episodes 64".split()
    command += ["--final-episodes", "256", "--out", str(tmp_path)]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] <= 200
    assert result["robust_value"] > 0
    policy = PPOPolicy.load(result["policy"])
    env = tasid.make(policy.environment["name"], **policy.environment["options"])
    score = tasid.evaluate(policy, env, episodes=256, seed=0)
    assert score.mean == pytest.approx(result["return_mean"])
    assert main([*command, "--rnd-coefficient", "0", "--source-episodes", "150"]) == 2
