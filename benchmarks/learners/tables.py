"""Our environments as files for programs that know nothing of tasid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tasid
from tasid.targets.worlds.combination_lock import LockEmission


def write(env: tasid.BlockMDP, path: Path, *, eta: float) -> None:
    """The target's tables, the robust plan and its exact value in this very target."""
    target, sim = env.target, env.simulator
    plan = tasid.robust_dp(sim, eta=eta)
    own = np.arange(sim.num_states)[:, None]
    final = (sim.successor == own).all(axis=1) & (sim.reward == 0).all(axis=1)
    np.savez(
        path,
        horizon=sim.horizon,
        start=sim.start,
        successor=sim.successor,
        reward=sim.reward.astype(np.float32),
        final=final,
        outcome=np.asarray(target.outcome),
        plan=plan.actions,
        robust_value=env.latent.robust_value(plan),
        **_emission(target.emission),
    )


def _emission(emission: Any) -> dict[str, Any]:
    if isinstance(emission, LockEmission):
        names = ("clean", "mixing", "noise")
    else:
        names = ("look", "pictures")
    return {name: np.asarray(getattr(emission, name)) for name in names}
