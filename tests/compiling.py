"""Compiling as users do, for tests of what optimisation may change: bits."""

from __future__ import annotations

AS_USERS = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
}
"""XLA's defaults, whatever the tests are compiled with."""
