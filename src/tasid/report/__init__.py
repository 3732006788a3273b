"""Figures, pages and pictures of episodes."""
