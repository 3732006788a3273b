"""`tasid watch`: the very episode that is evaluated, and pictures that show what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import tasid
from tasid.cli import main
from tasid.report.filmstrip import episode_gif, episode_strip
from tasid.runs.watch import Episode, watch_episode


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


# ---------------------------------------------------------------- the command


def run(capsys, *arguments, code=0):
    with pytest.raises(SystemExit) as stop:
        main(["watch", *map(str, arguments)])
    got = capsys.readouterr()
    assert (stop.value.code or 0) == code, got.err
    return got


def test_the_command_tells_and_draws(capsys, learned, tmp_path):
    learned.policy.save(tmp_path / "policy")
    gif, png = tmp_path / "e.gif", tmp_path / "e.png"
    got = run(capsys, tmp_path, "--gif", gif, "--png", png, "--frames", 3, "--json")
    answer = json.loads(got.out)
    assert (answer["gif"], answer["png"]) == (str(gif), str(png))
    assert answer["steps"] == answer["horizon"] == 5
    assert len(answer["actions"]) == len(answer["confidence"]) == 5
    assert len(list(frames(gif))) == 5
    assert png.is_file()
    out = run(capsys, tmp_path, "--episode", 1).out
    assert "in 5 steps of 5, position right in" in out


def test_the_command_refuses_what_it_cannot_do(capsys, learned, tmp_path):
    replace(learned.policy, environment=None).save(tmp_path / "policy")
    assert "say which one with --env" in run(capsys, tmp_path, code=2).err
    assert "should end in .gif" in run(
        capsys, tmp_path, "--env", "combination-lock", "--set", "horizon=5", "--set",
        "num_actions=4", "--gif", tmp_path / "film.txt", code=2).err  # fmt: skip
