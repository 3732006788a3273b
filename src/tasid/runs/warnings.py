"""What a user should know before trusting what was learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tasid.learning.belief.findings import Findings
from tasid.learning.belief.method import BatchEnded, Learnt
from tasid.maps import AbstractSimulator, return_range

_SURE = 1e-3
"""How improbable so many slips must be before a larger η is recommended."""
_SLIPS = "outcomes differ from the intended ones"
_UNCLEAR = 0.05
"""The share of the range of returns lost to not knowing where one is, above which it is said."""
_OTHER = 0.1
"""The share of the range of the map's rewards that one of the target's may differ by: it may be an
average, or noisy, or worth a little less with every step."""
_UNFORESEEN = -2.0
"""Nats of foresight below which rewards and ends came as a surprise."""


def belief_warnings(learnt: Learnt, found: Findings, sim: AbstractSimulator) -> Iterator[str]:
    """One sentence each; too few episodes are never called a wrong map."""
    yield from reward_warnings(learnt.recorded.rewards, sim)
    if len(learnt.batches) < 2:
        number = learnt.recorded.number
        yield (
            f"too few episodes: {number} in one batch teach{'' if number > 1 else 'es'} something, "
            "but none are left to tell whether it is right; give 32 or more"
        )
        return
    last = learnt.batches[-1]
    unlearned = _unlearned(learnt.batches, sim)
    if unlearned is not None:
        yield unlearned
    if unlearned is None:
        yield from slip_warnings(found)
    if found.map_errors:
        yield from map_warnings(found)
    elif last.foresight < _UNFORESEEN and unlearned is None:
        yield (
            f"rewards and ends often came as a surprise ({-last.foresight:.1f} nats an episode): "
            "too few episodes, or the target pays and ends unlike the map"
        )


def reward_warnings(rewards: NDArray[np.floating], sim: AbstractSimulator) -> Iterator[str]:
    """Did the target pay what no action pays anywhere on the map?"""
    known = np.unique(np.append(sim.reward, 0.0))
    paid, times = np.unique(rewards.astype(np.float64), return_counts=True)
    place = np.searchsorted(known, paid)
    nearest = [known[np.clip(place - back, 0, known.size - 1)] for back in (0, 1)]
    unknown = np.min([np.abs(paid - one) for one in nearest], axis=0)
    strange = unknown > _OTHER * max(np.ptp(known), 1e-9)
    if strange.any():
        often = paid[strange][times[strange].argmax()]
        yield (
            f"the target paid what the map does not know, {often:g} most often, in "
            f"{times[strange].sum() / times.sum():.2%} of the steps: the plan weighs other rewards "
            "than there are; correct the map's, `tasid check` says where they differ"
        )


def slip_warnings(found: Findings) -> Iterator[str]:
    """More slips than were planned for?"""
    estimate = found.eta
    if estimate.p_value < _SURE:
        yield (
            f"{_SLIPS} in {estimate.rate:.1%} of the steps "
            f"(95 % interval {estimate.low:.1%} … {estimate.high:.1%}), more than the η = "
            f"{estimate.planned:g} planned for: plan with a larger eta"
        )


def tell_of_slips(warnings: Iterable[str]) -> bool:
    """Is that among what was said?"""
    return any(warning.startswith(_SLIPS) for warning in warnings)


def map_warnings(found: Findings) -> Iterator[str]:
    """Is the map wrong anywhere?"""
    if found.map_errors:
        first = found.map_errors[0]
        when = "" if first.step < 0 else f"step {first.step}, "
        yield (
            f"the map is wrong in {len(found.map_errors)} place(s), first at {when}state "
            f"{first.state}, action {first.action}: {first.surprises} of {first.visits} "
            "transitions went elsewhere"
        )


def _unlearned(batches: tuple[BatchEnded, ...], sim: AbstractSimulator) -> str | None:
    """What is to be said where it stays unclear where one is."""
    last = batches[-1]
    if last.evidence <= 2 * last.evidence_error:
        return (
            "observations do not tell places apart: knowing the place explains new ones by "
            f"{last.evidence:.3f} ± {last.evidence_error:.3f} nats a step, no better than one look "
            "for all places; the policy acts without knowing where it is (more episodes, or "
            "observations that show more)"
        )
    low, high = return_range(sim)
    lost = last.regret / max(high - low, 1e-12)
    if lost > _UNCLEAR:
        return (
            f"it often stays unclear where one is, which costs about {lost:.0%} of the range of "
            f"returns: too few episodes ({last.episodes} so far), or observations that show too "
            "little; if more of both do not help, `tasid check` may find the map wrong on the way"
        )
    return None
