"""Small files and short commands that ask for all memory are refused before any is taken."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import tasid
from tasid.files import read_artifact, write_artifact
from tasid.maps.size import MOST_BYTES, refuse_larger
from tasid.maps.sources import MapError
from tasid.policies.ppo_policy import load_ppo_policy

FIELDS = "resolution: 0.5\norigin: [0, 0, 0]\nnegate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.2\n"


@pytest.fixture
def little_memory():
    """Fails a test that takes more than 64 MB, as far as Python and NumPy take it."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 * 2**20


def aliases(depth):
    """A YAML whose value `bomb` has 10^depth parts."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, depth):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    return "\n".join(lines), f"*a{depth - 1}"


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("field", ["image", "origin", "mode", "resolution"])
def test_nested_aliases_of_an_occupancy_map(tmp_path, field):
    anchors, bomb = aliases(6)
    rest = "\n".join(line for line in FIELDS.splitlines() if not line.startswith(field))
    image = "" if field == "image" else "image: map.pgm\n"
    (tmp_path / "map.yaml").write_text(f"{anchors}\n{rest}\n{image}{field}: {bomb}\n")
    with pytest.raises(MapError, match="aliases") as caught:
        tasid.AbstractSimulator.from_occupancy_map(
            tmp_path / "map.yaml", horizon=5, start=(0, 0), goal=(1, 1)
        )
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("image", ["[a, b]", "7", "x" * 5000])
def test_images_that_are_no_names(tmp_path, image):
    (tmp_path / "map.yaml").write_text(f"{FIELDS}image: {image}\n")
    with pytest.raises(MapError, match=r"image is .* should be the name of a file") as caught:
        tasid.AbstractSimulator.from_occupancy_map(
            tmp_path / "map.yaml", horizon=5, start=(0, 0), goal=(1, 1)
        )
    assert len(str(caught.value)) < 500


def array_header(shape, dtype="<f8"):
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        made, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return made.getvalue()


@pytest.mark.usefixtures("little_memory")
def test_tables_that_say_they_are_larger_than_their_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "map.npz", "w") as archive:
        archive.writestr("successor.npy", array_header((10**9, 10), "<i8") + b"\0" * 80)
        archive.writestr("reward.npy", array_header((10**9, 10)) + b"\0" * 80)
    with pytest.raises(MapError, match=r"successor.npy says it has shape \(1000000000, 10\)"):
        tasid.AbstractSimulator.from_tables(tmp_path / "map.npz", horizon=5)


@pytest.mark.usefixtures("little_memory")
def test_tables_that_are_small_only_while_compressed(tmp_path, monkeypatch):
    monkeypatch.setattr("tasid.maps.sources.tables._MOST_BYTES", 2**20)
    size = 2**18
    with zipfile.ZipFile(tmp_path / "map.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("successor", "reward"):
            archive.writestr(f"{name}.npy", array_header((size, 1)) + bytes(8 * size))
    assert (tmp_path / "map.npz").stat().st_size < 2**14
    with pytest.raises(MapError, match="bytes of tables are more than"):
        tasid.AbstractSimulator.from_tables(tmp_path / "map.npz", horizon=5)


@pytest.mark.usefixtures("little_memory")
def test_one_array_that_says_it_is_huge(tmp_path):
    (tmp_path / "map.npz").write_bytes(array_header((10**11,)) + bytes(8))
    with pytest.raises(MapError, match="holds one array"):
        tasid.AbstractSimulator.from_tables(tmp_path / "map.npz", horizon=5)


def rewritten(source, target, change):
    """The artifact with other metadata, and digests that fit."""
    read = read_artifact(source)
    metadata = json.loads(json.dumps(read.metadata))
    change(metadata)
    return write_artifact(target, kind=read.kind, metadata=metadata, arrays=read.arrays)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda meta: meta["simulator"].update(horizon=10**9), "horizon: 1e"),
        (lambda meta: meta["simulator"].update(horizon=10**5), "plan.actions has shape"),
        (lambda meta: meta.update(observation_shape=[10**9]), "observation_shape"),
        (lambda meta: meta.update(observation_dtype="O"), "dtype object"),
    ],
)
def test_policies_whose_numbers_do_not_fit_their_arrays(learned, tmp_path, change, words):
    learned.policy.save(tmp_path / "policy")
    rewritten(tmp_path / "policy", tmp_path / "bomb", change)
    tracemalloc.start()
    with pytest.raises(ValueError, match=words):
        tasid.load(tmp_path / "bomb")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 * 2**20


def test_long_horizons_of_baselines(tmp_path):
    from tasid.policies.ppo_policy import KIND

    metadata = {
        "network": {"kind": "dense", "inputs": 2, "hidden": [], "outputs": 2},
        "horizon": 10**9,
        "observation_shape": [2],
        "observation_dtype": "float32",
        "method": "ppo",
        "environment": None,
    }
    arrays = {"policy": np.zeros(6, np.float32)}
    write_artifact(tmp_path / "policy", kind=KIND, metadata=metadata, arrays=arrays)
    with pytest.raises(ValueError, match="horizon 1000000000 is not in 1 …"):
        load_ppo_policy(tmp_path / "policy")
    write_artifact(
        tmp_path / "policy", kind=KIND, metadata={**metadata, "horizon": 9}, arrays=arrays
    )
    assert load_ppo_policy(tmp_path / "policy").horizon == 9


class Numbered(gymnasium.Env):
    """An environment whose observations are numbers of a space."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(10**9),
        gymnasium.spaces.MultiDiscrete([10**8, 10**8]),
        gymnasium.spaces.Dict({"here": gymnasium.spaces.Discrete(10**9)}),
    ],
)
def test_one_hot_vectors_of_large_spaces(space):
    with pytest.raises(ValueError, match=r"would be vectors of .* numbers, more than 1048576"):
        tasid.wrap(Numbered(space))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("combination-lock", {"horizon": 10**9}, "horizon: .* entries would take"),
        ("combination-lock", {"num_actions": 10**6}, "horizon: .* entries would take"),
        ("combination-lock", {"depth": 10**9}, "depth: 1000000000 is not in"),
        ("lava-crossing", {"height": 10**9}, "height: 1000000000 is above"),
        ("lava-crossing", {"horizon": 10**6}, "entries would take"),
        ("lava-crossing", {"horizon": 10**18}, "horizon: 1e.18 is above"),
    ],
)
@pytest.mark.usefixtures("little_memory")
def test_environments_of_ours(name, options, words):
    with pytest.raises(ValueError, match=words):
        tasid.make(name, **options)


def test_too_many_environments_side_by_side():
    with pytest.raises(ValueError, match="num_envs: 1000000000 is above"):
        tasid.wrap("FrozenLake-v1", num_envs=10**9)


def test_plans_that_would_not_fit():
    states = np.zeros((20_000, 1), int)
    sim = tasid.AbstractSimulator(states, np.zeros(states.shape), horizon=10**6)
    with pytest.raises(ValueError, match=r"horizon: 1000000 × 20000 entries would take 18.6 GiB"):
        tasid.robust_dp(sim, eta=0.1)
    refuse_larger("x", (MOST_BYTES // 8,), 8, "")
    with pytest.raises(ValueError, match="x: "):
        refuse_larger("x", (MOST_BYTES // 8 + 1,), 8, "")


def test_policies_that_fit_are_loaded_as_before(learned, tmp_path):
    learned.policy.save(tmp_path / "policy")
    loaded = tasid.load(tmp_path / "policy")
    assert replace(loaded, environment=None).observation_shape == learned.policy.observation_shape
