"""Tables in .npz files."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given

from mdps import quick, worlds
from tasid.maps import AbstractSimulator, SimulatorError, robust_dp
from tasid.maps.sources import MapError, read_source

TABLES = {"successor": [[0, 1], [1, 1]], "reward": [[0.0, 0.0], [1.0, 0.5]]}


def test_any_simulator_can_go_through_a_file(tmp_path):
    file = tmp_path / "map.npz"

    @quick
    @given(worlds())
    def check(sim):
        np.savez_compressed(
            file,
            successor=sim.successor,
            reward=sim.reward,
            horizon=sim.horizon,
            start=sim.starts,
            start_probabilities=sim.start_probabilities,
        )
        read = AbstractSimulator.from_tables(file)
        for name in ("successor", "reward", "starts", "start_probabilities"):
            assert getattr(read, name).tolist() == getattr(sim, name).tolist()
        assert read.horizon == sim.horizon
        assert robust_dp(read, eta=0.2).start_value == robust_dp(sim, eta=0.2).start_value

    check()


def test_labels_and_a_horizon_from_outside(tmp_path):
    file = tmp_path / "map.npz"
    np.savez(file, **TABLES, states=np.array([[0, 7], [1, 8]]), horizon=3)
    sim = AbstractSimulator.from_tables(file, horizon=5)
    assert sim.states == ((0, 7), (1, 8))
    assert sim.horizon == 5
    assert sim.start == 0
    assert read_source(str(file)).horizon == 3


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"successor": [[0]], "horizon": 3}, "lacks the array 'reward'; it has successor, horizon"),
        (TABLES, "horizon: {file} has no array 'horizon'; give one"),
        ({**TABLES, "horizon": [1, 2]}, "horizon: [1, 2] in {file} is not one whole number"),
        ({**TABLES, "horizon": 2.0}, "horizon: 2.0 in {file} is not one whole number"),
        ({**TABLES, "horizon": 2, "gamma": 1}, "{file}: unknown array 'gamma'; known are success"),
        ({**TABLES, "horizon": 2, "start": 9}, "start: 9 is not a state"),
        ({**TABLES, "horizon": 2, "states": np.array([{}, {}])}, "{file}: not a file of plain num"),
        ({**TABLES, "horizon": 2, "reward": [[0.0, np.inf]] * 2}, "reward: inf at (s, a) = (0, 1)"),
    ],
)
def test_bad_tables_are_named(tmp_path, tables, message):
    file = tmp_path / "map.npz"
    np.savez(file, **tables)
    with pytest.raises(SimulatorError, match=re.escape(message.format(file=file))):
        AbstractSimulator.from_tables(file)


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(MapError, match=r"nowhere\.npz: no such file"):
        AbstractSimulator.from_tables(tmp_path / "nowhere.npz")
    file = tmp_path / "map.npz"
    for content in (b"", b"hello", b"PK\x03\x04broken", b"\x80\x04N."):
        file.write_bytes(content)
        with pytest.raises(MapError, match="not a file of plain numeric tables"):
            AbstractSimulator.from_tables(file)
    with file.open("wb") as handle:
        np.save(handle, np.zeros(3))
    with pytest.raises(MapError, match="holds one array"):
        AbstractSimulator.from_tables(file)
