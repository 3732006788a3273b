"""The page's section on several starts, from a run's records alone."""

from __future__ import annotations

import numpy as np
import pytest

from tasid.files import ArtifactError
from tasid.report.figures.clusters import read_starts
from tasid.report.figures.drawing import house_style


def record():
    clusters = [
        {"start": 0, "state": "dock <A>", "share": 0.25},
        {"start": 7, "state": "dock B", "share": 0.75},
    ]
    hypotheses = [
        {
            "cluster": k,
            "start": one["start"],
            "state": one["state"],
            "accepted": k == j,
            "value": 8.5,
            "low": 8.0,
            "high": 9.0,
            "episodes": 40,
        }
        for k in range(2)
        for j, one in enumerate(clusters)
    ]
    summary = {
        "episodes": 128,
        "accuracy": 1.0,
        "purity": 0.998,
        "error": 0.2,
        "error_alone": 0.25,
        "clusters": clusters,
        "hypotheses": hypotheses,
        "unseen": [],
    }
    arrays = {
        "starts.places": np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32),
        "starts.clusters": np.arange(20) % 2,
    }
    return {"starts": summary}, arrays


def test_a_run_with_one_start_has_no_such_section():
    assert read_starts({}, {}, "here") is None


def test_hypotheses_are_shown_with_values_and_verdicts():
    starts = read_starts(*record(), "here")
    assert "128 episodes" in starts.sentence()
    rows = starts.rows()
    assert len(rows) == 4
    assert rows[0] == ("0", "dock <A>", "8.50 (8.00 … 9.00)", "40", "accepted")
    assert rows[1][1:] == ("dock B", "8.50 (8.00 … 9.00)", "40", "rejected")


def test_the_picture_names_clusters_and_is_safe():
    starts = read_starts(*record(), "here")
    with house_style():
        drawn = str(starts.picture())
    assert "0: dock &lt;A&gt;" in drawn
    assert "<A>" not in drawn
    assert "75" in drawn  # the description tells the shares


@pytest.mark.parametrize(
    "spoil",
    [
        lambda summary, arrays: arrays.pop("starts.places"),
        lambda summary, arrays: arrays.update({"starts.clusters": np.full(20, 2)}),
        lambda summary, arrays: summary["starts"].pop("hypotheses"),
        lambda summary, arrays: summary["starts"]["hypotheses"][0].update(value="much"),
        lambda summary, arrays: arrays.update({"starts.places": np.full((20, 2), np.nan)}),
    ],
)
def test_damaged_records_are_refused(spoil):
    summary, arrays = record()
    spoil(summary, arrays)
    with pytest.raises(ArtifactError, match="here: starts are not those of a run"):
        read_starts(summary, arrays, "here")
