"""Named sweeps that make the paper's figures and tables again."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasid.experiments.sweep import Experiment

EXPERIMENTS = {
    "combination-lock": ("tasid.experiments.lock.jobs", "EXPERIMENT"),
    "minigrid-eta": ("tasid.experiments.grid.jobs", "BY_ETA"),
    "minigrid-height": ("tasid.experiments.grid.jobs", "BY_HEIGHT"),
    "building": ("tasid.experiments.building.jobs", "EXPERIMENT"),
}
"""The module of every experiment, and its name there."""


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"name: {name!r} is no experiment; there are: {', '.join(EXPERIMENTS)}")
    module, attribute = EXPERIMENTS[name]
    found: Experiment = getattr(importlib.import_module(module), attribute)
    return found
