"""Starts that a map cannot tell apart, on maps where that is plain to see."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from tasid.maps import AbstractSimulator
from tasid.maps.symmetry import symmetric_starts


def line(rewards: list[float], *, shares: tuple[float, float] = (0.5, 0.5)) -> AbstractSimulator:
    """Two corridors of three cells, 0 1 2 and 3 4 5; going on pays, waiting does not."""
    leads = np.array([[0, 1], [1, 2], [2, 2], [3, 4], [4, 5], [5, 5]])
    paid = np.zeros((6, 2))
    paid[:, 1] = rewards
    return AbstractSimulator(leads, paid, horizon=4, start=[0, 3], start_probabilities=list(shares))


def test_corridors_that_pay_the_same_are_exchanged() -> None:
    assert list(symmetric_starts(line([1, 2, 0, 1, 2, 0]))) == [(0, 3)]


@pytest.mark.parametrize(
    "sim",
    [line([1, 2, 0, 1, 3, 0]), line([1, 2, 0, 1, 2, 0], shares=(0.4, 0.6))],
    ids=["they pay differently in the end", "one is likelier"],
)
def test_corridors_that_differ_are_not(sim: AbstractSimulator) -> None:
    assert list(symmetric_starts(sim)) == []


def test_starts_with_one_way_in_common_differ_by_what_they_pay_alone() -> None:
    leads = np.array([[1, 1], [2, 2], [2, 2], [1, 1]])
    sim = AbstractSimulator(leads, np.zeros((4, 2)), horizon=3, start=[0, 3])
    assert list(symmetric_starts(sim)) == [(0, 3)]  # σ leaves the rest alone
    paid = np.zeros((4, 2))
    paid[3] = 1.0
    sim = AbstractSimulator(leads, paid, horizon=3, start=[0, 3])
    assert list(symmetric_starts(sim)) == []


def test_a_cell_further_along_is_no_mirror_image() -> None:
    """From 0 and from 1 of one corridor nothing is paid, but σ(0) = 1 is not one to one."""
    leads = np.array([[0, 1], [1, 2], [2, 2]])
    sim = AbstractSimulator(leads, np.zeros((3, 2)), horizon=3, start=[0, 1])
    assert list(symmetric_starts(sim)) == []


def test_a_ring_turns_into_itself() -> None:
    """No mirror image, but a rotation."""
    around = np.arange(6)
    leads = np.stack([around, (around + 1) % 6], axis=1)
    sim = AbstractSimulator(leads, np.zeros((6, 2)), horizon=9, start=[0, 2, 4])
    assert list(symmetric_starts(sim)) == [(0, 2), (0, 4), (2, 4)]
    sim = AbstractSimulator(leads, np.zeros((6, 2)), horizon=9, start=[0, 2])
    assert list(symmetric_starts(sim)) == []  # 2 would have to lead to 4, where nobody starts


def test_copies_of_a_lock_differ_and_learning_names_what_does_not() -> None:
    assert list(symmetric_starts(tasid.make("combination-lock", starts=3).simulator)) == []
    text = "#####\n#S.G#\n#####\n#S.G#\n#####"
    sim = AbstractSimulator.from_text_map(text, horizon=4)
    (pair,) = symmetric_starts(sim)
    assert set(pair) == {(1, 1), (1, 3)}
