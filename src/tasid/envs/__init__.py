"""Floor 2 — what is real: oracle access to environments, and the wall around their latent side.

Names are imported on first use: worker processes with environments of users need no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.envs.block import BlockMDP, BlockTarget, Latent
    from tasid.envs.registry import make
    from tasid.envs.target import Target

_HOME = {
    "BlockMDP": "tasid.envs.block",
    "BlockTarget": "tasid.envs.block",
    "Latent": "tasid.envs.block",
    "make": "tasid.envs.registry",
    "Target": "tasid.envs.target",
}
__all__ = ["BlockMDP", "BlockTarget", "Latent", "Target", "make"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tasid.envs' has no attribute {name!r}")
