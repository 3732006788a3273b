"""Named sweeps that make the paper's figures and tables again."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasid.experiments.sweep import Experiment

EXPERIMENTS = {
    "combination-lock": ("tasid.experiments.lock", "EXPERIMENT"),
    "minigrid-eta": ("tasid.experiments.grid", "BY_ETA"),
    "minigrid-height": ("tasid.experiments.grid", "BY_HEIGHT"),
    "building": ("tasid.experiments.building", "EXPERIMENT"),
}
"""The folder of every experiment and its name in `jobs` there; `page` says what its page shows."""


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"name: {name!r} is no experiment; there are: {', '.join(EXPERIMENTS)}")
    folder, attribute = EXPERIMENTS[name]
    found: Experiment = getattr(importlib.import_module(f"{folder}.jobs"), attribute)
    return found
