"""Fitting: networks and the one supervised training loop."""

from tasid.models.fit import Fit, FitConfig, Transitions, fit
from tasid.models.networks import MLP, Network

__all__ = ["MLP", "Fit", "FitConfig", "Network", "Transitions", "fit"]
