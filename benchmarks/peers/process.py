"""A peer's solver in a process and an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

import tasid

_HERE = Path(__file__).parent
_PYTHON = _HERE.parent.parent / ".venv-peers" / "bin" / "python"


@dataclass(frozen=True)
class Answer:
    """One solution: its time, and the value at the start as text, if the solver has one."""

    seconds: float
    value: str | None


def install() -> None:
    """Bring .venv-peers up to date."""
    subprocess.run([str(_HERE / "venv.sh")], check=True)


class Peer:
    """A solver that has prepared its model and waits; as a context manager."""

    def __init__(
        self, name: str, sim: tasid.AbstractSimulator, eta: float, clock: str = "perf_counter"
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        tables = Path(self._folder.name) / "tables.npz"
        np.savez(
            tables,
            successor=sim.successor,
            reward=sim.reward,
            horizon=sim.horizon,
            start=sim.start,
            eta=eta,
        )
        self._process = subprocess.Popen(
            [str(_PYTHON), str(_HERE / "solvers.py"), name, str(tables), clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(Path(self._folder.name) / "said.txt").open("w"),
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )

    def solve(self) -> Answer:
        """Have it solve its model once more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            said = (Path(self._folder.name) / "said.txt").read_text()
            raise RuntimeError(f"{self._process.args} failed:\n{said[-2000:]}")
        return Answer(**json.loads(line))

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()
