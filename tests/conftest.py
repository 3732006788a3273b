"""Shared fixtures: one small lock, learned once by each method.

Most of the time of these tests would go into compiling, so nothing is optimised unless a test asks
for it (`AS_USERS`); `XLA_FLAGS= make test` runs everything as users compile it. Compiled programs
are kept, for other workers, for the processes that tests start and for the next time. JAX writes
them without a lock, but with a checksum: what two have written at once is compiled again.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)

import jax
import pytest

import tasid
from tasid.runs.learn import LearningResult

jax.config.update("jax_numpy_rank_promotion", "raise")

_KEPT = Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"
_SETTINGS = {
    "jax_compilation_cache_dir": str(_KEPT),
    "jax_persistent_cache_min_compile_time_secs": 0.1,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
for _name, _value in _SETTINGS.items():
    jax.config.update(_name, _value)
    os.environ[_name.upper()] = str(_value)


_ROOM = 1.5 * 2**30


_LONGEST = (
    "test_ray test_torture test_building_learning test_examples test_documents test_beliefs_actor "
    "test_resume test_ppo test_report test_cli test_building test_lock_experiment"
).split()
"""Files that take longest, some of them waiting most of the time: they begin first, and others use
the processors meanwhile. Begun last, they would be waited for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files as they had best be begun."""
    rank = {name: number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Few programs of one file are of use to the next, and all of them would fill the memory."""
    yield
    if _memory() > _ROOM:
        jax.clear_caches()
        gc.collect()
        _give_back()


def _memory() -> float:
    """Bytes that this process takes; more than there are where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return float("inf")
    return float(pages) * os.sysconf("SC_PAGE_SIZE")


def _give_back() -> None:
    """Freed memory goes back to the system, or every later file would find too little room."""
    with suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def lock() -> tasid.BlockMDP:
    """A small lock; its seed is used by no reported result."""
    return tasid.make("combination-lock", horizon=5, num_actions=4, seed=7)


@pytest.fixture(scope="session")
def learned(lock: tasid.BlockMDP) -> LearningResult:
    """The paper's TASID on the small lock."""
    return tasid.learn(lock, eta=0.1, episodes=4_000, seed=7, method="paper")


@pytest.fixture(scope="session")
def believed(lock: tasid.BlockMDP) -> LearningResult:
    """The belief method on the small lock."""
    return tasid.learn(lock, eta=0.1, episodes=64, seed=7)
