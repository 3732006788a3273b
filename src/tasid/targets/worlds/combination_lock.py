"""The combination lock (section 5 and appendix of the paper): exploration made hard on purpose.

Latent states are (layer, type), layers 0 … H, types 1, 2, 3. From type 1 one good action stays on
type 1 and all others lead to 2; from 2 one good action stays, another goes back to 1, all others
fall to 3, which is for ever. Arriving pays 9.5 / 10 / 0 at type 1 / 2 / 3; on the way, falling pays
+1 and staying on type 1 costs 1/H, to mislead.

With several starts, episodes begin in one of N states of type 1 at layer 0, each with a good action
of its own, and go on in the one lock ("layer0"); or there are N locks side by side ("copies"). N
more bits of the observation then say which start, or which lock, it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from tasid.maps import AbstractSimulator, PerturbedMDP, perturb
from tasid.maps.size import is_whole, refuse_larger
from tasid.targets.block import BlockMDP, block_mdp, plain_options
from tasid.targets.device import on_device

NAME = "combination-lock"
_TYPES = 3
_DEEPEST = 100
_ARRIVAL = {1: 9.5, 2: 10.0, 3: 0.0}
_UNPERTURBED = ("last", "none", "all")
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
    start_probabilities: Sequence[float] | None = None,
    seed: int = 0,
) -> BlockMDP:
    """One random lock: good actions, perturbation and observation are drawn from `seed`.

    `noise` is the standard deviation of the Gaussian noise; `bernoulli` blends an equally long
    random bit vector into the observation (the main text's emission); `depth` mixes it through that
    many further layers of random rotation and tanh (harder than the paper's); `unperturbed` says in
    which layers type 2 is spared perturbation: the last decision, none, or all. `starts` and
    `layout` say in how many states episodes may begin and where those are; all are equally likely
    unless `start_probabilities` say otherwise.
    """
    options = plain_options(combination_lock, locals())
    _check_options(horizon, num_actions, noise, depth, unperturbed)
    several = {name: options.pop(name) for name in ("starts", "layout")}
    chances = options.pop("start_probabilities")
    sim = lock_simulator(horizon, num_actions, seed=seed, starts=starts, layout=layout)
    if starts > 1:
        options |= several
    if chances is not None:
        options["start_probabilities"] = chances
        sim = sim.with_start(sim.starts.tolist(), chances)
    states = _states(horizon, starts, layout)
    xi = perturb(sim, eta=eta, seed=seed).xi.copy()
    spared = {"none": [], "last": [horizon - 1], "all": list(range(horizon))}[unperturbed]
    xi[(states.kind == 2) & np.isin(states.layer, spared)] = np.eye(num_actions)
    emission = _emission(states, noise=noise, bernoulli=bernoulli, depth=depth, seed=seed)
    return block_mdp(NAME, options, PerturbedMDP(sim, xi), emission)


def lock_simulator(
    horizon: int, num_actions: int, *, seed: int, starts: int = 1, layout: str = "layer0"
) -> AbstractSimulator:
    """The lock's deterministic map, with good actions drawn from `seed`."""
    _check_starts(starts, layout, num_actions)
    copies = starts if layout == "copies" else 1
    tables = [_one_lock(horizon, num_actions, seed, copy) for copy in range(copies)]
    size = tables[0][0].shape[0]
    successor = np.concatenate([table + copy * size for copy, (table, _) in enumerate(tables)])
    reward = np.concatenate([pay for _, pay in tables])
    first = [copy * size for copy in range(copies)]
    if layout == "layer0" and starts > 1:
        further, pay = _further_starts(successor, starts, num_actions, horizon, seed)
        successor, reward = np.concatenate([successor, further]), np.concatenate([reward, pay])
        first = [0, *range(size, size + starts - 1)]
    labels = _states(horizon, starts, layout).labels
    return AbstractSimulator(successor, reward, horizon=horizon, start=first, states=labels)


def _one_lock(
    horizon: int, num_actions: int, seed: int, copy: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Successor and reward tables of a lock with one start."""
    size = _TYPES * (horizon + 1)
    successor = np.tile(np.arange(size)[:, None], (1, num_actions))
    reward = np.zeros((size, num_actions))
    rng = _rng("good actions" if copy == 0 else f"good actions of copy {copy}", seed)
    for layer in range(horizon):
        stay, (hold, climb) = rng.integers(num_actions), rng.choice(num_actions, 2, replace=False)
        leads = np.full((_TYPES, num_actions), 3)
        leads[0] = 2
        leads[0, stay] = 1
        leads[1, hold], leads[1, climb] = 2, 1
        for kind in (1, 2, 3):
            row = _index(layer, kind)
            successor[row] = [_index(layer + 1, to) for to in leads[kind - 1]]
            reward[row] = [_pay(layer, kind, to, horizon) for to in leads[kind - 1]]
    return successor, reward


def _further_starts(
    successor: NDArray[np.int64], starts: int, num_actions: int, horizon: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows of the starts beside (0, 1): no two starts have the same good action."""
    first = int(np.flatnonzero(successor[0] == _index(1, 1))[0])
    others = [action for action in range(num_actions) if action != first]
    good = _rng("good actions of starts", seed).permutation(others)[: starts - 1]
    leads = np.full((starts - 1, num_actions), 2)
    leads[np.arange(starts - 1), good] = 1
    pay = [[_pay(0, 1, int(to), horizon) for to in row] for row in leads]
    return _index(1, 1) - 1 + leads, np.asarray(pay)


class _States(NamedTuple):
    """What the lock's states are, in index order."""

    layer: NDArray[np.int64]
    kind: NDArray[np.int64]
    mark: NDArray[np.int64]
    """Which start, or which copy, it is; −1 if none."""
    marks: int

    @property
    def labels(self) -> list[tuple[int, ...]]:
        """(layer, type), followed by the number of the start or copy where there is one."""
        rows = zip(self.layer.tolist(), self.kind.tolist(), self.mark.tolist(), strict=True)
        return [(layer, kind) if mark < 0 else (layer, kind, mark) for layer, kind, mark in rows]


def _states(horizon: int, starts: int, layout: str) -> _States:
    layer, kind = np.divmod(np.arange(_TYPES * (horizon + 1)), _TYPES)
    kind += 1
    if starts == 1:
        return _States(layer, kind, np.full(layer.size, -1), 0)
    if layout == "copies":
        mark = np.repeat(np.arange(starts), layer.size)
        return _States(np.tile(layer, starts), np.tile(kind, starts), mark, starts)
    mark = np.concatenate([[0], np.full(layer.size - 1, -1), np.arange(1, starts)])
    more = starts - 1
    layer, kind = np.append(layer, [0] * more), np.append(kind, [1] * more)
    return _States(layer, kind, mark, starts)


def _index(layer: int, kind: int) -> int:
    return _TYPES * layer + kind - 1


def _pay(layer: int, kind: int, to: int, horizon: int) -> float:
    if layer + 1 == horizon:
        return _ARRIVAL[to]
    return {(2, 3): 1.0, (1, 1): -1.0 / horizon}.get((kind, to), 0.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LockEmission:
    """x = H · perm(v_s ⊕ bits + noise): one-hot type and layer, hidden in a Hadamard mixture."""

    clean: jax.Array
    """The mixture of every state's noiseless one-hot code, [S, d]."""
    mixing: jax.Array
    """The Hadamard columns that the code's entries land on, [entries, d]."""
    noise: jax.Array
    rotations: jax.Array
    """Orthogonal matrices of further layers x ← tanh(x·R), [depth, d, d]."""
    random_bits: int = field(metadata={"static": True})
    """How many fair random bits stand behind the code (0 unless the Bernoulli block is on)."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.mixing.shape[-1]),)

    def __call__(self, key: jax.Array, state: jax.Array) -> jax.Array:
        entries = self.mixing.shape[0]
        code = self.noise * jax.random.normal(key, (entries,))
        if self.random_bits:
            bits = jax.random.bernoulli(jax.random.fold_in(key, 1), shape=(self.random_bits,))
            code = code.at[entries - self.random_bits :].add(bits)
        x = self.clean[state] + code @ self.mixing
        for layer in range(self.rotations.shape[0]):
            x = jnp.tanh(x @ self.rotations[layer])
        return x


def _emission(
    states: _States, *, noise: float, bernoulli: bool, depth: int, seed: int
) -> LockEmission:
    layers = int(states.layer.max()) + 1
    code = _TYPES + layers + states.marks
    entries = 2 * code if bernoulli else code
    width = 1 << (entries - 1).bit_length()
    place = _rng("permutation", seed).permutation(entries)
    mixing = hadamard(width).astype(np.float32)[place]
    clean = mixing[states.kind - 1] + mixing[_TYPES + states.layer]
    marked = states.mark >= 0
    clean[marked] += mixing[_TYPES + layers + states.mark[marked]]
    return LockEmission(
        clean=on_device(clean),
        mixing=on_device(mixing),
        noise=on_device(noise, np.float32),
        rotations=on_device(_rotations(depth, width, seed)),
        random_bits=entries - code,
    )


def _rotations(depth: int, size: int, seed: int) -> NDArray[np.float32]:
    rng = _rng("rotations", seed)
    turned = [np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(depth)]
    return np.asarray(turned, np.float32).reshape(depth, size, size)


def _rng(purpose: str, seed: int) -> np.random.Generator:
    """Separate streams: a new permutation must not mean new good actions."""
    return np.random.default_rng(np.random.SeedSequence([*purpose.encode(), seed]))


def _check_options(
    horizon: int, num_actions: int, noise: float, depth: int, unperturbed: str
) -> None:
    if horizon < 1:
        raise ValueError(f"horizon: {horizon} is below 1")
    if num_actions < 3:
        raise ValueError(
            f"num_actions: {num_actions} is below 3; type 2 needs two good actions and a bad one"
        )
    width = 1 << (2 * (_TYPES + horizon + 1)).bit_length()
    for shape in ((width, width), (_TYPES * (horizon + 1), num_actions, num_actions)):
        refuse_larger("horizon", shape, 8, "open a shorter lock, or one with fewer actions")
    if not 0 <= depth <= _DEEPEST:
        raise ValueError(f"depth: {depth} is not in 0 … {_DEEPEST}")
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise: {noise} is not a standard deviation")
    if unperturbed not in _UNPERTURBED:
        raise ValueError(f"unperturbed: {unperturbed!r} is none of {', '.join(_UNPERTURBED)}")


def _check_starts(starts: Any, layout: str, num_actions: int) -> None:
    if not is_whole(starts) or starts < 1:
        raise ValueError(f"starts: {starts!r} is not a whole number of 1 or more")
    if layout not in LAYOUTS:
        raise ValueError(f"layout: {layout!r} is none of {', '.join(LAYOUTS)}")
    if layout == "layer0" and starts > num_actions:
        raise ValueError(
            f"starts: {starts} starts with good actions of their own need as many actions; there "
            f"are {num_actions}: give more with num_actions, or layout 'copies'"
        )
