"""Sweeps: records that survive interruption, and the same rows whatever happened in between."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tasid.experiments import EXPERIMENTS, experiment
from tasid.experiments.records import Records
from tasid.experiments.sweep import SIZES, Experiment, Job, JobContext, sweep
from tasid.files import ArtifactError


def counting(steps=6, *, fail_at=None, done=None):
    """An experiment whose rows are a walk: each depends on the one before, kept every second."""

    def jobs(size):
        return [
            Job(f"walk-{size}-{i}", (seed,), {"start": i}, 1.0) for i in (0, 1) for seed in (3, 4)
        ]

    def work(job: Job, context: JobContext):
        (seed,) = job.seeds
        log = context.log(seed, note="a fact")
        kept = log.resume()
        place = float(job.configuration["start"]) if kept is None else float(kept.arrays["place"])
        first = 0 if kept is None else int(kept.metadata["given"]["step"])
        for step in range(first, steps):
            place = 2 * place + seed
            log.row(step=step, place=place)
            if done is not None:
                done.append((job.setting, seed, step))
            if step % 2:
                log.keep({"place": np.array(place)}, step=step + 1)
            if fail_at == (job.setting, seed, step):
                raise RuntimeError("the power fails")
            context.tell((step + 1) / steps)
        log.end(place=place)

    return Experiment("counting", "Counting", jobs, work)


def rows_of(folder):
    return {(one.setting, one.seed): one.rows for one in Records(folder).series()}


def test_an_interrupted_sweep_continues_to_the_same_rows(tmp_path):
    whole = sweep(counting(), tmp_path / "whole", size="smoke", workers=1).folder
    for step in range(6):
        folder = tmp_path / f"broken-{step}"
        with pytest.raises(RuntimeError, match="the power fails"):
            sweep(counting(fail_at=("walk-smoke-0", 4, step)), folder, size="smoke", workers=1)
        done = []
        sweep(counting(done=done), folder, size="smoke", workers=1)
        assert rows_of(folder) == rows_of(whole)
        assert ("walk-smoke-0", 3, 0) not in done, "what was finished is not done again"
        again = [s for setting, seed, s in done if (setting, seed) == ("walk-smoke-0", 4)]
        kept = step + 1 if step % 2 else step
        assert again == list(range(kept, 6)), "it goes on from what was kept"
        assert not list((folder / "unfinished").iterdir())


def test_a_complete_sweep_is_left_alone(tmp_path):
    sweep(counting(), tmp_path, size="smoke", workers=1)
    before = {p: p.read_bytes() for p in (tmp_path / "records").rglob("*.jsonl")}
    done = []
    sweep(counting(done=done), tmp_path, size="smoke", workers=1)
    assert not done
    assert before == {p: p.read_bytes() for p in (tmp_path / "records").rglob("*.jsonl")}


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path):
    with pytest.raises(RuntimeError):
        sweep(counting(fail_at=("walk-smoke-0", 3, 3)), tmp_path, size="smoke", workers=1)
    path = tmp_path / "records" / "walk-smoke-0" / "3.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step":4,"pla')
    assert [row["step"] for row in rows_of(tmp_path)["walk-smoke-0", 3]] == [0, 1, 2, 3]
    sweep(counting(), tmp_path, size="smoke", workers=1)
    assert [row["step"] for row in rows_of(tmp_path)["walk-smoke-0", 3]] == list(range(6))


def test_another_configuration_is_done_anew(tmp_path):
    sweep(counting(), tmp_path, size="smoke", workers=1)
    path = tmp_path / "records" / "walk-smoke-1" / "3.jsonl"
    heading, *rest = path.read_text().splitlines()
    changed = json.loads(heading)
    changed["heading"]["configuration"]["start"] = 7
    path.write_text("\n".join([json.dumps(changed), *rest]) + "\n")
    done = []
    sweep(counting(done=done), tmp_path, size="smoke", workers=1)
    assert {(setting, seed) for setting, seed, _ in done} == {("walk-smoke-1", 3)}


def test_rows_say_where_they_come_from(tmp_path):
    sweep(counting(), tmp_path, size="smoke", workers=1)
    series = list(Records(tmp_path).series())
    assert [(one.setting, one.seed) for one in series] == [
        (f"walk-smoke-{i}", seed) for i in (0, 1) for seed in (3, 4)
    ]
    assert all(one.facts["note"] == "a fact" and one.facts["seed"] == one.seed for one in series)
    assert all(one.versions and one.ending == {"place": one.rows[-1]["place"]} for one in series)


def test_folders_hold_one_experiment_at_one_size(tmp_path):
    sweep(counting(), tmp_path, size="smoke", workers=1)
    with pytest.raises(ValueError, match="'counting' at size 'smoke', not 'counting' at size 'qui"):
        sweep(counting(), tmp_path, size="quick", workers=1)
    with pytest.raises(ValueError, match="size: 'huge' is none of smoke, quick, full"):
        sweep(counting(), tmp_path, size="huge")


def test_nothing_is_written_for_a_wrong_order(tmp_path):
    with pytest.raises(ValueError, match="workers: 0 is below 1"):
        sweep(counting(), tmp_path / "new", size="smoke", workers=0)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file; an experiment needs a folder"):
        sweep(counting(), tmp_path / "file", size="smoke")


def test_what_a_damaged_state_had_kept_is_done_again(tmp_path):
    log = Records(tmp_path).log("walk", 0, {"configuration": {}})
    log.resume()
    log.row(step=1)
    log.keep({"place": np.zeros(1)})
    (tmp_path / "unfinished" / "walk-0" / "manifest.json").write_text("{")
    with pytest.warns(UserWarning, match="this run starts anew"):
        assert log.resume() is None


def test_one_sweep_at_a_time(tmp_path):
    with (
        Records(tmp_path).writing(),
        pytest.raises(ValueError, match=r"process \d+ on .* is writing here"),
    ):
        sweep(counting(), tmp_path, size="smoke", workers=1)
    sweep(counting(), tmp_path, size="smoke", workers=1)


def test_progress_adds_up(tmp_path):
    states = []
    sweep(counting(), tmp_path, size="smoke", workers=1, watchers=[states.append])
    assert states[-1].done == states[-1].total == 4
    assert states[-1].left == 0.0
    assert [state.done for state in states] == sorted(state.done for state in states)
    assert all(0.0 <= part <= 1.0 for state in states for _, part in state.running)


def test_damaged_records_are_named(tmp_path):
    sweep(counting(), tmp_path, size="smoke", workers=1)
    path = tmp_path / "records" / "walk-smoke-0" / "3.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], "{", *lines[2:]]) + "\n")
    with pytest.raises(ArtifactError, match=r"3\.jsonl, line 3: not a record"):
        list(Records(tmp_path).series())
    path.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(ArtifactError, match="no heading"):
        list(Records(tmp_path).series())
    path.write_text("[1]\n")
    with pytest.raises(ArtifactError, match="line 1: not a record"):
        list(Records(tmp_path).series())
    path.rename(path.with_name("three.jsonl"))
    with pytest.raises(ArtifactError, match=r"three\.jsonl: records are called SEED\.jsonl"):
        list(Records(tmp_path).series())
    with pytest.raises(ArtifactError, match="no experiment here"):
        Records(tmp_path / "nowhere").description()


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("size", SIZES)
def test_every_experiment_has_every_size(name, size):
    jobs = experiment(name).jobs(size)
    places = [(job.setting, seed) for job in jobs for seed in job.seeds]
    assert places
    assert len(set(places)) == len(places), "no two jobs share a file"
    assert all(job.cost > 0 for job in jobs)
    for job in jobs:
        assert json.loads(json.dumps(job.configuration)) == dict(job.configuration)


def test_unknown_experiments():
    with pytest.raises(ValueError, match="name: 'chess' is no experiment; there are: combination"):
        experiment("chess")
