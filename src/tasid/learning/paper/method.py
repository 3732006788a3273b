"""The paper's way to fit the steps' models: fresh data for every step, one network each.

Every one of the H−1 models gets ⌊n/H⌋ episodes; labels are actions, drawn uniformly; step h+1
starts from the parameters of step h with a fresh Adam. Nothing is standardised.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tasid.learning.memory import Memory, Remembered, seal_of
from tasid.learning.paper.tasid import Explored, Fitted
from tasid.maps import RobustPlan
from tasid.models import MLP, Fit, FitConfig, Network, Transitions, fit
from tasid.models.convolution import CNN
from tasid.policies.decoder import Decoder
from tasid.targets.streams import EPOCHS, FITTING
from tasid.targets.target import Target, seed_key

IMAGES = FitConfig(batch_size=256, clip=100.0)
"""The paper's hyper-parameters for images."""


class PaperLearner:
    """Algorithm 2, line 11."""

    def __init__(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        episodes: int,
        seed: int,
        config: FitConfig | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._memory = memory
        self._network = paper_network(target)
        self._config = config or (IMAGES if isinstance(self._network, CNN) else FitConfig())
        self.episodes = episodes_per_step(episodes, plan.simulator.horizon, self._config)
        key = seed_key(seed)
        self._key = jax.random.fold_in(key, EPOCHS)
        self._model = self._network.init(jax.random.fold_in(key, FITTING))
        self.decoder = Decoder.blank(plan, self._network)

    def learn(self, h: int, data: Explored) -> Fitted:
        """f_h = argmax_f Σ ln f(a_h | x_h, x_{h+1}), warm-started from f_{h−1}."""
        transitions = Transitions(
            x=data.x,
            x_next=data.x_next,
            label=data.command,
            weight=jnp.asarray(data.live, jnp.float32),
        )
        found = self._fitted(h, transitions)
        self._model = found.parameters
        self.decoder = self.decoder.with_model(h, found.parameters)
        epochs = int(found.epochs)
        history = [(float(a), float(b)) for a, b in np.asarray(found.history)[:epochs]]
        return Fitted(float(found.validation_loss), epochs, history)

    def _fitted(self, h: int, data: Transitions) -> Fit:
        """The step's fit, unless it is remembered."""
        if self._memory is None:
            return self._fit(h, data)
        seal = seal_of(data.label, data.weight)
        kept = self._memory.recall(h, seal)
        if kept is not None:
            return Fit(**{name: jnp.asarray(array) for name, array in kept.arrays.items()})
        found = self._fit(h, data)
        tables = {name: np.asarray(array) for name, array in found._asdict().items()}
        self._memory.keep(h, seal, Remembered({}, tables))
        return found

    def _fit(self, h: int, data: Transitions) -> Fit:
        key = jax.random.fold_in(self._key, h)
        return fit_step(self._network, self._config, self._model, data, key)


def paper_network(target: Target) -> MLP | CNN:
    """The paper's two networks: convolutions for images, [56, 56] for everything else."""
    if len(target.observation_shape) == 3:
        return CNN(target.observation_shape, target.num_actions)
    return MLP(int(np.prod(target.observation_shape)), target.num_actions)


def episodes_per_step(episodes: int, horizon: int, config: FitConfig) -> int:
    """⌊n/H⌋, or an error that says how many episodes this horizon needs at least."""
    each = episodes // horizon
    if horizon > 1 and (each < 2 or config.training(each) < 1):
        raise ValueError(
            f"episodes: {episodes} leave {each} for each of the {horizon} steps; every step needs "
            f"at least 2, one to train and one to validate: give {2 * horizon} or more"
        )
    return each


@partial(jax.jit, static_argnums=(0, 1))
def fit_step(
    network: Network, config: FitConfig, model: jax.Array, data: Transitions, key: jax.Array
) -> Fit:
    """One step's model from that of the step before; the last rows are held out."""
    return fit(network, config, model, *config.split(data), key)
