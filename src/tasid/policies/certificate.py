"""A certificate of what a policy earns: the bound, what it is held against, and both in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class ReturnCertificate:
    """A lower bound on what a policy earns on average, and what it is held against."""

    lower_bound: float
    """The mean return is at least this, but for a probability of `delta`; −∞ if void."""
    episodes: int
    """Fresh episodes played."""
    mean: float
    """What they returned on average."""
    range: tuple[float, float]
    """The smallest and the largest return that the map allows."""
    epsilon: float
    """How far below a promised value counts as keeping the promise."""
    delta: float
    """The probability of being wrong that this attempt spends."""
    attempt: int
    worst_case_value: float
    """Ṽ: what the plan is sure of in any η-perturbation."""
    best_case_value: float
    """What the plan earns in the η-perturbation that suits it best."""
    blind_value: float | None = None
    """What acting with eyes shut earns here, exactly; None where that is not known."""
    void: str | None = None
    """Why the certificate says nothing, or None."""

    @property
    def passed(self) -> bool:
        """Is what Algorithm 1 promises in the worst case shown, up to ε?"""
        return self.void is None and self.lower_bound >= self.worst_case_value - self.epsilon

    @property
    def paper_guarantee(self) -> bool:
        """Is the policy shown to be within ε of the plan with latent access?"""
        return self.void is None and self.lower_bound >= self.best_case_value - self.epsilon

    @property
    def smallest_epsilon(self) -> float:
        """The least ε at which the plan itself can have the paper's guarantee in every target."""
        return self.best_case_value - self.worst_case_value

    def summary(self) -> str:
        """What was found, in plain words."""
        if self.void is not None:
            return (
                f"This certificate is void: {self.void}. The map does not describe this "
                "environment, so nothing follows from the other episodes."
            )
        said = [self._found(), self._worst_case(), self._beside_the_plan(), self._eyes_shut()]
        if self.attempt > 1:
            said.append(f"This was attempt {self.attempt}; every further one has to be surer.")
        return " ".join(filter(None, said))

    def record(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            **asdict(self),
            "lower_bound": self.lower_bound if self.void is None else None,
            "mean": self.mean if math.isfinite(self.mean) else None,
            "range": list(self.range),
            "passed": self.passed,
            "paper_guarantee": self.paper_guarantee,
            "smallest_epsilon": self.smallest_epsilon,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ReturnCertificate:
        """The certificate that such a record was made of."""
        parts = {field.name: record[field.name] for field in fields(cls)}
        low, high = (float(end) for end in record["range"])
        parts["range"] = low, high
        for name, missing in (("lower_bound", -math.inf), ("mean", math.nan)):
            parts[name] = missing if parts[name] is None else parts[name]
        return cls(**parts)

    def _found(self) -> str:
        return (
            f"In {self.episodes} fresh episodes the policy earned {self.mean:.4g} on average; we "
            f"can be {100 * (1 - self.delta):.4g} % sure that in the long run it earns at least "
            f"{self.lower_bound:.4g} per episode."
        )

    def _worst_case(self) -> str:
        wanted = self.worst_case_value - self.epsilon
        verdict = "passes" if self.passed else "does not pass"
        asked = (
            f"This {verdict}: at least {wanted:.4g} was asked for, {self.epsilon:.4g} below the "
            f"{self.worst_case_value:.4g} that the plan promises even if everything goes as badly "
            "as it was made to withstand."
        )
        if self.passed:
            return asked
        if self.mean < wanted:
            return f"{asked} The average itself is below that."
        return f"{asked} The average is above that: more episodes of this attempt may show it."

    def _beside_the_plan(self) -> str:
        if not self.passed:
            return ""
        close = f"within {self.epsilon:.4g} of what the plan would earn here if it saw everything"
        if self.paper_guarantee:
            return f"It is also {close}, whatever goes wrong that the map allows for."
        return f"It is not shown to be {close}, which may be up to {self.best_case_value:.4g}."

    def _eyes_shut(self) -> str:
        if self.blind_value is None:
            return ""
        shut = f"Acting with eyes shut earns {self.blind_value:.4g} here"
        if self.lower_bound > self.blind_value:
            return f"{shut}, which is less."
        return f"{shut}, so this does not show that the policy uses what it sees."
