"""The command line: answers, exit codes, clear errors, interruption."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tasid
from tasid.cli import main
from tasid.storage import EpisodeLog

LAKE = "gym:FrozenLake-v1 --simulator gym:FrozenLake-v1 --horizon 8 --set is_slippery=false".split()
ENVIRONMENT = '''
import os
import time

import gymnasium
from gymnasium.envs.toy_text import FrozenLakeEnv


class Talkative(FrozenLakeEnv):
    """Prints, waits as long as SECONDS says, and takes an option that is text."""

    def __init__(self, mode: str = "calm", **options):
        assert isinstance(mode, str)
        self.mode = mode
        os.write(1, b"made\\n")
        super().__init__(**options)

    def step(self, action):
        print("step", flush=True)
        time.sleep(float(os.environ.get("SECONDS", "0")))
        return super().step(action)


gymnasium.register("Talkative-v0", entry_point=Talkative, max_episode_steps=30)
'''


@pytest.fixture
def run(capsys):
    """Runs a command in this process; returns exit code, standard output and standard error."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def talkative(tmp_path):
    """Arguments that name a talkative environment."""
    file = tmp_path / "talkative.py"
    file.write_text(ENVIRONMENT)
    return ["gym:Talkative-v0", "--import", str(file), *LAKE[1:]]


def process(*arguments: str | Path, **settings) -> subprocess.Popen[str]:
    """The same command in a process of its own."""
    command = [sys.executable, "-m", "tasid", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, **settings)


# Answers

KEYS = {
    "plan": "worst_case_value nominal_value optimal_value states actions horizon eta route",
    "train": "episodes return_mean robust_value optimal_value ratio skill decoder_accuracy seconds "
    "policy warnings",
    "evaluate": "return_mean return_ci95 robust_value optimal_value ratio episodes",
    "watch": "return steps actions states confidence lost",
    "check": "ok problems",
    "record": "file episodes",
    "report": "page",
    "budget": "n_decode n_total",
}


@pytest.mark.parametrize("command", KEYS)
def test_answers_as_one_json_object_and_in_words(command, run, lock_run, tmp_path):
    lock = ["combination-lock", "--horizon", "5"]
    arguments = {
        "plan": lock,
        "train": [*LAKE, "--episodes", "16", "--evaluation-episodes", "20"],
        "evaluate": [lock_run, "--episodes", "64"],
        "watch": [lock_run],
        "check": [*lock, "--episodes", "4"],
        "record": [*lock, "--episodes", "2"],
        "report": [lock_run],
        "budget": ["--horizon", "10"],
    }[command]
    for form in (["--json"], []):
        out = ["--out", tmp_path / f"out{len(form)}"] if command in ("train", "record") else []
        code, printed, _ = run(command, *arguments, *out, *form)
        assert code == 0
        assert printed.strip()
        if form:
            assert set(KEYS[command].split()) <= json.loads(printed).keys()
            assert len(printed.splitlines()) == 1
    (lock_run / "report.html").unlink(missing_ok=True)


def test_values_agree_with_the_library(run, lock_run, lock):
    plan = tasid.robust_dp(lock.simulator, eta=0.1)
    options = ["--horizon", "10", "--env-seed", "1", "--eta", "0.1", "--json"]
    planned = json.loads(run("plan", "combination-lock", *options)[1])
    assert planned["worst_case_value"] == pytest.approx(plan.start_value)
    assert planned["optimal_value"] == pytest.approx(lock.latent.optimal_value())
    assert [step["action"] for step in planned["route"]] == [s.action for s in plan.route()]
    seeded = ["--episodes", "64", "--seed", "7", "--json"]
    result = json.loads(run("evaluate", lock_run, *seeded)[1])
    score = tasid.evaluate(tasid.load(lock_run), lock, episodes=64, seed=7)
    assert result["return_mean"] == pytest.approx(score.mean)
    assert result["robust_value"] == pytest.approx(lock.latent.robust_value(plan))
    assert result["ratio"] == pytest.approx(score.mean / result["robust_value"])
    elsewhere = json.loads(run("evaluate", lock_run, "--env-seed", "2", *seeded)[1])
    assert elsewhere["return_mean"] < result["return_mean"]


def test_counts_of_the_theory_stand_beside_measured_ones(run):
    counts = json.loads(run("budget", "--horizon", "20", "--json")[1])
    parameters = (64 + 1) * 56 + 57 * 56 + 57 * 10
    assert counts["log_class_size"] == pytest.approx(parameters * 32 * math.log(2))
    assert counts["n_total"] == 19 * counts["n_decode"]
    assert counts["readings"]["algorithm"]["n_decode"] == counts["n_decode"]
    assert list(counts["readings"]) == ["algorithm", "appendix", "coupling"]
    assert counts["practice"] == {"paper": 48_000, "belief": 96}
    elsewhere = json.loads(run("budget", "--horizon", "20", "--eta", "0.2", "--json")[1])
    assert elsewhere["practice"]["paper"] is None


def test_values_that_nobody_knows_are_null(run, tmp_path):
    (tmp_path / "map.txt").write_text("#####\n#S.G#\n#####\n")
    result = json.loads(run("plan", tmp_path / "map.txt", "--horizon", "4", "--json")[1])
    assert result["optimal_value"] is None
    assert result["states"] == 3


def test_check_exits_with_1_where_the_map_does_not_fit(run):
    arguments = ["gym:FrozenLake-v1", "--simulator", "gym:CliffWalking-v1", "--horizon", "8"]
    code, printed, _ = run("check", *arguments, "--episodes", "8", "--json")
    assert code == 1
    answer = json.loads(printed)
    assert not answer["ok"]
    assert answer["problems"]


def test_text_options_stay_text(run, talkative, tmp_path):
    arguments = [*talkative, "--set", "mode=nan", "--episodes", "2"]
    code, _, err = run("record", *arguments, "--out", tmp_path / "log", "--policy", "random")
    assert code == 0, err
    assert EpisodeLog.open(tmp_path / "log").header["environment"]["options"]["mode"] == "nan"


def test_config_file_of_a_run_repeats_it(run, tmp_path):
    short = ["--episodes", "16", "--evaluation-episodes", "20", "--json"]
    first = json.loads(run("train", *LAKE, *short, "--out", tmp_path / "a")[1])
    config = tmp_path / "a" / "config.json"
    again = json.loads(run("train", "--config", config, "--out", tmp_path / "b", "--json")[1])
    assert again["return_mean"] == first["return_mean"]
    assert tasid.load(tmp_path / "a").digest == tasid.load(tmp_path / "b").digest
    resumed = run("train", "--config", config, "--out", tmp_path / "a", "--resume", "--json")
    assert json.loads(resumed[1]) == first


def test_seeds(run, tmp_path):
    arguments = [
        "train",
        *LAKE,
        "--episodes",
        "16",
        "--evaluation-episodes",
        "20",
        "--seeds",
        "1-2",
    ]
    (tmp_path / "sweep" / "seed-2").mkdir(parents=True)
    (tmp_path / "sweep" / "seed-2" / "letter.txt").write_text("dear")
    out = ["--out", tmp_path / "sweep", "--workers", "1", "--resume"]
    code, printed, err = run(*arguments, *out, "--json")
    answer = json.loads(printed)
    assert code == 1
    assert [each["seed"] for each in answer["runs"]] == [1]
    assert list(answer["errors"]) == ["2"]
    assert "2 of 2" in err


def test_the_papers_count_is_said_before_it_is_played(run, tmp_path):
    lock = ("train", "combination-lock", "--method", "paper", "--horizon", 2, "--set")
    theorem = ("learner.log_class_size=0.1", "--set", "learner.epsilon=3", "--set")
    few = ("learner.delta=0.9", "--set", "num_actions=3", "--out", tmp_path / "run")
    code, printed, err = run(*lock, *theorem, *few, "--json")
    assert code == 0, err
    assert f": 0 of {json.loads(printed)['episodes']} episodes" in err


# Errors


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("train combination-lock --eta 0.7", "eta"),
        ("train combination-lock --horizon 0", "horizon"),
        ("train combination-lock --episodes 0", "episodes"),
        ("train combination-lock --episodes some", "episodes"),
        ("train combination-lock --seed -1", "seed"),
        ("train combination-lock --method magic", "method"),
        ("train combination-lock --set noise", "noise"),
        ("train combination-lock --set nothing=1", "nothing"),
        ("train combination-lock --set noise=loud", "noise"),
        ("train combination-lock --set learner.nothing=1", "learner.nothing"),
        ("train combination-lock --seeds 5-1", "seeds"),
        ("train combination-lock --cluster local", "cluster"),
        ("train combination-lock --config missing.toml", "config"),
        ("train combination-lock --import missing.py", "imports"),
        ("train combination-lock --out /proc/run --horizon 5", "/proc/run"),
        ("train", "environment"),
        ("train nowhere", "nowhere"),
        ("train gym:FrozenLake-v1", "simulator"),
        ("train --from missing", "missing"),
        ("plan combination-lock --eta 1.5", "eta"),
        ("plan missing.txt", "missing.txt"),
        ("plan combination-lock --png plan.doc", "plan.doc"),
        ("evaluate missing", "missing"),
        ("watch POLICY --kidnap-at 10", "kidnap_at"),
        ("watch POLICY --gif film.png", "film.png"),
        ("evaluate POLICY --env lava-crossing", "env"),
        ("evaluate POLICY --set learner.growth=1", "learner.growth"),
        ("report missing", "missing"),
        ("record combination-lock --out /proc/log --episodes 1", "/proc/log"),
        ("record combination-lock --out log --explore 2", "explore"),
        ("budget --horizon 0", "horizon"),
        ("budget --epsilon 0", "epsilon"),
        ("nothing", "nothing"),
    ],
)
def test_bad_input_is_one_clear_message(line, named, run, lock_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [str(lock_run) if word == "POLICY" else word for word in line.split()]
    code, out, err = run(*words)
    assert code == 2
    assert not out
    assert named in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("runs/*/policy"))


def test_eta_has_one_range_whichever_end_is_missed(run):
    said = {run("train", "combination-lock", "--eta", eta)[2] for eta in ("-0.1", "0.7")}
    assert len({re.sub(r"-?0\.[17]\b", "", text) for text in said}) == 1


def test_environments_of_strangers_are_not_imported(run, lock_policy, tmp_path, monkeypatch):
    (tmp_path / "strange_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    environment = {"name": "gym:strange_module:Unknown-v0", "options": {}}
    policy = replace(lock_policy, environment=environment).save(tmp_path / "policy")
    code, _, err = run("evaluate", policy)
    assert code == 2
    assert "strange_module" in err
    assert "strange_module" not in sys.modules


# Processes


def test_help_answers_at_once():
    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with process("--help") as helping:
            assert "train" in helping.communicate()[0]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def test_only_the_answer_is_on_standard_output(talkative, tmp_path):
    arguments = [*talkative, "--episodes", "3", "--out", tmp_path / "log", "--json"]
    with process("record", *arguments) as recording:
        out, err = recording.communicate(timeout=120)
    assert recording.returncode == 0, err
    assert json.loads(out)["episodes"] == 3
    assert len(out.splitlines()) == 1
    assert "made" in err
    assert "step" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_training_is_kept_and_continued(number, code, talkative, run, tmp_path):
    folder, log = tmp_path / "run", tmp_path / "run" / "episodes"
    short = ["--episodes", "48", "--evaluation-episodes", "16", "--set", "num_envs=4"]
    arguments = ["train", *talkative, *short]
    slow = os.environ | {"SECONDS": "0.02"}
    with process(*arguments, "--out", folder, env=slow) as training:
        for _ in range(1200):
            if len(list(log.glob("*.safetensors"))) >= 3:
                break
            time.sleep(0.1)
        training.send_signal(number)
        _, err = training.communicate(timeout=60)
    assert training.returncode == code, err
    assert "Traceback" not in err
    kept = len(EpisodeLog.open(log))
    assert 0 < kept < 48 + 16
    assert not (folder / "result.json").exists()
    assert run(*arguments, "--out", folder, "--resume")[0] == 0
    assert run(*arguments, "--out", tmp_path / "other")[0] == 0
    assert tasid.load(folder).digest == tasid.load(tmp_path / "other").digest
    assert len(EpisodeLog.open(log)) == 48 + 16


def test_discovery_continues_and_replaces_no_map(run, talkative, tmp_path):
    out, source = tmp_path / "map", ["discover", *talkative[:3], "--set", "is_slippery=false"]
    command = [*source, "--horizon", 12, "--eta", 0, "--out", out]
    code, _, error = run(*command, "--episodes", 32)
    assert code == 2
    assert "episodes" in error
    played = len(EpisodeLog.open(out / "episodes"))
    code, answer, _ = run(*command, "--json")
    assert code == 0
    found = json.loads(answer)
    assert len(EpisodeLog.open(out / "episodes")) == found["episodes"] > played > 0
    code, _, error = run(*command)
    assert code == 2
    assert "--overwrite" in error
    # Episodes of another environment are neither continued nor kept.
    (out / "manifest.json").unlink()
    other = [*source[:-1], "is_slippery=true", "--horizon", 12, "--eta", 0, "--out", out]
    code, _, error = run(*other, "--episodes", 32)
    assert code == 2
    assert "holds something else" in error
    run(*other, "--episodes", 32, "--overwrite")
    assert len(EpisodeLog.open(out / "episodes")) <= 32
