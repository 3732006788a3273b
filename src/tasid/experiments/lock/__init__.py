"""The combination lock: the paper's first figure and its tables."""
