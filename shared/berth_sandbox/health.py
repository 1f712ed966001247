"""Health and readiness of a sandbox's components and nodes."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import urllib3

from berth_core import Node
from berth_kube import NODES, KubeClient, KubeError
from berth_sandbox import certificates, processes
from berth_sandbox.components import Component, health_url
from berth_sandbox.errors import ComponentError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import Ports

CONTROLLERS_TAINT = "node.kubernetes.io/"
"""Prefix of the taints that node controllers set and remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxHealth:
    """Live and expected components, and the nodes.

    `components` maps each live one to its pid.
    """

    components: dict[Component, int]
    expected: frozenset[Component]
    nodes: int
    ready_nodes: int

    @property
    def complete(self) -> bool:
        """Return whether every component is alive."""
        return self.expected <= self.components.keys()


def count_nodes(client: KubeClient) -> tuple[int, int]:
    """Return the numbers of nodes and of usable ones.

    An unreachable server counts as none.
    """
    try:
        nodes = client.list(NODES, type=Node).items
    except KubeError:
        return 0, 0
    return len(nodes), sum(is_usable(node) for node in nodes)


def usable_nodes(client: KubeClient) -> set[str]:
    """Return the names of the nodes that pods can be scheduled to."""
    return {node.metadata.name for node in client.list(NODES, type=Node).items if is_usable(node)}


def is_usable(node: Node) -> bool:
    """Return whether a node is ready and without node controllers' taints."""
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return ready and not any(taint.key.startswith(CONTROLLERS_TAINT) for taint in node.spec.taints)


# --- readiness -------------------------------------------------------------------------------------------------------
# Bounded waits until components are ready.

_POLL_SECONDS: Final = 0.03
_REQUEST_TIMEOUT: Final = urllib3.Timeout(connect=1.0, read=5.0)
_OK: Final = 200


def wait_until_ready(components: Iterable[Component], folder: SandboxFolder, ports: Ports, *, deadline: float) -> None:
    """Wait until all components are ready.

    Raises `ComponentError` after an exit or timeout.
    """
    authority = str(folder.certificate(certificates.AUTHORITY))
    with urllib3.PoolManager(ca_certs=authority, retries=False, timeout=_REQUEST_TIMEOUT) as pool:
        for component in components:
            url = health_url(component, ports)
            wait_for(
                lambda url=url: _is_healthy(pool, url),  # type: ignore[misc]
                component=component,
                folder=folder,
                deadline=deadline,
            )


def wait_for(condition: Callable[[], bool], *, component: Component, folder: SandboxFolder, deadline: float) -> None:
    """Wait for a condition that a component brings about.

    Raises `ComponentError` if it ends or is too late.
    """
    while not condition():
        if not processes.is_present(component, folder):
            raise ComponentError(_describe("ended at its start", component, folder))
        if time.monotonic() > deadline:
            raise ComponentError(_describe("was not ready in time", component, folder))
        time.sleep(_POLL_SECONDS)


def _is_healthy(pool: urllib3.PoolManager, url: str) -> bool:
    """Return whether the address answers 200."""
    try:
        return pool.request("GET", url).status == _OK
    except urllib3.exceptions.HTTPError:
        return False


def _describe(what: str, component: Component, folder: SandboxFolder) -> str:
    """Return what happened to a component, with the end of its log."""
    tail = processes.read_log_tail(component, folder)
    return f"{component} {what}; the end of {folder.log(component)}:\n{tail}"
