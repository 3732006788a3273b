"""Runs: configs, run folders, resuming, sweeps over seeds, recordings."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tasid
from tasid.cli import main
from tasid.learning.base import Event, TensorBoard
from tasid.learning.offline import record
from tasid.runs.config import ConfigError, RunConfig, parse_value, read_config
from tasid.runs.sweep import parse_seeds, train_seeds
from tasid.runs.train import _shortfall, train
from tasid.storage import ArtifactError, EpisodeLog, FolderBusyError, write_artifact, writer_lock

LAKE = RunConfig(
    environment="gym:FrozenLake-v1",
    options={"is_slippery": False, "num_envs": 4},
    simulator="gym:FrozenLake-v1",
    horizon=8,
    episodes=16,
    evaluation_episodes=20,
)
"""A run of a second or two: nothing is compiled."""
FULL = RunConfig(
    environment="combination-lock",
    options={"noise": 0.3, "horizon": 5},
    map={"cell_size": 0.5, "start": [1.0, 2.0, "N"]},
    horizon=5,
    eta=0.2,
    learner={"growth": 0.7, "em": {"final_iterations": 3}},
    episodes=32,
    seed=3,
    env_seed=4,
    certify=True,
    certificate={"delta": 0.1},
    evaluation_episodes=100,
    imports=("a.py", "b"),
)


class Captured(Exception):
    """Carries the config of a run that is not run."""


@pytest.fixture
def command_line_config(monkeypatch):
    """The config that arguments of `tasid train` give."""

    def fake_train(config, *args, **kwargs):
        raise Captured(config)

    monkeypatch.setattr("tasid.runs.train.train", fake_train)

    def config(*arguments: str) -> RunConfig:
        with pytest.raises(Captured) as caught:
            main(["train", *arguments])
        return caught.value.args[0]

    return config


# Configs


def test_config_survives_json_and_toml(tmp_path):
    stored = tmp_path / "config.json"
    stored.write_text(json.dumps(FULL.to_dict()))
    assert RunConfig.from_dict(read_config(stored)) == FULL
    toml = tmp_path / "config.toml"
    toml.write_text(
        """
        environment = "combination-lock"
        horizon = 5
        eta = 0.2
        episodes = 32
        seed = 3
        env_seed = 4
        certify = true
        evaluation_episodes = 100
        imports = ["a.py", "b"]
        options = {noise = 0.3, horizon = 5}
        map = {cell_size = 0.5, start = [1.0, 2.0, "N"]}
        certificate = {delta = 0.1}
        [learner]
        growth = 0.7
        em = {final_iterations = 3}
        """
    )
    assert RunConfig.from_dict(read_config(toml)) == FULL


def test_command_line_gives_the_same_config(command_line_config, tmp_path):
    settings = (
        "noise=0.3 options.horizon=5 map.cell_size=0.5 map.start=1,2,N learner.growth=0.7 "
        "learner.em.final_iterations=3 certificate.delta=0.1"
    ).split()
    options = "--horizon 5 --eta 0.2 --episodes 32 --seed 3 --env-seed 4 --certify"
    config = command_line_config(
        "combination-lock",
        *options.split(),
        *("--evaluation-episodes", "100"),
        *(word for setting in settings for word in ("--set", setting)),
    )
    assert config == replace(FULL, imports=())


def test_command_line_overrides_the_file(command_line_config, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('environment = "combination-lock"\nseed = 5\neta = 0.3\noptions = {noise = 1}')
    given = ("--config", str(file), "--eta", "0.0", "--seed", "0", "--set", "depth=1")
    config = command_line_config(*given)
    assert (config.eta, config.seed, config.options) == (0.0, 0, {"noise": 1, "depth": 1})
    assert command_line_config("--config", str(file)).eta == 0.3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nan", "nan"),
        ("inf", "inf"),
        ("0.5", 0.5),
        ("3", 3),
        ('"3"', "3"),
        ("True", True),
        ("false", False),
        ("[1, 2]", [1, 2]),
        ("1.5,-2,N", [1.5, -2.0, "N"]),
        ("'a b'", "a b"),
        ("2020-01-01", "2020-01-01"),
        ("a,b", "a,b"),
        ("x.yaml", "x.yaml"),
    ],
)
def test_values_of_settings(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"eta": -0.1}, "eta"),
        ({"eta": 0.5}, "eta"),
        ({"eta": True}, "eta"),
        ({"seed": True}, "seed"),
        ({"certify": 1}, "certify"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"horizon": 0}, "horizon"),
        ({"episodes": "some"}, "episodes"),
        ({"method": "magic"}, "method"),
        ({"options": [1]}, "options"),
        ({"options": {"x": float("nan")}}, "options"),
        ({"imports": "a.py"}, "imports"),
        ({"environment": None}, "environment"),
        ({"log": "x", "episodes": 3}, "episodes"),
        ({"wrong": 1}, "wrong"),
    ],
)
def test_wrong_fields_are_named(values, name):
    with pytest.raises(ValueError, match=rf"^{name}\b"):
        RunConfig.from_dict({"environment": "combination-lock", **values})


def test_wrong_hyper_parameters_are_named():
    for learner, name in (({"growth": "x"}, "growth"), ({"em": {"none": 1}}, "em.none")):
        with pytest.raises(ValueError, match=rf"^learner\.{name}\b"):
            RunConfig(environment="combination-lock", learner=learner).learner_config()


# Run folders


@pytest.fixture(scope="module")
def lake_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake") / "run"
    return train(LAKE, folder)


def test_result_holds_the_figures(lake_run):
    result = json.loads((lake_run.folder / "result.json").read_text())
    assert result == lake_run.summary
    assert result["episodes"] == 16
    assert result["robust_value"] == result["optimal_value"] == 1.0
    assert result["ratio"] == pytest.approx(result["return_mean"] / result["robust_value"])
    assert [event["episodes"] for event in result["history"]] == [16]
    assert len(EpisodeLog.open(lake_run.folder / "episodes")) == 36  # the evaluation, too


def test_finished_run_is_kept(lake_run):
    assert train(LAKE, lake_run.folder, resume=True).summary == lake_run.summary
    with pytest.raises(ConfigError, match=r"^out\b"):
        train(LAKE, lake_run.folder)
    with pytest.raises(ConfigError, match="seed"):
        train(replace(LAKE, seed=1), lake_run.folder, resume=True)


def test_foreign_and_missing_folders_are_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"^out\b"):
            train(LAKE, tmp_path, overwrite=overwrite)
    assert (tmp_path / "letter.txt").read_text() == "dear"
    with pytest.raises(ConfigError, match=r"^out\b"):
        train(LAKE, tmp_path / "new", resume=True)
    with writer_lock(tmp_path / "busy"), pytest.raises(FolderBusyError):
        train(LAKE, tmp_path / "busy")


def test_interrupted_run_continues_to_the_same_policy(lake_run, tmp_path):
    class Interrupt:
        def __call__(self, event: Event) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(LAKE, tmp_path / "run", callbacks=[Interrupt()])
    assert len(EpisodeLog.open(tmp_path / "run" / "episodes")) == 16
    assert not (tmp_path / "run" / "result.json").exists()
    continued = train(LAKE, tmp_path / "run")
    assert continued.summary["return_mean"] == lake_run.summary["return_mean"]
    assert (
        tasid.load(tmp_path / "run").digest == tasid.load(lake_run.folder).digest  # type: ignore
    )


def test_overwriting_starts_anew(lake_run, tmp_path):
    shutil.copytree(lake_run.folder, tmp_path / "run")
    (tmp_path / "run" / "report.html").write_text("old")
    again = train(replace(LAKE, seed=2), tmp_path / "run", overwrite=True)
    assert again.summary["seed"] == 2
    assert not (tmp_path / "run" / "report.html").exists()


def test_certificate_and_wrong_arguments_of_it(tmp_path):
    config = replace(LAKE, certify=True, certificate={"epsilon": 0.2, "max_episodes": 40})
    result = train(config, tmp_path / "run").summary
    assert result["certificate"]["episodes"] <= 40
    assert result["certificate"]["lower_bound"] <= 1.0
    wrong = replace(config, certificate={"nothing": 1})
    with pytest.raises(ConfigError, match="nothing"):
        train(wrong, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_shortfall_and_the_limit_are_warnings(tmp_path):
    # On another lake the observations do not fit the map, and there is little time.
    config = replace(
        LAKE,
        options={"is_slippery": False, "desc": ["SFFF", "HHHF", "FFFF", "FGHH"]},
        episodes="auto",
        learner={"max_episodes": 16},
        simulator="gym:FrozenLake-v1",
        map={"desc": ["SFFF", "FHFH", "FFFH", "HFFG"]},
    )
    result = train(config, tmp_path / "run").summary
    assert result["return_mean"] < 0.9 * result["worst_case_value"]
    assert any("16" in text for text in result["warnings"])
    assert any(f"{result['worst_case_value']:.4g}" in text for text in result["warnings"])


@pytest.mark.parametrize(("upper", "warned"), [(1.5, True), (9.0, False), (None, False)])
def test_a_shortfall_counts_where_much_can_be_lost(upper, warned):
    """Taxi: the plan earns 8, and the worst actions −300."""
    sim = tasid.AbstractSimulator([[0, 0]], [[-10.0, 1.0]], horizon=30)
    scores = {"return_mean": 1.0, "return_ci95": [0.5, upper], "robust_value": 8.0}
    assert bool(_shortfall(scores | {"worst_case_value": None}, sim)) == warned


def test_no_accuracy_on_a_map_with_states_of_its_own(tmp_path):
    own = tasid.make("combination-lock", horizon=2, num_actions=3, seed=0).simulator
    last = own.num_states - 1
    mirrored = tasid.AbstractSimulator(
        last - own.successor[::-1], own.reward[::-1], horizon=2, start=last - own.start
    )
    mirrored.save(tmp_path / "mirrored")
    options = {"num_actions": 3}
    config = RunConfig("combination-lock", options, horizon=2, episodes=16, evaluation_episodes=8)
    on_own = train(config, tmp_path / "own").summary
    config = replace(config, simulator=str(tmp_path / "mirrored"))
    on_mirrored = train(config, tmp_path / "other").summary
    assert on_own["decoder_accuracy"] > 0.5
    assert on_mirrored["decoder_accuracy"] is None
    assert on_mirrored["robust_value"] == on_own["robust_value"]


def test_tensorboard_writes_numbers(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path)
    board(Event(3, None))
    board.close()
    assert any(file.stat().st_size > 40 for file in tmp_path.iterdir())


# Several seeds

KILL_ONCE = '''
import os
import signal
from pathlib import Path

import gymnasium
from gymnasium.envs.toy_text import FrozenLakeEnv


class Deadly(FrozenLakeEnv):
    """Kills the first process that makes it."""

    def __init__(self, **options):
        flag = Path(__file__).with_name("killed")
        if not flag.exists():
            flag.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        super().__init__(**options)


gymnasium.register("Deadly-v0", entry_point=Deadly, max_episode_steps=100)
'''


def test_sweep_survives_a_killed_worker_and_a_failing_seed(tmp_path):
    (tmp_path / "deadly.py").write_text(KILL_ONCE)
    folder = tmp_path / "sweep"
    (folder / "seed-2").mkdir(parents=True)
    (folder / "seed-2" / "letter.txt").write_text("dear")
    config = replace(LAKE, environment="gym:Deadly-v0", imports=[str(tmp_path / "deadly.py")])
    done = train_seeds(config, [1, 2, 3], folder, resume=True)
    assert (tmp_path / "killed").exists()
    assert sorted(done.runs) == [1, 3]
    assert list(done.errors) == [2]
    assert json.loads((folder / "sweep.json").read_text()) == done.summary()
    returns = [run["return_mean"] for run in done.runs.values()]
    assert done.summary()["summary"]["return_mean"]["mean"] == pytest.approx(np.mean(returns))
    for seed in (1, 3):
        assert tasid.load(folder / f"seed-{seed}").horizon == 8

    (folder / "seed-2" / "letter.txt").unlink()
    before = (folder / "seed-1" / "result.json").stat().st_mtime_ns
    again = train_seeds(config, range(1, 4), folder, resume=True, workers=1)
    assert sorted(again.runs) == [1, 2, 3]
    assert not again.errors
    assert (folder / "seed-1" / "result.json").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match=r"^out\b"):
        train_seeds(config, [1], folder)


def test_seeds_as_text():
    assert list(parse_seeds("7-9")) == [7, 8, 9]
    assert list(parse_seeds("4")) == [4]
    for text in ("9-7", "a-b", "-3", "1-", "0-99999999", "4294967296", ""):
        with pytest.raises(ConfigError, match=r"^seeds\b"):
            parse_seeds(text)


# Recordings


def test_recorded_episode_depends_on_its_number_only(tmp_path):
    target = tasid.make("combination-lock", horizon=5, seed=1)
    few = record(target, tmp_path / "few", episodes=3, seed=5)
    record(target, tmp_path / "many", episodes=40, seed=5)
    short, long = (EpisodeLog.open(tmp_path / name).read() for name in ("few", "many"))
    np.testing.assert_array_equal(short.observations, long.observations[:3])
    np.testing.assert_array_equal(short.actions, long.actions[:3])
    assert few["return_mean"] == pytest.approx(short.returns.mean())
    assert short.explored.all()


def test_recording_replaces_logs_only(tmp_path):
    target = tasid.make("combination-lock", horizon=5, seed=1)
    record(target, tmp_path / "log", episodes=2)
    with pytest.raises(ArtifactError, match=r"^out\b"):
        record(target, tmp_path / "log", episodes=3)
    record(target, tmp_path / "log", episodes=3, overwrite=True)
    assert len(EpisodeLog.open(tmp_path / "log")) == 3
    write_artifact(tmp_path / "other", kind="thing", metadata={}, arrays={})
    with pytest.raises(ArtifactError):
        record(target, tmp_path / "other", episodes=2, overwrite=True)
    assert os.listdir(tmp_path / "other")


def test_learning_from_a_recording(tmp_path, lock, lock_policy):
    record(lock, tmp_path / "log", policy=lock_policy, episodes=160, explore=0.2)
    config = RunConfig(log=str(tmp_path / "log"))
    result = train(config, tmp_path / "run").summary
    assert (result["episodes"], result["logged_episodes"]) == (0, 160)
    assert result["return_mean"] is result["robust_value"] is None
    exact = lock.latent.robust_value(tasid.robust_dp(lock.simulator, eta=0.1))
    score = tasid.evaluate(tasid.load(tmp_path / "run"), lock, episodes=2_000)
    assert score.mean > 0.95 * exact
    assert Path(result["policy"]) == tmp_path / "run" / "policy"
