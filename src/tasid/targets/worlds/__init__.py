"""Environments of ours: the lock, the lava crossing, the building."""
