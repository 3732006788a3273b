"""Algorithms 2, 3 and 4 of the paper."""
