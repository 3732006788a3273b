"""`tasid watch`: the very episode that is evaluated, and pictures that show what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import tasid
from commands import run
from tasid.maps.layout import GOAL, HAZARD, WALL, GridLayout
from tasid.report.figures.filmstrip import episode_gif, episode_strip
from tasid.report.figures.filmstrip_beliefs import grid_clouds, lane_clouds, likeliest
from tasid.report.figures.filmstrip_panels import map_panel
from tasid.runs.watch import Belief, Episode, watch_episode
from tasid.targets.target import EpisodeFailed


@pytest.fixture(scope="module")
def episode(learned, lock):
    return watch_episode(learned.policy, lock, seed=4, episode=2)


def grid_episode(truth=True):
    """Three steps to the goal in an image world that nobody had to learn."""
    sim = tasid.AbstractSimulator.from_text_map("#####\n#S.L#\n#..G#\n#####", horizon=6)
    plan = tasid.robust_dp(sim, eta=0.1)
    states = sim.replay([step.action for step in plan.route()])[:-1]
    actions = np.array([step.action for step in plan.route()])
    rng = np.random.default_rng(0)
    policy = tasid.Policy(plan, None, (8, 8, 3), "uint8", "paper")
    return Episode(
        policy=policy,
        observations=rng.integers(0, 255, size=(6, 8, 8, 3)).astype(np.uint8),
        states=np.array(states),
        actions=actions,
        confidence=np.linspace(1.0, 0.5, 6),
        lost=np.array([0, 0, 1, 0, 0, 0], bool),
        rewards=np.array([step.reward for step in plan.route()]),
        truth=np.array(states) if truth else None,
    )


def frames(path):
    with Image.open(path) as picture:
        for number in range(picture.n_frames):
            picture.seek(number)
            yield np.asarray(picture.convert("RGB")).astype(int)


# ---------------------------------------------------------------- the episode


class Short(gymnasium.Env):
    """Ends after two steps, whatever is done; or breaks there."""

    def __init__(self, lock, breaks):
        self.observation_space = gymnasium.spaces.Box(-99, 99, lock.observation_shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(lock.num_actions)
        self.breaks = breaks

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample() * 0, {}

    def step(self, action):
        self.steps += 1
        if self.breaks and self.steps == 2:
            raise RuntimeError("no oil")
        return self.observation_space.sample() * 0, 0.0, self.steps == 2, False, {}


def test_an_episode_is_over_when_its_target_says_so(believed, lock):
    seen = watch_episode(believed.policy, tasid.wrap(lambda: Short(lock, breaks=False)))
    assert (seen.ended, seen.steps) == (2, 2)


def test_a_broken_episode_is_not_shown_as_one(believed, lock):
    with pytest.raises(EpisodeFailed, match=r"after 2 steps .* RuntimeError: no oil"):
        watch_episode(believed.policy, tasid.wrap(lambda: Short(lock, breaks=True)))


def test_it_is_the_episode_that_evaluation_counts(learned, lock):
    returns = tasid.evaluate(learned.policy, lock, episodes=140, seed=4).returns
    for number in (0, 2, 130):
        seen = watch_episode(learned.policy, lock, seed=4, episode=number)
        assert seen.total == pytest.approx(returns[number], abs=1e-5)


def test_what_is_recorded_is_consistent_with_the_map(episode, lock):
    sim, horizon = lock.simulator, lock.simulator.horizon
    assert episode.steps == horizon
    assert episode.observations.shape == (horizon, *lock.target.observation_shape)
    assert (episode.states[0], episode.confidence[0]) == (sim.start, 1.0)
    for h in range(horizon):
        assert episode.actions[h] == episode.policy.plan.action(h, int(episode.states[h]))
        possible = sim.reward_at(h)[episode.truth[h]]
        assert np.isclose(possible, episode.rewards[h], atol=1e-6).any()
    for h in range(horizon - 1):
        assert episode.truth[h + 1] in sim.successor_at(h)[episode.truth[h]]
    assert 0.0 <= episode.tracked <= 1.0


def test_an_episode_is_over_when_nothing_can_happen_any_more():
    seen = grid_episode()
    assert seen.steps == 3  # right, down and right again, or the like
    assert seen.total == pytest.approx(1.0 - 0.02)
    assert (seen.tracked, grid_episode(truth=False).tracked) == (1.0, None)
    assert grid_episode(truth=False).steps == 3
    assert seen.action_name(0) in ("east", "south")


def test_episodes_are_numbered_from_zero(learned, lock):
    with pytest.raises(ValueError, match="episode: -1 is below 0"):
        watch_episode(learned.policy, lock, episode=-1)


# ---------------------------------------------------------------- pictures


def test_a_gif_has_a_frame_for_every_step_and_the_end(tmp_path):
    shown = list(frames(episode_gif(grid_episode(), tmp_path / "g.gif")))
    assert len(shown) == 4
    assert all((a != b).any() for a, b in pairwise(shown))


def test_the_observation_is_in_the_picture_pixel_by_pixel(tmp_path):
    """Its 64 random colours, shown large and unmixed."""
    seen = grid_episode()
    sheet = np.asarray(Image.open(episode_strip(seen, tmp_path / "s.png", frames=1)))
    colours = {tuple(c) for c in sheet.reshape(-1, 3)}
    assert {tuple(c) for c in seen.observations[0].reshape(-1, 3)} <= colours


def test_thin_walls_are_drawn_and_nobody_is_carried_through_them():
    seen = grid_episode()
    sim, goal = seen.policy.simulator, int(seen.states[-1])
    thin = sim.layout.cells.repeat(4, axis=0).repeat(4, axis=1)
    thin[4:12, 8] = WALL
    layout = GridLayout(sim.layout.cells, sim.layout.positions, backdrop=thin)
    origin = replace(sim.origin, layout=layout)
    walled = tasid.AbstractSimulator(
        sim.successor, sim.reward, horizon=6, start=sim.start, origin=origin
    )
    plan = tasid.robust_dp(walled, eta=0.1)
    states = np.array([sim.start, sim.start, goal, goal, goal, goal])
    axes = Figure().add_subplot()
    policy = replace(seen.policy, plan=plan)
    panel = map_panel(replace(seen, policy=policy, states=states, truth=None))
    panel.draw(axes)(3)
    floor, ends = (image.get_array() for image in axes.images)
    assert (floor[4:12, 8, 3] == 1).all()
    assert (ends[..., 3] > 0).sum() == np.isin(layout.cells, (GOAL, HAZARD)).sum()
    x = axes.lines[-2].get_xdata()  # the trail, and last the mark
    assert np.isnan(x).tolist() == [False] * 3 + [True] + [False] * 3


def test_the_belief_moves_and_the_truth_is_shown_only_where_known(tmp_path):
    ring = np.array([0xB4, 0x50, 0x1E])

    def places(episode):
        plain = np.zeros((6, 8, 8, 3), np.uint8)
        episode = replace(episode, observations=plain, lost=np.zeros(6, bool))
        path = episode_gif(episode, tmp_path / "g.gif")
        return [np.argwhere(np.abs(f - ring).sum(axis=-1) < 60) for f in frames(path)]

    known, unknown = places(grid_episode()), places(grid_episode(truth=False))
    assert all(len(found) > 20 for found in known)
    assert sum(map(len, unknown)) < 20
    middles = [np.median(found, axis=0) for found in known]
    assert middles[3][1] > middles[0][1] + 20  # the goal lies to the east of the start
    assert middles[3][0] > middles[0][0] + 20  # and to the south


def test_being_lost_is_said_in_red(tmp_path):
    """Bars of steps that called themselves lost are red, from that step on."""
    red = np.array([0xB3, 0x26, 0x1E])
    shown = list(frames(episode_gif(grid_episode(), tmp_path / "g.gif")))
    counts = [int((np.abs(f - red).sum(axis=-1) < 40).sum()) for f in shown]
    assert counts[1] < 20 < counts[2]
    assert counts[3] > 20


def test_pictures_of_vectors_and_layered_maps_repeat_byte_for_byte(episode, tmp_path):
    one, two = (episode_strip(episode, tmp_path / f"{n}.png").read_bytes() for n in "ab")
    assert one == two
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size[0] > 1000


@pytest.mark.parametrize("shape", [(2,), (100,), (6, 6), (6, 6, 1), (5, 6, 7), (4, 4, 3)])
def test_observations_of_any_shape_are_drawn(tmp_path, shape):
    rng = np.random.default_rng(1)
    seen = replace(grid_episode(), observations=rng.normal(size=(6, *shape)))
    assert episode_strip(seen, tmp_path / "s.png", frames=2).stat().st_size > 5_000


def test_maps_without_a_layout_show_states_over_steps(tmp_path):
    sim = tasid.AbstractSimulator(
        [[1, 2], [2, 0], [2, 2]], [[0, 1], [1, 0], [0, 0]], horizon=6, states=["a", "b", "c$"]
    )
    policy = replace(grid_episode().policy, plan=tasid.robust_dp(sim, eta=0.1))
    seen = replace(grid_episode(), policy=policy, states=np.array([0, 1, 2, 2, 2, 2]), truth=None)
    assert episode_strip(seen, tmp_path / "s.png").stat().st_size > 5_000


def test_wrong_endings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"should end in \.gif"):
        episode_gif(grid_episode(), tmp_path / "film.png")
    with pytest.raises(ValueError, match="frames: 0 is below 1"):
        episode_strip(grid_episode(), tmp_path / "s.png", frames=0)


# ---------------------------------------------------------------- beliefs


def believing_episode():
    """On a grid: sure of the start at first, then torn between two places."""
    seen = grid_episode()
    start, other = int(seen.states[0]), int(seen.states[2])
    beliefs = [Belief.of({start: 1.0})] + [Belief.of({other: 0.64, start: 0.36})] * 5
    return replace(seen, beliefs=tuple(beliefs))


def test_the_belief_of_every_step_is_recorded(believed, lock):
    returns = tasid.evaluate(believed.policy, lock, episodes=40, seed=4).returns
    for number in (0, 37):
        seen = watch_episode(believed.policy, lock, seed=4, episode=number)
        assert seen.total == pytest.approx(returns[number], abs=1e-5)
        assert len(seen.beliefs) == lock.simulator.horizon
        for h, belief in enumerate(seen.beliefs):
            assert belief.probabilities.sum() == pytest.approx(1.0, abs=1e-4)
            assert (np.diff(belief.probabilities) <= 0).all()
            assert belief.states[0] == seen.states[h]
            assert belief.probabilities[0] == pytest.approx(seen.confidence[h])
            layers = {lock.simulator.states[state][0] for state in belief.states.tolist()}
            assert layers == {h}, "at step h a lock is in layer h"


def test_shades_lie_on_the_cells_that_are_believed_in():
    seen = believing_episode()
    layout = seen.policy.simulator.layout
    figure = Figure()
    show = grid_clouds(figure.add_subplot(), seen.beliefs, layout)
    (drawn,) = figure.axes[0].collections
    middles = [path.vertices[:-1].mean(axis=0) for path in drawn.get_paths()]
    order = sorted({int(seen.states[0]), int(seen.states[2])})
    assert middles == [pytest.approx(layout.positions[s][::-1]) for s in order]
    for h, likely in ((0, {order[0]: 1.0}), (3, {order[1]: 0.64, order[0]: 0.36})):
        if int(seen.states[0]) != order[0]:
            likely = {order[1 - order.index(s)]: p for s, p in likely.items()}
        show(h)
        opaque = drawn.get_facecolor()[:, 3]
        assert opaque == pytest.approx([0.9 * likely.get(s, 0.0) ** 0.5 for s in order])


def test_where_states_look_somewhere_the_shade_is_on_that_side():
    layout = GridLayout(np.zeros((3, 3), int), [[1, 1]] * 4, headings=[0, 1, 2, 3])
    beliefs = [Belief.of(dict.fromkeys(range(4), 0.25))]
    figure = Figure()
    grid_clouds(figure.add_subplot(), beliefs, layout)
    (drawn,) = figure.axes[0].collections
    lean = [np.sign(path.vertices[:3].mean(axis=0) - 1) for path in drawn.get_paths()]
    # North is up, and y points down.
    assert [list(side) for side in np.round(lean)] == [[0, -1], [1, 0], [0, 1], [-1, 0]]


def test_lanes_keep_the_beliefs_of_earlier_steps():
    beliefs = [Belief.of({0: 1.0}), Belief.of({1: 0.5, 2: 0.25, 3: 0.25})]
    figure = Figure()
    show = lane_clouds(figure.add_subplot(), beliefs, {0: 0, 1: 0, 2: 1, 3: 1})
    (drawn,) = figure.axes[0].collections
    show(0)
    assert (drawn.get_facecolor()[:, 3] > 0).tolist() == [True, False, False]
    show(1)
    places = [path.vertices[:-1].mean(axis=0).tolist() for path in drawn.get_paths()]
    assert places == [pytest.approx([0, 0]), pytest.approx([1, 0]), pytest.approx([1, 1])]
    assert drawn.get_facecolor()[1:, 3] == pytest.approx([0.9 * 0.5**0.5] * 2)


def test_beliefs_can_be_seen(tmp_path):
    """Where nothing is believed, no pixel has the colour of beliefs."""
    bright = replace(believing_episode(), observations=np.zeros((6, 8, 8, 3), np.uint8))
    dark = replace(bright, beliefs=None)

    def blue(episode):
        picture = next(frames(episode_gif(episode, tmp_path / "g.gif")))
        heat = np.array([0x57, 0x85, 0xBF])  # nine tenths of the shade on paper
        return int((np.abs(picture - heat).sum(axis=-1) < 24).sum())

    assert blue(bright) > blue(dark) + 300


def test_other_maps_show_their_likeliest_states(tmp_path):
    sim = tasid.AbstractSimulator(
        [[1, 2], [2, 0], [2, 2]], [[0, 1], [1, 0], [0, 0]], horizon=6, states=["a", "b", "c$\n"]
    )
    policy = replace(grid_episode().policy, plan=tasid.robust_dp(sim, eta=0.1))
    beliefs = [Belief.of({1: 0.7, 2: 0.3})] * 6
    states = np.array([1] * 6)
    seen = replace(grid_episode(), policy=policy, states=states, truth=states, beliefs=beliefs)
    axes = Figure().add_subplot()
    likeliest(seen, beliefs).draw(axes)(2)
    assert [bar.get_width() for bar in axes.patches] == [0.7, 0.3, 0, 0, 0, 0]
    assert [text.get_text() for text in axes.texts][:3] == ["b  0.70", "c$\ufffd  0.30", ""]
    framed = [bar.get_linewidth() > 0 for bar in axes.patches]
    assert framed == [True, False, False, False, False, False]
    assert episode_strip(seen, tmp_path / "s.png").stat().st_size > 5_000


def test_the_public_name_returns_an_episode_that_saves_itself(believed, lock, tmp_path):
    seen = tasid.watch(believed.policy, lock, seed=4, episode=2)
    plain = watch_episode(believed.policy, lock, seed=4, episode=2)
    assert isinstance(seen, Episode)
    assert seen.total == plain.total
    one = seen.save_strip(tmp_path / "one.png", frames=2).read_bytes()
    assert one == episode_strip(plain, tmp_path / "two.png", frames=2).read_bytes()
    assert len(list(frames(seen.save_gif(tmp_path / "e.gif")))) == 5


# ---------------------------------------------------------------- the command


def test_the_command_tells_and_draws(capsys, learned, tmp_path):
    learned.policy.save(tmp_path / "policy")
    gif, png = tmp_path / "e.gif", tmp_path / "e.png"
    got = run(capsys, "watch", tmp_path, "--gif", gif, "--png", png, "--frames", 3, "--json")
    answer = json.loads(got.out)
    assert (answer["gif"], answer["png"]) == (str(gif), str(png))
    assert answer["steps"] == answer["horizon"] == 5
    assert len(answer["actions"]) == len(answer["confidence"]) == 5
    assert len(list(frames(gif))) == 5
    assert png.is_file()
    out = run(capsys, "watch", tmp_path, "--episode", 1).out
    assert "in 5 steps of 5, position right in" in out


def test_the_command_tells_beliefs(capsys, believed, tmp_path):
    believed.policy.save(tmp_path / "policy")
    answer = json.loads(run(capsys, "watch", tmp_path, "--json").out)
    for h, belief in enumerate(answer["beliefs"]):
        state, probability = belief[0]
        assert (state, probability) == (answer["states"][h], answer["confidence"][h])
    assert "in 5 steps of 5, position right in" in run(capsys, "watch", tmp_path).out


def test_the_command_refuses_what_it_cannot_do(capsys, learned, tmp_path):
    replace(learned.policy, environment=None).save(tmp_path / "policy")
    assert "say which one with --env" in run(capsys, "watch", tmp_path, code=2).err
    assert "should end in .gif" in run(
        capsys, "watch", tmp_path, "--env", "combination-lock", "--set", "horizon=5", "--set",
        "num_actions=4", "--gif", tmp_path / "film.txt", code=2).err  # fmt: skip
