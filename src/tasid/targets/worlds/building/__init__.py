"""A robot with a floor plan: floors, poses, sensors, doors and what stands in the way."""
