"""Map sources: how abstract simulators are made from tables, text, functions and robot maps."""
