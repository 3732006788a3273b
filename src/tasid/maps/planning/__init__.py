"""Dynamic programmes on maps: one backward sweep and what is computed by it."""
