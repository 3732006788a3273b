"""Sweeps and collection on a Ray cluster of three nodes: the same bytes, whatever dies."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks.drift import HORIZON, Drift
from benchmarks.ray_cluster import NotStarted, add, ray_cluster
from benchmarks.torture_cluster import ROWS, descendants
from benchmarks.walks import notes, records_of, rows_of, walks

import tasid
from tasid.cli import main
from tasid.experiments.sweep import sweep
from tasid.runs.executors.cluster import RayCluster
from tasid.runs.recording import record_episodes
from tasid.targets.ray.session import connect
from tasid.targets.target import EpisodeFailed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cluster"
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: tasid[ray]"),
    # Of Ray's own code. It forks only to start another program, which JAX's threads do not mind.
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning",
        "ignore::ResourceWarning",
        "ignore:os.fork:RuntimeWarning",
    ),
]


@pytest.fixture(scope="module")
def cluster():
    with ExitStack() as stack:
        try:
            nodes = stack.enter_context(ray_cluster())
        except NotStarted as error:
            pytest.skip(str(error))
        connect(nodes.address, argument="address")
        yield nodes


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return sweep(walks(), tmp_path_factory.mktemp("alone"), size="smoke", workers=1).folder


def test_a_sweep_on_three_nodes_writes_the_same_records(cluster, alone, tmp_path):
    sweep(walks(), tmp_path, size="smoke", executor=RayCluster(cluster.address))
    assert records_of(tmp_path) == records_of(alone)


def test_killed_workers_and_a_node_that_goes_and_comes(cluster, alone, tmp_path):
    """Every job is done once, and the records are those of one process."""
    import ray

    (tmp_path / "die-1-3").touch()
    (tmp_path / "die-3-0").touch()
    victim = add(cluster)
    folder = tmp_path / "sweep"

    def conduct():
        while len(notes(tmp_path)) < 3:
            time.sleep(0.05)
        cluster.remove_node(victim, allow_graceful=False)

    conductor = threading.Thread(target=conduct)
    conductor.start()
    executor = RayCluster(cluster.address)
    sweep(walks(tmp_path, pause=0.2), folder, size="smoke", executor=executor)
    conductor.join()
    assert rows_of(folder) == rows_of(alone)
    assert {"begin-1-0", "begin-1-4", "begin-3-0"} <= set(notes(tmp_path))
    ends = sorted(note for note in notes(tmp_path) if note.startswith("end-"))
    assert set(ends) == {f"end-{i}" for i in range(4)}
    assert ray.is_initialized(), "a connection of the program's own stays"


def test_an_error_is_told_as_it_was(cluster, tmp_path):
    (tmp_path / "fail-2-1").touch()
    with pytest.raises(RuntimeError, match="spoiled"):
        sweep(walks(tmp_path), tmp_path / "s", size="smoke", executor=RayCluster(cluster.address))


def test_train_seeds_on_a_cluster(cluster, tmp_path, capsys):
    order = "train combination-lock --horizon 3 --set num_actions=3 --episodes 16"
    order += f" --evaluation-episodes 40 --json --out {tmp_path}"
    for where in ("here/seed-4 --seed 4", f"there --seeds 4-5 --cluster {cluster.address}"):
        with pytest.raises(SystemExit) as ended:
            main(f"{order}/{where}".split())
        assert not ended.value.code
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["seed"] for run in answer["runs"]] == [4, 5]
    files = sorted((tmp_path / "here" / "seed-4" / "policy").iterdir())
    assert files
    for file in files:
        there = tmp_path / "there" / "seed-4" / "policy" / file.name
        assert file.read_bytes() == there.read_bytes()


def digest(recorded):
    """Over all episodes in order."""
    found = hashlib.sha256()
    for table in recorded:
        found.update(np.ascontiguousarray(table).tobytes())
    return found.hexdigest()


def collected(env, *, episodes=24, **options):
    with tasid.wrap(env, horizon=HORIZON, **options) as target:
        return digest(record_episodes(target, None, episodes=episodes).recorded)


def test_collected_data_are_the_same_wherever_they_are_played(cluster, tmp_path):
    """One process, and four actors on three nodes of which three die in the middle of episodes."""
    expected = collected(Drift, num_envs=3)
    for step in (0, 2, HORIZON - 1):
        (tmp_path / f"die-{step}").touch()
    assert collected(partial(Drift, str(tmp_path)), num_envs=4, workers="ray") == expected
    assert not list(tmp_path.glob("die-*"))
    died = sorted((tmp_path / "notes").read_text().split())
    assert died == ["died-0", "died-2", f"died-{HORIZON - 1}"]


def test_what_an_environment_raises_far_away_is_told_here(cluster):
    with pytest.raises(EpisodeFailed, match=r"failed 2 times, last after 2 steps .* so it breaks"):
        collected(partial(Drift, breaks=True), num_envs=2, workers="ray", retries=1)


def test_learning_from_actors_goes_on_where_it_was(cluster, tmp_path):
    """By another number of them, with the bytes of one process; nothing is played twice."""
    rooms = tasid.AbstractSimulator([[0, 1], [0, 1]], [[0.0, 1.0], [0.0, 1.0]], horizon=HORIZON)
    asked = {"eta": 0.1, "episodes": 48, "seed": 3}
    with tasid.wrap(Drift, horizon=HORIZON) as target:
        tasid.learn(target, rooms, **asked, run_dir=tmp_path / "alone")

    def stop(event):
        if event.batch == 1:
            raise RuntimeError("the power fails")

    make = partial(Drift, str(tmp_path), note=True)
    with tasid.wrap(make, horizon=HORIZON, num_envs=2, workers="ray") as target:
        with pytest.raises(RuntimeError, match="the power fails"):
            tasid.learn(target, rooms, **asked, run_dir=tmp_path / "run", callbacks=[stop])
        before = (tmp_path / "notes").read_text().split()
    with tasid.wrap(make, horizon=HORIZON, num_envs=3, workers="ray") as target:
        tasid.learn(target, rooms, **asked, run_dir=tmp_path / "run")
    played = (tmp_path / "notes").read_text().split()
    assert 0 < len(before) < len(played) == len(set(played)) == 48
    for file in (tmp_path / "alone" / "policy").iterdir():
        assert file.read_bytes() == (tmp_path / "run" / "policy" / file.name).read_bytes()


def test_a_killed_driver_goes_on(cluster, tmp_path):
    found = ROWS["drivers"][0](cluster, tmp_path, 1, random.Random(0))
    assert found.kept == found.tried == 1


def test_nothing_listens_beyond_this_machine(cluster):
    """Every socket of the cluster's processes is bound to the loopback interface."""
    open_to_all = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, listening = fields[1].split(":")[0], fields[3] == "0A"
            if listening and set(address) == {"0"}:
                open_to_all.append(fields[9])
    held = {
        name
        for pid in descendants()
        for link in Path(f"/proc/{pid}/fd").glob("*")
        if (name := socket_of(link)) is not None
    }
    assert held
    assert not held & set(open_to_all)


def socket_of(link):
    try:
        found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
    except OSError:
        return None
    return None if found is None else found[1]


def test_the_example_of_ray_up_is_one():
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load((EXAMPLES / "ray-up.yaml").read_text()))
    validate_config(config)
    for command in config["head_start_ray_commands"] + config["worker_start_ray_commands"]:
        assert "ray stop" in command or "RAY_USAGE_STATS_ENABLED=0" in command
    assert "--include-dashboard=false" in config["head_start_ray_commands"][1]


def test_the_example_of_kuberay_has_what_a_cluster_needs():
    """Its schema is the operator's; this is as far as one can look without a cluster."""
    ray_cluster, policy, claim = yaml.safe_load_all((EXAMPLES / "kuberay.yaml").read_text())
    assert (ray_cluster["apiVersion"], ray_cluster["kind"]) == ("ray.io/v1", "RayCluster")
    head, (workers,) = (ray_cluster["spec"][key] for key in ("headGroupSpec", "workerGroupSpecs"))
    assert head["serviceType"] == "ClusterIP"
    assert head["rayStartParams"]["include-dashboard"] == "false"
    for group in (head, workers):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": policy["spec"]["podSelector"]}]}]
    (volume,) = head["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
