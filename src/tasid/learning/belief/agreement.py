"""What the fits of one learner agree on: slips, and where the map is wrong.

A wrong labelling blames the map, too, but each in its own places: what counts is what others blame
as well. It also explains what was seen far worse than a right one, so a fit that does is not asked:
it could only hide what the others agree on. On maps that say how far one can see, single places are
nobody's fault; there, passages are tried closed (`passages`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tasid.beliefs.fitting import BeliefSetting, Chunks, number_seen
from tasid.beliefs.gaussian import Gaussians
from tasid.learning.belief.findings import Findings, agreed, findings
from tasid.learning.belief.fits import BeliefFit
from tasid.learning.belief.passages import closed_passages
from tasid.maps import AbstractSimulator

_BEHIND = 1.0
"""Nats of an observation by which a fit may explain worse what was seen, and still be asked."""


def agreed_findings(
    setting: BeliefSetting,
    best: BeliefFit,
    fits: Sequence[BeliefFit],
    chunks: Chunks,
    sim: AbstractSimulator,
) -> Findings:
    """By the best fit, and by others to the same classes of the same features, in its words."""
    others = [
        one
        for one in fits
        if one is not best
        and one.classes.kind == best.classes.kind
        and one.feature_map is best.feature_map
    ]
    if setting.described is None:
        others = _credible(setting, best, others, chunks)
    asked = [best, *others]
    each = [findings(setting, one.classes, one.emission, chunks, sim) for one in asked]
    gaussians = [
        (one.emission, found)
        for one, found in zip(asked, each, strict=True)
        if isinstance(one.emission, Gaussians)
    ]
    if setting.described is None or not gaussians:
        return agreed(each)
    closed = closed_passages(setting, best.classes, chunks, sim, gaussians)
    return replace(agreed(each), map_errors=closed)


def _credible(
    setting: BeliefSetting, best: BeliefFit, others: Sequence[BeliefFit], chunks: Chunks
) -> list[BeliefFit]:
    """Those that explain what was seen about as well as the best does, or better.

    What networks say of an observation is beside its own probability, which nobody knows: they
    are asked only if there are no others.
    """
    scores = {
        id(one): setting.log_evidence(one.classes, one.emission, chunks)
        for one in (best, *others)
        if isinstance(one.emission, Gaussians)
    }
    if not scores:
        return list(others)
    least = scores.get(id(best), max(scores.values())) - _BEHIND * number_seen(chunks)
    return [one for one in others if scores.get(id(one), -math.inf) >= least]
