"""Stored artifacts: what goes in comes out, crashes lose nothing, and no damage goes unnoticed."""

from __future__ import annotations

import enum
import errno
import fcntl
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasid.files import (
    Artifact,
    ArtifactError,
    read_artifact,
    write_artifact,
    write_bytes_atomically,
)

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64"]
STRAY = ".tasid-0123456789abcdef.tmp"


# The format once more, written from its description and not with the code under test.


def canonical(content: Any) -> bytes:
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def seal(content: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in content.items() if key != "digest"}
    return body | {"digest": hashlib.sha256(canonical(body)).hexdigest()}


def safetensors(header: Any, data: bytes) -> bytes:
    text = (
        header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    )
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


W = np.array([[1.5, -2.0]], dtype=np.float32)
W_HEADER = {"w": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}}
W_PAYLOAD = safetensors(W_HEADER, struct.pack("<ff", 1.5, -2.0))
W_TENSORS = {"w": {"dtype": "float32", "shape": [1, 2]}}


def manifest_for(
    payload: bytes, *, tensors: Any = W_TENSORS, kind: str = "policy", metadata: Any = None
) -> dict[str, Any]:
    sha256 = hashlib.sha256(payload).hexdigest()
    file = f"arrays-{sha256[:16]}.safetensors"
    arrays = {"file": file, "sha256": sha256, "bytes": len(payload), "tensors": tensors}
    metadata = {"η": 0.1, "steps": [1, 2]} if metadata is None else metadata
    content = {"format": "tasid", "format_version": 1, "kind": kind, "metadata": metadata}
    return seal(content | {"arrays": arrays})


def forge(
    path: Path, *, payload: bytes = W_PAYLOAD, manifest: bytes | None = None, **kwargs: Any
) -> Path:
    content = manifest_for(payload, **kwargs)
    path.mkdir(parents=True, exist_ok=True)
    (path / content["arrays"]["file"]).write_bytes(payload)
    (path / "manifest.json").write_bytes(canonical(content) if manifest is None else manifest)
    return path


def write(path: Path, value: float = 0.0, kind: str = "policy") -> Path:
    return write_artifact(path, kind=kind, metadata={"v": value}, arrays={"x": np.full(3, value)})


def files(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def refused(path: Path, match: str | None = None) -> None:
    with pytest.raises(ArtifactError, match=match) as caught:
        read_artifact(path)
    assert str(path) in str(caught.value)


# What goes in comes out


def test_bytes_on_disk_are_the_documented_format(tmp_path: Path) -> None:
    written = write_artifact(
        tmp_path / "a", kind="policy", metadata={"steps": (1, 2), "η": 0.1}, arrays={"w": W}
    )
    assert files(written) == files(forge(tmp_path / "b"))
    artifact = read_artifact(tmp_path / "b", kind="policy")
    assert isinstance(artifact, Artifact)
    assert artifact.kind == "policy"
    assert artifact.metadata == {"η": 0.1, "steps": [1, 2]}
    assert artifact.arrays["w"].dtype == np.float32
    np.testing.assert_array_equal(artifact.arrays["w"], W)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)
METADATA = st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=4)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda n: n != "__metadata__")
ARRAYS = st.dictionaries(
    NAMES,
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(metadata=METADATA, arrays=ARRAYS, kind=NAMES)
def test_round_trip(metadata: dict[str, Any], arrays: dict[str, Any], kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        path = write_artifact(folder, kind=kind, metadata=metadata, arrays=arrays)
        artifact = read_artifact(path, kind=kind)
        backwards = {name: arrays[name] for name in reversed(list(arrays))}
        once = files(path)
        write_artifact(folder, kind=kind, metadata=metadata, arrays=backwards)
        assert files(path) == once
    # As text, because 1 == 1.0 == True in Python.
    assert json.dumps(artifact.metadata, sort_keys=True) == json.dumps(metadata, sort_keys=True)
    assert artifact.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert artifact.arrays[name].dtype == array.dtype
        assert artifact.arrays[name].shape == array.shape
        assert artifact.arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_layout_and_byte_order_do_not_matter(dtype: str, tmp_path: Path) -> None:
    base = (np.arange(24) % 2 if dtype == "bool" else np.arange(24)).reshape(2, 3, 4).astype(dtype)
    views = {
        "transposed": base.T,
        "strided": base[:, ::2, ::-1],
        "fortran": np.asfortranarray(base),
        "foreign": base.astype(np.dtype(dtype).newbyteorder(">")),
        "scalar": base[1, 2, 3, ...],
        "empty": base[:, :0],
        "broadcast": np.broadcast_to(base[0, 0], (5, 4)),
    }
    stored = read_artifact(write_artifact(tmp_path, kind="k", metadata={}, arrays=views)).arrays
    for name, view in views.items():
        assert stored[name].dtype == np.dtype(dtype)
        assert stored[name].shape == view.shape
        np.testing.assert_array_equal(stored[name], view)
        assert stored[name].flags.writeable
    np.testing.assert_array_equal(stored["transposed"], base.transpose(2, 1, 0))


def test_metadata_becomes_plain_json(tmp_path: Path) -> None:
    class Colour(str, enum.Enum):  # noqa: UP042 (its str() is not its value)
        RED = "red"

    metadata = MappingProxyType(
        {"t": ((1, 2), []), "f": np.float64(0.1), "e": Colour.RED, "big": 2**200, "m": {"z": None}}
    )
    stored = read_artifact(
        write_artifact(tmp_path, kind="k", metadata=metadata, arrays={})
    ).metadata
    assert stored == {"t": [[1, 2], []], "f": 0.1, "e": "red", "big": 2**200, "m": {"z": None}}
    assert type(stored["e"]) is str
    assert type(stored["f"]) is float


# What cannot be stored is refused, and nothing is touched

LOOP: dict[str, Any] = {}
LOOP["again"] = LOOP


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"a": [0, {"b": float("nan")}]}, r"metadata\['a'\]\[1\]\['b'\] is nan"),
        ({"a": float("-inf")}, r"metadata\['a'\] is -inf"),
        ({"a": np.int64(3)}, r"metadata\['a'\] is of type int64"),
        ({"a": np.zeros(2)}, r"metadata\['a'\] is of type ndarray"),
        ({"a": {1: 2}}, r"metadata\['a'\] has the key 1 of type int"),
        ({"a": "\ud800"}, r"metadata\['a'\] has a lone surrogate"),
        ({"\ud800": 1}, r"lone surrogate"),
        ({"a": 2**5000}, r"metadata\['a'\] is an integer of 5001 bits"),
        ({"a": b"x"}, r"metadata\['a'\] is of type bytes"),
        (LOOP, r"nested deeper"),
    ],
)
def test_bad_metadata(metadata: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=match):
        write_artifact(tmp_path / "a", kind="k", metadata=metadata, arrays={})
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"o": np.array([None])}, r"arrays\['o'\] has dtype object"),
        ({"s": np.array(["a"])}, r"arrays\['s'\] has dtype <U1"),
        ({"c": np.zeros(1, complex)}, r"arrays\['c'\] has dtype complex128"),
        ({"t": np.zeros(1, "datetime64[s]")}, r"arrays\['t'\] has dtype datetime64"),
        ({"r": np.zeros(1, [("a", "f4")])}, r"arrays\['r'\] has dtype \["),
        ({"m": np.ma.masked_array([1, 2], [False, True])}, r"arrays\['m'\] is of type MaskedArray"),
        ({"l": [1, 2]}, r"arrays\['l'\] is of type list"),
        ({"": W}, "non-empty string"),
        ({"__metadata__": W}, "__metadata__"),
        ({3: W}, "name 3"),
        ({"\ud800": W}, "lone surrogate"),
    ],
)
def test_bad_arrays(arrays: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=match):
        write_artifact(tmp_path / "a", kind="k", metadata={}, arrays=arrays)
    assert not (tmp_path / "a").exists()


def test_other_programs_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="is a file"):
        write(tmp_path / "file")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    (tmp_path / "arrays-of-mine.safetensors").write_text("mine")
    before = files(tmp_path)
    with pytest.raises(ArtifactError, match="belongs to another program"):
        write(tmp_path)
    assert files(tmp_path) == before
    (tmp_path / "manifest.json").unlink()
    write(tmp_path)
    assert (tmp_path / "arrays-of-mine.safetensors").read_text() == "mine"


# No damage goes unnoticed


@pytest.mark.parametrize("victim", ["manifest", "arrays"])
def test_every_flipped_bit_and_every_truncation_is_refused(victim: str, tmp_path: Path) -> None:
    path = write_artifact(tmp_path, kind="k", metadata={"a": 1}, arrays={"x": np.ones(2, bool)})
    file = next(path.glob(f"{victim}*"))
    good = file.read_bytes()
    with file.open("r+b", buffering=0) as handle:
        for position, mask in itertools.product(range(len(good)), (1 << bit for bit in range(8))):
            os.pwrite(handle.fileno(), bytes([good[position] ^ mask]), position)
            with pytest.raises(ArtifactError):
                read_artifact(path)
            os.pwrite(handle.fileno(), good[position : position + 1], position)
        assert read_artifact(path).metadata == {"a": 1}
        for length in reversed(range(len(good))):
            handle.truncate(length)
            with pytest.raises(ArtifactError):
                read_artifact(path)
    for tail in (b" ", b"\n", b"\0", good):
        file.write_bytes(good + tail)
        refused(path)
    file.write_bytes(good)
    assert read_artifact(path).metadata == {"a": 1}


def test_swapped_array_files_are_refused(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", 1.0), write(tmp_path / "2", 2.0)
    one, two = next(first.glob("arrays-*")), next(second.glob("arrays-*"))
    assert one.stat().st_size == two.stat().st_size
    one_bytes = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(one_bytes)
    refused(first, "SHA-256")
    refused(second, "SHA-256")
    (first / two.name).write_bytes(one.read_bytes())
    one.unlink()
    refused(first, "the array file is missing")


def test_wrong_places_are_named(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "does not exist")
    refused(tmp_path, "is an empty directory")
    (tmp_path / "notes").touch()
    refused(tmp_path, "holds no manifest.json")
    refused(tmp_path / "notes", "is a file; an artifact is a directory")
    write(tmp_path / "a", kind="checkpoint")
    with pytest.raises(ArtifactError, match="of kind 'checkpoint', expected 'policy'"):
        read_artifact(tmp_path / "a", kind="policy")
    assert read_artifact(tmp_path / "a", kind="checkpoint").kind == "checkpoint"


def test_a_newer_format_says_upgrade(tmp_path: Path) -> None:
    newer = manifest_for(W_PAYLOAD) | {"format_version": 2, "novelty": 1}
    refused(forge(tmp_path, manifest=canonical(seal(newer))), "upgrade tasid")


# Hostile files: digests all correct, content not


def places(content: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = content.items() if isinstance(content, dict) else ()
    return [prefix, *(place for k, v in inner for place in places(v, (*prefix, k)))]


def replaced(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    return {**content, place[0]: replaced(content.get(place[0]), place[1:], value)}


def removed(content: Any, place: tuple[Any, ...]) -> Any:
    if len(place) == 1:
        return {key: value for key, value in content.items() if key != place[0]}
    return {**content, place[0]: removed(content[place[0]], place[1:])}


def allowed(place: tuple[Any, ...], value: Any) -> bool:
    if place == ("kind",):
        return isinstance(value, str) and value != ""
    return place[:1] == ("metadata",) and (len(place) > 1 or isinstance(value, dict))


def test_wrong_types_and_keys_anywhere_are_refused(tmp_path: Path) -> None:
    good = manifest_for(W_PAYLOAD)
    forge(tmp_path)
    odd: list[Any] = [None, True, False, 0, 1, -1, 1.0, 2**200, "", "x", [], [1], {}, {"a": [None]}]
    bad = [
        (place, replaced(good, place, value))
        for place in places(good)
        for value in odd
        if not allowed(place, value)
    ]
    bad += [(p, removed(good, p)) for p in places(good) if p and p[:-1] != ("metadata",)]
    bad += [(p, replaced(good, (*p, "extra"), 1)) for p in [(), ("arrays",)]]
    bad += [((), replaced(good, ("arrays", "tensors", *more), {})) for more in [("v",), ("w", "v")]]
    assert len(bad) > 150
    for place, content in bad:
        sealed = place == ("digest",) or not isinstance(content, dict)
        data = canonical(content if sealed else seal(content))
        if data == canonical(good):  # the odd value was the right one, or the digest came back
            continue
        (tmp_path / "manifest.json").write_bytes(data)
        refused(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "../b/{}",
        "b/{}",
        "./{}",
        "/etc/passwd",
        "..",
        "",
        "{}\n",
        "{}\0",
        "manifest.json",
        "arrays-{{}}.safetensors",
        "ARRAYS-0000000000000000.safetensors",
    ],
)
def test_the_array_file_cannot_be_elsewhere(name: str, tmp_path: Path) -> None:
    good = manifest_for(W_PAYLOAD)
    forge(tmp_path / "a" / "b")
    forge(tmp_path / "b")
    bad = replaced(good, ("arrays", "file"), name.format(good["arrays"]["file"]))
    refused(forge(tmp_path / "a", manifest=canonical(seal(bad))), "'file' is")


def test_links_and_pipes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    for file in list(path.iterdir()):
        outside = tmp_path / file.name
        file.rename(outside)
        file.symlink_to(outside)
        refused(path, "symbolic link")
        file.unlink()
        os.mkfifo(file)
        refused(path, "not a regular file")
        file.unlink()
        file.mkdir()
        refused(path, "not a regular file")
        file.rmdir()
        outside.rename(file)
    (tmp_path / "link").symlink_to(path, target_is_directory=True)
    assert read_artifact(tmp_path / "link").metadata == {"v": 0.0}


NESTED: Any = 0
for _ in range(300):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("manifest", "match"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe{\0}\0", "not UTF-8"),
        (b"\xef\xbb\xbf" + canonical(manifest_for(W_PAYLOAD)), "not valid JSON"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"format": "tasid", "format": "tasid"}', "'format' occurs twice"),
        (b'{"format": {"a": 1, "a": 1}}', "'a' occurs twice"),
        (b'{"format": NaN}', "NaN is not JSON"),
        (b'{"format": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'"tasid"', "not the manifest of a tasid artifact"),
        (b'{"format": "other"}', "not the manifest of a tasid artifact"),
        (canonical(manifest_for(W_PAYLOAD)).replace(b"0.1", b"1e999"), r"\['η'\] is inf"),
        (canonical(manifest_for(W_PAYLOAD)).replace(b'"\xce\xb7"', b'"\\ud800"'), "lone surrogate"),
        (canonical(manifest_for(W_PAYLOAD)).replace(b'"\xce\xb7"', b'"\\u03b7"'), "canonical form"),
        (canonical(manifest_for(W_PAYLOAD))[:-1], "not the canonical form"),
        (json.dumps(manifest_for(W_PAYLOAD)).encode(), "not the canonical form"),
        (canonical(manifest_for(W_PAYLOAD) | {"digest": "0" * 64}), "has the digest"),
        (canonical(manifest_for(W_PAYLOAD, metadata={"a": NESTED})), "nested deeper"),
        (canonical(manifest_for(W_PAYLOAD, metadata={"a": 2**5000})), "an integer of 5001 bits"),
        (canonical(manifest_for(W_PAYLOAD) | {"format_version": -1}), "'format_version' is -1"),
    ],
    ids=itertools.count(),
)
def test_hostile_manifests(manifest: bytes, match: str, tmp_path: Path) -> None:
    refused(forge(tmp_path, manifest=manifest), match)


@pytest.mark.parametrize("depth", [120, 900, 960, 980, 1000, 3000])
def test_nesting_is_refused_anywhere(depth: int, tmp_path: Path) -> None:
    forge(tmp_path)
    for key in manifest_for(W_PAYLOAD):
        text = canonical(manifest_for(W_PAYLOAD) | {key: "here"})
        nested = text.replace(b'"here"', b"[" * depth + b"]" * depth)
        (tmp_path / "manifest.json").write_bytes(nested)
        refused(tmp_path, "nested")


def test_the_deepest_metadata_that_can_be_written_can_be_read(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {}
    for _ in range(100):
        metadata = {"d": metadata}
    path = write_artifact(tmp_path / "a", kind="k", metadata=metadata, arrays={})
    assert read_artifact(path).metadata == metadata
    with pytest.raises(ArtifactError, match="nested deeper"):
        write_artifact(tmp_path / "b", kind="k", metadata={"d": metadata}, arrays={})
    refused(forge(tmp_path / "c", metadata={"d": metadata}), "nested deeper")


def test_a_huge_manifest_is_not_even_read(tmp_path: Path) -> None:
    os.truncate(forge(tmp_path) / "manifest.json", 2**27)
    refused(tmp_path, "134217728 bytes, more than")


def entry(dtype: str, shape: list[int], *offsets: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        struct.pack("<Q", 2**40) + b"{}" + b" " * 100,
        struct.pack("<Q", 3) + b"{}",
        safetensors(b"[" * 100_000, b""),
        safetensors(b"\xff\xff", b""),
        safetensors({}, b""),
        safetensors({"w": entry("F32", [1, 2], 0, 8)}, b""),
        safetensors({"w": entry("F32", [1, 2], 0, 8)}, b"\0" * 9),
        safetensors({"w": entry("F32", [1, 2], 8, 0)}, b"\0" * 8),
        safetensors({"w": entry("F32", [2, 1], 0, 8)}, b"\0" * 8),
        safetensors({"w": entry("I32", [1, 2], 0, 8)}, b"\0" * 8),
        safetensors({"w": entry("BF16", [1, 4], 0, 8)}, b"\0" * 8),
        safetensors({"w": entry("F32", [2**62, 2**62], 0, 8)}, b"\0" * 8),
        safetensors({"w": entry("F32", [-1, -2], 0, 8)}, b"\0" * 8),
        safetensors({"v": entry("F32", [1, 2], 0, 8)}, b"\0" * 8),
        safetensors({**W_HEADER, "v": entry("F32", [1, 2], 0, 8)}, b"\0" * 8),
        safetensors({**W_HEADER, "v": entry("F32", [0], 8, 8)}, b"\0" * 8),
        b"\x80\x04K\x01.",
    ],
    ids=itertools.count(),
)
def test_hostile_array_files(payload: bytes, tmp_path: Path) -> None:
    refused(forge(tmp_path, payload=payload))


def test_booleans_are_zero_or_one(tmp_path: Path) -> None:
    tensors = {"b": {"dtype": "bool", "shape": [2]}}
    payload = safetensors({"b": entry("BOOL", [2], 0, 2)}, b"\1\0")
    arrays = read_artifact(forge(tmp_path / "a", payload=payload, tensors=tensors)).arrays
    assert arrays["b"].tolist() == [True, False]
    payload = safetensors({"b": entry("BOOL", [2], 0, 2)}, b"\1\2")
    refused(forge(tmp_path / "b", payload=payload, tensors=tensors), "boolean")


# Crashes and failures lose nothing


def test_overwriting_leaves_two_files_and_repairs_damage(tmp_path: Path) -> None:
    for value in (1.0, 2.0, 2.0, 1.0):
        write(tmp_path, value)
        assert len(files(tmp_path)) == 2
        assert read_artifact(tmp_path).metadata == {"v": value}
    for damage in (b"", b"{", (tmp_path / "manifest.json").read_bytes()[:-1]):
        (tmp_path / "manifest.json").write_bytes(damage)
        next(tmp_path.glob("arrays-*")).write_bytes(damage)
        refused(tmp_path)
        write(tmp_path, 1.0)
        assert read_artifact(tmp_path).arrays["x"].tolist() == [1.0] * 3


class Failing:
    """A system call that works until its n-th call."""

    def __init__(self, real: Callable[..., Any], nth: int, error: BaseException) -> None:
        self.real, self.left, self.error = real, nth, error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.real(*args, **kwargs)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("call", "nth", "survivor"),
    # Per file: fsync of the data, rename, fsync of the folder; first the arrays, then the manifest.
    [
        ("replace", 1, 1.0),
        ("replace", 2, 1.0),
        ("fsync", 1, 1.0),
        ("fsync", 2, 1.0),
        ("fsync", 3, 1.0),
        ("fsync", 4, 2.0),
    ],
)
def test_failing_writes_leave_a_whole_artifact(
    call: str, nth: int, survivor: float, error: BaseException, tmp_path: Path
) -> None:
    write(tmp_path, 1.0)
    old = files(tmp_path)
    with (
        mock.patch(f"os.{call}", Failing(getattr(os, call), nth, error)),
        pytest.raises(type(error)),
    ):
        write(tmp_path, 2.0)
    assert read_artifact(tmp_path).arrays["x"].tolist() == [survivor] * 3
    assert not list(tmp_path.glob(".*"))
    if survivor == 1.0:
        assert old.items() <= files(tmp_path).items()
    write(tmp_path, 3.0)
    assert len(files(tmp_path)) == 2


def test_leftovers_of_failed_writes_do_not_pile_up(tmp_path: Path) -> None:
    write(tmp_path)
    for value in range(1, 5):
        full = OSError(errno.ENOSPC, "disk full")
        with (
            mock.patch("os.replace", Failing(os.replace, 2, full)),
            pytest.raises(OSError, match="full"),
        ):
            write(tmp_path, float(value))
    assert len(files(tmp_path)) == 3
    assert read_artifact(tmp_path).metadata == {"v": 0.0}


def test_data_reaches_the_disk_before_the_name(tmp_path: Path) -> None:
    events: list[tuple[str, int]] = []
    real_fsync, real_replace, real_unlink = os.fsync, os.replace, os.unlink

    def fsync(descriptor: int) -> None:
        events.append(("fsync", os.fstat(descriptor).st_ino))
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        events.append(("replace", os.stat(source).st_ino))
        real_replace(source, target)

    def unlink(file: Path) -> None:
        events.append(("unlink", os.stat(file).st_ino))
        real_unlink(file)

    write(tmp_path / "new" / "a", 1.0)
    old = next((tmp_path / "new" / "a").glob("arrays-*")).stat().st_ino
    with (
        mock.patch("os.fsync", fsync),
        mock.patch("os.replace", replace),
        mock.patch("os.unlink", unlink),
    ):
        write(tmp_path / "new" / "a", 2.0)
    folder = (tmp_path / "new" / "a").stat().st_ino
    arrays = next((tmp_path / "new" / "a").glob("arrays-*")).stat().st_ino
    manifest = (tmp_path / "new" / "a" / "manifest.json").stat().st_ino
    expected = [
        step
        for inode in (arrays, manifest)
        for step in [("fsync", inode), ("replace", inode), ("fsync", folder)]
    ]
    assert events == [*expected, ("unlink", old)]


def child(script: str, *arguments: str, **kwargs: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        **kwargs,
    )


ENDLESS_WRITER = """
import itertools, sys
import numpy as np
from tasid.files import write_artifact
for i in itertools.count(int(sys.argv[2])):
    arrays = {"x": np.full(30_000, i), "y": np.full(i % 7, i)}
    write_artifact(sys.argv[1], kind="k", metadata={"i": i}, arrays=arrays)
    print(i, flush=True)
"""


def test_kills_at_random_times_lose_nothing(tmp_path: Path) -> None:
    times = random.Random(0)
    reached = 0
    for _ in range(8):
        with child(ENDLESS_WRITER, str(tmp_path / "a"), str(reached + 1)) as process:
            assert process.stdout is not None
            printed = int(process.stdout.readline())
            time.sleep(times.uniform(0.0, 0.06))
            process.send_signal(signal.SIGKILL)
            printed = max([printed, *(int(line) for line in process.stdout.read().split())])
        artifact = read_artifact(tmp_path / "a")
        reached = artifact.metadata["i"]
        assert reached in (printed, printed + 1)
        assert set(artifact.arrays["x"].tolist()) == {reached}
        assert artifact.arrays["y"].tolist() == [reached] * (reached % 7)


# Forks from a process of its own: one child per line of code, killed when it gets there.
KILLED_AT_EVERY_LINE = """
import os, signal, sys
import numpy as np
import tasid.files as storage

os.fsync = lambda descriptor: None  # a kill, unlike a power failure, loses no written data
folder = sys.argv[1]
touching_the_disk = (storage.artifact.__file__, storage.atomic.__file__)

def write(value):
    storage.write_artifact(
        folder, kind="k", metadata={"v": value}, arrays={"x": np.full(5, value)})

def kill_at(line):
    left = line
    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename not in touching_the_disk:
            return None
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

line, survivors, strays = 0, [], 0
while True:
    line += 1
    write(1)
    pid = os.fork()
    if pid == 0:
        kill_at(line)
        write(2)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    artifact = storage.read_artifact(folder)
    assert artifact.arrays["x"].tolist() == [artifact.metadata["v"]] * 5
    survivors.append(artifact.metadata["v"])
    strays += any(name.startswith(".") for name in os.listdir(folder))
    write(3)
    assert len(os.listdir(folder)) == 2, os.listdir(folder)
    assert storage.read_artifact(folder).metadata == {"v": 3}
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
assert survivors == sorted(survivors), survivors
print(survivors.count(1), survivors.count(2), strays)
"""


def test_kills_at_every_line_lose_nothing(tmp_path: Path) -> None:
    with child(KILLED_AT_EVERY_LINE, str(tmp_path / "a"), stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    old, new, strays = (int(word) for word in out.split())
    assert old > 30
    assert new > 5
    assert strays > 5


def test_writers_and_readers_at_the_same_time(tmp_path: Path) -> None:
    write(tmp_path)
    stop = time.monotonic() + 1.0
    failures: list[BaseException] = []

    def loop(action: Callable[[int], None]) -> None:
        try:
            count = 0
            while time.monotonic() < stop:
                action(count := count + 1)
        except BaseException as failure:
            failures.append(failure)

    def read(_: int) -> None:
        artifact = read_artifact(tmp_path)
        assert artifact.arrays["x"].tolist() == [artifact.metadata["v"]] * 3

    actions: list[Callable[[int], None]] = [
        lambda count: void(write(tmp_path, count)),
        lambda count: void(write(tmp_path, -count)),
        read,
        read,
    ]
    threads = [threading.Thread(target=loop, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(files(tmp_path)) == 2


def void(_: object) -> None: ...


# Single files


def test_atomic_file_writes(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "report.json"
    assert write_bytes_atomically(file, b"old") == file
    write_bytes_atomically(str(file), b"new")
    assert files(file.parent) == {"report.json": b"new"}
    reference = tmp_path / "reference"
    reference.touch()
    assert file.stat().st_mode == reference.stat().st_mode
    full = OSError(errno.ENOSPC, "disk full")
    for call in ("replace", "fsync"):
        with (
            mock.patch(f"os.{call}", Failing(getattr(os, call), 1, full)),
            pytest.raises(OSError, match="disk full"),
        ):
            write_bytes_atomically(file, b"newer")
        assert files(file.parent) == {"report.json": b"new"}
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_bytes_atomically(tmp_path / "folder", b"x")


def test_only_temporary_files_of_dead_writes_are_swept(tmp_path: Path) -> None:
    keep = {".tasid-0123.tmp", ".tasid-0123456789abcdeg.tmp", "x.tmp", f"{STRAY}.txt"}
    for name in (*keep, STRAY):
        (tmp_path / name).touch()
    (tmp_path / STRAY.replace("0", "1")).symlink_to(tmp_path / "x.tmp")
    (tmp_path / STRAY.replace("0", "2")).mkdir()
    write_bytes_atomically(tmp_path / "file", b"")
    odd = {STRAY.replace("0", "1"), STRAY.replace("0", "2")}
    assert {entry.name for entry in tmp_path.iterdir()} == {"file"} | keep | odd


def test_a_live_write_is_not_swept(tmp_path: Path) -> None:
    real = os.replace
    live: list[Mapping[str, bytes]] = []

    def replace(source: Path, target: Path) -> None:
        with mock.patch("os.replace", real):
            write_bytes_atomically(tmp_path / "second", b"2")
        live.append(files(tmp_path))
        real(source, target)

    with mock.patch("os.replace", replace):
        write_bytes_atomically(tmp_path / "first", b"1")
    assert len(live[0]) == 2
    assert files(tmp_path) == {"first": b"1", "second": b"2"}


@pytest.mark.parametrize("finished", [True, False])
def test_a_sweep_before_the_lock_does_no_harm(finished: bool, tmp_path: Path) -> None:
    real = fcntl.flock
    swept: list[Path] = []

    def flock(descriptor: int, operation: int) -> None:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
            if not finished:
                raise BlockingIOError(errno.EWOULDBLOCK, "the sweeper holds the lock")
        real(descriptor, operation)

    with mock.patch("fcntl.flock", flock):
        write_bytes_atomically(tmp_path / "file", b"1")
    assert files(tmp_path) == {"file": b"1"}


def test_without_file_locks_writes_still_work(tmp_path: Path) -> None:
    (tmp_path / STRAY).touch()
    with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "no locks")):
        write(tmp_path, 1.0)
    assert (tmp_path / STRAY).exists()
    assert read_artifact(tmp_path).metadata == {"v": 1.0}


def test_an_artifact_is_readable_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 1.0)
    copy = shutil.copytree(path, tmp_path / "b")
    for file in (*copy.iterdir(), copy):
        file.chmod(file.stat().st_mode & ~0o222)
    try:
        assert read_artifact(copy).metadata == {"v": 1.0}
    finally:
        copy.chmod(0o755)
