"""The log of a job that is done elsewhere: told, and written down by the owner of the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tasid.experiments.records import Log, Records, Row
from tasid.files import Artifact
from tasid.runs.executors.protocol import Line


@dataclass(frozen=True)
class Told:
    """One call of `Log`, on its way to the owner."""

    seed: int
    call: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ToldLog:
    """One series, being told; as `tasid.experiments.records.Log` is written."""

    line: Line
    seed: int
    heading: Row
    kept: Artifact | None

    def resume(self) -> Artifact | None:
        """What was kept, with later rows dropped; None, and an empty log, if nothing was."""
        self._tell("resume", self.heading)
        return self.kept

    def row(self, **values: Any) -> None:
        """Append one row."""
        self._tell("row", values)

    def keep(self, arrays: Mapping[str, NDArray[Any]], **metadata: Any) -> None:
        """Remember what it takes to go on after the rows so far."""
        self._tell("keep", {"arrays": dict(arrays), **metadata})

    def end(self, **values: Any) -> None:
        """Append the ending; nothing needs to be remembered any more."""
        self._tell("end", values)

    def _tell(self, call: str, values: Mapping[str, Any]) -> None:
        self.line.say(Told(self.seed, call, values))


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
