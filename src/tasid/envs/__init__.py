"""Floor 2 — what is real: oracle access to environments, and the wall around their latent side."""

from tasid.envs.block import BlockMDP, BlockTarget, Latent
from tasid.envs.registry import make
from tasid.envs.target import Target

__all__ = ["BlockMDP", "BlockTarget", "Latent", "Target", "make"]
