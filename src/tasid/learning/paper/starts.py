"""Several starts (Algorithms 3 and 4): group first observations, then test which start a group is.

**Grouping.** Starts are told apart by what happens next. A regressor g(φ̂(x), a, x') has to
distinguish real transitions from imposters, whose x' comes from another episode; of x it sees only
the group φ̂(x) ∈ [N] (Homer's bottleneck, applied to x):

    ĝ, φ̂ = argmin Σ (g(φ(x), a, x') − y)²

φ̂ has one hidden layer of prototypes (`Clusterer`), so that groups need not be convex. In training,
groups are soft and the squared error is averaged over them; its minimum is a hard grouping. The
problem has local minima: several initialisations compete on held-out transitions.

**Testing.** For each group and each start that it may be, Algorithm 2 learns a policy from n_l
episodes of the group, which n_t episodes then test. The start with the highest mean return is the
group's; N² policies are learned, N are kept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from tasid.keys import Phase, episode_keys, fold_in, seed_key
from tasid.learning.base import Event, LearningResult
from tasid.learning.paper.tasid import ClusteringConfig, Run, collect, diagnostics, learn_models
from tasid.policies.decoder_policy import Clusterer, DecoderPolicy, start_features
from tasid.policy import OpenLoopPolicy
from tasid.targets.rollout import rollout

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StartTested(Event):
    """The test of one start for one group of first observations."""

    cluster: int
    start: int
    """Index of the state."""
    value: float
    """Mean return of the policy learned for it."""
    low: float
    high: float
    """A 95 % interval of the value."""


class Clustering(NamedTuple):
    """φ̂ and how well it separates real transitions from imposters."""

    clusterer: Clusterer
    error: float
    """Held-out squared error; ¼ without any information."""
    shares: list[float]
    """Share of the first observations in each group."""


def learn_each_start(run: Run) -> LearningResult:
    """Algorithm 3, with Algorithm 4 for every group."""
    sim = run.plan.simulator
    starts, horizon = sim.starts, sim.horizon
    run.notify(Event(0, run.config.episodes))
    groups = run.load("groups") or run.save("groups", *_form_groups(run))
    found, queues = groups.metadata["found"], groups.arrays["queues"]
    clusterer = Clusterer(*(groups.arrays[name] for name in ("weights", "bias", "votes")))
    n_learn, n_test = found["n_learn"], queues.shape[2] - found["n_learn"]
    spent, total = found["n_cluster"], found["n_cluster"] + int(queues.max()) + 1
    root, each = fold_in(seed_key(run.seed), Phase.ONLINE), n_learn // horizon
    network_root = fold_in(seed_key(run.seed), Phase.NETWORKS)
    history, policies = list[Event](), []
    for k, rows in enumerate(queues):
        candidates: list[tuple[float, DecoderPolicy]] = []
        for start, numbers in zip(starts.tolist(), rows, strict=True):
            keys, number = fold_in(root, numbers), k * starts.size + len(candidates)
            policy, steps = learn_models(
                run,
                start,
                [keys[h * each : (h + 1) * each] for h in range(horizon - 1)],
                network_key=fold_in(network_root, 1_000_000 + number),
                spent=spent,
                total=total,
                prefix=f"{k}-{start}/",
            )
            returns = rollout(
                run.target, policy, keys[n_learn:], keep_from=horizon + 1, width=run.width
            ).returns
            mean, half = float(returns.mean()), 1.96 * float(returns.std(ddof=1)) / n_test**0.5
            spent += n_learn + n_test
            test = StartTested(spent, total, k, start, mean, mean - half, mean + half)
            run.notify(test)
            history += [*steps, test]
            candidates.append((mean, policy))
        policies.append(max(candidates, key=lambda candidate: candidate[0])[1])
    policy = replace(
        policies[0],
        models=np.concatenate([p.models for p in policies]),
        starts=np.concatenate([p.starts for p in policies]),
        clusterer=clusterer,
    )
    clusters = [
        {"start": int(start), "state": str(sim.states[start]), "share": share}
        for start, share in zip(policy.starts, found["shares"], strict=True)
    ]
    tests = [asdict(event) for event in history if isinstance(event, StartTested)]
    unknown = tuple(
        f"start {sim.states[start]} (state {start}): no group of first observations is this start; "
        "the policy will take it for another one"
        for start in sorted(set(starts.tolist()) - set(policy.starts.tolist()))
    )
    details = {"starts": {"clusters": clusters, "error": found["error"], "tests": tests}}
    learned = diagnostics(policy, history, details=details, warnings=unknown)
    return LearningResult(policy, total, learned)


def _form_groups(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """φ̂, and the episodes of the stream for each group and each start it may be, [N, N, n_l + n_t].

    An episode is a function of its key, so the stream can be sorted by first observations before
    the episodes are used. If `episodes` is the limit, all groups get what the rarest one has.
    """
    config, horizon = run.config, run.plan.simulator.horizon
    number, n_test = run.plan.simulator.starts.size, config.test_episodes
    n_cluster = config.cluster_episodes or min(512 * number, (config.episodes or 10**9) // 4)
    clustering = cluster_starts(run, n_cluster)
    fixed = config.episodes is None or config.start_episodes is not None
    if fixed:
        wanted = (config.start_episodes or 1000 * horizon) + n_test
        limit = 50 * wanted * number**2  # a group far rarer than its share is not waited for
    else:
        limit = (config.episodes or 0) - n_cluster
        wanted = limit // number**2
    groups = np.zeros(0, np.intp)
    while groups.size < limit and np.bincount(groups, minlength=number).min() < wanted * number:
        _, x = run.target.reset(episode_keys(run.seed, Phase.ONLINE, groups.size, run.width))
        groups = np.append(groups, clustering.clusterer(x))[:limit]
    each = min(wanted, int(np.bincount(groups, minlength=number).min()) // number)
    if not fixed or each < wanted:
        n_test = min(n_test, each // 8)
    if n_test < 2 or each - n_test < 2 * horizon:
        raise ValueError(
            f"episodes: the rarest group of first observations has {each} for each of {number} "
            f"starts it may be, and {max(16, 2 * horizon + 2)} are needed; give more episodes"
        )
    queues = [np.flatnonzero(groups == k)[: each * number] for k in range(number)]
    arrays = vars(clustering.clusterer) | {"queues": np.reshape(queues, (number, number, each))}
    found = {"n_cluster": n_cluster, "n_learn": each - n_test, **clustering._asdict()}
    return {"found": {k: v for k, v in found.items() if k != "clusterer"}}, arrays


def cluster_starts(run: Run, episodes: int) -> Clustering:
    """φ̂ from this many random first steps."""
    keys = episode_keys(run.seed, Phase.STARTS, 0, episodes)
    observations, actions, _ = collect(run, OpenLoopPolicy(run.target), keys, 0)
    x, x_next = (start_features(observations[:, i]) for i in (0, 1))
    groups, config = run.plan.simulator.starts.size, run.config.clustering
    return fit_clusters(x, actions, x_next, groups, run.target.num_actions, config, run.seed)


class _Encoder(NamedTuple):
    """Parameters of φ̂ in principal coordinates [D]; see `Clusterer`."""

    weights: Any
    """[D, M]."""
    bias: Any
    """[M]."""
    votes: Any
    """[M, N]."""

    def __call__(self, z: jax.Array) -> jax.Array:
        """Scores of groups, [n, N]."""
        return jax.nn.softmax(z @ self.weights + self.bias) @ self.votes


class _Regressor(NamedTuple):
    """g: the logit is u[group, a] · f(x') + b[group, a]."""

    u: jax.Array
    b: jax.Array


class _Transitions(NamedTuple):
    z: Any
    actions: Any
    features: Any


def fit_clusters(
    x: Floats,
    actions: NDArray[np.int32],
    x_next: Floats,
    groups: int,
    num_actions: int,
    config: ClusteringConfig,
    seed: int = 0,
) -> Clustering:
    """Group first observations by what follows them.

    Initialisations of φ̂ are of two kinds: with one prototype per group, each voting for its own
    group, and with `prototypes` per group and random votes. Those of the first kind compete as they
    are, too, because without training they cannot overfit. `x`, `actions` and `x_next` are
    transitions [n, d], [n], [n, d'] of uniformly random actions.
    """
    rng = np.random.default_rng(seed)
    mean, basis = _principal(x, config.directions, whiten=False)
    next_mean, next_basis = _principal(x_next, config.features, whiten=True)
    data = _Transitions((x - mean) @ basis, actions, (x_next - next_mean) @ next_basis)
    initial, flags = zip(*_initialisations(data.z, groups, config, rng), strict=True)
    order, held = rng.permutation(len(x)), max(1, round(len(x) * config.hold_out))
    encoders, errors = _train(
        _Encoder(*map(np.stack, zip(*initial, strict=True))),
        trained := np.array(flags),
        *(_Transitions(*(table[rows] for table in data)) for rows in (order[held:], order[:held])),
        jax.random.key(seed, impl="threefry2x32"),
        num_actions,
        config,
    )
    clusterers = [
        Clusterer(basis @ weights, bias - mean @ basis @ weights, votes)
        for weights, bias, votes in zip(*map(np.asarray, encoders), strict=True)
    ]
    shares = [np.bincount(phi(x), minlength=groups) / len(x) for phi in clusterers]
    errors = np.asarray(errors) + config.handicap * trained
    # Every start appears, so groupings with empty groups come last.
    best = min(range(len(shares)), key=lambda r: ((shares[r] == 0).sum(), errors[r]))
    return Clustering(clusterers[best], float(errors[best]), shares[best].tolist())


def _principal(x: Floats, number: int, *, whiten: bool) -> tuple[Floats, Floats]:
    """Mean [d] and leading principal directions [d, ≤ number], each or all scaled to variance 1."""
    mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
    _, singular, directions = np.linalg.svd(x - mean, full_matrices=False)
    kept = (np.arange(len(singular)) < number) & (singular > 1e-6 * max(singular[0], 1e-30))
    scale = singular[kept] / math.sqrt(len(x))
    if not whiten:
        scale = np.full_like(scale, math.sqrt((singular**2).sum() / x.size))
    return mean, (directions[kept].T / scale).astype(np.float32)


def _initialisations(
    z: Floats, groups: int, config: ClusteringConfig, rng: np.random.Generator
) -> Iterator[tuple[_Encoder, bool]]:
    """Encoders and whether they are trained."""
    units, own = groups * config.prototypes, np.eye(groups, dtype=np.float32)
    for restart in range(config.restarts):
        if restart % 2:
            centres = z[rng.choice(len(z), groups, replace=False)]
        else:  # the first is the best of many, the others vary more
            tries = [_k_means(z, groups, rng) for _ in range(16 if restart == 0 else 2)]
            centres = min(tries, key=lambda t: t[0])[1]
        yield _encoder(z, centres, 8 * own, units, config.sharpness), False
        yield _encoder(z, centres, 8 * own, units, config.sharpness), True
        votes = 2 * rng.standard_normal((units, groups)).astype(np.float32)
        yield _encoder(z, _k_means(z, units, rng)[1], votes, units, config.sharpness), True


def _k_means(z: Floats, number: int, rng: np.random.Generator) -> tuple[float, Floats]:
    """Mean squared distance to the nearest centre, and centres [number, D]."""
    with warnings.catch_warnings(action="ignore"):  # of centres without points
        centres, nearest = kmeans2(z, number, minit="++", rng=rng)
    return float(((z - centres[nearest]) ** 2).sum(axis=1).mean()), centres.astype(np.float32)


def _encoder(z: Floats, centres: Floats, votes: Floats, units: int, sharpness: float) -> _Encoder:
    """Prototypes at centres, whose softmax prefers the nearest; unused units never win."""
    squares = (centres**2).sum(axis=1)
    distances = np.sort(squares - 2 * z @ centres.T, axis=1)
    scale = sharpness / (float(np.median(distances[:, 1] - distances[:, 0])) or 1.0)
    unused = units - len(centres)
    return _Encoder(
        np.pad(2 * scale * centres.T, ((0, 0), (0, unused))),
        np.pad(-scale * squares, (0, unused), constant_values=-1e9),
        np.pad(votes, ((0, unused), (0, 0))),
    )


@partial(jax.jit, static_argnames=("num_actions", "config"))
def _train(
    initial: _Encoder,
    trained: jax.Array,
    training: _Transitions,
    held_out: _Transitions,
    key: jax.Array,
    num_actions: int,
    config: ClusteringConfig,
) -> tuple[_Encoder, jax.Array]:
    """Encoders [R, …] and their held-out errors [R]; all see the same imposters."""
    rows, groups, n = len(training.actions), initial.votes.shape[-1], len(held_out.actions)
    shape = (groups, num_actions, training.features.shape[1])
    optimiser = optax.adam(config.learning_rate)
    shifts = 1 + np.arange(16) * max(1, n // 16)
    held_out_imposters = (np.arange(n) + shifts[:, None]) % n

    def train(first: _Encoder, free: jax.Array) -> tuple[_Encoder, jax.Array]:
        def loss(parameters: tuple[_Encoder, _Regressor], imposters: jax.Array) -> jax.Array:
            encoder, g = parameters
            encoder = jax.tree.map(partial(jnp.where, free), encoder, first)
            changes = encoder.weights - first.weights, encoder.bias - first.bias
            size = sum((values**2).sum() for values in (g.u, g.b, *changes))
            memberships = jax.nn.softmax(encoder(training.z))
            return _error(g, training, memberships, imposters) + config.penalty * size / rows

        def step(carry: Any, step_key: jax.Array) -> Any:
            parameters, state = carry
            gradient = jax.grad(loss)(parameters, jax.random.permutation(step_key, rows))
            change, state = optimiser.update(gradient, state)
            return (optax.apply_updates(parameters, change), state), None

        parameters = first, _Regressor(jnp.zeros(shape), jnp.zeros(shape[:2]))
        carry = parameters, optimiser.init(parameters)
        ((encoder, g), _), _ = jax.lax.scan(step, carry, jax.random.split(key, config.steps))
        encoder = jax.tree.map(partial(jnp.where, free), encoder, first)
        hard = jax.nn.one_hot(encoder(held_out.z).argmax(axis=1), groups)
        return encoder, jax.vmap(partial(_error, g, held_out, hard))(held_out_imposters).mean()

    return jax.vmap(train)(initial, trained)


def _error(g: _Regressor, data: _Transitions, groups: jax.Array, imposters: Any) -> jax.Array:
    """Mean of (g − y)² over real and imposter transitions, expected over soft groups [n, N]."""
    u, b = g.u[:, data.actions], g.b[:, data.actions].T

    def predict(features: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(jnp.einsum("knf,nf->nk", u, features) + b)

    errors = (1 - predict(data.features)) ** 2 + predict(data.features[imposters]) ** 2
    return 0.5 * (groups * errors).sum(axis=1).mean()
