"""One episode of a policy, step by step: what it saw, where it believed it was, what it did.

In environments of ours the true states are noted too, through the latent door, for diagnosis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.policies import BeliefPolicy, Policy
from tasid.policies.belief_policy import BeliefAgent
from tasid.policies.decoder import WIDTH
from tasid.policies.evaluate import check_fit
from tasid.targets import BlockMDP, Latent, Target
from tasid.targets.rollout import stepper
from tasid.targets.streams import EVALUATION
from tasid.targets.target import episode_keys, for_horizon, refuse_failures, seed_key


@dataclass(frozen=True, eq=False)
class Belief:
    """Where a policy held itself to be when it acted, likeliest first."""

    states: NDArray[np.int64]
    """All states with at least one in a million, [n]."""
    probabilities: NDArray[np.float64]

    @classmethod
    def of(cls, belief: Mapping[int, float]) -> Belief:
        """An agent's belief; of equally likely states the lower index is first."""
        ranked = sorted(belief.items(), key=lambda pair: (-pair[1], pair[0]))
        return cls(
            np.array([state for state, _ in ranked], dtype=np.int64),
            np.array([probability for _, probability in ranked], dtype=np.float64),
        )


@dataclass(frozen=True, eq=False)
class Episode:
    """What happened at steps 0 … H−1 of one episode."""

    policy: BeliefPolicy | Policy
    observations: NDArray[Any]
    """x_h, [H, …]."""
    states: NDArray[np.int64]
    """ŝ_h, where the policy believed it was when it acted, [H]."""
    actions: NDArray[np.int64]
    confidence: NDArray[np.float64]
    """The probability of ŝ_h; of a policy without beliefs, that of the last transition decoded."""
    lost: NDArray[np.bool_]
    rewards: NDArray[np.float64]
    """What the action of the step earned."""
    truth: NDArray[np.int64] | None
    """s_h, [H]; None where nobody knows."""
    beliefs: tuple[Belief, ...] | None = None
    """One for each step; None of a policy that keeps a single state in mind."""
    carried_after: int | None = None
    """After so many steps somebody carried the agent elsewhere."""
    ended: int | None = None
    """After so many steps the target ended the episode; None if it did not, or does not tell."""

    @property
    def total(self) -> float:
        """The return."""
        return float(self.rewards.sum())

    @property
    def tracked(self) -> float | None:
        """How often the belief was the truth until the episode was over; None if unknown."""
        if self.truth is None:
            return None
        right = self.states[: self.steps] == self.truth[: self.steps]
        return float(right.mean())

    @property
    def steps(self) -> int:
        """Steps until nothing could happen any more; at least 1.

        That is when the target said so; or when every action leaves the true state as it is and
        earns nothing, and where the truth is unknown, the believed state has to do.
        """
        if self.ended is not None:
            return self.ended
        sim = self.policy.simulator
        places = self.states if self.truth is None else self.truth
        going = [
            bool((sim.successor_at(h)[s] != s).any() or sim.reward_at(h)[s].any())
            for h, s in enumerate(places.tolist())
        ]
        last = max((h for h, on in enumerate(going) if on or self.rewards[h]), default=0)
        return last + 1

    def action_name(self, h: int) -> str:
        """The action of step h, by name if the map names its actions."""
        origin = self.policy.simulator.origin
        action = int(self.actions[h])
        if origin is None or origin.actions is None:
            return f"action {action}"
        return origin.actions[action]


def watch_episode(
    policy: BeliefPolicy | Policy,
    env: Target,
    *,
    seed: int = 0,
    episode: int = 0,
    carried_after: int | None = None,
) -> Episode:
    """Follow the policy's agent through one episode.

    It is the very episode that `tasid.evaluate` counts under this seed and number, unless somebody
    carries the agent away after so many steps, to a state where it can go on; that takes an
    environment of ours.
    """
    if episode < 0:
        raise ValueError(f"episode: {episode} is below 0")
    if carried_after is not None and not 0 < carried_after < policy.horizon:
        raise ValueError(f"carried_after: {carried_after} is outside 1 … {policy.horizon - 1}")
    if carried_after is not None and not isinstance(env, BlockMDP):
        raise ValueError("carried_after: only in environments of ours can somebody be carried away")
    target = for_horizon(env, policy.horizon)
    check_fit(policy, target)
    # Compiled targets run at the width of an evaluation, because float32 rounds by width.
    first, slot = (episode - episode % WIDTH, episode % WIDTH) if target.traceable else (episode, 0)
    numbers = first + jnp.arange(WIDTH if target.traceable else 1)
    keys = episode_keys(seed_key(seed), EVALUATION, numbers)
    agent = (
        policy.agent() if isinstance(policy, BeliefPolicy) else policy.agent(slot=episode % WIDTH)
    )
    state, seen = target.reset(keys)
    refuse_failures(target, state)
    ended: int | None = None
    advance = stepper(target)
    rows, beliefs = [], []
    for h in range(target.horizon):
        x = np.asarray(seen[slot])
        action = agent.act(x)
        if isinstance(agent, BeliefAgent):
            beliefs.append(Belief.of(agent.belief))
        truth = int(Latent.states(state)[slot]) if isinstance(env, BlockMDP) else -1
        actions = jnp.full(len(numbers), action, jnp.int32)
        state, seen, rewards = advance(target, state, actions, jnp.int32(h), keys)
        refuse_failures(target, state)
        if ended is None and target.ends_early and bool(target.finished(state)[slot]):
            ended = h + 1
        if isinstance(env, BlockMDP) and h + 1 == carried_after:
            state, seen = env.target.put(_elsewhere(policy, seed, episode), keys)
        reward = float(rewards[slot])
        rows.append((x, agent.state, action, agent.confidence, agent.lost, reward, truth))
    x, states, chosen, confidence, lost, paid, truths = zip(*rows, strict=True)
    return Episode(
        policy=policy,
        observations=np.stack(x),
        states=np.array(states, dtype=np.int64),
        actions=np.array(chosen, dtype=np.int64),
        confidence=np.array(confidence, dtype=np.float64),
        lost=np.array(lost, dtype=bool),
        rewards=np.array(paid, dtype=np.float64),
        truth=np.array(truths, dtype=np.int64) if isinstance(env, BlockMDP) else None,
        beliefs=tuple(beliefs) if beliefs else None,
        carried_after=carried_after,
        ended=ended,
    )


def _elsewhere(policy: BeliefPolicy | Policy, seed: int, episode: int) -> int:
    """A state on the plan's way from the first start, by seed and episode; not where it ends."""
    sim = policy.simulator
    index = {label: number for number, label in enumerate(sim.states)}
    way = [index[step.state] for step in policy.plan.route(int(sim.starts[0]))]
    going = [s for s in way if (sim.successor_at(0)[s] != s).any()]
    return int(np.random.default_rng((seed, episode)).choice(going))
