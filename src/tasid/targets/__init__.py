"""What is real: oracle access to environments, and the wall around their latent side.

Names are imported on first use: worker processes with environments of users need no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.targets.block import BlockMDP, BlockTarget, Latent
    from tasid.targets.registry import make
    from tasid.targets.target import Target

_HOME = {
    "BlockMDP": "tasid.targets.block",
    "BlockTarget": "tasid.targets.block",
    "Latent": "tasid.targets.block",
    "make": "tasid.targets.registry",
    "Target": "tasid.targets.target",
}
__all__ = ["BlockMDP", "BlockTarget", "Latent", "Target", "make"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tasid.targets' has no attribute {name!r}")
