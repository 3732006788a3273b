"""The command line as a user meets it: JSON, exit codes, messages, nothing half-written."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tasid
from commands import run, run_json
from tasid.cli import main

LAKE = "gym:FrozenLake-v1"
RECORD = ["--episodes", "3", "--out", "log"]
TRAIN = ["train", "combination-lock", "--horizon", "4", "--set", "num_actions=3", "--episodes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    with pytest.raises(SystemExit):
        main([*TRAIN, "64", "--seed", "5", "--out", str(path), "--json"])
    return path


def test_plan(capsys, tmp_path):
    result = run_json(capsys, "plan", "combination-lock", "--eta", "0.1", "--horizon", "20")
    assert result["worst_case_value"] == pytest.approx(7.78, abs=0.01)
    assert (result["states"], result["actions"], result["horizon"]) == (63, 10, 20)
    assert (result["eta"], len(result["route"])) == (0.1, 20)
    assert result["route"][0]["state"] == [0, 1]
    assert result["nominal_value"] >= result["worst_case_value"]
    assert abs(result["certificate_gap"]) < 1e-9
    text = run(capsys, "plan", "combination-lock", "--png", tmp_path / "route.png").out
    assert "worst-case value" in text
    assert (tmp_path / "route.png").read_bytes().startswith(b"\x89PNG")


def test_plan_of_a_saved_simulator(capsys, tmp_path):
    sim = tasid.AbstractSimulator([[0, 1], [1, 1]], [[0.0, 0.0], [1.0, 0.5]], horizon=3)
    sim.save(tmp_path / "map")
    result = run_json(capsys, "plan", tmp_path / "map", "--eta", "0", "--horizon", "4")
    assert result["worst_case_value"] == 3.0
    assert [step["action"] for step in result["route"]] == [1, 0, 0, 0]


def test_train_evaluate_report(capsys, folder):
    trained = json.loads((folder / "result.json").read_text())
    for key in ("episodes", "return_mean", "robust_value", "ratio", "skill", "decoder_accuracy"):
        assert isinstance(trained[key], (int, float)), key
    assert trained["episodes"] == 64
    assert trained["policy"] == str(folder / "policy")
    scored = run_json(capsys, "evaluate", folder, "--episodes", "3000", "--seed", "8")
    assert scored["robust_value"] == pytest.approx(trained["robust_value"])
    assert scored["episodes"] == 3000
    assert scored["ratio"] == pytest.approx(scored["return_mean"] / scored["robust_value"])
    again = run_json(capsys, "evaluate", folder / "policy", "--episodes", "3000", "--seed", "8")
    assert again["return_mean"] == scored["return_mean"]
    page = run_json(capsys, "report", folder)["page"]
    assert "<svg" in (folder / "report.html").read_text()
    assert page == str(folder / "report.html")


def test_evaluate_in_another_instance(capsys, folder):
    same = run_json(capsys, "evaluate", folder, "--episodes", "500")
    other = run_json(capsys, "evaluate", folder, "--episodes", "500", "--env-seed", "6")
    noisy = run_json(capsys, "evaluate", folder, "--episodes", "500", "--set", "noise=2.0")
    there = tasid.make("combination-lock", horizon=4, num_actions=3, seed=6)
    best = there.latent.robust_value(tasid.robust_dp(there.simulator, eta=0.1))
    assert other["robust_value"] == pytest.approx(best)
    assert "evaluation_episodes" not in same
    words = "the policy's map is not this environment's"
    assert words in run(capsys, "evaluate", folder, "--episodes", "20", "--env-seed", "6").err
    assert words not in run(capsys, "evaluate", folder, "--episodes", "20").err
    assert noisy["return_mean"] < same["return_mean"]


def test_same_seed_same_bytes(capsys, folder, tmp_path):
    run(capsys, *TRAIN, "64", "--seed", "5", "--out", tmp_path / "again", "--json")
    one, two = (
        {f.name: f.read_bytes() for f in (path / "policy").iterdir()}
        for path in (folder, tmp_path / "again")
    )
    assert one == two


def test_a_run_is_not_overwritten_unasked(capsys, folder):
    before = (folder / "result.json").read_bytes()
    err = run(capsys, *TRAIN, "100", "--out", folder, code=2).err
    assert "exists already" in err
    assert "--overwrite" in err
    assert (folder / "result.json").read_bytes() == before


def test_a_run_is_not_overwritten_from_python_either(folder, lock):
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    with pytest.raises(ValueError, match=r"run_dir: .* is a run of `tasid train`"):
        tasid.learn(lock, eta=0.1, episodes=16, run_dir=folder)
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before


def test_the_folder_of_several_runs_leads_to_one_of_them(capsys, folder, tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "seed-5").symlink_to(folder)
    for command in ("report", "evaluate"):
        err = run(capsys, command, tmp_path / "sweep", code=2).err
        assert f"give one of its runs, e.g. {tmp_path / 'sweep' / 'seed-5'}" in err


def test_a_foreign_folder_is_never_overwritten(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    err = run(capsys, *TRAIN, "100", "--out", tmp_path, "--overwrite", code=2).err
    assert "no run of ours" in err
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_is_no_folder_to_make_a_run_in(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    err = run(capsys, *TRAIN, "64", "--out", tmp_path / "notes.txt" / "run", code=2).err
    assert err == f"tasid: {tmp_path / 'notes.txt'}: is a file, so no folder can be made in it\n"


def test_a_failed_run_leaves_nothing_and_loses_nothing(capsys, folder, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("the camera fell off")

    monkeypatch.setattr("tasid.runs.train.learn", fail)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    err = run(capsys, *TRAIN, "100", "--out", folder, "--overwrite", code=2).err
    assert err == "tasid: the camera fell off\n"
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before
    run(capsys, *TRAIN, "100", "--out", tmp_path / "new", code=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "lock"], "no environment 'lock'"),
        (["train", "combination-lock", "--episodes", "0"], "episodes: 0 is below 1"),
        (["train", "combination-lock", "--eta", "0.7"], "eta: 0.7"),
        (["train", "combination-lock", "--method", "magic"], "method: 'magic'"),
        (["train", "combination-lock", "--method", "outcome"], "is gone; 'belief'"),
        (["train", "combination-lock", "--classes", "colour"], "'colour'"),
        (["train", "combination-lock", "--horizon", "0"], "horizon: 0"),
        (["train", "combination-lock", "--set", "noise"], "not KEY=VALUE"),
        (["train", "combination-lock", "--set", "shape=3"], "no option 'shape'"),
        (["train", "combination-lock", "--sensor", "lidar"], "--sensor: lidar"),
        (["train", "building", "--sensor", "sonar"], "sensor: 'sonar' is none of lidar"),
        (["train", "combination-lock", "--seed", "x"], "--seed"),
        (["plan", "nowhere"], "neither a file or folder here nor an environment"),
        (["plan", "combination-lock", "--eta", "2"], "eta: 2"),
        (["plan", LAKE, "--env-seed", "3"], f"--env-seed: 3 with {LAKE}"),
        (["check", LAKE, "--simulator", LAKE, "--env-seed", "3"], f"--env-seed: 3 with {LAKE}"),
        (["check", "combination-lock", "--sensor", "lidar"], "--sensor: lidar"),
        (["record", "combination-lock", *RECORD, "--env-seed", "-1"], "--env-seed: -1 is not in 0"),
        (["record", "mine", *RECORD, "--import", "mine.py"], "--import: mine.py: no such file"),
        (["evaluate", "nowhere"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["fly"], "fly"),
    ],
)
def test_bad_input_is_one_message_and_code_two(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    got = run(capsys, *arguments, code=2)
    assert words in got.err
    assert "Traceback" not in got.err
    assert got.out == ""
    assert list(tmp_path.rglob("*")) == [] or not any(f.is_file() for f in tmp_path.rglob("*"))


def test_the_version_is_told(capsys):
    assert run(capsys, "--version").out == f"tasid {tasid.__version__}\n"
    assert "From a map and an environment to a robust policy." in run(capsys, "--help").out


def test_help_is_quick():
    """In processor time: a busy machine must not decide."""
    command = [sys.executable, "-m", "tasid.cli", "--help"]
    best = 9.0
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, spent)
    assert best < 0.5


@pytest.mark.parametrize(("switch", "kept"), [("true", True), ("false", False)])
def test_compiled_code_is_kept_unless_switched_off(tmp_path, switch, kept):
    script = """
import tasid.cli

@tasid.cli.app.command()
def compute():
    import jax
    assert jax.jit(lambda x: x + 1)(1.0) == 2.0

tasid.cli.main(["compute"])
"""
    given = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    given |= {"XDG_CACHE_HOME": str(tmp_path), "JAX_ENABLE_COMPILATION_CACHE": switch}
    subprocess.run([sys.executable, "-c", script], check=True, env=given, timeout=120)
    assert any((tmp_path / "tasid" / "xla").glob("jit_*")) == kept


def test_an_interrupt_in_the_garbage_collector_is_not_lost():
    """Dropped by Python there, it comes again; and the process ends without a crash."""
    script = """
import gc, signal, sys, time, typer
import tasid.cli
signal.signal(signal.SIGINT, signal.default_int_handler)

@tasid.cli.app.command()
def sleep():
    gc.callbacks.append(lambda phase, info: phase == "stop" and signal.raise_signal(signal.SIGINT))
    gc.collect()
    gc.callbacks.clear()
    time.sleep(60)

tasid.cli.main(["sleep"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (130, b"tasid: interrupted\n")


def test_an_interrupt_of_an_import_ends_the_process(tmp_path):
    """Compiled modules make errors of their own of what is raised in them, or crash."""
    (tmp_path / "compiled.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(5)\n"
        "except KeyboardInterrupt:\n    raise ImportError('error while initializing') from None\n"
    )
    start = (
        "import signal, tasid.cli; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "tasid.cli.main(['plan', 'combination-lock', '--import', 'compiled'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", start], cwd=tmp_path, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, b"tasid: interrupted\n")


def test_interrupt_saves_nothing_half(tmp_path):
    # A shell that runs the tests in the background has them, and their children, ignore SIGINT.
    start = (
        "import signal, sys, tasid.cli; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "tasid.cli.main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", start, "train", "combination-lock", "--episodes", "200000"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / ".run.partial" / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err.endswith(b"tasid: interrupted\n")
    assert b"Traceback" not in err
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / ".run.partial").exists()


def processes_of(session):
    """How many processes a session has, by what Linux tells."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found += int(entry.read_text().rpartition(")")[2].split()[3]) == session
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")
@pytest.mark.parametrize("later", [0.0, 0.5, 4.0], ids=["at once", "starting", "working"])
def test_an_interrupt_with_worker_processes_is_quiet(tmp_path, later):
    """A terminal sends Ctrl-C to all processes: workers keep silent, and nothing is left behind."""
    start = (
        "import signal, sys, tasid.cli; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "tasid.cli.main(sys.argv[1:])"
    )
    lake = ["gym:FrozenLake-v1", "--simulator", "gym:FrozenLake-v1", "--set", "success_rate=0.8"]
    workers = [
        "--set",
        "workers=true",
        "--set",
        "num_envs=3",
        "--horizon",
        "8",
        "--episodes",
        "100000",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", start, "train", *lake, *workers, "--out", str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    # This one, the forkserver, the tracker of semaphores, and the workers.
    while processes_of(process.pid) < 3 + 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(later)
    os.killpg(process.pid, signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)  # ends when no worker holds the pipe any more
    finally:
        process.kill()
    *saved, goodbye = err.decode().splitlines()
    assert (process.returncode, goodbye) == (130, "tasid: interrupted")
    # How far it is, how long it will take, how to go on: nothing of workers, pipes and semaphores.
    ours = (
        r"tasid: (episode \d+ of 100000, .*|100000 episodes will take .*; Ctrl-C keeps what was "
        r"learned from|.*; the same command goes on from there .*)"
    )
    assert [line for line in saved if not re.fullmatch(ours, line)] == []


def test_progress_off_a_terminal_is_a_plain_line_now_and_then(monkeypatch, capsys):
    from tasid.runs.progress import Progress

    now = [100.0]
    monkeypatch.setattr("tasid.runs.progress.time.monotonic", lambda: now[0])
    with Progress("training batch", "mean return", quiet=True) as progress:
        for second in range(25):
            now[0] = 100.0 + second
            episodes = 10 * second if second < 15 else None
            progress.show(second, 25, episodes=episodes, figure="0.5")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "tasid: training batch 10 of 25, 100 episodes, mean return 0.5",
        "tasid: training batch 20 of 25, mean return 0.5",
    ]
