"""The lava crossing by η and by height: the paper's second figure."""
