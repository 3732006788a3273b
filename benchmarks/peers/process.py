"""A peer's solver in a process and an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

import tasid

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Answer:
    """One solution: its time, and the value at the start as text, if the solver has one."""

    seconds: float
    value: str | None


def installed(name: str) -> str:
    """The Python of .venv-peers or .venv-learners, brought up to date."""
    subprocess.run([str(_HERE / "venv.sh"), name], check=True)
    return str(_HERE.parent.parent / f".venv-{name}" / "bin" / "python")


class Waiting:
    """A program that answers every line with a line of JSON; as a context manager."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the program)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )

    def ask(self) -> dict[str, Any]:
        """Have it work once more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._said.seek(0)
            raise RuntimeError(f"{self._process.args} failed:\n{self._said.read()[-2000:]}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()


class Peer(Waiting):
    """A solver that has prepared its model and waits."""

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
        super().__init__([installed("peers"), str(_HERE / "solvers.py"), name, str(tables), clock])

    def solve(self) -> Answer:
        """Have it solve its model once more."""
        return Answer(**self.ask())
