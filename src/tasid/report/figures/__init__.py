"""Drawings, for pages and for files of their own."""
