"""Peak memory of learning by the number of poses, and the refusal of what does not fit.

    python -m benchmarks memory
    python -m benchmarks memory --sides 12 24 --episodes 24

Each row is a fresh process that learns in a building with a lidar: a square hall with pillars as a
text map, H = 100, with the goal 12 cells from the start in the middle. The last table asks for
plans and targets beyond what a table may take; each must be refused with one clear message, quickly
and without the memory.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.processes import row, spent, table

LEARNING = """
import json, sys, time
import tasid
side, episodes = int(sys.argv[1]), int(sys.argv[2])
cells = [["#" if x % 6 == y % 6 == 3 else "." for x in range(side)] for y in range(side)]
middle = side // 2
cells[middle][middle], cells[middle][min(middle + 12, side - 1)] = "S", "G"
border = "#" * (side + 2)
text = "\\n".join([border, *("#" + "".join(line) + "#" for line in cells), border])
env = tasid.make("building", map=text, horizon=100, seed=0)
started = time.perf_counter()
result = tasid.learn(env, eta=0.1, episodes=episodes, seed=0)
print(json.dumps([env.simulator.num_states, time.perf_counter() - started]))
"""
REFUSED = {
    "plan of 10⁶ states, H = 2 000, values kept": """
successor = np.arange(10**6)[:, None] + np.zeros(2, int)
sim = tasid.AbstractSimulator(successor, np.zeros((10**6, 2)), horizon=2000)
tasid.robust_dp(sim, eta=0.1, keep_values=True)
""",
    "perturbation of 10⁵ states with 20 actions, H = 100": """
successor = np.arange(10**5)[:, None] + np.zeros(20, int)
sim = tasid.AbstractSimulator(successor, np.zeros((10**5, 20)), horizon=100)
tasid.perturb(sim, eta=0.1, per_step=True)
""",
    "lock with 10⁵ steps": 'tasid.make("combination-lock", horizon=10**5)\n',
}
"""What is asked for, and the code."""
REFUSAL = """
import sys, numpy as np, tasid
try:
    exec(sys.argv[1])
except ValueError as error:
    print(error)
else:
    sys.exit("it was not refused")
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sides", type=int, nargs="*", default=[12, 24, 48, 96])
    parser.add_argument("--episodes", type=int, default=48)
    options = parser.parse_args()
    table(["hall", "poses", "s", "peak MB", "KB a pose beyond the first row"])
    first: tuple[int, float] | None = None
    for side in options.sides:
        done = spent(["-c", LEARNING, str(side), str(options.episodes)])
        if done.code:
            row(f"{side} × {side}", "–", done.wall, done.memory, f"ended with code {done.code}")
            continue
        poses, seconds = json.loads(done.output)
        first = first or (poses, done.memory)
        more = (done.memory - first[1]) / (poses - first[0]) * 1e3 if poses > first[0] else "–"
        row(f"{side} × {side}", poses, seconds, f"{done.memory:.0f}", more)
    table(["asked for", "refused", "s", "peak MB", "message"])
    for name, code in REFUSED.items():
        done = spent(["-c", REFUSAL, code])
        refused = "no" if done.code else "yes"
        row(name, refused, done.wall, f"{done.memory:.0f}", done.output.strip())


if __name__ == "__main__":
    main()
