"""The records of an experiment: one JSON line per evaluation, appended as it happens.

    experiment.json             which experiment, at which size
    records/SETTING/SEED.jsonl  a heading (configuration, version, seed), then rows, then an ending
    unfinished/SETTING-SEED/    what an interrupted run goes on from (artifact), removed at its end

A row belongs to the last heading above it. A line is written in one piece; one that a crash cut off
is dropped when the file is opened again. One process owns the folder; a job done elsewhere tells it
what to write.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tasid.files import Artifact, ArtifactError, read_artifact, write_artifact
from tasid.files.atomic import make_directory, write_bytes_atomically
from tasid.files.sole_writer import sole_writer
from tasid.runs.executors.dispatch import Line

Row = dict[str, Any]
_KEPT = "unfinished-run"
_HEADING, _ENDING = "heading", "ending"


@dataclass(frozen=True)
class Series:
    """All rows of one seed in one setting."""

    setting: str
    seed: int
    configuration: Mapping[str, Any]
    versions: tuple[str, ...]
    """Of the package, in their order; several if another one continued the run."""
    rows: tuple[Row, ...]
    ending: Row | None
    """How it ended; None if it has not."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the heading says."""


def versions_of(series: Iterable[Series]) -> tuple[str, ...]:
    """All versions of the package that wrote these, each once."""
    return tuple(dict.fromkeys(version for one in series for version in one.versions))


class Records:
    """The folder of one experiment."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def describe(self, description: Mapping[str, Any]) -> None:
        """Write experiment.json, or refuse to mix with the records of another experiment."""
        if (self.folder / "experiment.json").exists():
            there = self.description()
            for name in ("name", "size"):
                if there.get(name) != description[name]:
                    raise ValueError(
                        f"{self.folder}: holds records of {there.get('name')!r} at size "
                        f"{there.get('size')!r}, not {description['name']!r} at size "
                        f"{description['size']!r}; choose another folder with --out"
                    )
        data = json.dumps(description, indent=2, allow_nan=False) + "\n"
        write_bytes_atomically(self.folder / "experiment.json", data.encode())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let nobody else write here for the length of a block; the lock dies with its holder."""
        with sole_writer(self.folder):
            make_directory(self.folder)
            yield

    def description(self) -> dict[str, Any]:
        """experiment.json."""
        path = self.folder / "experiment.json"
        try:
            loaded = json.loads(path.read_text())
        except FileNotFoundError:
            raise ArtifactError(f"{self.folder}: no experiment here") from None
        except ValueError as error:
            raise ArtifactError(f"{path}: not valid JSON ({error})") from None
        if not isinstance(loaded, dict):
            raise ArtifactError(f"{path}: not a JSON object")
        return loaded

    def log(self, setting: str, seed: int, heading: Mapping[str, Any]) -> Log:
        """Open one series to go on writing it."""
        unfinished = self.folder / "unfinished" / f"{setting}-{seed}"
        return Log(self._path(setting, seed), unfinished, dict(heading))

    def kept(self, setting: str, seed: int, configuration: Mapping[str, Any]) -> Artifact | None:
        """What a run of this configuration goes on from, if it was interrupted."""
        return self.log(setting, seed, {"configuration": dict(configuration)}).kept()

    def finished(self, setting: str, seed: int, configuration: Mapping[str, Any]) -> bool:
        """Is there an ending, and was that run of this very configuration?"""
        path = self._path(setting, seed)
        if not path.exists():
            return False
        series = _read(path, setting, seed)
        return series.ending is not None and dict(series.configuration) == dict(configuration)

    def series(self) -> Iterator[Series]:
        """All of them, by setting and seed."""
        root = self.folder / "records"
        for folder in sorted(root.iterdir()) if root.exists() else []:
            for path in sorted(folder.glob("*.jsonl")):
                if not path.stem.isdecimal():
                    raise ArtifactError(f"{path}: records are called SEED.jsonl, a number")
                yield _read(path, folder.name, int(path.stem))

    def _path(self, setting: str, seed: int) -> Path:
        return self.folder / "records" / setting / f"{seed}.jsonl"


@dataclass
class Log:
    """One series, being written."""

    path: Path
    unfinished: Path
    heading: Row
    _rows: int = field(default=0, init=False)

    def resume(self) -> Artifact | None:
        """What was kept, with later rows dropped; None, and an empty log, if nothing was."""
        kept = self.kept()
        lines = [_dump({_HEADING: self.heading})]
        if kept is not None:
            lines = [*_lines(self.path)[: int(kept.metadata["rows"])], *lines]
        write_bytes_atomically(self.path, "".join(f"{line}\n" for line in lines).encode())
        self._rows = len(lines)
        return kept

    def row(self, **values: Any) -> None:
        """Append one row."""
        with self.path.open("ab", buffering=0) as file:
            file.write(f"{_dump(values)}\n".encode())
        self._rows += 1

    def keep(self, arrays: Mapping[str, NDArray[Any]], **metadata: Any) -> None:
        """Remember what it takes to go on after the rows so far."""
        metadata = {
            "rows": self._rows,
            "configuration": self.heading["configuration"],
            "given": metadata,
        }
        write_artifact(self.unfinished, kind=_KEPT, metadata=metadata, arrays=arrays)

    def end(self, **values: Any) -> None:
        """Append the ending; nothing needs to be remembered any more."""
        self.row(**{_ENDING: values})
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def kept(self) -> Artifact | None:
        """What to go on from; None if there is nothing of use."""
        if not self.unfinished.exists() or not self.path.exists():
            return None
        try:
            kept = read_artifact(self.unfinished, kind=_KEPT)
        except ArtifactError as error:
            warnings.warn(f"{error}; this run starts anew", stacklevel=2)
            return None
        same = kept.metadata["configuration"] == self.heading["configuration"]
        return kept if same and len(_lines(self.path)) >= int(kept.metadata["rows"]) else None


class Told(NamedTuple):
    """One call of `Log`, on its way to the owner of the records."""

    seed: int
    call: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ToldLog:
    """One series, being told, as `Log` is written."""

    line: Line
    seed: int
    heading: Row
    kept: Artifact | None

    def resume(self) -> Artifact | None:
        """What was kept; later rows are dropped."""
        self.line.say(Told(self.seed, "resume", self.heading))
        return self.kept

    def row(self, **values: Any) -> None:
        """Append one row."""
        self.line.say(Told(self.seed, "row", values))

    def keep(self, arrays: Mapping[str, NDArray[Any]], **metadata: Any) -> None:
        """Remember what it takes to go on after the rows so far."""
        self.line.say(Told(self.seed, "keep", {"arrays": dict(arrays), **metadata}))

    def end(self, **values: Any) -> None:
        """Append the ending."""
        self.line.say(Told(self.seed, "end", values))


def keeper(records: Records, setting: str) -> Callable[[Told], None]:
    """Writes down what a job tells."""
    logs: dict[int, Log] = {}

    def hear(told: Told) -> None:
        if told.call == "resume":
            logs[told.seed] = records.log(setting, told.seed, told.values)
            logs[told.seed].resume()
        else:
            getattr(logs[told.seed], told.call)(**told.values)

    return hear


def _dump(values: Row) -> str:
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def _lines(path: Path) -> list[str]:
    """Whole lines only."""
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def _read(path: Path, setting: str, seed: int) -> Series:
    headings: list[Row] = []
    rows: list[Row] = []
    ending = None
    for number, line in enumerate(_lines(path), start=1):
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise TypeError("not a JSON object")
            if _HEADING in values:
                headings.append(values[_HEADING])
            elif _ENDING in values:
                ending = values[_ENDING]
            else:
                rows.append(values)
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"{path}, line {number}: not a record ({error})") from None
    if not headings:
        raise ArtifactError(f"{path}: no heading on its first line")
    versions = tuple(dict.fromkeys(str(heading.get("version")) for heading in headings))
    configuration = headings[-1].get("configuration", {})
    return Series(setting, seed, configuration, versions, tuple(rows), ending, headings[-1])
