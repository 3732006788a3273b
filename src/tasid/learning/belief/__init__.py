"""Learning by whole episodes and beliefs: the default."""
