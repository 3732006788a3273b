"""`tasid.watch`: one episode of a policy, to be read and to be seen."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from tasid.policies import BeliefPolicy, Policy
from tasid.report.figures.filmstrip import STRIP_FRAMES, episode_gif, episode_strip
from tasid.runs.watch import Episode, watch_episode
from tasid.targets import Target


@dataclass(frozen=True, eq=False)
class WatchedEpisode(Episode):
    """An episode that can be drawn."""

    def save_gif(self, path: str | os.PathLike[str]) -> Path:
        """Play it, from its start until nothing can happen any more, in a .gif file."""
        return episode_gif(self, path)

    def save_strip(self, path: str | os.PathLike[str], *, frames: int = STRIP_FRAMES) -> Path:
        """At most so many of its frames, side by side and row by row, in a .png file."""
        return episode_strip(self, path, frames=frames)


def watch(
    policy: BeliefPolicy | Policy, env: Target, *, seed: int = 0, episode: int = 0
) -> WatchedEpisode:
    """Follow a policy through one episode: what it saw, believed and did, step by step.

    It is the very episode that `tasid.evaluate` counts under this seed and number.

    Args:
        policy: One that was learned.
        env: The target in which it acts.
        seed: Draws the episodes.
        episode: Which of them, from 0.
    """
    seen = watch_episode(policy, env, seed=seed, episode=episode)
    return WatchedEpisode(**{field.name: getattr(seen, field.name) for field in fields(seen)})
