"""The paper's method: TASID (Algorithm 2) and several starts (Algorithms 3 and 4)."""

from tasid.learning.paper.starts import StartTested
from tasid.learning.paper.tasid import ClusteringConfig, StepEnded, TasidConfig, TasidLearner

__all__ = ["ClusteringConfig", "StartTested", "StepEnded", "TasidConfig", "TasidLearner"]
