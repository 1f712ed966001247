"""Bounded waits until components are ready."""

import time
from collections.abc import Callable, Iterable
from typing import Final

import urllib3

from berth_sandbox import certificates
from berth_sandbox.components import Component, health_url
from berth_sandbox.errors import ComponentError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import Ports
from berth_sandbox.processes import is_present, read_log_tail

_READINESS_POLL_SECONDS: Final = 0.03
_REQUEST_TIMEOUT: Final = urllib3.Timeout(connect=1.0, read=5.0)
_OK: Final = 200


def wait_until_ready(components: Iterable[Component], folder: SandboxFolder, ports: Ports, *, deadline: float) -> None:
    """Wait until all components are ready; raises `ComponentError` after an exit or timeout."""
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


def wait_for(condition: Callable[[], bool], *, component: str, folder: SandboxFolder, deadline: float) -> None:
    """Wait for a condition that a component brings about; raises `ComponentError` if it ends or is too late."""
    while not condition():
        if not is_present(component, folder):
            raise ComponentError(_describe("ended at its start", component, folder))
        if time.monotonic() > deadline:
            raise ComponentError(_describe("was not ready in time", component, folder))
        time.sleep(_READINESS_POLL_SECONDS)


def _is_healthy(pool: urllib3.PoolManager, url: str) -> bool:
    try:
        return pool.request("GET", url).status == _OK
    except urllib3.exceptions.HTTPError:
        return False


def _describe(event: str, component: str, folder: SandboxFolder) -> str:
    """Return an event of a component for people, with the end of its log."""
    tail = read_log_tail(component, folder)
    return f"{component} {event}; the end of {folder.log(component)}:\n{tail}"
