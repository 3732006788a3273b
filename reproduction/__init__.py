"""The paper's experiments and baselines, from a clone: `python -m reproduction --help`.

Uses only public names of `tasid` and is not part of the wheel.
"""
