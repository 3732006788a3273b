"""Any Gymnasium environment as a target, and ours as Gymnasium environments."""
