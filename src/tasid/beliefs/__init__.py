"""Floor 3 — beliefs: the map as a hidden Markov model, filtered, smoothed and acted on."""
