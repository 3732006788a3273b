"""Artifacts and episode logs: exact round trips, and no damage goes unnoticed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tasid import storage
from tasid.episodes import Episodes
from tasid.storage import (
    ArtifactError,
    EpisodeLog,
    FolderBusyError,
    digest,
    read_artifact,
    read_json,
    write_artifact,
    write_bytes_atomically,
    write_json,
    writer_lock,
)

ARRAYS = {
    "table": np.arange(12, dtype=np.int32).reshape(3, 4).T,
    "flags": np.array([True, False]),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), np.float32),
}
METADATA = {"name": "größe", "list": [1, (2, 3)], "number": np.float64(0.1), "nothing": None}


def example(path: Path) -> Path:
    return write_artifact(path, kind="thing", metadata=METADATA, arrays=ARRAYS)


def test_round_trip_is_exact_and_equal_content_has_equal_bytes(tmp_path):
    first, second = example(tmp_path / "a"), example(tmp_path / "b")
    artifact = read_artifact(first, kind="thing")
    assert artifact.metadata == {
        "name": "größe",
        "list": [1, [2, 3]],
        "number": 0.1,
        "nothing": None,
    }
    assert artifact.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert artifact.arrays[name].dtype == array.dtype
        assert_array_equal(artifact.arrays[name], array)
    files = sorted(os.listdir(first))
    assert files == sorted(os.listdir(second))
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    manifest = (first / "manifest.json").read_bytes()
    assert digest("thing", METADATA, ARRAYS) == hashlib.sha256(manifest).hexdigest()
    with pytest.raises(ArtifactError, match="thing"):
        read_artifact(first, kind="policy")


def test_no_mutation_loads_silently(tmp_path):
    path = example(tmp_path / "a")
    files = sorted(file for file in path.iterdir() if file.name != ".lock")
    rng = np.random.default_rng(0)
    for trial in range(90):
        file = files[trial % len(files)]
        original = file.read_bytes()
        data, at = bytearray(original), int(rng.integers(len(original)))
        if trial % 3 == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif trial % 3 == 1:
            del data[at]
        else:
            data.insert(at, 32)
        file.write_bytes(data)
        with pytest.raises(ArtifactError):
            read_artifact(path)
        file.write_bytes(original)
    read_artifact(path)


def signed(content: dict) -> bytes:
    """A manifest as an attacker would write it: changed, with its digest computed again."""
    unsigned = {key: value for key, value in content.items() if key != "digest"}
    sha256 = hashlib.sha256(storage._canonical(unsigned)).hexdigest()
    return storage._canonical(unsigned | {"digest": sha256})


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "../../../../etc/passwd"},
        {"sha256": "0" * 64},
        {"bytes": -1},
        {"bytes": 10**30},
        {"bytes": True},
        {"kind": 3},
        {"metadata": []},
        {"format": "tasid/99"},
        {"more": 1},
    ],
)
def test_hostile_manifests_are_refused(tmp_path, change):
    path = example(tmp_path / "a")
    manifest = path / "manifest.json"
    content = json.loads(manifest.read_bytes()) | change
    manifest.write_bytes(signed(content))
    with pytest.raises(ArtifactError):
        read_artifact(path)


def test_hostile_arrays_are_refused(tmp_path):
    path = example(tmp_path / "a")
    header = {"x": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}
    for head in (json.dumps(header).encode(), b"{" * 9, b"\xff" * 8):
        payload = len(head).to_bytes(8, "little") + head
        sha256 = hashlib.sha256(payload).hexdigest()
        (path / f"arrays-{sha256[:16]}.safetensors").write_bytes(payload)
        content = json.loads((path / "manifest.json").read_bytes())
        content |= {"sha256": sha256, "bytes": len(payload)}
        (path / "manifest.json").write_bytes(signed(content))
        with pytest.raises(ArtifactError, match="safetensors"):
            read_artifact(path)


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, r"metadata\.a\.b\[1\]"),
        ({"a": float("inf")}, r"metadata\.a"),
        ({"a": {1: 2}}, r"metadata\.a"),
        ({"a": object()}, r"metadata\.a"),
    ],
)
def test_what_is_not_json_is_named(tmp_path, metadata, place):
    with pytest.raises(ArtifactError, match=place):
        write_artifact(tmp_path / "a", kind="thing", metadata=metadata, arrays={})
    with pytest.raises(ArtifactError, match="x"):
        write_artifact(tmp_path / "a", kind="t", metadata={}, arrays={"x": np.array(["text"])})
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("text", ["[NaN]", "[1e999]", "{", "[" * 100_000, "\udcff"])
def test_json_that_is_no_json_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ArtifactError, match=r"x\.json"):
        read_json(path)
    write_json(path, {"a": [1, None]})
    assert read_json(path) == {"a": [1, None]}


def test_a_failed_write_leaves_the_old_artifact(tmp_path, monkeypatch):
    path = example(tmp_path / "a")
    before = (path / "manifest.json").read_bytes()
    replace = os.replace

    def fail_at_manifest(source, target):
        if Path(target).name == "manifest.json":
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_at_manifest)
    with pytest.raises(ArtifactError, match="No space left"):
        write_artifact(path, kind="thing", metadata={}, arrays={"new": np.ones(3)})
    monkeypatch.undo()
    assert (path / "manifest.json").read_bytes() == before
    assert read_artifact(path).metadata["name"] == "größe"
    assert not list(path.glob("*.tmp"))
    example(path)
    assert len(list(path.glob("arrays-*"))) == 1  # the other attempt's array file is gone


def test_destinations_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"/proc/tasid.*cannot be written"):
        example(Path("/proc/tasid"))
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_bytes_atomically("/proc/tasid/file", b"")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(ArtifactError, match="another program"):
        example(tmp_path)
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_artifact(tmp_path / "missing")


def test_one_writer_at_a_time(tmp_path):
    code = (
        "import sys; from tasid.storage import *\n"
        "try:\n with writer_lock(sys.argv[1]): print('free')\n"
        "except FolderBusyError: print('busy')"
    )

    def other_process() -> str:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with writer_lock(tmp_path):
        assert other_process() == "busy"
    assert other_process() == "free"


# Episode logs

HEADER = {
    "observation_shape": [2],
    "observation_dtype": "float32",
    "horizon": 5,
    "num_actions": 3,
    "environment": {"name": "x"},
}


def episodes(n: int, seed: int, steps: int = 5, keep_from: int = 0) -> Episodes:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, steps + 1, n).astype(np.int32)
    x = rng.normal(size=(n, steps + 1, 2)).astype(np.float32)
    padded = x[np.arange(n)[:, None], np.minimum(np.arange(steps + 1), lengths[:, None])]
    return Episodes(
        observations=padded[:, keep_from:] if keep_from <= steps else None,
        actions=rng.integers(0, 3, (n, steps)).astype(np.int32),
        rewards=rng.normal(size=(n, steps)).astype(np.float32),
        lengths=lengths,
        explored=rng.random((n, steps)) < 0.5,
    )


def assert_same(a: Episodes, b: Episodes) -> None:
    for name in ("observations", "actions", "rewards", "lengths", "explored"):
        first, second = getattr(a, name), getattr(b, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert first.dtype == second.dtype
            assert_array_equal(first, second)


def test_a_log_returns_what_was_appended(tmp_path):
    log = EpisodeLog.create(tmp_path / "log", HEADER)
    assert len(log) == len(log.read()) == 0
    parts = [episodes(4, 0), episodes(1, 1), episodes(3, 2)]
    log.append(parts[0], [(0, i) for i in range(4)])
    log.append(parts[1], [(7, 2)])
    log = EpisodeLog.open(tmp_path / "log")
    log.append(parts[2], [(0, i) for i in (9, 5, 6)])
    whole = Episodes.concatenate(parts)
    for reader in (log, EpisodeLog.open(tmp_path / "log")):
        assert len(reader) == 8
        assert reader.header == HEADER
        assert_same(reader.read(), whole)
        assert_same(reader.get([(0, 5), (7, 2), (0, 0)]), whole[np.array([6, 4, 0])])
        assert list(reader.rows)[4:] == [(7, 2), (0, 9), (0, 5), (0, 6)]


@pytest.mark.parametrize("keep_from", [0, 2, 3, 4])
def test_a_log_keeps_short_episodes_of_which_late_observations_were_kept(tmp_path, keep_from):
    log = EpisodeLog.create(tmp_path, HEADER)
    short = episodes(6, 3, steps=3, keep_from=keep_from)
    log.append(short, [(3, i) for i in range(6)])
    log = EpisodeLog.open(tmp_path)
    assert_same(log.get(list(log.rows)), short)
    assert len(log.read()) == 0  # episodes of three steps in a log of five are not whole


def test_a_block_that_was_never_renamed_is_not_part_of_a_log(tmp_path):
    log = EpisodeLog.create(tmp_path, HEADER)
    log.append(episodes(3, 0), [(0, i) for i in range(3)])
    log.append(episodes(2, 1), [(0, 3), (0, 4)])
    max(tmp_path.glob("0*")).rename(tmp_path / ".tasid-0123456789abcdef.tmp")
    log = EpisodeLog.open(tmp_path)
    assert_same(log.read(), episodes(3, 0))
    log.append(episodes(2, 2), [(0, 3), (0, 4)])
    assert_same(EpisodeLog.open(tmp_path).get([(0, 3), (0, 4)]), episodes(2, 2))


def test_damage_to_a_log_is_named(tmp_path):
    log = EpisodeLog.create(tmp_path, HEADER)
    for i in range(3):
        log.append(episodes(1, i), [(0, i)])
    for file in sorted(tmp_path.glob("[0m]*")):
        original = file.read_bytes()
        for at in np.linspace(0, len(original) - 1, 12).astype(int):
            data = bytearray(original)
            data[at] ^= 4
            file.write_bytes(data)
            with pytest.raises(ArtifactError, match=file.name):
                EpisodeLog.open(tmp_path)
        file.write_bytes(original[:-1])
        with pytest.raises(ArtifactError, match=file.name):
            EpisodeLog.open(tmp_path)
        file.write_bytes(original)
    sorted(tmp_path.glob("0*"))[1].unlink()
    with pytest.raises(ArtifactError, match="block 1"):
        EpisodeLog.open(tmp_path)


def test_what_does_not_fit_a_log_is_refused(tmp_path):
    log = EpisodeLog.create(tmp_path, HEADER)
    other = EpisodeLog.open(tmp_path)
    log.append(episodes(1, 0), [(0, 0)])
    good = episodes(1, 1)
    for wrong, ids in (
        (good, [(0, 0)]),
        (good, []),
        (good, [(0, 1), (0, 2)]),
        (
            Episodes(
                good.observations, good.actions + 3, good.rewards, good.lengths, good.explored
            ),
            [(0, 1)],
        ),
        (episodes(1, 1, steps=6), [(0, 1)]),
    ):
        with pytest.raises(ArtifactError):
            log.append(wrong, ids)
    with pytest.raises(FolderBusyError):
        other.append(good, [(0, 1)])
    with pytest.raises(ArtifactError, match="holds a log"):
        EpisodeLog.create(tmp_path, HEADER)
    for change in ({"horizon": 0}, {"observation_dtype": "object"}, {"observation_shape": [-1]}):
        with pytest.raises(ArtifactError, match="header"):
            EpisodeLog.create(tmp_path / "new", HEADER | change)
