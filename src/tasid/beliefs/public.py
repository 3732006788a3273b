"""Beliefs over any map, for any likelihoods: a sparse, controlled hidden Markov model.

The map says which states follow which under which command, the caller how likely what was seen is
in each state. Nothing is learned here and nothing is guessed.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from tasid.beliefs.chain import Chain
from tasid.beliefs.everywhere import filter_everywhere, smooth_everywhere
from tasid.beliefs.frontier import Frontier, filter_frontier, smooth_frontier
from tasid.beliefs.inputs import BeliefInputError, Given, LogLikelihoods, given
from tasid.beliefs.records import Beliefs, SmoothedBeliefs
from tasid.maps import AbstractSimulator


def filter_beliefs(
    sim: AbstractSimulator,
    commands: ArrayLike,
    log_likelihoods: ArrayLike | LogLikelihoods,
    *,
    eta: float,
    rewards: ArrayLike | None = None,
    ended: ArrayLike | None = None,
    leap: float = 0.0,
    frontier: Frontier | None = None,
) -> Beliefs:
    """p(state at step h | commands, and what was seen up to step h) of N episodes.

    Args:
        sim: The map; one table or one for every step, one start or several.
        commands: int [N, H].
        log_likelihoods: ln p(x_h | s) up to what all states share, float [N, H+1, S], −inf where
            s is impossible; or a function of (h, states int [1, E] or [N, E]) that gives what
            broadcasts to [N, E], for maps whose tables would be too large.
        eta: The share of commands that have another action's outcome, in [0, ½); which one is
            drawn from all actions alike.
        rewards: [N, H]. An outcome whose reward on the map is another counts for 0.05 of one
            whose reward fits: it is less likely and never ruled out.
        ended: int [N], after how many steps the target said that the episode was over; H if it
            did not. Weighed in the same way, by the map's states in which nothing more happens.
            What is given for steps after an end is not looked at.
        leap: The probability that a step leads to any reachable state at all.
        frontier: Prune beliefs to the likeliest states, for maps of 10⁵ states and more.
    """
    chain, episodes = _checked(sim, commands, log_likelihoods, eta, rewards, ended, leap, frontier)
    if frontier is not None:
        return filter_frontier(sim, chain, episodes, frontier)
    return filter_everywhere(sim, chain, episodes)


def smooth_beliefs(
    sim: AbstractSimulator,
    commands: ArrayLike,
    log_likelihoods: ArrayLike | LogLikelihoods,
    *,
    eta: float,
    rewards: ArrayLike | None = None,
    ended: ArrayLike | None = None,
    leap: float = 0.0,
    frontier: Frontier | None = None,
) -> SmoothedBeliefs:
    """p(state at step h | commands, and all that was seen) of N episodes, and outcome counts.

    Args:
        sim: As of `filter_beliefs`; so are all others.
        commands: int [N, H].
        log_likelihoods: ln p(x_h | s), float [N, H+1, S], or a function of (h, states).
        eta: The share of commands that have another action's outcome, in [0, ½).
        rewards: [N, H].
        ended: int [N].
        leap: The probability that a step leads to any reachable state at all.
        frontier: Prune beliefs to the likeliest states.
    """
    chain, episodes = _checked(sim, commands, log_likelihoods, eta, rewards, ended, leap, frontier)
    if frontier is not None:
        return smooth_frontier(sim, chain, episodes, frontier)
    return smooth_everywhere(sim, chain, episodes)


def _checked(
    sim: AbstractSimulator,
    commands: ArrayLike,
    log_likelihoods: ArrayLike | LogLikelihoods,
    eta: float,
    rewards: ArrayLike | None,
    ended: ArrayLike | None,
    leap: float,
    frontier: Frontier | None,
) -> tuple[Chain, Given]:
    if not isinstance(sim, AbstractSimulator):
        raise TypeError(f"sim: {type(sim).__name__}; a tasid.AbstractSimulator is needed")
    if frontier is not None and leap:
        raise BeliefInputError(f"leap: {leap}, but a frontier cannot reach all states: leave it 0")
    chain = Chain.of(sim)
    episodes = given(
        sim, chain, commands, log_likelihoods, eta=eta, rewards=rewards, ended=ended, leap=leap
    )
    return chain, episodes
