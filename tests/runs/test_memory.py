"""Oversized requests are refused before memory is taken."""

from __future__ import annotations

import tracemalloc

import pytest

import tasid
from commands import run
from tasid.runs import memory


@pytest.mark.parametrize("method", ["belief", "paper"])
def test_more_episodes_than_fit_are_refused_with_what_would(lock, monkeypatch, method):
    """Counted by hand: float32 observations, twice and as features, 5 steps, 1 MiB free."""
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**20)
    (numbers,) = lock.target.observation_shape
    each = 6 * numbers * (2 * 4 + 4) if method == "belief" else 2 * numbers * 4 / 5
    most = int(0.9 * 2**20 / each)
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"at least .* GiB, and .* give at most {most},"):
        tasid.learn(lock, eta=0.1, episodes=10**9, method=method)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
    memory.check_memory(method, most, horizon=5, shape=(numbers,), dtype="float32")
    with pytest.raises(ValueError, match="give at most"):
        memory.check_memory(method, most + 5, horizon=5, shape=(numbers,), dtype="float32")


def test_the_command_names_the_option(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**20)
    order = ["train", "combination-lock", "--episodes", "100000000", "--out", tmp_path / "run"]
    err = run(capsys, *order, code=2).err
    assert err.startswith("tasid: episodes: 100000000 episodes of ")
    assert list(tmp_path.iterdir()) == []


def test_what_is_free_is_known_here():
    assert memory.free_bytes() > 2**24
