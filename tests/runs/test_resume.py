"""Runs that stop early go on: the same bytes, and no episode of the target played twice."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import jax
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from safetensors.numpy import load_file

import tasid
from probes import Cliff
from tasid.baselines.by_name import Baseline
from tasid.files.sole_writer import FolderBusy, sole_writer
from tasid.learning.belief.method import BatchEnded
from tasid.learning.memory import Remembered
from tasid.learning.paper.tasid import StepEnded
from tasid.maps.sources import read_source
from tasid.runs.journal import FitsOnRecord, Journal, Played
from tasid.runs.journaled import Journaled, RunDiffers
from tasid.runs.train import BaselineOrder, Order, train
from tasid.runs.unfinished import how_to_go_on, partial_of

NAME, WAVE = "gym:FrozenLake-v1", 4
OPTIONS = {"success_rate": 0.9, "num_envs": WAVE}


class Killed(BaseException):
    """Like SIGKILL, but for the process."""


class Meter:
    """Counts what the real environment is asked for, and breaks it off."""

    def __init__(self, monkeypatch):
        self.resets, self.steps, self.last = Counter(), 0, None
        whole_reset, whole_step = FrozenLakeEnv.reset, FrozenLakeEnv.step

        def reset(env, *, seed=None, options=None):
            self.resets[seed] += 1
            return whole_reset(env, seed=seed, options=options)

        def step(env, action):
            self.steps += 1
            if self.steps == self.last:
                raise Killed
            return whole_step(env, action)

        monkeypatch.setattr(FrozenLakeEnv, "reset", reset)
        monkeypatch.setattr(FrozenLakeEnv, "step", step)
        monkeypatch.setattr("tasid.runs.journal._PATIENCE", 0.0)

    def until(self, last):
        self.resets.clear()
        self.steps, self.last = 0, last


def carry_out(kind, folder, **how):
    if kind == "ppo":
        baseline = Baseline(kind, target_episodes=200, every=100, evaluation_episodes=0)
        order = BaselineOrder(NAME, {**OPTIONS, "horizon": 4}, baseline, 3, 10)
        return train(order, folder, **how)
    sim = read_source(NAME, horizon=4, deterministic="most-likely", success_rate=0.9)
    episodes = {"belief": 36, "paper": 48}[kind]
    order = Order(NAME, OPTIONS, 0.1, episodes, 3, kind, 10, sim, {"name": NAME})
    return train(order, folder, **how)


def same_bytes(one, two):
    """All that repeats byte for byte (docs/files.md), and more than nothing."""
    names = ["run.json", "epochs.jsonl", *(f"policy/{p.name}" for p in (one / "policy").iterdir())]
    arrays = next((one / "evaluation").glob("arrays-*.safetensors")).name
    files = [name for name in [*names, f"evaluation/{arrays}"] if (one / name).exists()]
    assert len(files) >= 4 - (not (one / "epochs.jsonl").exists())
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


@pytest.mark.parametrize(
    ("kind", "parts"), [("belief", (0.2, 0.5, 0.9)), ("paper", (0.5,)), ("ppo", (0.5,))]
)
def test_a_killed_run_goes_on_and_asks_the_target_nothing_twice(tmp_path, monkeypatch, kind, parts):
    """Killed early, late and in the evaluation; every kill costs the episodes under way."""
    meter = Meter(monkeypatch)
    carry_out(kind, tmp_path / "whole")
    whole, total = Counter(meter.resets), meter.steps
    folder = tmp_path / "broken"
    kept = spent = 0
    for part in parts:
        meter.until(max(int(part * (total - spent)), 20))
        with pytest.raises(Killed):
            carry_out(kind, folder)
        before, (kept, spent) = kept, on_record(folder)
        assert kept > before
        assert meter.resets.total() - (kept - before) <= WAVE
        assert how_to_go_on(folder) is not None
        assert not folder.exists()
    heard = []
    meter.until(None)
    carry_out(kind, folder, notice=heard.append)
    assert heard == [f"{folder}: an unfinished run of this order is here, and goes on"]
    assert kept + meter.resets.total() == whole.total()
    same_bytes(tmp_path / "whole", folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "whole"]


@pytest.mark.parametrize("kind", ["belief", "ppo"])
def test_a_run_killed_just_before_it_was_in_its_place_is_put_there(tmp_path, monkeypatch, kind):
    meter, folder = Meter(monkeypatch), tmp_path / "run"
    carry_out(kind, folder)
    before = (folder / "result.json").read_bytes()
    meter.until(1)
    for how in ({}, {"resume": True}, {"overwrite": True}):
        folder.rename(partial_of(folder))  # complete, and its writer never came to the rename
        heard = []
        assert carry_out(kind, folder, notice=heard.append, **how) == json.loads(before)
        assert heard == [f"{folder}: the run of this order is complete"]
        assert (folder / "result.json").read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(FileExistsError, match="exists already"):
        carry_out(kind, folder)  # one that was in its place is not taken for asked for


@pytest.mark.slow
def test_a_baseline_of_ours_goes_on_from_its_last_state(tmp_path, monkeypatch):
    """Both stages, killed at every checkpoint; what was trained is not trained again."""
    monkeypatch.setattr("tasid.runs.train._KEEP_SECONDS", 0.0)
    baseline = Baseline(
        "ppo+dr", target_episodes=200, source_episodes=100, every=100, evaluation_episodes=0
    )
    options = {"horizon": 3, "num_actions": 4, "seed": 3}
    order = BaselineOrder("combination-lock", options, baseline, 3, 10)
    seen = []
    train(order, tmp_path / "whole", callbacks=[seen.append])
    checkpoints = [(one.stage, one.episodes) for one in seen]
    assert len(checkpoints) == 3

    def kill(here):
        seen.append(here)
        if here.returns.size:
            raise Killed

    seen.clear()
    for _ in checkpoints:
        with pytest.raises(Killed):
            train(order, tmp_path / "broken", callbacks=[kill])
    assert [(one.stage, one.episodes) for one in seen if one.returns.size] == checkpoints
    train(order, tmp_path / "broken")
    same_bytes(tmp_path / "whole", tmp_path / "broken")
    rows = [
        [{**json.loads(line), "seconds": 0} for line in text.splitlines()]
        for text in ((tmp_path / x / "training.jsonl").read_text() for x in ("whole", "broken"))
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == len(checkpoints)


@pytest.mark.parametrize(
    ("method", "fits", "starts"),
    [
        ("belief", "tasid.learning.belief.refits.fit", 1),
        ("paper", "tasid.learning.paper.method.fit_step", 1),
        ("paper", "tasid.learning.paper.method.fit_step", 2),
    ],
)
def test_a_run_in_an_environment_of_ours_fits_nothing_twice(
    tmp_path, monkeypatch, method, fits, starts
):
    """Killed after every batch or step: each kill costs none of the fits before it."""
    module, name = fits.rsplit(".", 1)
    real, made = getattr(sys.modules[module], name), []

    def counted(*given, **how):
        made.append(name)
        return real(*given, **how)

    monkeypatch.setattr(fits, counted)
    rounds, options = 3, {"horizon": 4, "num_actions": 3, "seed": 3, "starts": starts}
    episodes = {"belief": 48, "paper": 80 if starts == 1 else 1_200}[method]
    order = Order("combination-lock", options, 0.1, episodes, 3, method, 10)
    ends = (BatchEnded, StepEnded)
    train(order, tmp_path / "whole")
    whole = len(made)
    made.clear()
    for number in range(rounds):
        seen = []

        def kill(event, seen=seen, number=number):
            seen.extend([event] if isinstance(event, ends) else [])
            if len(seen) > number:
                raise Killed

        with pytest.raises(Killed):
            train(order, tmp_path / "broken", callbacks=[kill])
        assert how_to_go_on(tmp_path / "broken") is not None
    assert len(made) == whole > rounds - 1
    train(order, tmp_path / "broken")
    assert len(made) == whole
    same_bytes(tmp_path / "whole", tmp_path / "broken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "whole"]


def test_fits_of_other_data_or_damaged_ones_are_made_again(tmp_path):
    kept = FitsOnRecord(tmp_path)
    kept.keep(0, "a", Remembered({}, {"x": np.ones(2)}))
    assert (kept.recall(0, "a").arrays["x"] == 1).all()
    assert kept.recall(1, "a") is None
    with pytest.warns(UserWarning, match="of other data; fitted again"):
        assert kept.recall(0, "b") is None
    file = next((tmp_path / "fits-000000").glob("arrays-*"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="Fitted again"):
        assert kept.recall(0, "a") is None


def test_learning_in_python_goes_on_too(tmp_path, monkeypatch):
    meter = Meter(monkeypatch)
    sim = read_source(NAME, horizon=4, deterministic="most-likely", success_rate=0.9)

    def learn(folder, episodes=32):
        target = tasid.wrap("FrozenLake-v1", **OPTIONS)
        return tasid.learn(target, sim, eta=0.1, episodes=episodes, run_dir=tmp_path / folder)

    learn("whole")
    resets, steps = meter.resets.total(), meter.steps
    meter.until(steps // 2)
    with pytest.raises(Killed):
        learn("broken")
    first = meter.resets.total()
    meter.until(None)
    with pytest.raises(ValueError, match="another order"):
        learn("broken", episodes=48)
    learn("broken")
    assert first + meter.resets.total() <= resets + WAVE
    for path in (tmp_path / "whole" / "policy").iterdir():
        assert path.read_bytes() == (tmp_path / "broken" / "policy" / path.name).read_bytes()
    assert [path.name for path in (tmp_path / "broken").iterdir()] == ["policy"]


def test_another_order_does_not_go_on_with_a_run(tmp_path, monkeypatch):
    meter, folder = Meter(monkeypatch), tmp_path / "run"
    meter.until(40)
    with pytest.raises(Killed):
        carry_out("belief", folder)
    before = on_record(folder)
    meter.until(None)
    with pytest.raises(FileExistsError, match=r"another order is here \(episodes: 36, now 48\)"):
        carry_out("paper", folder)
    with pytest.raises(FileExistsError, match="another order"):
        carry_out("paper", folder, overwrite=True, resume=True)
    assert on_record(folder) == before
    carry_out("paper", folder, overwrite=True)
    assert "paper" in (folder / "run.json").read_text()
    heard = []
    again = carry_out("paper", folder, resume=True, notice=heard.append)
    assert heard == [f"{folder}: the run of this order is complete"]
    assert again["return_mean"] == carry_out("paper", tmp_path / "other")["return_mean"]
    with pytest.raises(FileNotFoundError, match="nothing to resume"):
        carry_out("belief", tmp_path / "nowhere", resume=True)
    assert not list(tmp_path.glob(".*"))


def test_commands_that_differ_from_those_on_record_are_an_error(tmp_path):
    """A target that always ends after two steps; the record says otherwise of the first."""
    journal = Journal(tmp_path)
    key = jax.random.key(0)
    data = np.asarray(jax.random.key_data(key)).tobytes()
    seen = np.arange(3, dtype=np.float32)[:, None]
    over = np.array([False, False, True])
    journal.add(Played(data, np.array([1, 0], np.int32), seen, np.ones(2, np.float32), over))
    journal.flush()
    target = Journaled(Cliff(horizon=2, traceable=False), Journal(tmp_path))
    state, first = target.reset(key[None])
    state, second, paid = target.step(state, np.array([1]), 0, key[None])
    assert (first[0, 0], second[0, 0], paid[0]) == (0, 1, 1)
    with pytest.raises(RunDiffers, match="step 1 of an episode: action 0 is on record, now it is"):
        target.step(state, np.array([1]), 1, key[None])
    state, third, paid = target.step(state, np.array([0]), 1, key[None])
    state, after, nothing = target.step(state, np.array([1]), 2, key[None])  # over: anything goes
    assert (third[0, 0], after[0, 0], paid[0], nothing[0]) == (2, 2, 1, 0)


def test_a_damaged_record_is_played_again(tmp_path):
    journal = Journal(tmp_path)
    blank = np.zeros((1, 2), np.float32), np.zeros(0, np.float32), np.zeros(1, bool)
    for number in range(3):
        journal.add(Played(bytes([number] * 8), np.zeros(0, np.int32), *blank))
        journal.flush()
    middle = sorted(tmp_path.iterdir())[1]
    middle.write_bytes(middle.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="damaged; its episodes and those after it are played"):
        again = Journal(tmp_path)
    assert again.episodes == 1
    assert again.take(bytes(8)) is not None
    assert again.take(bytes(8)) is None
    assert again.take(bytes([2] * 8)) is None
    assert len(list(tmp_path.iterdir())) == 1


HOLD = """
import sys, time
from tasid.files.sole_writer import sole_writer
with sole_writer(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_writer_at_a_time(tmp_path):
    """The second is told who the first is; a killed first one keeps nobody out."""
    folder = tmp_path / "run"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout.readline() == "held\n"
        who = rf"run: process {first.pid} on {re.escape(socket.gethostname())} is writing here"
        with pytest.raises(FolderBusy, match=who), sole_writer(folder):
            pass
        with sole_writer(tmp_path / "other"):
            pass
    finally:
        first.kill()
        first.communicate()
    assert (tmp_path / ".run.lock").exists()
    ours = pytest.raises(FolderBusy, match=f"process {os.getpid()} ")
    with sole_writer(folder), ours, sole_writer(folder):
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_locks_the_word_of_the_file_counts(tmp_path, monkeypatch):
    """Of processes that are gone it does not; of other machines nobody can tell."""

    def none(*_):
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr("fcntl.flock", none)
    lock, host = tmp_path / ".run.lock", socket.gethostname()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid, where, busy in (
        (gone.pid, host, False),
        (os.getppid(), host, True),
        (gone.pid, f"not-{host}", True),
    ):
        lock.write_text(json.dumps({"pid": pid, "host": where}))
        refused = pytest.raises(FolderBusy, match=f"process {pid} on {where}")
        with refused if busy else contextlib.nullcontext(), sole_writer(tmp_path / "run"):
            pass
        assert lock.exists() == busy


STUCK = """
import signal, sys, time, tasid.cli
signal.signal(signal.SIGINT, signal.default_int_handler)

@tasid.cli.app.command()
def stuck():
    print("begun", flush=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            time.sleep(30)
        except KeyboardInterrupt:
            pass

tasid.cli.main(["stuck"])
"""


@pytest.mark.parametrize(
    ("number", "code", "twice"),
    [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, False), (signal.SIGTERM, 143, True)],
)
def test_a_command_that_does_not_listen_ends_within_five_seconds(number, code, twice):
    """And at the second signal at once."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "begun\n"
        started = time.monotonic()
        process.send_signal(number)
        if twice:
            time.sleep(0.7)
            process.send_signal(number)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == code
    assert time.monotonic() - started < (2.0 if twice else 5.0)
    assert err == "tasid: interrupted\n" or (twice and not err)


ENDING = """
import atexit, sys, time, tasid.cli
sys.argv[1:] = ["--version"]
atexit.register(lambda: (print("ending"), time.sleep(1.0)))
tasid.cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_has_succeeded_is_not_said_to_have_failed(number):
    """Python takes itself apart for a while, and must not be ended in that."""
    process = subprocess.Popen([sys.executable, "-uc", ENDING], stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline().startswith(b"tasid")
        assert process.stdout.readline() == b"ending\n"
        process.send_signal(number)
        assert process.wait(timeout=20) == 0


FAULTS = {"os.fsync": errno.EIO, "os.replace": errno.EROFS, "os.open": errno.ENOSPC}


@pytest.mark.parametrize("call", FAULTS)
def test_a_failing_disk_loses_nothing_that_was_on_record(tmp_path, monkeypatch, call):
    """The error says what and where; the run goes on when the disk is well again."""
    Meter(monkeypatch)
    folder, number, code = tmp_path / "run", 0, FAULTS[call]
    module, name = call.split(".")
    real = getattr(os, name)

    def failing(*given, **how):
        nonlocal number
        number += 1
        writes = name != "open" or given[1] & os.O_CREAT
        if number > (12 if name == "open" else 6) and writes:
            raise OSError(code, os.strerror(code))
        return real(*given, **how)

    with monkeypatch.context() as sick:
        sick.setattr(f"tasid.files.atomic.{module}.{name}", failing)
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            carry_out("belief", folder)
    assert caught.value.errno == code
    kept, _ = on_record(folder)
    assert kept > 0
    assert not list(tmp_path.rglob("*.tmp"))
    carry_out("belief", folder)
    carry_out("belief", tmp_path / "whole")
    same_bytes(tmp_path / "whole", folder)


def on_record(folder):
    """Episodes and steps."""
    files = folder.with_name(f".{folder.name}.partial").glob("unfinished/*.safetensors")
    steps = np.concatenate([load_file(path)["steps"] for path in files])
    return steps.size, int(steps.sum())
