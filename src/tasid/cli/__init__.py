"""The command line: thin, quick to answer, and plain about mistakes.

Heavy modules are imported inside the commands, so that `--help` is instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tasid import __version__
from tasid.cli import interrupt, plain_text
from tasid.cli.budget import budget
from tasid.cli.check import check
from tasid.cli.evaluate import evaluate
from tasid.cli.plan import plan
from tasid.cli.record import record
from tasid.cli.report import report
from tasid.cli.reproduce import reproduce
from tasid.cli.train import train
from tasid.cli.watch import watch

app = typer.Typer(
    name="tasid",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tasid {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """From a map and an environment to a robust policy."""


for command in (plan, check, train, record, evaluate, watch, report, budget, reproduce):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input is one clear message and exit code 2."""
    keep_compiled_code()
    plain_text.fall_back()
    try:
        with interrupt.guarded(whole_process=arguments is None):
            _run(arguments)
    except KeyboardInterrupt:  # between the command's end and here
        interrupt.leave()
    except (ValueError, TypeError, OSError, OverflowError) as error:
        if os.environ.get("TASID_TRACEBACK"):
            raise
        _fail(str(error), 2)
    except MemoryError as error:
        _fail(f"out of memory ({error})", 2)


def keep_compiled_code() -> None:
    """Tell JAX, which is imported later, where to keep compiled code between runs."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tasid" / "xla"
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    if os.access(there, os.W_OK):  # else nothing is kept, and JAX does not complain
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(place))
    # Small functions, too: every run has some.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _run(arguments: Sequence[str] | None) -> None:
    try:
        app(args=arguments, prog_name="tasid")
    except SystemExit as ended:
        if ended.code == interrupt.CODE:
            interrupt.leave()
        raise


def _fail(message: str, code: int) -> None:
    print(f"tasid: {message}", file=sys.stderr)
    raise SystemExit(code)
