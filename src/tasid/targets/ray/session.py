"""The connection of this process to a Ray cluster: private, quiet, and only when asked for.

Whoever reaches a Ray cluster can run code on it. So what is started here listens on the loopback
interface alone, has no dashboard, and reports nothing to anybody.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from importlib import import_module
from typing import Any

LOCAL, AUTO = "local", "auto"
_QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Unless this is 0, Ray replaces loopback by the address that other machines know this one by."""
_PATIENCE = 5.0
"""Seconds for an address to answer; Ray itself would try for minutes."""


class RayMissing(ValueError):
    """Ray is asked for and is not installed."""


def connect(address: str, *, argument: str) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether it was this call that connected it.

    `address` is HOST:PORT of a cluster that this machine is part of, "auto" for the one that runs
    here, or "local" to start one here that ends with this process. A connection that the caller's
    program has already is used as it is.
    """
    _check(address, argument)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address != AUTO and _is_loopback(address):
        os.environ.setdefault(_CLUSTERS, "0")
    ray = _imported(argument)
    if ray.is_initialized():
        return ray, False
    if os.environ.get(_CLUSTERS) == "0":
        # Ray reads the variable when it is imported, which others may have done before.
        constants: Any = import_module("ray._private.ray_constants")
        constants.ENABLE_RAY_CLUSTER = False
    if address == LOCAL:
        ray.init(address="local", include_dashboard=False, **_QUIET)
    else:
        ray.init(address=address, **_QUIET)
    return ray, True


def _imported(argument: str) -> Any:
    try:
        import ray
    except ImportError:
        raise RayMissing(
            f"{argument}: needs Ray, which is not installed: pip install 'tasid[ray]'"
        ) from None
    return ray


def _check(address: str, argument: str) -> None:
    """Refuse what is no address, and what does not answer."""
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(
            f"{argument}: {address!r} is none of HOST:PORT, auto and local; HOST:PORT is where the "
            "cluster's head listens, and this machine has to be one of its nodes"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"{argument}: nobody answers at {address} ({error})") from None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return address == LOCAL or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
