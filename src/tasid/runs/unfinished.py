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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasid.files import write_bytes_atomically
from tasid.files.atomic import make_directory, sync_directory
from tasid.files.sole_writer import sole_writer

ASKED, SUMMARY = "run.json", "result.json"
RECORD = "unfinished"
"""The folder of what a run goes on from; a complete run has none."""
Notice = Callable[[str], None]


def silent(words: str) -> None:
    """Nobody wants to know."""


@contextmanager
def staging(
    folder: str | Path,
    asked: bytes,
    *,
    overwrite: bool = False,
    resume: bool = False,
    notice: Notice = silent,
) -> Iterator[Path]:
    """A place to write a run, which appears at `folder` when the block ends well.

    With the same order a run that stopped early goes on: its record is there again. A run of
    another order is only replaced when told so, and a complete one stays until the new one is
    complete. A block that fails leaves what is on record, and no trace if nothing is.
    """
    final = Path(os.path.abspath(folder))
    partial = partial_of(final)
    with sole_writer(folder):
        settle(final, partial, overwrite=overwrite)
        _check_free(final, overwrite, shown=folder)
        going_on = _going_on(partial, asked, folder, overwrite=overwrite, resume=resume)
        if going_on:
            notice(f"{folder}: an unfinished run of this order is here, and goes on")
        else:
            shutil.rmtree(partial, ignore_errors=True)
            make_directory(partial)
            write_bytes_atomically(partial / ASKED, asked)
        try:
            yield partial
            _check_free(final, overwrite, shown=folder)
            settle(final, partial, overwrite=overwrite)
        except BaseException:
            if not (on_record(partial) or (partial / SUMMARY).exists()):
                shutil.rmtree(partial, ignore_errors=True)
            elif words := how_to_go_on(folder):
                notice(words)
            raise
    if not (final / SUMMARY).exists():
        raise FileNotFoundError(f"{folder}: was taken away while the run was written")


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
    return f"{folder}: what was learned from is on record; the same command goes on from there"


def finished(
    folder: str | Path, asked: bytes, *, overwrite: bool = False, resume: bool = False
) -> dict[str, Any] | None:
    """The summary of a complete run of this very order that is not to be made again.

    That is one whose writer was killed before it was in its place, where it is put then; with
    `resume`, one that is in its place as well.
    """
    final, partial = Path(os.path.abspath(folder)), partial_of(folder)
    left = _summary(partial, asked) is not None
    if left:
        with sole_writer(folder):
            settle(final, partial, overwrite=overwrite)
    return _summary(final, asked) if left or resume else None


def _summary(place: Path, asked: bytes) -> dict[str, Any] | None:
    """Of a complete run of this order in this folder."""
    try:
        same = (place / ASKED).read_bytes() == asked
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


def _going_on(
    partial: Path, asked: bytes, folder: str | Path, *, overwrite: bool, resume: bool
) -> bool:
    """Does the run go on from a record, or begin anew?"""
    if not on_record(partial):
        if resume:
            raise FileNotFoundError(
                f"{folder}: no unfinished run is on record here, so there is nothing to resume; "
                "leave --resume out to begin"
            )
        return False
    try:
        before = (partial / ASKED).read_bytes()
    except FileNotFoundError:
        return False
    if before == asked:
        return True
    if overwrite and not resume:
        return False
    raise FileExistsError(
        f"{folder}: an unfinished run of another order is here ({_difference(before, asked)}); "
        "repeat that order, pass --overwrite to drop it, or choose another folder with --out"
    )


def _difference(before: bytes, asked: bytes) -> str:
    """The first thing that the two orders do not have in common."""
    try:
        old, new = json.loads(before), json.loads(asked)
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        return f"{names[0]}: {old.get(names[0])}, now {new.get(names[0])}"
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError):
        return "its run.json is damaged"


def settle(final: Path, partial: Path, *, overwrite: bool = False) -> None:
    """Put a complete run in its place, and clear up what a killed writer left of the old one."""
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
