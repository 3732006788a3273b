"""What the fits of one learner agree on: slips, and where the map is wrong.

A wrong labelling blames the map, too, but each in its own places: what counts is what others blame
as well. On maps that say how far one can see, single places are nobody's fault; there, passages are
tried closed (`passages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasid.beliefs.classes import Classes
from tasid.beliefs.fitting import BeliefSetting, Chunks
from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.smoother import Emission
from tasid.learning.belief.findings import Findings, agreed, findings
from tasid.learning.belief.passages import closed_passages
from tasid.maps import AbstractSimulator


def agreed_findings(
    setting: BeliefSetting,
    classes: Classes,
    emissions: Sequence[Emission],
    chunks: Chunks,
    sim: AbstractSimulator,
) -> Findings:
    """By the emissions of several fits to the same classes, in the words of the first."""
    each = [findings(setting, classes, one, chunks, sim) for one in emissions]
    found = agreed(each)
    fits = [
        (one, its) for one, its in zip(emissions, each, strict=True) if isinstance(one, Gaussians)
    ]
    if setting.described is None or not fits:
        return found
    return replace(found, map_errors=closed_passages(setting, classes, chunks, sim, fits))
