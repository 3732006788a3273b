"""Numbers and findings in words."""
