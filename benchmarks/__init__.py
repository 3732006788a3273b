"""Measurements of `tasid`, beside the work of others where there is any: python -m benchmarks."""
