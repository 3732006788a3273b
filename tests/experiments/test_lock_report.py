"""The page of the lock experiment: scores by hand, true to the records, readable everywhere."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from browser import browse, in_browser, measure
from pages import Page
from tasid.experiments.lock import jobs as lock
from tasid.experiments.lock.figures import curve
from tasid.experiments.lock.scores import (
    PUBLISHED,
    family,
    median_of,
    results,
    solved_after,
)
from tasid.experiments.page import build_experiment_report, is_experiment
from tasid.experiments.records import Records
from tasid.files import ArtifactError

VALUE = 8.0
"""The robust value of every made-up target; 7.6 solves it."""


def write(records, setting, seed, rows, *, ended=True, **configuration):
    horizon = int(setting.rpartition("-H")[2])
    heading = {
        "setting": setting,
        "seed": seed,
        "version": "9.9",
        "configuration": {"horizon": horizon, **configuration},
        "robust_value": VALUE,
    }
    log = records.log(setting, seed, heading)
    log.resume()
    for episodes, training, mean in rows:
        half = None if mean is None else 0.1
        log.row(
            stage="target", episodes=episodes, training=training, mean=mean, half=half, seconds=2.0
        )
    if ended:
        best = max((mean for _, _, mean in rows if mean is not None), default=0.0)
        log.end(solved=best >= 0.95 * VALUE, episodes=rows[-1][0])


def test_a_small_size_says_its_own_numbers(tmp_path):
    records = Records(tmp_path)
    records.describe({"name": "combination-lock", "title": "", "size": "smoke"})
    write(records, "ppo-H3", 0, [(100, 1.0, 7.7)], algorithm="ppo")
    text = build_experiment_report(tmp_path).page.read_text()
    assert "Size smoke: one seed, a random lock of its own" in text
    assert "evaluated every 100 episodes" in text


def baseline(records, algorithm, horizon, solved, **more):
    """Series of three seeds, of which the i-th solves the lock after solved[i] episodes."""
    for seed, after in enumerate(solved):
        last = 4000 if after is None else after
        rows = [
            (episodes, 1.0, 7.7 if episodes == after else 7.5)
            for episodes in range(1000, last + 1, 1000)
        ]
        write(records, f"{algorithm}-H{horizon}", seed, rows, algorithm=algorithm, **more)


def tasid(records, n, horizon, ratios):
    for seed, ratio in enumerate(ratios):
        rows = [(n // 2, 0.5, None), (n - 10, 0.25, None), (n - 10, None, ratio * VALUE)]
        write(
            records,
            f"tasid-paper-n{n}-H{horizon}",
            seed,
            rows,
            algorithm="tasid",
            method="paper",
            episodes=n,
        )


def belief(records, horizon, solved):
    """Every n up to the smallest that solves has an evaluation; then the batches of the last."""
    grid = [16, 32, 48]
    for seed, after in enumerate(solved):
        tried = grid if after is None else grid[: grid.index(after) + 1]
        rows = [(n, None, 7.7 if n == after else 7.5) for n in tried]
        rows += [(n, 0.5, None) for n in tried]
        given = {"algorithm": "tasid", "method": "belief", "episodes": grid}
        write(records, f"tasid-belief-H{horizon}", seed, rows, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of a quick sweep, made up so that everything about them is known."""
    records = Records(tmp_path_factory.mktemp("lock"))
    records.describe({"name": "combination-lock", "title": "", "size": "quick"})
    baseline(records, "ppo", 5, [1000, 3000, None])
    baseline(records, "ppo", 10, [None, 2000, None])
    baseline(records, "ppo+rnd", 10, [2000, 2000, 3000])
    baseline(records, "ppo+rnd-100", 10, [3000, None, None])
    baseline(records, "ppo+dr-epopt-0.5", 10, [None, None, None])
    baseline(records, "ppo+rnd+dr", 10, [None, None, None])
    belief(records, 10, [32, None, 16])
    tasid(records, 10_000, 10, [0.94, 0.96, 0.94])
    tasid(records, 50_000, 10, [0.99, 0.94, 0.96])
    tasid(records, 100_000, 10, [1.0, 1.0, 1.0])
    write(records, "ppo+dr-H40", 0, [(1000, 1.0, 1.0)], ended=False, algorithm="ppo+dr")
    return records.folder


def by_name(folder):
    return {(one.algorithm, one.horizon): one for one in results(Records(folder).series())}


def test_scores_are_what_was_made_up(folder):
    found = by_name(folder)
    assert found["ppo", 5].episodes == (1000, 3000, None)
    assert found["ppo", 5].median == 3000
    assert found["ppo", 10].median is None
    assert found["ppo+rnd", 10].median == 2000
    assert found["ppo", 10].best == pytest.approx((7.5 / 8, 7.7 / 8, 7.5 / 8))
    assert found["ppo+dr", 40].unfinished == 1
    assert found["ppo", 5].seconds == 2.0 * (1 + 3 + 4)
    assert found["tasid-paper-n50000", 10].seconds == 3 * 2.0
    assert found["tasid-belief", 10].episodes == (32, None, 16)
    assert found["tasid-belief", 10].median == 32
    assert found["tasid-belief", 10].seconds == (2 + 3 + 1) * 2.0, "every n was learned anew"


def test_a_crowded_machine_is_taken_out_of_the_time(tmp_path):
    """Of a stage's twenty rows four are quick, the others take 9 seconds; a pause takes an hour."""
    for seed, slow in ((0, 9.0), (1, 3600.0)):
        heading = {"version": "9", "configuration": {"algorithm": "ppo+dr"}, "robust_value": VALUE}
        log = Records(tmp_path).log("ppo+dr-H5", seed, heading)
        log.resume()
        for stage, quick in (("source", 2.0), ("target", 1.0)):
            for row in range(10):
                seconds = quick if row in (3, 4) else slow if row == 5 else 9.0
                log.row(
                    stage=stage, episodes=row, training=0.0, mean=1.0, half=0.1, seconds=seconds
                )
    (one,) = results(Records(tmp_path).series())
    assert one.seconds == 4 * (2 + 1) + 2 * (9 + 3600) + 28 * 9
    assert one.undisturbed == 20 * 2 + 20 * 1


def test_the_smallest_n_whose_median_solves_stands_for_its_horizon(folder):
    grid = [key for key in by_name(folder) if key[0].startswith("tasid-paper")]
    assert grid == [("tasid-paper-n50000", 10)]
    assert by_name(folder)[grid[0]].episodes == (49_990, None, 49_990)


def test_solved_is_at_least_95_percent(tmp_path):
    for seed, mean in enumerate((0.95 * VALUE, math.nextafter(0.95 * VALUE, 0))):
        write(Records(tmp_path), "ppo-H5", seed, [(1000, 0.0, mean)], ended=False)
    assert [solved_after(one) for one in Records(tmp_path).series()] == [1000, None]
    assert lock.SOLVED == 0.95


def test_a_run_that_ended_says_whether_it_solved(tmp_path):
    """The means in its rows are rounded, and 7.59996 is not 7.6."""
    log = Records(tmp_path).log(
        "ppo-H5", 0, {"version": "9", "configuration": {}, "robust_value": VALUE}
    )
    log.resume()
    log.row(stage="target", episodes=1000, training=0.0, mean=7.6, half=0.1, seconds=1.0)
    log.end(solved=False, episodes=1000)
    assert [solved_after(one) for one in Records(tmp_path).series()] == [None]


@pytest.mark.parametrize(
    ("episodes", "middle"),
    [
        ([5, None, 1], 5),
        ([None, None, 1], None),
        ([3, 1, 2, 5, 4], 3),
        ([1, None, None, 3, 2], 3),
        ([7], 7),
    ],
)
def test_the_median_counts_never_as_more_than_any_number(episodes, middle):
    assert median_of(episodes) == middle


def test_the_published_table_has_the_medians_of_the_papers_text():
    """Section 5: who solves which horizon."""
    solved = {key for key, episodes in PUBLISHED.items() if median_of(episodes) is not None}
    assert {h for name, h in solved if name == "tasid-paper"} == {5, 10, 20, 40}
    assert {h for name, h in solved if name == "ppo"} == {5}
    assert {h for name, h in solved if name == "ppo+dr"} == {5}
    assert {h for name, h in solved if name == "ppo+rnd"} == {5, 10, 20}
    assert {h for name, h in solved if name == "ppo+rnd+dr"} == {5, 10}
    assert all(len(episodes) == 5 for episodes in PUBLISHED.values())
    assert len(PUBLISHED) == 20


def test_variants_belong_to_their_algorithm():
    assert family("ppo+rnd+dr-epopt-0.5") == "ppo+rnd+dr"
    assert family("ppo+rnd-100") == "ppo+rnd"
    assert family("tasid-paper-n50000") == "tasid-paper"


def test_a_curve_is_training_and_then_the_policy(folder):
    import numpy as np

    series = next(
        one for one in Records(folder).series() if one.setting == "tasid-paper-n10000-H10"
    )
    seen = curve(series, np.array([1.0, 5000.0, 5001.0, 9990.0, 9991.0, 1e6]))
    assert seen.tolist() == [0.5, 0.5, 0.25, 0.25, 0.94 * VALUE, 0.94 * VALUE]


def test_the_page_says_what_the_records_say(folder):
    built = build_experiment_report(folder)
    page = Page(built.page.read_text())
    head, *rows = page.table("episodes")
    assert head == ["algorithm", "H", "here", "median", "best", "paper", "median"]
    cells = {(row[0], row[1]): row[2:] for row in rows}
    here, median, best, paper, theirs = cells["PPO", "5"]
    assert here == "1\u202f000, 3\u202f000, ∞"
    assert median == "3\u202f000"
    assert best == "0.94 … 0.96"
    assert paper.split(", ")[0] == "8\u202f000"
    assert theirs == "6\u202f000"
    assert cells["PPO+DR", "40"][:2] == ["…", "∞"]
    assert [row[0] for row in page.table("rnd")[1:]] == ["0 (PPO)", "100", "500"]
    assert page.table("epopt")[1][0] == "PPO+DR, ε = 0.5"
    assert [row[2] for row in page.table("grid")[1:]] == ["0.940", "0.960", "1.000"]
    said = page.text()
    assert "30 series are complete" in said or "30 of" in said
    assert "PPO+RND+DR at H = 10: the median seed does not solve it here" in said
    assert "tasid reproduce combination-lock --size quick" in said
    for word in ("None", "nan", "inf", "Infinity"):
        assert word not in said.split()
    assert is_experiment(folder)
    assert not is_experiment(folder / "records")


def test_the_table_and_the_figures_are_files(folder):
    built = build_experiment_report(folder)
    written = json.loads((folder / "table.json").read_text())
    assert written == [dict(row) for row in built.table]
    row = next(r for r in written if (r["algorithm"], r["horizon"]) == ("ppo", 10))
    assert row["episodes"] == [None, 2000, None]
    assert row["paper_episodes"] == [None] * 5
    names = {path.name for path in built.figures}
    assert {"lock.svg", "solved.svg", "solved-paper.svg", "rewards-H10.svg"} <= names
    assert all(path.read_bytes().startswith(b"<?xml") for path in built.figures)


def test_the_same_records_give_the_same_bytes(folder):
    first = {p: p.read_bytes() for p in build_experiment_report(folder).figures}
    page = build_experiment_report(folder).page.read_bytes()
    assert build_experiment_report(folder).page.read_bytes() == page
    assert first == {p: p.read_bytes() for p in first}


def test_an_empty_experiment_has_a_page_too(tmp_path):
    records = Records(tmp_path)
    records.describe({"name": "combination-lock", "title": "", "size": "smoke"})
    assert "Nothing is solved yet" in build_experiment_report(tmp_path).page.read_text()


def test_unknown_experiments_have_none(tmp_path):
    Records(tmp_path).describe({"name": "chess", "title": "", "size": "smoke"})
    with pytest.raises(ValueError, match="'chess', which has no page"):
        build_experiment_report(tmp_path)
    with pytest.raises(ArtifactError, match="no experiment here"):
        build_experiment_report(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("experiment.json", "size", "sise"), "'size'"),
        (("records/ppo-H5/0.jsonl", "robust_value", "value"), "robust_value"),
        (("records/ppo-H5/0.jsonl", "stage", "act"), "stage"),
        (("records/ppo-H5/0.jsonl", "solved", "done"), "solved"),
    ],
)
def test_records_of_something_else_are_one_message(folder, tmp_path, change, named):
    copy = shutil.copytree(folder, tmp_path / "copy")
    name, old, new = change
    (copy / name).write_text((copy / name).read_text().replace(f'"{old}"', f'"{new}"'))
    with pytest.raises(ArtifactError, match=f"not the records of 'combination-lock'.*{named}"):
        build_experiment_report(copy)


@in_browser
def test_the_page_is_readable_in_a_browser(folder, tmp_path):
    page = build_experiment_report(folder).page
    browse(tmp_path, page, "--dump-dom")
    for window in measure(tmp_path, page):
        assert window["scroll"] <= window["inner"], "the page does not scroll sideways"
        assert window["figures"] >= 5
        assert not window["clashes"], window["clashes"]
        assert not window["small"], window["small"]
