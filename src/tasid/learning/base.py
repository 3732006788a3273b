"""Learners, what they return, and the events they report."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.planning.robust_dp import RobustPlan
from tasid.policy import Policy
from tasid.targets.base import Target
from tasid.theory import at_least, binomial_interval


@dataclass(frozen=True)
class Event:
    """Progress of a learner; subclasses add what their method knows."""

    episodes: int
    """Episodes spent so far."""
    total_episodes: int | None
    """How many there will be, if that is known."""


Callback = Callable[[Event], None]


class TensorBoard:
    """A callback that writes the numbers of events: `pip install tasid[tensorboard]`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError("tensorboard: install tasid[tensorboard]") from None
        self._writer = SummaryWriter(str(folder))

    def __call__(self, event: Event) -> None:
        for name, value in vars(event).items():
            if isinstance(value, int | float):
                tag = f"{type(event).__name__}/{name}"
                self._writer.add_scalar(tag, value, event.episodes)

    def close(self) -> None:
        """Flush to disk."""
        self._writer.close()


@dataclass(frozen=True)
class EtaEstimate:
    """How often the outcome differed from the intended one, where it could differ."""

    rate: float
    low: float | None
    high: float | None
    """A 95 % Clopper–Pearson interval, None where the labelling is not trusted."""
    transitions: int
    planned: float
    p_value: float
    """Probability of at least as many differences if the planned η were right."""

    @classmethod
    def from_counts(
        cls, misses: int, transitions: int, *, planned: float, assumed: float = 0.0
    ) -> EtaEstimate:
        """From the number of differences among all transitions.

        A filter that assumes more slips than are planned also finds some that are none: the test is
        against what it assumes.
        """
        if transitions == 0:
            return cls(0.0, None, None, 0, planned, 1.0)
        low, high = binomial_interval(misses, transitions, confidence=0.95)
        p_value = float(at_least(misses, transitions, max(planned, assumed)))
        return cls(misses / transitions, low, high, transitions, planned, p_value)


@dataclass(frozen=True)
class MapError:
    """A state and action whose outcomes contradict the map more often than η allows."""

    step: int
    """−1 where the map is the same at all steps."""
    state: Any
    action: int
    visits: int
    misses: int
    p_value: float
    usual_outcome: Any = None
    """The state that the action led to most often: what the map should say."""


@dataclass(frozen=True)
class Diagnostics:
    """How learning went, and what it noticed."""

    model: str
    """What tells states or actions apart."""
    history: tuple[Event, ...] = field(default=(), repr=False)
    """The batches of `belief`, the steps of `paper`."""
    stopped: str | None = None
    """Why learning ended."""
    eta: EtaEstimate | None = None
    map_errors: tuple[MapError, ...] = ()
    warnings: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict, compare=False)
    """Method-specific values, ready for JSON."""

    def to_json(self) -> dict[str, Any]:
        """The part that belongs into a result file."""
        return {
            "model": self.model,
            "stopped": self.stopped,
            "eta_estimate": None if self.eta is None else asdict(self.eta),
            "map_errors": [asdict(error) for error in self.map_errors],
            "warnings": list(self.warnings),
            **self.details,
        }


@dataclass(frozen=True)
class LearningResult:
    """A learned policy and what it cost."""

    policy: Policy
    episodes: int
    """All episodes spent on learning, exploration and validation included."""
    diagnostics: Diagnostics
    logged_episodes: int = 0
    """Episodes that were read from a log instead."""

    def __repr__(self) -> str:
        noted = len(self.diagnostics.warnings)
        return (
            f"LearningResult(method={self.policy.method!r}, episodes={self.episodes}, "
            f"stopped={self.diagnostics.stopped!r}, warnings={noted})"
        )


class Learner(abc.ABC):
    """A method with its hyper-parameters."""

    name: str

    @abc.abstractmethod
    def run(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        run_dir: Path | None = None,
    ) -> LearningResult:
        """Learn a policy for the plan in the target.

        Parameters
        ----------
        target
            Episodes of this target are all that the learner may use.
        plan
            The robust plan on the map (line 1 of Algorithm 2).
        seed
            Determines the episodes and everything random in learning.
        callbacks
            Called with every event.
        run_dir
            A folder for intermediate results that are expensive to compute again.
        """


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """The mean of values [n] and its standard error."""
    return float(values.mean()), float(values.std() / math.sqrt(values.size))


def shortened(label: Any, limit: int = 48) -> str:
    """A state's label for a message."""
    text = str(label)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
