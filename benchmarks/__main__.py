"""python -m benchmarks [NAME [options]]: run one measurement, or list them."""

from __future__ import annotations

import sys

from benchmarks import lava_speed, lock_table, outcome_table, state_space, trust

BENCHMARKS = {
    "lock-table": lock_table.run,
    "outcome-table": outcome_table.run,
    "state-space": state_space.run,
    "trust": trust.run,
    "lava-speed": lava_speed.run,
}


def main() -> None:
    """Run the named benchmark; without a name, all of them at their default size."""
    names = sys.argv[1:2] or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
        print(f"\n{name}\n")
        BENCHMARKS[name](sys.argv[2:])


if __name__ == "__main__":
    main()
