"""Pages and pictures: self-contained, escaped, true."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import tasid
from tasid.layout import HAZARD, WALL
from tasid.report.figures import PALETTE, line_chart, svg
from tasid.report.maps import graph_figure, map_view, plan_figure, save_plan
from tasid.report.page import Section, Table, figure, number, render_page, write_report
from tasid.report.watch import watch
from tasid.storage import ArtifactError, read_json, write_json

HOSTILE = "</script><img src=x onerror=alert(1)>$x_1$&amp;"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


class Elements(HTMLParser):
    """Names and attributes of the elements of a page, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def check(self) -> None:
        """Nothing is fetched, and ids are distinct."""
        for tag, attributes in self.elements:
            assert tag not in ("link", "iframe", "object", "embed", "base")
            for name in ("src", "href", "xlink:href", "action", "data"):
                value = attributes.get(name) or "#"
                assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value)
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))


@pytest.fixture(scope="module")
def run_page(lock_run, tmp_path_factory):
    """The page of a run, written into a copy of its folder."""
    folder = tmp_path_factory.mktemp("page") / "run"
    shutil.copytree(lock_run, folder)
    return write_report(folder)


@pytest.fixture(scope="module")
def episode(lock_policy, lock):
    return watch(lock_policy, lock, seed=3)


# Pages


def test_page_of_a_run_is_self_contained(run_page):
    page = run_page.read_text()
    Elements(page).check()
    assert "@import" not in page
    assert not set(re.findall(r"https?://[\w.]+", page)) - {"http://www.w3.org"}


def test_page_says_what_the_result_says(run_page):
    result, text = read_json(run_page.parent / "result.json"), Elements(run_page.read_text()).text
    for key in ("return_mean", "robust_value", "optimal_value", "ratio", "episodes"):
        assert number(result[key]) in text
    assert str(run_page.parent / "config.json") in text


def test_unknown_values_are_not_printed(run_page, tmp_path, monkeypatch):
    monkeypatch.setattr("tasid.report.watch.WatchedEpisode.player", lambda *_: ())  # is slow
    shutil.copytree(run_page.parent, tmp_path / "run")
    result = read_json(run_page.parent / "result.json")
    for earned, robust in ((9.4, 9.1), (-1.0, 9.1), (-2.0, -1.0), (None, None)):
        changed = {"return_mean": earned, "robust_value": robust, "optimal_value": robust}
        changed |= {"open_loop_value": None, "warnings": [HOSTILE]}
        write_json(tmp_path / "run" / "result.json", result | changed)
        page = Elements(write_report(tmp_path / "run").read_text())
        assert not re.search(r"\bnan\b", page.text)
        assert HOSTILE in page.text


def test_hostile_texts_are_escaped():
    chart = figure(line_chart([1], [2], xlabel=HOSTILE, ylabel=HOSTILE), HOSTILE)
    table = Table([HOSTILE], [[HOSTILE], [None], [0.5]], HOSTILE)
    section = Section(
        HOSTILE, [HOSTILE], [HOSTILE], [(HOSTILE, 1, HOSTILE)], [chart], [table], HOSTILE, [b"\x00"]
    )
    page = Elements(render_page(HOSTILE, [section], subtitle=HOSTILE))
    page.check()
    assert [tag for tag, _ in page.elements].count("img") == 1  # the player's
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert page.text.count(HOSTILE) >= 10


def test_hostile_labels_of_states_are_escaped():
    sim = tasid.AbstractSimulator.from_function(
        lambda state, action: (state[:-1] + str(action), 1.0), HOSTILE + "0", 2, horizon=3
    )
    drawing = figure(plan_figure(tasid.robust_dp(sim, eta=0.1)))
    page = Elements(render_page("x", [Section("", figures=[drawing])]))
    assert "script" not in [tag for tag, _ in page.elements]
    assert "</script>" in page.text


def test_runs_are_compared_and_failed_seeds_named(run_page, tmp_path):
    for seed in (1, 2):
        (tmp_path / f"seed-{seed}").mkdir()
        shutil.copy(run_page.parent / "result.json", tmp_path / f"seed-{seed}")
    write_json(tmp_path / "sweep.json", {"errors": {"3": HOSTILE}})
    page = Elements(write_report(tmp_path).read_text())
    page.check()
    assert "seed-1" in page.text
    assert "seed-2" in page.text
    assert HOSTILE in page.text


def test_unfinished_runs_have_no_page(tmp_path):
    with pytest.raises(ArtifactError, match=str(tmp_path)):
        write_report(tmp_path)


def test_numbers():
    texts = {0.123456: "0.1235", 12: "12", 123456.7: "123\u202f457", -2.0: "−2", None: "unknown"}
    assert {value: number(value) for value in texts} == texts
    assert number(float("nan")) == "unknown"


def test_equal_figures_have_equal_bytes_and_leave_the_users_settings():
    import matplotlib

    matplotlib.rcParams["font.size"] = 33.0
    try:
        first, second = (svg(line_chart([1, 2], [3, 4], xlabel="x", ylabel="y")) for _ in "ab")
        assert matplotlib.rcParams["font.size"] == 33.0
    finally:
        matplotlib.rcdefaults()
    assert first == second


# Browser


def chromium(page, folder):
    """The document after scripts have run, and what the console says."""
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--enable-logging=stderr --virtual-time-budget=20000 --dump-dom"
    ).split()
    command = [CHROMIUM, *flags, f"--user-data-dir={folder}", f"file://{page}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.browser
@browser
def test_page_opens_without_errors_and_plays(run_page, tmp_path):
    click = "<script>document.querySelector('.player button').click()</script></body>"
    page = tmp_path / "page.html"
    page.write_text(run_page.read_text().replace("</body>", click))
    document, console = chromium(page, tmp_path / "profile")
    assert not console
    last = re.search(r'<input type="range" min="0" max="(\d+)"', document)
    assert last is not None
    assert re.search(rf"<output>{last[1]}</output>", document)
    page.write_text(page.read_text().replace("</body>", "<script>throw 1</script></body>"))
    assert chromium(page, tmp_path / "profile")[1]  # the console is really read


# Plans


def test_plan_is_drawn_into_files(lock, tmp_path):
    plan = tasid.robust_dp(lock.simulator, eta=0.1)
    with Image.open(save_plan(plan, tmp_path / "plan.png")) as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24)}
    for name in ("robust", "nominal"):
        assert tuple(bytes.fromhex(PALETTE[name][1:])) in colours
    assert save_plan(plan, tmp_path / "plan.svg").read_text().count("<svg") == 1
    with pytest.raises(ValueError, match=r"plan\.txt"):
        save_plan(plan, tmp_path / "plan.txt")


@pytest.mark.parametrize("name", ["lava-crossing", "building"])
def test_routes_do_not_cross_walls(name):
    sim = tasid.make(name).simulator
    layout = sim.layout
    view = map_view(sim, [])
    picture = layout.cells if layout.backdrop is None else layout.backdrop
    left, right, low, high = view.extent
    for eta in (0.0, 0.1):
        route = tasid.robust_dp(sim, eta=eta).path(sim.starts)[:, 0]
        places = view.places(range(len(route)), route)
        shares = np.linspace(0, 1, 9)[:, None, None]
        x, y = (shares * places[1:] + (1 - shares) * places[:-1]).reshape(-1, 2).T
        row = (y - high) / (low - high) * picture.shape[0]
        column = (x - left) / (right - left) * picture.shape[1]
        assert not np.isin(picture[row.astype(int), column.astype(int)], (WALL, HAZARD)).any()
        assert sim.absorbing(0)[route[-1]]


# Episodes


def test_watched_episode_is_the_evaluated_one(lock_policy, lock):
    score = tasid.evaluate(lock_policy, lock, episodes=8, seed=3)
    for number_of_episode in (0, 5):
        watched = watch(lock_policy, lock, seed=3, episode=number_of_episode)
        assert watched.total == pytest.approx(score.returns[number_of_episode])
        likely = watched.beliefs[np.arange(10), watched.states]
        np.testing.assert_allclose(watched.beliefs.max(axis=1), likely)
        assert (watched.confidence <= likely + 1e-9).all()


def test_frames_of_gif_and_page(episode, tmp_path):
    with Image.open(episode.save_gif(tmp_path / "e.gif")) as film:
        assert film.n_frames == episode.num_frames == 10
    page = Elements(episode.save_html(tmp_path / "e.html").read_text())
    page.check()
    assert page.text.count("iVBORw0KGgo") == 10  # how PNG files begin in base64


def test_episode_ends_where_nothing_can_change(lock_policy):
    env = tasid.make("lava-crossing")
    plan = tasid.robust_dp(env.simulator, eta=0.0)
    watched = watch(env.latent.robust_policy(plan), env.latent.oracle_target())
    goal = np.flatnonzero(watched.rewards > 0.5)
    assert goal.size == 1
    assert watched.steps == goal[0] + 1
    assert watched.num_frames == watched.steps + 1
    assert watched.states is watched.confidence is None
    assert len(list(watched.frames([0, watched.steps]))) == 2


def test_words_are_true(lock_policy, lock):
    for seed in range(12):
        watched = watch(lock_policy, lock, seed=seed, kidnap_at=5)
        # A state of the fifth layer, which the robot can be in at that step.
        layer, _ = lock.simulator.states[watched.true_states[5]]
        assert layer == 5
        for h in range(watched.steps):
            first, second, status = watched.headline(h)
            right = watched.states[h] == watched.true_states[h]
            assert ("kidnapped" in first) == (h == 5)
            assert ("correct" in status) == right
            assert not (right and "lost" in status)
            assert str(lock.simulator.states[watched.states[h]]) in second
        total = watched.rewards.sum()
        assert f"{total:.3g}".replace("-", "−") in watched.headline(9)[1]


def test_kidnapped_robots_can_still_move():
    env = tasid.make("lava-crossing")
    policy = env.latent.robust_policy(tasid.robust_dp(env.simulator, eta=0.1))
    stuck = env.simulator.absorbing(0) | env.simulator.hazards
    for seed in range(25):
        watched = watch(policy, env.latent.oracle_target(), seed=seed, kidnap_at=2)
        assert not stuck[watched.true_states[2]]


def test_kidnapping_needs_an_environment_of_ours(lock_policy, lock):
    for step in (0, 10):
        with pytest.raises(ValueError, match="kidnap_at"):
            watch(lock_policy, lock, kidnap_at=step)
    with pytest.raises(ValueError, match="horizon"):
        watch(lock_policy, tasid.make("lava-crossing"))


def test_the_graph_of_a_map_shows_how_sure_arrows_are():
    # 0 → 1 → 2 by action 1; action 0 stays. State 3 is known of by a guess alone.
    successor = np.array([[0, 1], [1, 2], [2, 3], [3, 3]])
    sim = tasid.AbstractSimulator(successor, np.zeros((4, 2)), horizon=3, start=0)
    confidence = np.array([[1.0, 1.0], [1.0, 0.5], [1.0, 0.0], [0.0, 0.0]])
    axes = graph_figure(sim, confidence).axes[0]
    guessed, unsure, sure = axes.collections
    ends = [arrows.XY + np.stack([arrows.U, arrows.V], axis=1) for arrows in axes.collections]
    assert [arrows.XY.tolist() for arrows in (guessed, unsure, sure)] == [
        [[2, 0]],
        [[1, 0]],
        [[0, 0]],
    ]
    assert [end.tolist() for end in ends] == [[[3, 0]], [[2, 0]], [[1, 0]]]
