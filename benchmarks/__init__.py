"""Measurements behind the figures in the README and the docs; each is a command."""
