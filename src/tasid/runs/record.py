"""Recording episodes: a policy, a plan executed open loop or random actions, written as a log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tasid.keys import Phase, episode_keys
from tasid.policies.open_loop import OpenLoopPolicy
from tasid.policy import Policy
from tasid.runs.config import ConfigError
from tasid.storage import EpisodeLog, read_artifact
from tasid.targets.base import Target
from tasid.targets.rollout import exploration, rollout

HEADER = "observation_shape observation_dtype horizon num_actions ends_early environment".split()
"""Attributes of the target that a log keeps."""


def record(
    target: Target,
    path: str | Path,
    *,
    policy: Policy | None = None,
    episodes: int,
    explore: float = 0.3,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Play episodes and write them into an `EpisodeLog`; episode i is the same for any number.

    Parameters
    ----------
    target
        Where to play.
    path
        The log, a folder.
    policy
        Who acts; None takes random actions.
    episodes
        How many.
    explore
        Probability of a random action, at every step.
    seed
        Determines the episodes.
    overwrite
        Replace the log that is there.

    Returns
    -------
    Number of episodes, mean return, horizon and path.
    """
    folder = Path(path)
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        if not overwrite:
            raise ConfigError(f"out: {folder} exists; choose another place, or pass --overwrite")
        read_artifact(folder, kind="episodes")  # nothing else is deleted
        shutil.rmtree(folder)
    log = EpisodeLog.create(folder, {name: getattr(target, name) for name in HEADER})
    rate, returns = 1.0 if policy is None else explore, 0.0
    for first in range(0, episodes, target.width):
        count = min(target.width, episodes - first)
        keys = episode_keys(seed, Phase.RECORDING, first, count)
        overrides = exploration(keys, rate, target.num_actions, target.horizon)
        batch = rollout(target, policy or OpenLoopPolicy(target), keys, overrides=overrides)
        log.append(batch, [(int(Phase.RECORDING), first + i) for i in range(count)])
        returns += float(batch.returns.sum())
    return {
        "file": str(folder),
        "episodes": episodes,
        "return_mean": returns / episodes,
        "horizon": target.horizon,
        "explore": rate,
    }
