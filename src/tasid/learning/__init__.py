"""Floor 3 — fitting: networks and the one supervised training loop."""

from tasid.learning.fit import Fit, FitConfig, Transitions, fit
from tasid.learning.networks import MLP, Network

__all__ = ["MLP", "Fit", "FitConfig", "Network", "Transitions", "fit"]
