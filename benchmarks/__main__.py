"""python -m benchmarks [NAME [options]]: run one measurement, or list them."""

from __future__ import annotations

import sys

from benchmarks import (
    agent_speed,
    baseline_choices,
    belief_profile,
    belief_table,
    belief_trust,
    building_speed,
    building_table,
    check,
    env_speed,
    frontier,
    growth,
    lava_speed,
    learners,
    lock_table,
    logs_table,
    peers,
    ppo_speed,
    scale,
    solving,
    start_up,
    state_space,
    tables,
    torture,
    wrapped_lock,
)

BENCHMARKS = {
    "belief-table": belief_table,
    "belief-trust": belief_trust,
    "peers": peers,
    "agent-speed": agent_speed,
    "start-up": start_up,
    "check": check,
    "lock-table": lock_table,
    "state-space": state_space,
    "logs-table": logs_table,
    "lava-speed": lava_speed,
    "learners": learners,
    "solving": solving,
    "growth": growth,
    "profile": belief_profile,
    "env-speed": env_speed,
    "building-speed": building_speed,
    "building-table": building_table,
    "wrapped-lock": wrapped_lock,
    "ppo-speed": ppo_speed,
    "baseline-choices": baseline_choices,
    "frontier": frontier,
    "scale": scale,
    "torture": torture,
    "tables": tables,
}


def main() -> None:
    """Run the named benchmark; without a name, say what there is."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
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
