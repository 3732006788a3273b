"""Maps as hidden Markov models.

The map gives the transitions (`TransitionGraph`), an emission says what observations look like
(`GaussianEmission`, `ClassifierEmission`, or anything with `log_prob`), and `filter` and `smooth`
return where an agent was. Expectation maximisation on a map of six cells in a row, from noisy
unlabelled positions:

>>> import numpy as np
>>> from tasid import AbstractSimulator, Episodes
>>> from tasid.hmm import GaussianEmission, TransitionGraph, smooth
>>> cells, rng = np.arange(6), np.random.default_rng(0)
>>> successor = np.stack([np.maximum(cells - 1, 0), np.minimum(cells + 1, 5)], axis=1)
>>> sim = AbstractSimulator(successor, np.zeros((6, 2)), horizon=20)
>>> actions = (rng.random((40, 20)) < 0.7).astype(np.int32)
>>> executed = np.where(rng.random((40, 20)) < 0.1, rng.integers(2, size=(40, 20)), actions)
>>> states = np.zeros((40, 21), int)
>>> for h in range(20):
...     states[:, h + 1] = successor[states[:, h], executed[:, h]]
>>> observations = rng.permutation(6)[states][..., None] + 0.1 * rng.normal(size=(40, 21, 2))
>>> rewards, lengths = np.zeros((40, 20), np.float32), np.full(40, 20)
>>> episodes = Episodes(observations, actions, rewards, lengths, explored=actions < 0)

>>> graph = TransitionGraph.from_simulator(sim)
>>> emission = GaussianEmission.flat(6, size=2, dimensions=2)
>>> for temperature in (0.1, 0.2, 0.5, 1.0, 1.0, 1.0):
...     posterior = smooth(graph, emission, episodes, eta=0.1, temperature=temperature)
...     labels = posterior.smoothed_probs.reshape(-1, 6)
...     emission = GaussianEmission.fit(observations.reshape(-1, 2), labels)
>>> bool((posterior.smoothed_probs.argmax(axis=-1) == states).mean() > 0.99)
True
"""

from tasid.hmm.classifier import ClassifierEmission as ClassifierEmission
from tasid.hmm.emissions import Emission as Emission
from tasid.hmm.emissions import GaussianEmission as GaussianEmission
from tasid.hmm.emissions import PLDAConfig as PLDAConfig
from tasid.hmm.features import FeatureConfig as FeatureConfig
from tasid.hmm.features import FeatureMap as FeatureMap
from tasid.hmm.smoother import FilteredPosterior as FilteredPosterior
from tasid.hmm.smoother import Posterior as Posterior
from tasid.hmm.smoother import filter as filter
from tasid.hmm.smoother import smooth as smooth
from tasid.hmm.transitions import Transition as Transition
from tasid.hmm.transitions import TransitionGraph as TransitionGraph
