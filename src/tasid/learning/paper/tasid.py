"""TASID (Algorithm 2): transfer from an abstract simulator using inverse dynamics.

Plan robustly on the map. Then, for each step h, collect episodes that follow the policy so far for
h steps and end with a uniformly random action; fit f_h(a | x_h, x_{h+1}) to them; decode the shadow
action α_h = argmax_a f_h(a | x_h, x_{h+1}); replay decoded actions on the map to track the state;
act by the plan.

Theorem 2: if the latent MDP of the target is an η-perturbation of the map, η < ½, and every step's
posterior f*_h is in the class F, then n_D = 8 H² |A|³ ln(|F|/δ) / (ε (1−2η)²) episodes per step
suffice for a value within ε of the robust policy's with probability 1−δ. The count does not depend
on the number of states.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tasid.keys import Keys, Phase, episode_keys, fold_in, seed_key
from tasid.learning.base import Callback, Diagnostics, Event, Learner, LearningResult
from tasid.learning.paper.training import fit
from tasid.networks import CNN, MLP, FlatModel, pair_model
from tasid.planning.robust_dp import RobustPlan
from tasid.planning.values import return_range
from tasid.policies.decoder_policy import DecoderPolicy
from tasid.policy import Policy
from tasid.storage import MANIFEST, Artifact, digest, read_artifact, write_artifact
from tasid.targets.base import Target
from tasid.targets.rollout import exploration, rollout
from tasid.theory import Setting, decoding_budget


@dataclass(frozen=True)
class ClusteringConfig:
    """Hyper-parameters of φ̂, which groups first observations; several starts only."""

    prototypes: int = 4
    """Hidden units per start."""
    restarts: int = 8
    """Initialisations of each kind."""
    steps: int = 300
    """Of Adam."""
    learning_rate: float = 3e-2
    penalty: float = 3.0
    """On the squared weights of g and on changes of the prototypes, divided by the number of
    transitions."""
    handicap: float = 5e-4
    """Held-out error by which a trained φ̂ has to beat an untrained one."""
    hold_out: float = 0.25
    """Share of the transitions that are held out."""
    directions: int = 32
    """Principal components of x that are used."""
    features: int = 8
    """Principal components of x' that are used."""
    sharpness: float = 4.0
    """Initial log-odds between the two nearest prototypes of a typical x."""


@dataclass(frozen=True)
class TasidConfig:
    """Hyper-parameters of the paper's method; the defaults are the paper's."""

    episodes: int | None = None
    """n: each of the H−1 models is learned from ⌊n/H⌋ episodes. If None, Theorem 2 gives the count
    for `epsilon`, `delta` and `log_class_size`; without `log_class_size` it is 1 000 a step."""
    epsilon: float = 0.1
    """ε of Theorem 2: loss of value against the robust policy, in units of reward."""
    delta: float = 0.05
    """δ of Theorem 2: probability of a larger loss."""
    log_class_size: float | None = None
    """ln |F|, the natural logarithm of the size of the model class."""
    max_episodes: int = 10_000_000
    """Learning does not start if Theorem 2 asks for more."""
    model: Any = None
    """The class F: a model of pairs (`tasid.networks.PairModel`), or any with `fit(X, y)` and
    `predict_proba(X)`. If None, the paper's: a `CNN` for images, an `MLP` otherwise."""
    hidden: tuple[int, ...] = (56, 56)
    """Sizes of the hidden layers of the MLP."""
    learning_rate: float = 3e-4
    """Of Adam."""
    batch_size: int | None = None
    """Rows per minibatch; if None, 256 for images and 32 for other observations."""
    clip: float | None = None
    """Bound on the global norm of gradients; if None, 100 for images and 0.25 otherwise."""
    patience: int = 10
    """Epochs without a lower validation loss before training stops."""
    max_epochs: int = 100
    """Epochs per step at most."""
    validation: float = 0.2
    """Share of a step's episodes that are held out."""
    width: int | None = None
    """Episodes of a compiled target that advance together; if None, 256 with images, because more
    do not fit into caches, and 1 024 otherwise. Other targets have a width of their own."""
    cluster_episodes: int | None = None
    """n₀, several starts only: episodes to group first observations by. If None, 512 per start, a
    quarter of `episodes` at most."""
    start_episodes: int | None = None
    """n_l, several starts only: episodes to learn a policy from, for each group and each start it
    may be. If None, what `episodes` leave; if that is None, too, 1 000 H."""
    test_episodes: int = 256
    """n_t, several starts only: episodes to test each of these policies with."""
    clustering: ClusteringConfig = field(default_factory=ClusteringConfig)

    def episodes_per_step(self, plan: RobustPlan) -> int:
        """⌊n/H⌋, or n_D of Theorem 2 if no number of episodes is known."""
        sim = plan.simulator
        if self.episodes is not None:
            if self.episodes < 2 * sim.horizon:
                raise ValueError(
                    f"episodes: {self.episodes} are fewer than 2 for each of the {sim.horizon} "
                    f"steps, one to train and one to validate; give {2 * sim.horizon} or more"
                )
            return self.episodes // sim.horizon
        if self.log_class_size is None:
            return 1000
        low, high = return_range(sim)
        setting = Setting(
            horizon=sim.horizon,
            actions=sim.num_actions,
            eta=plan.eta,
            log_class_size=self.log_class_size,
            delta=self.delta,
            return_range=high - low,
        )
        budget = decoding_budget(setting, epsilon=self.epsilon)
        if budget.n_total > self.max_episodes:
            raise ValueError(
                f"episodes: Theorem 2 asks for {budget.n_total:,} with epsilon={self.epsilon} and "
                f"delta={self.delta}, more than max_episodes={self.max_episodes:,}; raise epsilon "
                "or max_episodes, or give a number of episodes"
            )
        return budget.n_decode


@dataclass(frozen=True)
class StepEnded(Event):
    """The model of one step is learned."""

    step: int
    validation_loss: float
    """Mean of −ln f(a | x, x') over the held-out episodes."""
    epochs: int
    seconds: float
    """For collecting and training."""


@dataclass(frozen=True)
class Run:
    """What the parts of a run share, and those that are finished already."""

    target: Target
    plan: RobustPlan
    config: TasidConfig
    seed: int
    callbacks: Sequence[Callback]
    folder: Path | None
    """Where finished parts are kept."""

    @cached_property
    def network(self) -> FlatModel:
        """The model class F."""
        shape, model = tuple(self.target.observation_shape), self.config.model
        if model is None:
            model = CNN() if CNN().fits(shape) else MLP(tuple(self.config.hidden))
        actions = self.target.num_actions
        return FlatModel(pair_model(model, actions), shape, actions)

    @property
    def width(self) -> int:
        """How many episodes advance together: always as many, so that one program serves all."""
        if not self.target.pads_batches:
            return self.target.width
        return self.config.width or (256 if CNN().fits(self.target.observation_shape) else 1024)

    def notify(self, event: Event) -> None:
        """Tell all callbacks."""
        for callback in self.callbacks:
            callback(event)

    @cached_property
    def inputs(self) -> str:
        """A hash of everything that the parts depend on."""
        metadata = {
            "config": asdict(replace(self.config, model=None)),
            "network": self.network.describe(),
            "seed": self.seed,
            "eta": self.plan.eta,
            "map": self.plan.simulator.metadata(),
            "environment": self.target.environment,
        }
        return digest("inputs", metadata, self.plan.simulator.arrays())

    def load(self, part: str) -> Artifact | None:
        """A finished part, if it was computed from the same inputs."""
        if self.folder is None or not (self.folder / part / MANIFEST).exists():
            return None
        artifact = read_artifact(self.folder / part, kind="paper-part")
        return artifact if artifact.metadata["inputs"] == self.inputs else None

    def save(self, part: str, metadata: dict[str, Any], arrays: dict[str, Any]) -> Artifact:
        """Keep a finished part."""
        if self.folder is not None:
            metadata = {**metadata, "inputs": self.inputs}
            write_artifact(self.folder / part, kind="paper-part", metadata=metadata, arrays=arrays)
        return Artifact("paper-part", metadata, arrays)


class TasidLearner(Learner):
    """Algorithm 2; with several starts Algorithms 3 and 4 around it."""

    name = "paper"

    def __init__(self, config: TasidConfig | None = None) -> None:
        self.config = config or TasidConfig()

    def run(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        run_dir: Path | None = None,
    ) -> LearningResult:
        """Learn a policy; each finished step's model is saved in `run_dir` and not learned again.

        The first event tells the number of episodes before any is spent; a callback stops learning
        by raising an exception.
        """
        from tasid.learning.paper.starts import learn_each_start

        if plan.simulator.stochastic:
            raise ValueError(
                "simulator: the map is stochastic; method 'paper' needs a deterministic map, "
                "method 'belief' does not"
            )
        folder = None if run_dir is None else run_dir / "steps"
        run = Run(target, plan, self.config, seed, callbacks, folder)
        if folder is not None:
            run.network.describe()  # models that cannot be saved are refused before any episode
        if plan.simulator.starts.size > 1:
            return learn_each_start(run)
        each, steps = self.config.episodes_per_step(plan), plan.simulator.horizon - 1
        run.notify(Event(0, each * steps))
        policy, history = learn_models(
            run,
            plan.simulator.start,
            [episode_keys(seed, h, 0, each) for h in range(steps)],
            network_key=fold_in(seed_key(seed), Phase.NETWORKS),
            total=each * steps,
        )
        return LearningResult(policy, each * steps, diagnostics(policy, history))


def learn_models(
    run: Run,
    start: int,
    keys: Sequence[Keys],
    *,
    network_key: Keys,
    spent: int = 0,
    total: int | None = None,
    prefix: str = "",
) -> tuple[DecoderPolicy, list[StepEnded]]:
    """Algorithm 2 from line 3 on.

    Parameters
    ----------
    start
        The state in which the episodes start.
    keys
        The keys of the episodes of each of the H−1 steps.
    network_key
        Key of everything random in training.
    spent, total
        Episodes before these, and in all, for events.
    prefix
        Of the names under which finished steps are kept.
    """
    parameters = np.asarray(run.network.init(_jax_key(fold_in(network_key, 0))))
    models = np.zeros((1, len(keys), parameters.size), np.float32)
    policy = DecoderPolicy(
        plan=run.plan,
        network=run.network,
        models=models,
        starts=np.array([start]),
        observation_dtype=run.target.observation_dtype,
        environment=run.target.environment,
    )
    history = []
    for h, step_keys in enumerate(keys):
        step = run.load(f"{prefix}{h:04d}")
        if step is None:
            began, key = time.perf_counter(), _jax_key(fold_in(network_key, 1 + h))
            data = collect(run, policy, step_keys, h)
            parameters, loss, epochs = _fit(run, parameters, *data, key)
            if not math.isfinite(loss):
                raise ValueError(f"model: its loss at step {h} is not finite; lower learning_rate")
            seconds = time.perf_counter() - began
            figures = {"validation_loss": loss, "epochs": epochs, "seconds": seconds}
            step = run.save(f"{prefix}{h:04d}", {"figures": figures}, {"parameters": parameters})
        parameters = models[0, h] = step.arrays["parameters"]
        spent += len(step_keys)
        history.append(StepEnded(spent, total, step=h, **step.metadata["figures"]))
        run.notify(history[-1])
    return policy, history


def collect(
    run: Run, policy: Policy, keys: Keys, h: int
) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.float32]]:
    """Lines 5–10: follow π for h steps, take a uniformly random action, observe the outcome.

    Returns pairs (x_h, x_{h+1}) [n, 2, …], actions [n], and weights [n]: 0 where the episode ended
    before step h.
    """
    overrides = np.full((len(keys), h + 1), -1, np.int32)
    overrides[:, h] = exploration(keys, 1.0, run.target.num_actions, 1)[:, 0]
    episodes = rollout(
        run.target, policy, keys, overrides=overrides, steps=h + 1, keep_from=h, width=run.width
    )
    assert episodes.observations is not None
    weights = (episodes.lengths > h).astype(np.float32)
    return episodes.observations, overrides[:, h], weights


def _fit(
    run: Run,
    start: Any,
    observations: Any,
    actions: NDArray[np.int32],
    weights: NDArray[np.float32],
    key: jax.Array,
) -> tuple[NDArray[np.float32], float, int]:
    """Line 11: f_h = argmax_f Σ ln f(a_h | x_h, x_{h+1}); parameters, validation loss, epochs."""
    network, config = run.network, run.config
    oracle = getattr(network.model, "fit", None)
    if oracle is not None:
        parameters = network.flatten(oracle(observations, actions, weights))
        logits = network.apply(parameters, observations[:, 0], observations[:, 1])
        losses = -np.asarray(jax.nn.log_softmax(logits))[np.arange(len(actions)), actions]
        return np.asarray(parameters), float(losses @ weights / max(weights.sum(), 1)), 1
    images = isinstance(network.model, CNN)
    result = fit(
        network,
        start,
        observations,
        actions,
        weights,
        key,
        training=len(actions) - max(1, round(len(actions) * config.validation)),
        batch_size=config.batch_size or (256 if images else 32),
        max_epochs=config.max_epochs,
        learning_rate=config.learning_rate,
        clip=config.clip or (100.0 if images else 0.25),
        patience=config.patience,
    )
    return np.asarray(result.parameters), float(result.validation_loss), int(result.epochs)


def diagnostics(policy: DecoderPolicy, history: Sequence[Event], **more: Any) -> Diagnostics:
    """How learning went, with every event as a row for JSON."""
    steps = [asdict(event) for event in history if isinstance(event, StepEnded)]
    return Diagnostics(
        model=type(policy.network.model).__name__,
        history=tuple(history),
        stopped="all steps are learned",
        details={"steps": steps, **more.pop("details", {})},
        **more,
    )


def _jax_key(key: Any) -> jax.Array:
    return jax.random.wrap_key_data(key, impl="threefry2x32")
