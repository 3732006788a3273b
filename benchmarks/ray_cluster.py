"""A Ray cluster of three nodes on this machine: loopback, no dashboard, no reports, small."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

STORE = 80 * 2**20
"""Bytes of every node's object store, which may not be smaller."""
ROOT = Path(__file__).resolve().parents[1]
PRIVATE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: stay on the loopback interface
    # A busy machine takes its time.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_prestart_worker_first_driver": "0",
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "PYTHONWARNINGS": "ignore",
}


class NotStarted(RuntimeError):
    """Ray gave up on a node before it was there."""


@contextmanager
def ray_cluster(nodes: int = 3) -> Iterator[Any]:
    """The cluster; `cluster.address` is where its head listens."""
    before = {name: os.environ.get(name) for name in PRIVATE}
    os.environ.update(PRIVATE)
    try:
        from ray._private import node
        from ray.cluster_utils import Cluster

        node.time = _Patient()
        cluster = Cluster()
        try:
            try:
                for number in range(nodes):
                    add(cluster, head=number == 0)
            except Exception as error:  # Ray has no class of its own for it
                raise NotStarted(f"Ray did not start, the machine may be busy: {error}") from error
            yield cluster
        finally:
            ray = sys.modules["ray"]
            ray.shutdown()
            cluster.shutdown()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class _Patient:
    """A clock by which the 30 seconds that Ray gives a node to start are minutes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() / 6


def free_ports(number: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def add(cluster: Any, *, head: bool = False) -> Any:
    """One more node, with one processor."""
    extra: dict[str, Any] = (
        {"include_dashboard": False, "dashboard_host": "127.0.0.1"} if head else {}
    )
    # Fewer ports for a node to wait for; for the last of these Ray waits all the same.
    helpers = ("metrics_agent", "metrics_export", "runtime_env_agent", "dashboard_agent_listen")
    named = [f"{one}_port" for one in helpers]
    extra.update(zip(named, free_ports(len(named)), strict=True))
    return cluster.add_node(
        num_cpus=1,
        memory=4 << 30,
        object_store_memory=STORE,
        node_ip_address="127.0.0.1",
        **extra,
    )
