"""Files that were made to do harm: none is executed, none leads elsewhere, none takes much memory.

Digests are right where there are any: whoever wrote such a file knew the format.
"""

from __future__ import annotations

import html
import io
import json
import os
import random
import shutil
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.count import Count
from benchmarks.torture.samples import Sample, samples

MOST_BYTES = 128 * 2**20
"""What reading a hostile file may take beside what the process has anyway."""
Crafted = Callable[[], Any]
"""Reads the file that was just written; anything but a clear refusal is a failure."""


class Payload:
    """A pickle that leaves a mark when it is executed."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._mark),)


class Workshop:
    """A place, good samples to start from, and the mark that no file may leave."""

    def __init__(self, place: Path, dice: random.Random) -> None:
        from tasid.runs.train import Order, train

        self.dice, self.mark = dice, place / "executed"
        self.samples = samples(place / "good")
        self.good = {name: one.whole() for name, one in self.samples.items()}
        self.place = place / "bad"
        self.run = place / "run"
        options = {"horizon": 3, "num_actions": 3, "seed": 0}
        train(Order("combination-lock", options, 0.1, 16, 0, evaluation_episodes=4), self.run)
        self._number = 0

    def fresh(self) -> Path:
        """A new folder."""
        self._number += 1
        folder = self.place / str(self._number)
        folder.mkdir(parents=True)
        return folder

    def copy(self, *names: str) -> tuple[Sample, Path]:
        """One of the samples, copied to be spoilt."""
        sample = self.samples[self.dice.choice(names or ("belief", "paper", "log", "map"))]
        folder = self.fresh()
        for path in sample.folder.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        return sample, folder

    def forged(self, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Crafted:
        """A sample with other metadata or arrays, and digests that fit."""
        from tasid.files import read_artifact, write_artifact

        sample, folder = self.copy()
        found = read_artifact(folder)
        metadata, arrays = json.loads(json.dumps(found.metadata)), dict(found.arrays)
        change(metadata, arrays)
        write_artifact(folder, kind=found.kind, metadata=metadata, arrays=arrays)
        return lambda: sample.read(folder)


def pickles(shop: Workshop) -> Crafted:
    """Pickles where arrays, manifests or tables are expected."""
    data = f"cos\nmkdir\n(S'{shop.mark}'\ntR.".encode()  # os.mkdir(mark), by hand
    if shop.dice.random() < 0.5:
        from tasid import AbstractSimulator

        file = shop.fresh() / "map.npz"
        held = np.array([Payload(shop.mark)], object)
        tables = {"successor": np.zeros((1, 1), int), "reward": np.zeros((1, 1)), "horizon": 3}
        name = shop.dice.choice(list(tables))
        np.savez(file, **{**tables, name: held})
        return lambda: AbstractSimulator.from_tables(file)
    sample, folder = shop.copy("belief", "paper", "log", "map", "record")
    shop.dice.choice(sorted(folder.iterdir())).write_bytes(data)
    return lambda: sample.read(folder)


def escapes(shop: Workshop) -> Crafted:
    """Array files elsewhere: by name, by link, and devices that never end."""
    sample, folder = shop.copy()
    manifest = folder / "manifest.json"
    arrays = next(folder.glob("arrays-*"))
    if shop.dice.random() < 0.5:
        content = json.loads(manifest.read_bytes())
        other = ["../" * shop.dice.randint(1, 9) + "etc/passwd", "/etc/passwd", f"./{arrays.name}"]
        content["arrays"]["file"] = shop.dice.choice(other)
        _sign(content, manifest)
        return lambda: sample.read(folder)
    spoilt = shop.dice.choice([manifest, arrays])
    spoilt.unlink()
    if shop.dice.random() < 0.3:
        os.mkfifo(spoilt)
    else:
        held = next(iter(sample.folder.glob(f"{spoilt.name[:6]}*")))
        spoilt.symlink_to(shop.dice.choice([held, Path("/dev/zero"), Path("/etc/passwd")]))
    return lambda: sample.read(folder)


def bombs(shop: Workshop) -> Crafted:
    """Few bytes that say they are many."""
    return shop.dice.choice([_long, _wide, _table, _archive, _picture, _header])(shop)


def _long(shop: Workshop) -> Crafted:
    size = 10 ** shop.dice.randint(7, 15)

    def change(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        metadata.get("simulator", metadata)["horizon"] = size

    return shop.forged(change)


def _wide(shop: Workshop) -> Crafted:
    size = 10 ** shop.dice.randint(7, 15)

    def change(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        if "observation_shape" in metadata:
            metadata["observation_shape"] = [size] * shop.dice.randint(1, 3)
        else:
            metadata["horizon"] = size

    return shop.forged(change)


def _table(shop: Workshop) -> Crafted:
    """A manifest and an array file that agree on shapes which the bytes do not have."""
    sample, folder = shop.copy()
    manifest = folder / "manifest.json"
    content = json.loads(manifest.read_bytes())
    name = shop.dice.choice(sorted(content["arrays"]["tensors"]))
    content["arrays"]["tensors"][name]["shape"] = [10 ** shop.dice.randint(5, 12)]
    _sign(content, manifest)
    return lambda: sample.read(folder)


def _archive(shop: Workshop) -> Crafted:
    """Tables of zeros that are small only while compressed."""
    from tasid import AbstractSimulator

    file = shop.fresh() / "map.npz"
    head = io.BytesIO()
    shape = (10 ** shop.dice.randint(9, 14), 10)
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("successor", "reward"):
            archive.writestr(f"{name}.npy", head.getvalue() + bytes(10**6))
    return lambda: AbstractSimulator.from_tables(file, horizon=3)


_FIELDS = "resolution: 0.5\norigin: [0, 0, 0]\nnegate: 0\noccupied_thresh: 0.65\nfree_thresh: 0.2\n"


def _floor(file: Path) -> Crafted:
    from tasid import AbstractSimulator

    return lambda: AbstractSimulator.from_occupancy_map(file, horizon=3, start=(0, 0), goal=(1, 1))


def _picture(shop: Workshop) -> Crafted:
    """A picture of gigapixels in a kilobyte."""
    folder = shop.fresh()
    side = shop.dice.randint(20_000, 60_000)
    if shop.dice.random() < 0.5:
        (folder / "map.pgm").write_bytes(f"P5 {side} {side} 255\n".encode() + bytes(1000))
        name = "map.pgm"
    else:

        def chunk(kind: bytes, data: bytes) -> bytes:
            body = kind + data
            return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

        size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        parts = [(b"IHDR", size), (b"IDAT", zlib.compress(bytes(10**6))), (b"IEND", b"")]
        name = "map.png"
        (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
    (folder / "map.yaml").write_text(f"image: {name}\n{_FIELDS}")
    return _floor(folder / "map.yaml")


def _header(shop: Workshop) -> Crafted:
    """An array file whose header is said to be long, named after its content."""
    from tasid.runs.journal import _digest

    sample, folder = shop.copy("record")
    path = next(folder.iterdir())
    data = struct.pack("<Q", 2 ** shop.dice.randint(20, 63)) + path.read_bytes()[8:]
    path.unlink()
    (folder / f"episodes-000000-{_digest(data)}.safetensors").write_bytes(data)
    return lambda: sample.read(folder)


def deep(shop: Workshop) -> Crafted:
    """JSON and YAML of thousands of levels."""
    levels, choice = shop.dice.randint(200, 20_000), shop.dice.random()
    if choice < 0.2:
        from tasid.runs.record import Run

        run = Run(shop.fresh())
        (run.folder / "run.json").write_text("[" * levels + "]" * levels)
        return run.asked
    if choice < 0.5:
        folder = shop.fresh()
        nested = "[" * levels + "]" * levels
        (folder / "map.yaml").write_text(f"image: {nested}\n{_FIELDS}")
        return _floor(folder / "map.yaml")
    sample, folder = shop.copy()
    opened, closed = shop.dice.choice([("[", "]"), ('{"a":', "}")])
    nested = opened * levels + "1" + closed * levels
    (folder / "manifest.json").write_text(f'{{"format": "tasid", "metadata": {nested}}}')
    return lambda: sample.read(folder)


def nans(shop: Workshop) -> Crafted:
    """NaN and infinities among the numbers of a policy, a log or a map."""

    def change(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        name = shop.dice.choice([n for n, x in arrays.items() if x.dtype.kind == "f" and x.size])
        spoilt = arrays[name].copy()
        spoilt.flat[shop.dice.randrange(spoilt.size)] = shop.dice.choice([np.nan, np.inf, -np.inf])
        arrays[name] = spoilt

    return shop.forged(change)


def shapes(shop: Workshop) -> Crafted:
    """Arrays of another shape or type, too many or too few."""

    def change(metadata: dict[str, Any], arrays: dict[str, Any]) -> None:
        name = shop.dice.choice([n for n, x in arrays.items() if x.size])
        array, kind = arrays[name], shop.dice.randrange(4)
        if kind == 0:
            arrays[name] = array[None]
        elif kind == 1:
            arrays[name] = np.concatenate([array.reshape(-1), array.reshape(-1)])
        elif kind == 2:
            arrays[name] = array.reshape(-1).astype(np.float16)[:-1]
        elif name == "own":  # what a log may leave out
            arrays[name] = array.astype(np.int32)
        else:
            del arrays[name]

    return shop.forged(change)


def tags(shop: Workshop) -> Crafted:
    """YAML that asks Python to run something."""
    folder = shop.fresh()
    call = shop.dice.choice(
        [
            f"!!python/object/apply:os.mkdir ['{shop.mark}']",
            f"!!python/object/new:os.mkdir ['{shop.mark}']",
            f"!!python/object/apply:subprocess.run [['mkdir', '{shop.mark}']]",
            f"!!python/object/apply:builtins.exec [\"import os; os.mkdir('{shop.mark}')\"]",
            "!!python/name:os.system",
            "!!python/module:os",
        ]
    )
    lines = [*_FIELDS.splitlines(), "image: map.pgm"]
    at = shop.dice.randrange(len(lines))
    lines[at] = f"{lines[at].split(':')[0]}: {call}"
    (folder / "map.pgm").write_bytes(b"P5 2 2 255\n" + bytes(4))
    (folder / "map.yaml").write_text("\n".join(lines))
    return _floor(folder / "map.yaml")


SCRIPTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title><svg onload=alert(1)>",
    "{{ 6 * 7 }}<b>{% raw %}",
)


def scripts(shop: Workshop) -> Crafted:
    """Names, labels and warnings with scripts in them: on a page they are words."""
    from tasid.files import read_artifact, write_artifact
    from tasid.report.pages.page import build_report

    word, folder = shop.dice.choice(SCRIPTS), shop.fresh()
    shutil.copytree(shop.run, folder, dirs_exist_ok=True)
    (folder / "run.json").write_text(
        (folder / "run.json").read_text().replace('"combination-lock"', json.dumps(word))
    )
    for part in ("policy", "evaluation"):
        found = read_artifact(folder / part)
        metadata = found.metadata | (
            {"warnings": [word], "model": word, "stopped": word}
            if part == "evaluation"
            else {"environment": {"name": word, "options": {word: word}}}
        )
        write_artifact(folder / part, kind=found.kind, metadata=metadata, arrays=found.arrays)

    def show() -> None:
        page = build_report(folder).read_text()
        if word in page or html.escape(word) not in page.replace("&#34;", "&quot;"):
            raise AssertionError(f"{word} on a page")
        raise ValueError("shown as words")

    return show


KINDS = (pickles, escapes, bombs, deep, nans, shapes, tags, scripts)


def hostile(place: Path, number: int, dice: random.Random) -> Count:
    """Every crafted file is refused by a clear error, in little memory, with nothing executed."""
    shop = Workshop(place, dice)
    kept, most = 0, 0
    for turn in range(number):
        kind = KINDS[turn % len(KINDS)]
        read, told = kind(shop), ""
        with warnings.catch_warnings(), _peak() as taken:
            warnings.simplefilter("ignore")
            try:
                read()
                told = "was read"
            except (ValueError, TypeError, OSError) as error:
                told = "" if len(str(error)) < 2000 else "says too much"
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
        told = told or ("was executed" if shop.mark.exists() else "")
        told = told or (f"took {taken[0]} bytes" if taken[0] > MOST_BYTES else "")
        if told:
            print(f"{kind.__name__}: {told:.300}", file=sys.stderr)
        kept += not told
        most = max(most, taken[0])
    note = f"0 executed, {most / 2**20:.0f} MiB at most"
    return Count("crafted hostile files", number, kept, note)


@contextmanager
def _peak() -> Iterator[list[int]]:
    """How far the memory of this process grew within a block, at most."""
    grown = [0]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    yield grown
    grown[0] = max(_status("VmHWM") - before, 0)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def _sign(content: dict[str, Any], manifest: Path) -> None:
    """Write a manifest with the digest of what it says."""
    from tasid.files.canonical_json import canonical_bytes
    from tasid.files.manifest import _digest

    rest = {key: item for key, item in content.items() if key != "digest"}
    manifest.write_bytes(canonical_bytes({**rest, "digest": _digest(rest)}))
