"""The command line.

Heavy modules are imported inside the commands, so that `--help` answers at once. Exit codes: 0, 1
(a check or some seeds failed), 2 (bad usage or input, one message), 130 (Ctrl-C), 143 (SIGTERM).
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from tasid import __version__
from tasid.cli import output
from tasid.cli.maps import budget, check, discover, plan
from tasid.cli.policies import evaluate, record, report, watch
from tasid.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (plan, check, discover, train, record, evaluate, watch, report, budget):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tasid {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print it.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """From a map and an environment to a robust policy."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. TASID_TRACEBACK=1 shows where an error comes from."""
    _cache_compiled_code()
    alone = arguments is None  # the process runs nothing but this command
    given = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in given
    output.STDOUT = sys.stdout
    if as_json and alone:  # also what child processes and C code print goes to standard error
        output.STDOUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
    signals: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    if alone:
        signal.signal(signal.SIGTERM, interrupt)
        signal.signal(signal.SIGINT, interrupt)  # shells start background processes without it
    code: Any = 0
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                app(args=given, prog_name="tasid")
        except SystemExit as ended:
            code = ended.code
        except KeyboardInterrupt:  # after the command, before this line
            code = 130
        except (ValueError, TypeError, OSError, OverflowError, MemoryError) as error:
            if os.environ.get("TASID_TRACEBACK"):
                raise
            output.notice(str(error) or type(error).__name__)
            code = 2
    if code == 130:
        code = 143 if signal.SIGTERM in signals else 130
        output.notice("interrupted")
        if alone:
            _leave(code)
    raise SystemExit(code)


def _cache_compiled_code() -> None:
    """Tell JAX, which is imported later, where to keep compiled programs between runs."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tasid" / "xla"
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if os.access(existing, os.W_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | ResourceWarning):
        output.notice(f"warning: {message}")


def _leave(code: int) -> None:
    """End the process without shutting the interpreter down: XLA's threads may still compute."""
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
