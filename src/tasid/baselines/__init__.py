"""The paper's baselines: PPO, with a bonus for novelty, with domain randomisation; all by name."""

from tasid.baselines.families import DrawnFamily

__all__ = ["DrawnFamily"]
