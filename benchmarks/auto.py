"""When learning stops by itself: episodes, ratios, silent failures, false map errors.

    python -m benchmarks auto --seeds 500-509 --out runs.jsonl
    python -m benchmarks auto --settings lake-as-shipped-numbers --most 500
    python -m benchmarks auto --read results/auto/runs.jsonl

The evidence decides how many episodes are played, --most at most. All maps are right, so a named
map error is a false one. Ratio, warnings and records are those of `belief_table`.
"""

from __future__ import annotations

from benchmarks.belief_table import parser, table
from tasid.learning.belief import BeliefConfig

SETTINGS = (
    "lock-H20 lock-H40 lock-4-starts lava lava-4-docks doorkey-5x5 doorkey-6x6 fourrooms "
    "simplecrossing-9x9"
).split()


def main() -> None:
    options = parser(__doc__, SETTINGS, "500-509")
    options.add_argument("--most", type=int, default=BeliefConfig().max_episodes)
    chosen = options.parse_args()
    table(chosen, episodes="auto", config=BeliefConfig(max_episodes=chosen.most))


if __name__ == "__main__":
    main()
