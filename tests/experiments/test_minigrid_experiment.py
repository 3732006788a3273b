"""The grid world's experiments: jobs, exact values of the peers, and the page from records."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from browser import in_browser, measure
from tasid.experiments import experiment
from tasid.experiments.grid.jobs import SIZES, jobs, peers
from tasid.experiments.page import build_experiment_report
from tasid.experiments.records import Records
from tasid.experiments.sweep import sweep


def test_full_has_the_settings_of_the_paper():
    by_eta = jobs("full", against="eta")
    assert {job.configuration["eta"] for job in by_eta} == {0.1, 0.2, 0.3, 0.4, 0.5}
    assert {job.configuration["height"] for job in by_eta} == {11}
    by_height = jobs("full", against="height")
    heights = {job.configuration["height"] for job in by_height}
    assert (min(heights), max(heights)) == (10, 100)
    assert {job.configuration["eta"] for job in by_height} == {0.1}
    assert all(job.configuration["episodes"] <= 1_000 for job in by_eta + by_height)
    assert len({seed for job in by_eta for seed in job.seeds}) == 5


def test_peers_are_what_simulation_says():
    env = tasid.make("lava-crossing", eta=0.3, seed=3)
    plan = tasid.robust_dp(env.simulator, eta=0.3)
    values = peers(env, plan)
    world, sim = env.latent.world, env.simulator
    rng = np.random.default_rng(0)
    route = [step.action for step in plan.route()]
    for name, choose in (
        ("random_walk", lambda h, n: rng.integers(0, 5, n)),
        ("turning", lambda h, n: np.full(n, 1)),
        ("open_loop", lambda h, n: np.full(n, route[h])),
    ):
        state, total = np.full(4_000, sim.start), np.zeros(4_000)
        for h in range(sim.horizon):
            chances = world.xi_at(h)[state, choose(h, state.size)]
            happened = (rng.random(state.size)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
            happened = np.minimum(happened, sim.num_actions - 1)
            total += sim.reward_at(h)[state, happened]
            state = sim.successor_at(h)[state, happened]
        error = 4.5 * total.std() / np.sqrt(total.size) + 1e-9
        assert values[name] == pytest.approx(total.mean(), abs=error), name
    assert values["robust"] > values["nominal"] > values["random_walk"]


def recorded(folder, against):
    """The page of an experiment that lacks one run."""
    asked = experiment(f"minigrid-{against}")
    records = Records(folder)
    records.describe({"name": asked.name, "title": asked.title, "size": "quick"})
    for number, job in enumerate(jobs("quick", against=against)[:-1]):
        (seed,) = job.seeds
        heading = {"configuration": dict(job.configuration), "seed": seed, "version": "0"}
        log = records.log(job.setting, seed, heading)
        log.resume()
        values = {"robust": 0.8, "nominal": 0.5, "random_walk": -1.0, "turning": -0.9}
        mean = 0.8 - 0.01 * number
        # As where the robust value is next to nothing.
        ratio = None if job.configuration["eta"] == 0.5 else mean / 0.8
        log.end(episodes=777, mean=mean, ratio=ratio, open_loop=-0.5, seconds=9.0, **values)
    return build_experiment_report(folder)


@pytest.mark.parametrize("against", ["eta", "height"])
def test_the_page_says_what_is_on_record(tmp_path, against):
    planned = jobs("quick", against=against)
    built = recorded(tmp_path, against)
    page = built.page.read_text()
    assert f"{len(planned) - 1} of {len(planned)} runs are complete" in page
    assert "0.800" in page
    assert "777" in page
    assert {path.name for path in built.figures} == {"map.svg", "looks.svg", "values.svg"}
    first = built.table[0]
    both = len(planned) // len(SIZES["quick"].seeds)
    assert first["ratio_median"] == pytest.approx(1 - 0.01 * both / 2 / 0.8)
    if against == "eta":
        last = built.table[-1]
        assert (last["eta"], last["ratio_median"]) == (0.5, None)
        assert "η 0.5: seed 200 0.760<" in page, "no ratio in brackets"
    assert build_experiment_report(tmp_path).page.read_text() == page, "the same bytes again"


@in_browser
@pytest.mark.parametrize("against", ["eta", "height"])
def test_the_page_fits_narrow_and_wide_windows(tmp_path, against):
    page = recorded(tmp_path / "experiment", against).page
    for window in measure(tmp_path, page):
        assert window["scroll"] == window["inner"], "no scrolling sideways"
        assert window["clashes"] == []
        assert window["small"] == []
        assert window["cut"] == []


def test_smoke_runs_from_the_first_episode_to_an_ending(tmp_path):
    records = sweep(experiment("minigrid-eta"), tmp_path, size="smoke", workers=1)
    (series,) = records.series()
    assert series.ending["episodes"] == SIZES["smoke"].etas[0.1]
    assert series.configuration["method"] == "belief"
    assert series.ending["robust"] < 0, "three steps lead nowhere"
    assert series.ending["ratio"] is None
    before = (tmp_path / "records" / "eta-0.1" / "0.jsonl").read_bytes()
    sweep(experiment("minigrid-eta"), tmp_path, size="smoke", workers=1)
    assert (tmp_path / "records" / "eta-0.1" / "0.jsonl").read_bytes() == before, "done once"
