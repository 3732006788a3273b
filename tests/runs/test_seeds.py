"""`tasid train --seeds`: every run is the one that its seed alone gives, and none is made twice."""

from __future__ import annotations

import json
import os
import sys

import gymnasium
import numpy as np
import pytest

import tasid
from tasid.cli import main
from tasid.cli.train_seeds import seeds_in
from tasid.runs.executors.processes import Processes
from tasid.runs.recording import record_episodes
from tasid.runs.seeds import File, Mirror, files_of, train_seeds, write
from tasid.runs.train import Order, train

ORDER = "combination-lock --horizon 3 --set num_actions=3 --episodes 32 --evaluation-episodes 40"


def call(capsys, *arguments):
    try:
        main([part for argument in arguments for part in str(argument).split()])
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    out, err = capsys.readouterr()
    return code, out, err


def what_repeats(folder):
    """Byte for byte (docs/files.md)."""
    files = [folder / "run.json", *(folder / "policy").iterdir()]
    files += (folder / "evaluation").glob("arrays-*")
    return {path.name: path.read_bytes() for path in files}


def test_every_run_is_that_of_its_seed(tmp_path, capsys):
    sweep = ("train", ORDER, "--seeds 4,6 --workers 1 --json --out", tmp_path / "sweep")
    code, out, _ = call(capsys, *sweep)
    assert code == 0
    answer = json.loads(out)
    assert [run["seed"] for run in answer["runs"]] == [4, 6]
    means = [run["return_mean"] for run in answer["runs"]]
    assert answer["summary"]["runs"] == 2
    assert answer["summary"]["return_mean"]["mean"] == pytest.approx(np.mean(means))
    assert answer["summary"]["return_mean"]["least"] == min(means)
    assert call(capsys, "train", ORDER, "--seed 6 --out", tmp_path / "alone")[0] == 0
    assert what_repeats(tmp_path / "sweep" / "seed-6") == what_repeats(tmp_path / "alone")
    assert answer["runs"][1]["policy"] == str(tmp_path / "sweep" / "seed-6" / "policy")
    assert tasid.load(answer["runs"][1]["policy"]).horizon == 3

    # The same command makes nothing again; more seeds join the others; another order does not.
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "sweep").glob("seed-*/*")}
    assert call(capsys, *sweep)[0] == 0
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "sweep").glob("seed-*/*")}
    code, _, err = call(capsys, *sweep, "--eta 0.2")
    assert code == 2
    assert "a sweep of another order is here" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--seeds 3-", "--seeds: '3-' should be seeds such as 100-199"),
        ("--seeds 5-3", "--seeds: '5-3' is no range in 0"),
        ("--seeds 3,1-4", "names a seed twice"),
        ("--seeds 0-4294967296", "is no range in 0"),
        ("--seeds 1-3 --seed 2", "--seed: with --seeds; name it in --seeds"),
        ("--seeds 1-3 --resume", "--resume: with --seeds; a sweep goes on by itself"),
        ("--seeds 1-3 --workers 0", "workers: 0 is below 1"),
        ("--workers 3", "--workers: 3 without --seeds"),
        ("--seeds 1-3 --cluster nowhere", "--cluster: 'nowhere' is none of HOST:PORT, auto and lo"),
        ("--seeds 1-3 --cluster 127.0.0.1:1", "--cluster: nobody answers at 127.0.0.1:1"),
    ],
)
def test_wrong_orders_are_one_message(tmp_path, capsys, flags, message):
    code, out, err = call(capsys, "train", ORDER, flags, "--out", tmp_path / "sweep")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "sweep").exists()


def test_seeds_are_ranges_and_lists():
    assert seeds_in("100-103") == [100, 101, 102, 103]
    assert seeds_in("7,1-2") == [7, 1, 2]


met: list[int] = []


class Noted(gymnasium.Env):
    """Two rooms; which episodes were begun is noted."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            met.append(seed)
        self.room = 0
        return self.look(), {}

    def step(self, action):
        self.room = int(action) if self.np_random.random() < 0.9 else 1 - int(action)
        return self.look(), float(self.room), False, False, {}

    def look(self):
        noise = self.np_random.normal(scale=0.1, size=2)
        return (np.array([self.room, 1 - self.room]) + noise).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Noted-v0", Noted, max_episode_steps=2, disable_env_checker=True)
    yield
    del gymnasium.registry["Noted-v0"]


def test_an_interrupted_run_goes_on_from_what_the_owner_has(tmp_path):
    """The task's own folder is gone with it; the episodes that it told are not played again."""
    rooms = tasid.AbstractSimulator([[0, 1], [0, 1]], [[0.0, 1.0], [0.0, 1.0]], horizon=2)
    options = {"max_episode_steps": 2}
    orders = [
        Order("gym:Noted-v0", options, 0.1, 48, seed, evaluation_episodes=8, simulator=rooms)
        for seed in (1, 2)
    ]
    train(orders[1], tmp_path / "alone")
    whole = list(met)
    met.clear()

    def stop(state):
        if any(name == "seed 2" and part > 0.5 for name, part in state.running):
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        train_seeds(orders, tmp_path / "sweep", Processes(1), watchers=[stop])
    assert (tmp_path / "sweep" / "seed-1" / "result.json").exists()
    begun, before = list(met), len(met)
    assert 0 < len(set(begun) & set(whole)) < len(set(whole))
    train_seeds(orders, tmp_path / "sweep", Processes(1))
    assert set(met[before:]) == set(whole) - set(begun), "nothing is played twice"
    assert what_repeats(tmp_path / "sweep" / "seed-2") == what_repeats(tmp_path / "alone")
    assert not list((tmp_path / "sweep").glob(".*"))


class Line:
    def __init__(self, folder):
        self.folder, self.said = folder, []

    def say(self, message):
        self.said.append(message)
        write(self.folder, message)

    def check(self):
        pass


def test_a_mirror_shows_what_is_there_and_tells_each_file_once(tmp_path):
    ours, theirs = tmp_path / "task", tmp_path / "owner"
    (theirs / "deep").mkdir(parents=True)
    (theirs / "deep" / "before").write_bytes(b"kept")
    line = Line(theirs)
    mirror = Mirror(ours, line, files_of(theirs))
    mirror.tell(ours)
    assert not line.said
    (ours / "b").write_bytes(b"first")
    (ours / "a").write_bytes(b"second")
    (ours / "deep" / "before").unlink()
    mirror.tell(ours)
    mirror.tell(ours)
    assert [file.name for file in line.said] == ["b", "a", "deep/before"]
    assert files_of(theirs) == files_of(ours) == {"b": b"first", "a": b"second"}
    ours.rename(tmp_path / "moved")
    mirror.tell(ours)
    assert len(line.said) == 3, "a folder that was put in its place is not empty"
    for name in ("../out", "/etc/out"):
        with pytest.raises(ValueError, match="a task writes in its own folder"):
            write(theirs, File(name, b""))


def test_a_run_put_in_its_place_while_a_mirror_looks_is_no_trouble(tmp_path, monkeypatch):
    ours, theirs = tmp_path / "task", tmp_path / "owner"
    theirs.mkdir()
    line = Line(theirs)
    mirror = Mirror(ours, line, {"deep/before": b"kept"})
    scan = os.scandir

    def vanishing(folder):
        if ours.exists():
            ours.rename(tmp_path / "moved")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", vanishing)
    mirror.tell(ours)
    assert not ours.exists()
    assert not line.said


def test_without_ray_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    where = ("--seeds 1-3 --cluster local --out", tmp_path / "sweep")
    code, out, err = call(capsys, "train", ORDER, *where)
    assert (code, out) == (2, "")
    assert "--cluster: needs Ray, which is not installed: pip install 'tasid[ray]'" in err
    with (
        tasid.wrap(Noted, horizon=2, workers="ray") as target,
        pytest.raises(ValueError, match=r"workers: needs Ray, .* 'tasid\[ray\]'"),
    ):
        record_episodes(target, None, episodes=1)
    with pytest.raises(ValueError, match="workers: 'spark' is none of True, False, ray"):
        tasid.wrap(Noted, workers="spark")
    with pytest.raises(ValueError, match="step_timeout: 1 without workers=True"):
        tasid.wrap(Noted, workers="ray", step_timeout=1)
