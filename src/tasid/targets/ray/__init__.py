"""Episodes played in the actors of a Ray cluster."""
