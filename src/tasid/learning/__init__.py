"""Learners: the belief method and the paper's, and what both know of their own reliability."""

METHODS = ("belief", "paper")
