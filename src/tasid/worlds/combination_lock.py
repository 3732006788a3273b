"""The combination lock (section 5 and appendix of the paper): a hard exploration problem.

Latent states are (layer, type) with layers 0 … H and types 1, 2, 3. In type 1 one good action stays
in type 1 and all others lead to type 2. In type 2 one good action stays, another returns to type 1,
and all others lead to type 3, which is absorbing. Arriving at layer H in type 1 / 2 / 3 earns
9.5 / 10 / 0. Before, the rewards mislead: +1 for falling from type 2 to 3, −1/H for staying in
type 1. A transition into layer H earns the terminal reward only.

An observation is a one-hot code of type and layer with Gaussian noise, permuted, padded with zeros
to a power of two and multiplied by a Hadamard matrix.

With N starts an episode begins in one of N states of type 1 at layer 0, each with its own good
action, and continues in the common lock (`layout="layer0"`), or there are N separate locks
(`layout="copies"`). N more bits of the code then name the start or the copy.

With `coin_flips` it is the lock on which HOMER (Misra et al., 2020) and BRIEE (Zhang et al., 2022)
were measured: types 1 and 2 are both good and begin an episode with probability ½ each. One good
action of each leads to type 1 or 2 of the next layer by a coin flip, all others lead to type 3 and
earn 0.1. Arriving at layer H in type 1 or 2 earns 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.planning import PerturbedMDP, perturb
from tasid.simulator import AbstractSimulator, check_size
from tasid.storage import plain_json
from tasid.targets.block import BlockMDP, on_device
from tasid.worlds import check_options

NAME = "combination-lock"
TERMINAL_REWARDS = (9.5, 10.0, 0.0)
"""Of arriving at layer H in type 1, 2, 3."""
UNPERTURBED = ("last", "none", "all")
LAYOUTS = ("layer0", "copies")


def combination_lock(
    *,
    horizon: int = 20,
    num_actions: int = 10,
    eta: float = 0.1,
    noise: float = 0.1,
    bernoulli: bool = False,
    depth: int = 0,
    unperturbed: str = "last",
    starts: int = 1,
    layout: str = "layer0",
    wrong_starts: float = 0.0,
    coin_flips: bool = False,
    seed: int = 0,
) -> BlockMDP:
    """A random lock: good actions, perturbation and observations are drawn from `seed`.

    Parameters
    ----------
    horizon, num_actions, eta
        H, |A| and the largest probability with which an action comes out as another.
    noise
        Standard deviation of the Gaussian noise (the paper's N(0, 0.01) gives the variance).
    bernoulli
        Append as many random bits to the code as it has entries (the main text's emission).
    depth
        Number of further layers x ← tanh(x R) with random rotations R; the paper has none.
    unperturbed
        Layers in which type 2 is not perturbed: the "last" decision, "none" or "all".
    starts, layout
        Number of starts, all equally likely, and their layout.
    wrong_starts
        ε₀: probability that an episode begins in type 2 or 3 of layer 0, unknown to the map.
    coin_flips
        The lock of HOMER and BRIEE. Its map is stochastic; it has neither `starts` nor layouts.
    """
    options = plain_json(locals(), NAME)
    _check(options)
    sim = lock_simulator(horizon, num_actions, seed=seed, starts=starts, layout=layout)
    if coin_flips:
        sim = coin_flip_simulator(horizon, num_actions, seed=seed)
    states = _states(horizon, starts, layout)
    xi = perturb(sim, eta=eta, seed=seed).xi.copy()
    spared = {"none": [], "last": [horizon - 1], "all": range(horizon)}[unperturbed]
    xi[(states.kind == 2) & np.isin(states.layer, spared)] = np.eye(num_actions)
    true = sim
    if wrong_starts > 0:
        wrong = np.flatnonzero((states.layer == 0) & (states.kind > 1))
        mu = [sim.start_probabilities * (1 - wrong_starts), np.full(wrong.size, 1 / wrong.size)]
        mu[1] *= wrong_starts
        true = sim.with_start([*sim.starts.tolist(), *wrong.tolist()], np.concatenate(mu).tolist())
    emission = _emission(states, noise=noise, bernoulli=bernoulli, depth=depth, seed=seed)
    return BlockMDP(PerturbedMDP(true, xi), emission, name=NAME, options=options, simulator=sim)


def lock_simulator(
    horizon: int, num_actions: int, *, seed: int, starts: int = 1, layout: str = "layer0"
) -> AbstractSimulator:
    """The lock's deterministic map with good actions drawn from `seed`."""
    states = _states(horizon, starts, layout)
    copies = starts if layout == "copies" else 1
    size = 3 * (horizon + 1)
    successor = np.tile(np.arange(states.layer.size)[:, None], (1, num_actions))
    for copy in range(copies):
        rng = _rng("good actions" if copy == 0 else f"good actions of copy {copy}", seed)
        for layer in range(horizon):
            stay, (hold, back) = rng.integers(num_actions), rng.choice(num_actions, 2, False)
            leads_to = np.full((3, num_actions), 3)
            leads_to[0] = 2
            leads_to[0, stay] = 1
            leads_to[1, hold], leads_to[1, back] = 2, 1
            row = copy * size + 3 * layer
            successor[row : row + 3] = row + 3 + leads_to - 1
    first = [copy * size for copy in range(copies)]
    if layout == "layer0" and starts > 1:
        others = np.flatnonzero(successor[0] != 3)  # state 3 is (1, 1)
        good = _rng("good actions of starts", seed).permutation(others)[: starts - 1]
        successor[size:] = 4
        successor[np.arange(size, size + starts - 1), good] = 3
        first += range(size, size + starts - 1)
    before, after = states.kind[:, None], states.kind[successor]
    shaping = np.select(
        [(before == 2) & (after == 3), (before == 1) & (after == 1)], [1.0, -1.0 / horizon], 0.0
    )
    reward = np.select(
        [states.layer[:, None] == horizon - 1, states.layer[:, None] == horizon],
        [np.array(TERMINAL_REWARDS)[after - 1], 0.0],
        shaping,
    )
    return AbstractSimulator(
        successor, reward, horizon=horizon, start=first, states=states.labels, source=NAME
    )


def coin_flip_simulator(horizon: int, num_actions: int, *, seed: int) -> AbstractSimulator:
    """The stochastic map of the lock with coin flips, good actions drawn from `seed`."""
    states = _states(horizon, 1, "layer0")
    good = _rng("good actions", seed).integers(num_actions, size=(horizon, 2))
    next_bad = np.minimum(3 * states.layer + 5, states.layer.size - 1)
    successor = np.tile(next_bad[:, None, None], (1, num_actions, 2))
    reward = np.zeros(successor.shape)
    open_states = (states.kind < 3) & (states.layer < horizon)
    reward[open_states] = 0.1
    for layer in range(horizon):
        for kind in range(2):
            row = 3 * layer + kind, good[layer, kind]
            successor[row] = 3 * layer + 3, 3 * layer + 4
            reward[row] = float(layer == horizon - 1)
    successor[-3:] = np.arange(states.layer.size)[-3:, None, None]
    return AbstractSimulator(
        successor,
        reward,
        probabilities=np.full(successor.shape, 0.5),
        horizon=horizon,
        start=[0, 1],
        states=states.labels,
        source=NAME,
    )


class _States(NamedTuple):
    """The lock's states in index order."""

    layer: NDArray[np.int64]
    kind: NDArray[np.int64]
    mark: NDArray[np.int64]
    """Number of the start or copy; −1 for states that belong to all."""

    @property
    def labels(self) -> list[tuple[int, ...]]:
        """(layer, type), followed by the number of the start or copy where there is one."""
        rows = np.stack(self, axis=1).tolist()
        return [tuple(row) if row[2] >= 0 else tuple(row[:2]) for row in rows]


def _states(horizon: int, starts: int, layout: str) -> _States:
    layer, kind = np.divmod(np.arange(3 * (horizon + 1)), 3)
    if starts == 1:
        return _States(layer, kind + 1, np.full(layer.size, -1))
    if layout == "copies":
        mark = np.repeat(np.arange(starts), layer.size)
        return _States(np.tile(layer, starts), np.tile(kind + 1, starts), mark)
    mark = np.concatenate([[0], np.full(layer.size - 1, -1), np.arange(1, starts)])
    further = np.zeros(starts - 1, layer.dtype)
    return _States(np.append(layer, further), np.append(kind, further) + 1, mark)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LockEmission:
    """x = (code(s) ⊕ bits + noise) · M, where M are rows of a Hadamard matrix."""

    clean: jax.Array
    """code(s) · M of every state, [S, d]."""
    mixing: jax.Array
    """M: the rows of the Hadamard matrix in permuted order, [entries, d]."""
    noise: jax.Array
    """Standard deviation."""
    rotations: jax.Array
    """Rotations of the further layers, [depth, d, d]."""
    random_bits: int = field(metadata={"static": True})
    """Number of random bits after the code."""

    dtype = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """[d]."""
        return (int(self.mixing.shape[-1]),)

    @property
    def bounds(self) -> tuple[float, float]:
        """With noise of six standard deviations, which float32 does not exceed, in every entry."""
        if self.rotations.shape[0]:
            return -1.0, 1.0
        deviations = 6 * float(self.noise) * self.mixing.shape[0]
        largest = float(np.abs(self.clean).max()) + self.random_bits + deviations
        return -largest, largest

    def __call__(self, keys: jax.Array, states: jax.Array, circumstances: Any) -> jax.Array:
        entries = self.mixing.shape[0]
        code = self.noise * jax.vmap(partial(jax.random.normal, shape=(entries,)))(keys)
        if self.random_bits:
            of_bits = jax.vmap(jax.random.fold_in, (0, None))(keys, 1)
            bits = jax.vmap(partial(jax.random.bernoulli, shape=(self.random_bits,)))(of_bits)
            code = code.at[:, entries - self.random_bits :].add(bits)
        x = self.clean[states] + code @ self.mixing
        for layer in range(self.rotations.shape[0]):
            x = jnp.tanh(x @ self.rotations[layer])
        return x


def _emission(
    states: _States, *, noise: float, bernoulli: bool, depth: int, seed: int
) -> LockEmission:
    from scipy.linalg import hadamard

    layers, marked = int(states.layer.max()) + 1, states.mark >= 0
    length = 3 + layers + int(states.mark.max()) + 1
    entries = 2 * length if bernoulli else length
    width = 1 << (entries - 1).bit_length()
    mixing = hadamard(width).astype(np.float32)[_rng("permutation", seed).permutation(entries)]
    clean = mixing[states.kind - 1] + mixing[3 + states.layer]
    clean[marked] += mixing[3 + layers + states.mark[marked]]
    rng = _rng("rotations", seed)
    rotations = [np.linalg.qr(rng.normal(size=(width, width)))[0] for _ in range(depth)]
    return LockEmission(
        clean=on_device(clean),
        mixing=on_device(mixing),
        noise=on_device(noise, np.float32),
        rotations=on_device(np.reshape(rotations, (depth, width, width)), np.float32),
        random_bits=entries - length,
    )


def _rng(purpose: str, seed: int) -> np.random.Generator:
    """A generator for each purpose: a new permutation must not change the good actions."""
    return np.random.default_rng(np.random.SeedSequence([*purpose.encode(), seed]))


def _check(options: dict[str, Any]) -> None:
    limits = {
        "horizon": (1, 10**6),
        "num_actions": (3, 10**6),  # type 2 has two good actions and a bad one
        "noise": (0.0, np.inf),
        "depth": (0, 100),
        "starts": (1, options["num_actions"] if options["layout"] == "layer0" else 10**6),
        "wrong_starts": (0.0, 0.999),
    }
    check_options(options, limits, {"unperturbed": UNPERTURBED, "layout": LAYOUTS})
    if options["coin_flips"] and (options["starts"] > 1 or options["wrong_starts"] > 0):
        raise ValueError("coin_flips: True excludes starts above 1 and wrong_starts above 0")
    states = 3 * (options["horizon"] + 1) * options["starts"]
    remedy = "choose fewer layers, actions or starts"
    check_size("horizon", (states, options["num_actions"], options["num_actions"]), 8, remedy)
    check_size("horizon", (states, 4 * (options["horizon"] + options["starts"])), 4, remedy)
