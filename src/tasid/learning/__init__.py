"""Floor 3 — fitting: networks, labels and the one supervised training loop."""

from tasid.learning.fit import Fit, FitConfig, Transitions, fit
from tasid.learning.labels import Labels, action_labels
from tasid.learning.networks import MLP, Network

__all__ = [
    "MLP",
    "Fit",
    "FitConfig",
    "Labels",
    "Network",
    "Transitions",
    "action_labels",
    "fit",
]
