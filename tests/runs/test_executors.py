"""Sweeps done by other processes: the same records, whatever happens to them."""

from __future__ import annotations

import threading
import time

import pytest
from benchmarks.walks import notes, records_of, rows_of, walks

from tasid.experiments.sweep import sweep
from tasid.runs.executors.dispatch import Failure, Interrupted, Task, do_all
from tasid.runs.executors.processes import Processes


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The sweep of one process."""
    return sweep(walks(), tmp_path_factory.mktemp("alone"), size="smoke", workers=1).folder


def test_two_processes_write_the_same_records(alone, tmp_path):
    states = []
    sweep(walks(), tmp_path, size="smoke", workers=2, watchers=[states.append])
    assert records_of(tmp_path) == records_of(alone)
    assert states[-1].done == states[-1].total == 4


def test_two_processes_work_at_the_same_time(tmp_path):
    """The first two jobs hold until both were seen under way, or for a minute."""
    held = [tmp_path / "wait-0-3", tmp_path / "wait-1-3"]
    for file in held:
        file.touch()
    states = []

    def watch(state):
        states.append(state)
        if len(state.running) == 2:
            release()

    def release():
        for file in held:
            file.unlink(missing_ok=True)

    timer = threading.Timer(60, release)
    timer.start()
    sweep(walks(tmp_path), tmp_path / "sweep", size="smoke", workers=2, watchers=[watch])
    timer.cancel()
    assert max(len(state.running) for state in states) == 2


@pytest.mark.parametrize(("step", "first"), [(0, 0), (3, 4)])
def test_a_killed_process_costs_its_task_and_nothing_else(alone, tmp_path, step, first):
    (tmp_path / f"die-2-{step}").touch()
    folder = tmp_path / "sweep"
    sweep(walks(tmp_path), folder, size="smoke", workers=2)
    assert rows_of(folder) == rows_of(alone)
    began = [note for note in notes(tmp_path) if note.startswith("begin-2-")]
    assert began == ["begin-2-0", f"begin-2-{first}"], "it goes on from what was kept"
    assert sorted(note for note in notes(tmp_path) if note.startswith("end-")) == [
        f"end-{i}" for i in range(4)
    ]


def test_an_error_ends_the_others_too(alone, tmp_path):
    """The other process is told where it checks, not after hours; later jobs do not begin."""
    for name in ("fail-0-1", "wait-0-0", "wait-1-3"):
        (tmp_path / name).touch()
    folder = tmp_path / "sweep"

    def free(seconds, *names):
        time.sleep(seconds)
        for name in names:
            (tmp_path / name).unlink()

    def conduct():
        while len(notes(tmp_path)) < 2:
            time.sleep(0.05)
        free(0.5, "wait-0-0")
        free(1.0, "wait-1-3")

    conductor = threading.Thread(target=conduct)
    conductor.start()
    with pytest.raises(RuntimeError, match="spoiled") as raised:
        sweep(walks(tmp_path), folder, size="smoke", workers=2)
    conductor.join()
    assert any("trouble(job, seed, step)" in note for note in raised.value.__notes__)
    assert notes(tmp_path) == ["begin-0-0", "begin-1-0"] or notes(tmp_path) == [
        "begin-1-0",
        "begin-0-0",
    ]
    sweep(walks(tmp_path), folder, size="smoke", workers=2)
    assert rows_of(folder) == rows_of(alone)
    assert "begin-1-4" in notes(tmp_path), "what had been told by then was on record"


def deadly(given, line):
    import os

    os._exit(3)


def test_what_kills_every_process_ends(tmp_path):
    task = Task("deadly", deadly, lambda: None, print)
    with pytest.raises(RuntimeError, match=r"deadly: lost 5 times, last: .* \(exit code 3\)"):
        do_all([task], Processes(2), total=1)


def test_errors_travel_as_the_nearest_of_python_s_own():
    class Odd(ValueError):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    class Own(Exception):
        pass

    assert repr(Failure.of(Odd(1, 2)).error()) == "ValueError('1 and 2')"
    assert repr(Failure.of(Own("so")).error()) == "RuntimeError('Own: so')"


def test_halted_processes_begin_nothing():
    executor = Processes(2)
    executor.halt()
    with pytest.raises(Interrupted):
        executor.do(deadly, None, print, 0)
