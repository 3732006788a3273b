"""The page that plays an episode: what stands in it, being carried away, and the page at work."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import tasid
from browser import browse, in_browser, measure
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import fit_features
from tasid.beliefs.gaussian import flat_gaussians
from tasid.maps.layout import UNKNOWN, GridLayout
from tasid.policies import BeliefPolicy
from tasid.report.pages.player import ETAS, episode_page, replay
from tasid.runs.watch import watch_episode

SMALL = "######\n#S...#\n#.##.#\n#...G#\n######"
CARRIED = 3


@pytest.fixture(scope="module")
def env():
    return tasid.make("building", map=SMALL, seed=1, horizon=9)


@pytest.fixture(scope="module")
def policy(env):
    """One that goes by its commands alone."""
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    chain = Chain.of(env.simulator)
    looks = fit_features(np.zeros((2, 64), np.float32))
    flat = flat_gaussians(Classes.of(chain, "place", env.simulator).number, 64, 8)
    return BeliefPolicy(plan, "place", looks, flat, 0.1, (64,), "float32")


@pytest.fixture(scope="module")
def carried(policy, env):
    return watch_episode(policy, env, seed=2, carried_after=CARRIED)


@pytest.fixture(scope="module")
def page(carried, tmp_path_factory):
    return episode_page([carried], tmp_path_factory.mktemp("page") / "p.html")


@pytest.fixture(scope="module")
def plain(carried, tmp_path_factory):
    """Nobody knows the truth, and there is no laser."""
    return episode_page([replace(carried, truth=None)], tmp_path_factory.mktemp("plain") / "p.html")


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])


def first_of(page):
    return data_of(page)["episodes"][0]


def test_who_begins_at_one_of_several_docks_is_carried_away_too(policy):
    env = tasid.make("building", map=SMALL, seed=1, horizon=9, starts=2)
    plan = tasid.robust_dp(env.simulator, eta=0.1)
    several = replace(policy, plan=plan)
    assert watch_episode(several, env, carried_after=CARRIED).carried_after == CARRIED


def test_unknown_borders_are_left_out(carried, page):
    """The map in the middle of one three times as wide: the same page."""
    sim = carried.policy.simulator
    layout = sim.layout
    cells, behind = (
        np.pad(one, [(n, n) for n in one.shape], constant_values=UNKNOWN)
        for one in (layout.cells, layout.backdrop)
    )
    wide = GridLayout(
        cells,
        layout.positions + layout.cells.shape,
        headings=layout.headings,
        directions=layout.directions,
        backdrop=behind,
    )
    moved = sim.replaced(origin=replace(sim.origin, layout=wide))
    plan = replace(carried.policy.plan, simulator=moved)
    seen = replace(carried, policy=replace(carried.policy, plan=plan))
    assert data_of(episode_page([seen], page.with_name("wide.html"))) == data_of(page)


def test_carried_away_is_as_before_until_then(policy, env, carried):
    left = watch_episode(policy, env, seed=2)
    np.testing.assert_array_equal(carried.truth[:CARRIED], left.truth[:CARRIED])
    np.testing.assert_array_equal(carried.observations[:CARRIED], left.observations[:CARRIED])
    way = {step.state for step in policy.plan.route()}
    found = set()
    for episode in range(12):
        seen = watch_episode(policy, env, seed=2, episode=episode, carried_after=CARRIED)
        found.add(env.simulator.states[int(seen.truth[CARRIED])])
    assert found <= way
    assert len(found) > 2


def test_only_within_the_episode(policy, env):
    for wrong in (0, 9, -1):
        with pytest.raises(ValueError, match=f"carried_after: {wrong} is outside 1 … 8"):
            watch_episode(policy, env, carried_after=wrong)


def test_the_page_has_the_episode(page, carried, policy):
    data, shown, layout = data_of(page), first_of(page), policy.simulator.layout
    assert len(shown["steps"]) == carried.steps
    assert shown["carried"] == CARRIED
    for h, step in enumerate(shown["steps"]):
        assert sum(p for *_, p in step["belief"]) == pytest.approx(1, abs=0.03)
        assert step["truth"][:2] == layout.positions[carried.truth[h]].tolist()
        np.testing.assert_allclose(step["numbers"], carried.observations[h], atol=0.006)
    assert [route["eta"] for route in data["routes"]] == list(ETAS)
    values = [route["value"] for route in data["routes"]]
    assert values == sorted(values, reverse=True)
    assert "http" not in re.sub(r"http-equiv", "", page.read_text())


def test_maps_without_places_have_no_page(tmp_path):
    lock = tasid.make("combination-lock", horizon=3)
    plan = tasid.robust_dp(lock.simulator, eta=0.1)
    chain = Chain.of(lock.simulator)
    size = lock.target.observation_shape[0]
    flat = flat_gaussians(Classes.of(chain, "place", lock.simulator).number, size, 8)
    looks = fit_features(np.zeros((2, size), np.float32))
    policy = BeliefPolicy(plan, "place", looks, flat, 0.1, (size,), "float32")
    with pytest.raises(ValueError, match="does not say where its states lie"):
        episode_page([watch_episode(policy, lock)], tmp_path / "p.html")
    assert not list(tmp_path.iterdir())


def driver(policy, **changed):
    options = {"map": SMALL, "seed": 1, "horizon": 9} | changed
    return replace(policy, environment={"name": "building", "options": options})


@pytest.fixture(scope="module")
def replayed(policy, tmp_path_factory):
    return replay(driver(policy), tmp_path_factory.mktemp("run"))


def test_reports_play_an_episode_as_it_is_and_carried_away(replayed, env, policy):
    assert replayed.page.name == "player.html"
    left, carried = data_of(replayed.page)["episodes"]
    seen = watch_episode(policy, env)
    assert [step["truth"][:2] for step in left["steps"]] == [
        policy.simulator.layout.positions[s].tolist() for s in seen.truth[: seen.steps]
    ]
    assert left["carried"] is None
    after = carried["carried"]
    assert after == len(left["steps"]) // 3
    assert carried["steps"][:after] == left["steps"][:after]
    assert carried["steps"][after]["truth"] != left["steps"][after]["truth"]


def test_reports_of_other_runs_play_nothing(policy, tmp_path):
    assert replay(policy, tmp_path) is None
    assert replay(replace(policy, environment={"name": "gym:Any-v0"}), tmp_path) is None
    for wrong, why in (({"map": "gone.txt"}, "gone.txt: no such file"), ({"x": 1}, "no option")):
        missing = replay(driver(policy, **wrong), tmp_path)
        assert missing.page is None
        assert why in missing.missing
    assert not list(tmp_path.iterdir())


def test_only_the_building_has_a_laser_and_rings_are_where_truth_is(plain, replayed):
    others, ours = plain.read_text(), replayed.page.read_text()
    assert (data_of(plain)["looks"], data_of(replayed.page)["looks"]) == ("numbers", "laser")
    assert "a bar each" in others
    assert "ring" not in re.search(r'class="caption">(.*?)</p>', others, re.S)[1]
    assert "the ring where it truly is" in ours
    assert "beams" in re.search(r'class="caption">(.*?)</p>', ours, re.S)[1]
    low, high = data_of(plain)["range"]
    shown = [value for step in first_of(plain)["steps"] for value in step["numbers"]]
    assert low <= min(shown) <= max(shown) <= high + 0.01


@in_browser
def test_the_controls_are_in_the_window(plain, tmp_path):
    """The map of the fixture is nearly square: as wide as the window it would be too tall."""
    note = """<script>addEventListener("load", () => setTimeout(() => {
      const end = document.getElementById("eta").getBoundingClientRect().bottom;
      const plan = document.getElementById("plan"), shown = plan.getBoundingClientRect();
      const square = Math.abs(shown.width / shown.height - plan.width / plan.height) < .01;
      document.body.dataset.fits = `${end <= 900 && square}`;
    }, 200));</script></body>"""
    copy = tmp_path / "fits.html"
    copy.write_text(plain.read_text().replace("</body>", note))
    assert 'data-fits="true"' in browse(tmp_path, copy, "--dump-dom", "--window-size=1200,900")


@in_browser
def test_the_other_episode_can_be_chosen(replayed, tmp_path):
    choose = """<script>addEventListener("load", () => setTimeout(() => {
      const which = document.getElementById("which");
      which.value = "1"; which.dispatchEvent(new Event("change"));
      document.getElementById("step").value = 5;
      document.getElementById("step").dispatchEvent(new Event("input"));
      document.body.dataset.said = document.getElementById("told").textContent;
    }, 200));</script></body>"""
    copy = tmp_path / "choose.html"
    copy.write_text(replayed.page.read_text().replace("</body>", choose))
    said = re.search(r'data-said="([^"]*)"', browse(tmp_path, copy, "--dump-dom"))[1]
    after = data_of(replayed.page)["episodes"][1]["carried"]
    assert said.startswith("step 5 of ")
    assert f"somebody carried it away after step {after - 1}" in said


@in_browser
def test_it_plays_and_steps_by_keyboard(page, tmp_path):
    press = """<script>addEventListener("load", () => setTimeout(() => {
      const key = k => dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true}));
      key("ArrowRight"); key("ArrowRight"); key("ArrowLeft");
      document.body.dataset.stepped = document.body.dataset.step;
      key("End"); document.body.dataset.ended = document.body.dataset.step;
      key("Home"); key(" ");
      document.body.dataset.playing = document.getElementById("play").textContent;
      setTimeout(() => { document.body.dataset.played = document.body.dataset.step; }, 1500);
    }, 200));</script></body>"""
    copy = tmp_path / "keys.html"
    copy.write_text(page.read_text().replace("</body>", press))
    dom = browse(tmp_path, copy, "--dump-dom")
    said = dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r"<body[^>]*>", dom)[0]))
    assert said["stepped"] == "1"
    assert int(said["ended"]) == len(first_of(page)["steps"]) - 1
    assert said["playing"] == "pause"
    assert int(said["played"]) >= 2


@in_browser
def test_it_fits_narrow_and_wide_windows(replayed, tmp_path):
    for window in measure(tmp_path, replayed.page):
        assert window["scroll"] == window["inner"], "no scrolling sideways"
        assert window["cut"] == []
