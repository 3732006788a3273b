"""`--import FILE.py`: the user's own code that registers environments, run because he said so."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="Run this file or import this module first, to register environments; repeatable.",
    ),
]


def import_all(given: Sequence[str] | None) -> None:
    """Run files and import modules, in order."""
    for one in given or ():
        if one.endswith(".py"):
            _run(Path(one))
            continue
        try:
            importlib.import_module(one)
        except (ImportError, ValueError) as error:
            raise ValueError(f"--import: {one!r} is no file and no module ({error})") from None


def _run(file: Path) -> None:
    if not file.is_file():
        raise ValueError(f"--import: {file}: no such file")
    name, folder = file.stem, str(file.resolve().parent)
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(file.resolve()):
            return
        raise ValueError(f"--import: {file}: there is a module {name!r} already; rename the file")
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise ValueError(f"--import: {file}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Worker processes find it by its name; last, so that it hides nothing.
    sys.path.append(folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        sys.path.remove(folder)
        raise
