"""Speed and memory of start-up, acting, environments, learning, and the smoother.

    python -m benchmarks speed                     # all parts, some ten minutes
    python -m benchmarks speed --parts startup acting

startup     `import tasid` and `tasid --help` in fresh processes, the quickest of several.
acting      A process that loads a policy and acts: time to load, decisions per second, memory.
stepping    Environment steps per second: native batches, and Gymnasium's vector interface.
learning    Seconds by part and peak memory of learning, a fresh process for each world. The second
            run in the process compiles nothing.
smoothing   Episodes per second of the smoother, beside dynamax with its dense transition matrices.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import row, spent, table

WORLDS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "lock": ("combination-lock", "CombinationLock", {"horizon": 40}, 128),
    "lava": ("lava-crossing", "LavaCrossing", {}, 250),
    "building": ("building", "Building", {}, 200),
}
"""Name, Gymnasium id, options, and episodes to learn from."""
ACTING = """
import json, sys, time
import numpy as np
started = time.perf_counter()
import tasid
agent = tasid.load(sys.argv[1]).agent()
observations, seconds = np.load(sys.argv[2]), []
agent.act(observations[0])
loaded = time.perf_counter() - started
for _ in range(int(sys.argv[3])):
    if agent.step >= agent.policy.horizon:
        agent.reset()
    begun = time.perf_counter()
    agent.act(observations[agent.step % len(observations)])
    seconds.append(time.perf_counter() - begun)
print(json.dumps([loaded, *np.percentile(seconds, [50, 99])]))
"""
LEARNING = """
import json, sys, time
import tasid
env = tasid.make(sys.argv[1], seed=100, **json.loads(sys.argv[2]))
runs = []
for _ in range(2):
    events, started = [], time.perf_counter()
    tasid.learn(env, eta=0.1, episodes=int(sys.argv[3]), seed=0, callbacks=[events.append])
    seconds = time.perf_counter() - started
    runs.append([seconds, sum(e.seconds_playing for e in events)])
    runs[-1].append(sum(e.seconds_fitting for e in events))
print(json.dumps(runs))
"""


def startup(worlds: Sequence[str], quick: bool) -> None:
    """Start-up seconds."""
    commands = {
        "python": ["-c", "pass"],
        "import numpy": ["-c", "import numpy"],
        "import tasid": ["-c", "import tasid"],
        "tasid --help": ["-c", "from tasid.cli import main; main()", "--help"],
    }
    table(["start-up", "s", "s of the processor", "MB"])
    for name, command in commands.items():
        runs = [spent(command) for _ in range(2 if quick else 7)]
        assert not any(run.code for run in runs), name
        wall, processor = (min(run[i] for run in runs) for i in (0, 1))
        row(name, wall, processor, f"{runs[0].memory:.0f}")


def acting(worlds: Sequence[str], quick: bool) -> None:
    """A process that only acts."""
    import tasid
    from tasid.keys import episode_keys

    table(["acting", "s to load", "ms a decision", "99 %", "decisions/s", "MB"])
    for world in worlds:
        name, _, options, _ = WORLDS[world]
        env = tasid.make(name, seed=100, **options)
        policy = tasid.learn(env, eta=0.1, episodes=16, seed=0).policy
        with tempfile.TemporaryDirectory() as folder:
            policy.save(Path(folder, "policy"))
            _, observations = env.reset(episode_keys(0, 0, 0, 64))
            np.save(Path(folder, "observations.npy"), observations)
            place = (f"{folder}/policy", f"{folder}/observations.npy", "200" if quick else "2000")
            done = spent(["-c", ACTING, *place])
        loaded, middle, slow = json.loads(done.output)
        row(world, loaded, 1e3 * middle, 1e3 * slow, f"{1 / middle:.0f}", f"{done.memory:.0f}")


def stepping(worlds: Sequence[str], quick: bool) -> None:
    """Environment steps per second."""
    import gymnasium

    import tasid
    from tasid.keys import episode_keys

    table(["steps/s", "native, 512 episodes", "Gymnasium vector, 16 environments"])
    for world in worlds:
        name, gym_id, options, _ = WORLDS[world]
        env = tasid.make(name, seed=0, **options)
        keys, rng = episode_keys(0, 0, 0, 512), np.random.default_rng(0)
        actions = rng.integers(env.num_actions, size=(env.horizon, 512)).astype(np.int32)
        vector = gymnasium.make_vec(f"tasid/{gym_id}-v0", num_envs=16, **options)
        vector.action_space.seed(0)
        vector.reset(seed=0)

        def native(env: Any = env, actions: Any = actions, keys: Any = keys) -> int:
            state, _ = env.reset(keys)
            for h in range(env.horizon):
                state, *_ = env.step(state, actions[h], h, keys)
            return actions.size

        def through_gymnasium(vector: Any = vector) -> int:
            for _ in range(200):
                vector.step(vector.action_space.sample())
            return 200 * 16

        row(world, *(f"{_rate(work, quick):.0f}" for work in (native, through_gymnasium)))
        vector.close()


def learning(worlds: Sequence[str], quick: bool) -> None:
    """Learning by world and part."""
    table(["learning", "episodes", "s", "playing", "fitting", "rest", "compiling, s", "peak MB"])
    for world in worlds:
        name, _, options, episodes = WORLDS[world]
        episodes = 24 if quick else episodes
        done = spent(["-c", LEARNING, name, json.dumps(options), str(episodes)])
        first, (seconds, playing, fitting) = json.loads(done.output)
        rest, compiling = seconds - playing - fitting, max(first[0] - seconds, 0.0)
        row(world, episodes, seconds, playing, fitting, rest, compiling, f"{done.memory:.0f}")


class ScoreEmission:
    """Observations that are the log-likelihoods of all states."""

    def log_prob(self, features: Any, classes: Any) -> Any:
        """[n, L] of features [n, S]."""
        return features[:, classes]


def smoothing(worlds: Sequence[str], quick: bool) -> None:
    """The smoother beside dynamax, on an open square."""
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import hmm_smoother

    import tasid
    from tasid.hmm.smoother import smooth
    from tasid.hmm.transitions import TransitionGraph

    eta, horizon, number, side = 0.1, 40, 8 if quick else 64, 6 if quick else 12
    rows = ["." * side] * (side - 2)
    text = "\n".join(["S" + "." * (side - 1), *rows, "." * (side - 1) + "G"])
    sim = tasid.AbstractSimulator.from_text_map(text, horizon=horizon)
    graph, (states, actions) = TransitionGraph.from_simulator(sim), sim.successor.shape
    rng = np.random.default_rng(0)
    commands = rng.integers(actions, size=(number, horizon)).astype(np.int32)
    scores = rng.normal(size=(number, horizon + 1, states)).astype(np.float32)
    flags, lengths = np.zeros(commands.shape, bool), np.full(number, horizon, np.int32)
    silent = np.zeros(commands.shape, np.float32)
    episodes = tasid.Episodes(scores, commands, silent, lengths, flags)

    def own() -> Any:
        return smooth(graph, ScoreEmission(), episodes, eta=eta, use_rewards=False).smoothed_probs

    moves = np.eye(states, dtype=np.float32)[sim.successor].swapaxes(0, 1)  # [A, S, S]
    moves = jnp.asarray((1 - eta) * moves + eta * moves.mean(axis=0))
    start = jnp.zeros(states).at[sim.start].set(1.0)
    dense = jax.jit(
        jax.vmap(lambda a, scores: hmm_smoother(start, moves[a], scores).smoothed_probs)
    )

    def theirs() -> Any:
        return np.asarray(dense(commands, scores))

    difference = np.abs(own() - theirs()).max()
    speeds = [_rate(lambda work=work: len(work()), quick) for work in (own, theirs)]
    table(["smoothing", "states", "H", "ours, episodes/s", "dynamax", "ours is faster by"])
    row("open square", states, horizon, *speeds, speeds[0] / speeds[1])
    print(f"\nlargest difference of a smoothed probability: {difference:.1e}")


def _rate(work: Callable[[], int], quick: bool) -> float:
    """Units of work per second, the best of several repeats; the first one compiles."""
    work()
    best = 0.0
    for _ in range(2 if quick else 7):
        started = time.perf_counter()
        number = work()
        best = max(best, number / (time.perf_counter() - started))
    return best


PARTS = {part.__name__: part for part in (startup, acting, stepping, learning, smoothing)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--quick", action="store_true", help="few repeats and episodes")
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options.worlds, options.quick)


if __name__ == "__main__":
    main()
