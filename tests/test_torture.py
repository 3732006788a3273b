"""A small version of every row of `make torture`; not of what checks cost, which is a time."""

from __future__ import annotations

import random

import pytest
from benchmarks.torture import ROWS

QUICK = {
    "saves": 0,
    "disks": 30,
    "mutations": 200,
    "hostile": 64,
    "maps": 200,
    "observations": 5,
    "exceptions": 3,
}
SLOW = {"kills": 2, "signals": 2, "hangs": 1, "races": 2}


@pytest.mark.parametrize("name", QUICK)
def test_every_promise_is_kept(tmp_path, name):
    found = ROWS[name][0](tmp_path, QUICK[name], random.Random(0))
    assert found.kept == found.tried
    assert found.tried > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_promise_about_processes_is_kept(tmp_path, name):
    found = ROWS[name][0](tmp_path, SLOW[name], random.Random(0))
    assert found.kept == found.tried > 0
