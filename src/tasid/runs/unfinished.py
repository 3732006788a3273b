"""A run under way: beside its folder, kept when it stops early, continued by the same order.

    .NAME.partial/    the run so far: run.json, what is on record to go on from, then its files
    .NAME.replaced/   the run that is being overwritten, while two renames are made
    .NAME.lock        who writes (`tasid.files.sole_writer`)

The summary, result.json, is written last: a folder that has it is complete, and whoever comes next
puts it in its place if its writer was killed just before.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasid.files import write_bytes_atomically
from tasid.files.atomic import make_directory, sync_directory
from tasid.files.sole_writer import sole_writer

ASKED, SUMMARY = "run.json", "result.json"
RECORD = "unfinished"
"""The folder of what a run goes on from; a complete run has none."""
Notice = Callable[[str], None]


def silent(words: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class Commission:
    """A run to be made: where, what was asked, and what becomes of one that is there already."""

    folder: str | Path
    asked: Mapping[str, Any]
    overwrite: bool = False
    resume: bool = False
    notice: Notice = silent

    def finished(self) -> dict[str, Any] | None:
        """The summary of a complete run of this very order that is not to be made again.

        That is one whose writer was killed before it was in its place, where it is put then; with
        `resume`, one that is in its place as well.
        """
        left = _summary(partial_of(self.folder), self.asked) is not None
        if left:
            with sole_writer(self.folder):
                settle(self.folder, overwrite=self.overwrite)
        found = _summary(Path(self.folder), self.asked) if left or self.resume else None
        if found is not None:
            self.notice(f"{self.folder}: the run of this order is complete")
        return found

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """A place to write the run, which appears at its folder when the block ends well.

        With the same order a run that stopped early goes on: its record is there again. A run of
        another order is only replaced when told so, and a complete one stays until the new one is
        complete. A block that fails leaves what is on record, and no trace if nothing is.
        """
        folder, overwrite = self.folder, self.overwrite
        final, partial = Path(os.path.abspath(folder)), partial_of(folder)
        with sole_writer(folder):
            settle(folder, overwrite=overwrite)
            _check_free(final, overwrite, shown=folder)
            if self._goes_on(partial):
                self.notice(f"{folder}: an unfinished run of this order is here, and goes on")
            else:
                shutil.rmtree(partial, ignore_errors=True)
                make_directory(partial)
                write_bytes_atomically(partial / ASKED, json_bytes(self.asked))
            try:
                yield partial
                _check_free(final, overwrite, shown=folder)
                settle(folder, overwrite=overwrite)
            except BaseException:
                if not (on_record(partial) or (partial / SUMMARY).exists()):
                    shutil.rmtree(partial, ignore_errors=True)
                elif words := how_to_go_on(folder):
                    self.notice(words)
                raise
        if not (final / SUMMARY).exists():
            raise FileNotFoundError(f"{folder}: was taken away while the run was written")

    def _goes_on(self, partial: Path) -> bool:
        """Does the run go on from a record, or begin anew?"""
        if not on_record(partial):
            if self.resume:
                raise FileNotFoundError(
                    f"{self.folder}: no unfinished run is on record here, so there is nothing to "
                    "resume; leave --resume out to begin"
                )
            return False
        try:
            before = (partial / ASKED).read_bytes()
        except FileNotFoundError:
            return False
        asked = json_bytes(self.asked)
        if before == asked:
            return True
        if self.overwrite and not self.resume:
            return False
        if changed := changed_code(before, asked):
            raise FileExistsError(
                f"{self.folder}: an unfinished run of other code is here ({changed} changed "
                "since): what it has on record was played by an environment that is no more; pass "
                "--overwrite to begin anew"
            )
        raise FileExistsError(
            f"{self.folder}: an unfinished run of another order is here "
            f"({_difference(before, asked)}); repeat that order, pass --overwrite to drop it, or "
            "choose another folder with --out"
        )


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """An order or a summary as it is written down."""
    return (json.dumps(value, indent=2, default=_plain, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} is not JSON")


def partial_of(folder: str | Path) -> Path:
    """Where a run is written."""
    final = Path(os.path.abspath(folder))
    return final.with_name(f".{final.name}.partial")


def on_record(partial: Path) -> bool:
    """Is there something to go on from?"""
    record = partial / RECORD
    return record.is_dir() and any(record.iterdir())


def how_to_go_on(folder: str | Path) -> str | None:
    """What to do about a run that stopped early; None if nothing is on record."""
    if not on_record(partial_of(folder)):
        return None
    return (
        f"{folder}: what was learned from is on record; the same command goes on from there "
        "(with --overwrite it starts anew, as it must if the environment has changed)"
    )


def _summary(place: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a complete run of this order in this folder."""
    spelled = json_bytes(asked)
    try:
        same = (place / ASKED).read_bytes() == spelled
        summary = json.loads((place / SUMMARY).read_bytes()) if same else None
    except (OSError, ValueError, RecursionError):
        return None
    return summary if isinstance(summary, dict) else None


def _check_free(folder: Path, overwrite: bool, *, shown: str | Path) -> None:
    if _free(folder, overwrite):
        return
    if not overwrite:
        raise FileExistsError(
            f"{shown}: exists already; choose another folder with --out, or pass --overwrite"
        )
    raise FileExistsError(f"{shown}: holds no run of ours, so it is not overwritten")


def _free(folder: Path, overwrite: bool) -> bool:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return True
    return overwrite and (folder / ASKED).exists()


def changed_code(before: bytes, asked: bytes) -> str | None:
    """The modules that changed, if the two orders have all but the user's code in common."""
    try:
        old, new = dict(json.loads(before)), dict(json.loads(asked))
        codes = dict(old.pop("code", {})), dict(new.pop("code", {}))
    except (ValueError, TypeError, RecursionError):
        return None
    names = sorted({name for name, _ in codes[0].items() ^ codes[1].items()})
    return ", ".join(names) if old == new and names else None


def _difference(before: bytes, asked: bytes) -> str:
    """The first thing that the two orders do not have in common."""
    try:
        old, new = json.loads(before), json.loads(asked)
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return f"{names[0]}: {old.get(names[0])}, now {new.get(names[0])}"
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        return "its run.json is damaged"


def settle(folder: str | Path, *, overwrite: bool = False) -> None:
    """Put a complete run in its place, and clear up what a killed writer left of the old one."""
    final, partial = Path(os.path.abspath(folder)), partial_of(folder)
    replaced = final.with_name(f".{final.name}.replaced")
    if (partial / SUMMARY).exists() and _free(final, overwrite):
        shutil.rmtree(partial / RECORD, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
        if final.exists():
            final.replace(replaced)
        partial.replace(final)
        sync_directory(final.parent)
    elif replaced.exists() and not final.exists():
        replaced.replace(final)
    shutil.rmtree(replaced, ignore_errors=True)
