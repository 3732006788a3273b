"""python -m benchmarks [NAME [options]]: run one measurement, or list them."""

from __future__ import annotations

import sys

from benchmarks import (
    agent_speed,
    baseline_choices,
    belief_table,
    belief_trust,
    building_speed,
    building_table,
    frontier,
    lava_speed,
    lock_table,
    logs_table,
    peers,
    ppo_speed,
    start_up,
    state_space,
    torture,
    wrapped_lock,
)

BENCHMARKS = {
    "belief-table": belief_table,
    "belief-trust": belief_trust,
    "peers": peers,
    "agent-speed": agent_speed,
    "start-up": start_up,
    "lock-table": lock_table,
    "state-space": state_space,
    "logs-table": logs_table,
    "lava-speed": lava_speed,
    "building-speed": building_speed,
    "building-table": building_table,
    "wrapped-lock": wrapped_lock,
    "ppo-speed": ppo_speed,
    "baseline-choices": baseline_choices,
    "frontier": frontier,
    "torture": torture,
}


def main() -> None:
    """Run the named benchmark; without a name, say what there is."""
    if len(sys.argv) < 2:
        print("make bench ARGS=NAME, or python -m benchmarks NAME --help, where NAME is one of")
        for name, module in BENCHMARKS.items():
            print(f"  {name:<16} {(module.__doc__ or '').splitlines()[0]}")
        return
    name, *options = sys.argv[1:]
    if name not in BENCHMARKS:
        sys.exit(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    BENCHMARKS[name].run(options)


if __name__ == "__main__":
    main()
