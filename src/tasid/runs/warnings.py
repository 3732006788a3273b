"""What a user should know before trusting what was learned."""

from __future__ import annotations

from collections.abc import Iterator

from tasid.algorithms.belief_findings import Findings
from tasid.algorithms.belief_method import Learnt


def belief_warnings(learnt: Learnt, found: Findings) -> Iterator[str]:
    """One sentence each."""
    yield from finding_warnings(found)


def finding_warnings(found: Findings) -> Iterator[str]:
    """What slips and map errors call for."""
    estimate = found.eta
    if estimate.exceeded and estimate.p_value < 1e-3:
        yield (
            f"outcomes differ from the intended ones in {estimate.rate:.1%} of the steps "
            f"(95 % interval {estimate.low:.1%} … {estimate.high:.1%}), more than the η = "
            f"{estimate.planned:g} planned for: plan with a larger eta"
        )
    if found.map_errors:
        first = found.map_errors[0]
        when = "" if first.step < 0 else f"step {first.step}, "
        yield (
            f"the map is wrong in {len(found.map_errors)} place(s), first at {when}state "
            f"{first.state}, action {first.action}: {first.surprises} of {first.visits} "
            "transitions went elsewhere"
        )
