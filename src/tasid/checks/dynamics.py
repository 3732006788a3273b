"""Does the target move and pay as the map says, as far as that shows without learning?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasid.checks.subject import LEVEL, BlindEpisodes, Finding, Subject, fine, note, problem
from tasid.theory.binomial import at_least, at_most

_CLOSE = 1e-4
_FEWEST = 5
"""Fewer undisturbed episodes than this say nothing."""
_REPEATED = 4
_REPEATED_STEPS = 8


def repeats(subject: Subject) -> Iterator[Finding]:
    """The same seed and the same commands: the same episode?"""
    steps = min(subject.sim.horizon, _REPEATED_STEPS)
    commands = _random_commands(subject, _REPEATED, steps)
    keep = range(steps + 1)
    one, two = (subject.play(commands, keep=keep) for _ in range(2))
    for h in keep:
        if not np.array_equal(one.seen[h], two.seen[h], equal_nan=True):
            where = "the first observation" if h == 0 else f"the observation after {h} steps"
            yield problem(
                "repeats",
                f"{where} differs when an episode is run again with the same seed and commands: "
                "the environment ignores the seed of reset, so no result can be repeated",
            )
            return
    if np.array_equal(one.rewards, two.rewards):
        yield fine("repeats", "the same seed gives the same episode")
    else:
        yield problem("repeats", "rewards differ when an episode is run again with the same seed")


def along_the_route(subject: Subject) -> Iterator[Finding]:
    """Rewards and ends of episodes that follow the plan for η = 0 blindly."""
    states, actions = subject.route
    if not actions:
        yield note("rewards", "on the map nothing can happen from the start on")
        return
    commands = np.tile(actions, (subject.episodes, 1))
    played = subject.play(commands, first=1_000)
    yield _rewards_agree(subject, played, states, actions)
    yield _ends_agree(subject, played, states)


def _rewards_agree(
    subject: Subject, played: BlindEpisodes, states: list[int], actions: list[int]
) -> Finding:
    """With probability (1−η)^(h+1) nothing has gone wrong up to step h, and all rewards fit."""
    number = len(played.rewards)
    fitting = np.ones(number, dtype=bool)
    checked = 0
    for h, (state, action) in enumerate(zip(states, actions, strict=False)):
        undisturbed = (1.0 - subject.eta) ** (h + 1)
        if undisturbed * number < _FEWEST:
            break
        said = float(subject.sim.reward_at(h)[state, action])
        fitting &= _near(played.rewards[:, h], said)
        count = int(fitting.sum())
        if at_most(count, number, undisturbed) < LEVEL / len(actions):
            amounts, times = np.unique(played.rewards[:, h], return_counts=True)
            paid = amounts[times.argmax()]
            where = f"state {subject.sim.states[state]}, {subject.name(action)}"
            return problem(
                "rewards",
                f"along the plan for η = 0 the map pays {said:g} at step {h} ({where}), but only "
                f"{count} of {number} episodes were paid as the map says up to there; with η = "
                f"{subject.eta:g} at least {undisturbed * number:.0f} are expected. At that step "
                f"most were paid {paid:g}: rewards or moves differ from the map, or η is larger",
            )
        checked = h + 1
    return fine("rewards", f"agree along the plan for η = 0, as far as {checked} steps show")


def _ends_agree(subject: Subject, played: BlindEpisodes, states: list[int]) -> Finding:
    number = len(played.ended)
    for e in range(1, len(states)):
        if subject.absorbing(min(e, subject.sim.horizon - 1), states[e]):
            break
        early = int((played.ended <= e).sum())
        allowed = 1.0 - (1.0 - subject.eta) ** e
        if at_least(early, number, allowed) < LEVEL / len(states):
            return problem(
                "ends",
                f"{early} of {number} episodes along the plan for η = 0 end within {e} steps, but "
                f"on the map the state after them, {subject.sim.states[states[e]]}, is no end",
            )
    return fine("ends", "episodes along the plan for η = 0 do not end where the map goes on")


def at_random(subject: Subject) -> Iterator[Finding]:
    """Rewards and ends of episodes with random commands."""
    commands = _random_commands(subject, subject.episodes, subject.sim.horizon)
    played = subject.play(commands, first=2_000_000)
    yield _known_rewards(subject, played)
    yield _known_ends(subject, played)


def _known_rewards(subject: Subject, played: BlindEpisodes) -> Finding:
    """Whatever happens, a step pays what some action pays in some state of its layer."""
    sim = subject.sim
    for h in range(sim.horizon):
        possible = np.unique(np.append(sim.reward_at(h)[subject.layers[h]], 0.0))
        paid = np.unique(played.rewards[:, h])
        place = np.clip(np.searchsorted(possible, paid), 1, max(len(possible) - 1, 1))
        nearest = possible[np.stack([place - 1, np.minimum(place, len(possible) - 1)])]
        unknown = paid[~_near(paid[None], nearest).any(axis=0)]
        if unknown.size:
            return problem(
                "reward values",
                f"at step {h} the target paid {unknown[0]:g}; the map knows no such reward there "
                f"(it has {', '.join(f'{r:g}' for r in possible[:8])}"
                f"{', …' if len(possible) > 8 else ''})",
            )
    return fine("reward values", "every reward seen is one of the map's")


def _known_ends(subject: Subject, played: BlindEpisodes) -> Finding:
    sim = subject.sim
    for e in np.unique(played.ended[played.ended < sim.horizon]).tolist():
        layer = subject.layers[e].tolist()
        if not any(subject.absorbing(e, state) for state in layer):
            count = int((played.ended == e).sum())
            return problem(
                "early ends",
                f"{count} of {len(played.ended)} episodes with random commands end after {e} "
                "steps, where no state of the map is an end: the map does not know how these "
                "episodes terminate",
            )
    over = int((played.ended <= sim.horizon).sum())
    return fine("early ends", f"{over} of {len(played.ended)} random episodes ended, as they may")


def _random_commands(subject: Subject, episodes: int, steps: int) -> NDArray[np.int64]:
    rng = np.random.default_rng([subject.seed, 3])
    return rng.integers(subject.sim.num_actions, size=(episodes, steps))


def _near(values: NDArray[np.float64], wanted: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    close: NDArray[np.bool_] = np.abs(values - wanted) <= _CLOSE * np.maximum(1.0, np.abs(wanted))
    return close
