"""A scheduler of its own name that sees some of the cluster late."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from berth_sandbox.components import Component, build_command
from berth_sandbox.configuration import build_scheduler_config
from berth_sandbox.ports import LOOPBACK, free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from berth_sandbox.settings import ScoringStrategy
from fault_proxy import FaultProxy
from faults import LateWatch
from waiting import eventually

LATE_SCHEDULER: Final = "late-scheduler"
_BACKOFF_SECONDS: Final = 1
"""Between two tries of a pod, so that one is there whenever a place is free."""


@contextmanager
def late_scheduler(sandbox: Sandbox, folder: Path, *, plural: str = "", seconds: float = 0.0) -> Iterator[None]:
    """Run the scheduler `LATE_SCHEDULER`, whose watch of a collection brings everything so many seconds late."""
    place = sandbox._record.place(sandbox._folder)
    kubeconfig = place.folder.user_kubeconfig("kube-scheduler")
    with FaultProxy(kubeconfig) as proxy:
        if plural:
            proxy.plan = LateWatch(plural, seconds)
        through = proxy.write_kubeconfig(folder / "through-the-proxy.yaml")
        config = build_scheduler_config(LATE_SCHEDULER, through, ScoringStrategy.LEAST_ALLOCATED)
        config |= {"podInitialBackoffSeconds": _BACKOFF_SECONDS, "podMaxBackoffSeconds": _BACKOFF_SECONDS}
        path = folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        command = list(build_command(Component.SECOND_SCHEDULER, place))
        port = free_port()
        command = [_other(argument, config=path, port=port) for argument in command]
        with ServiceProcess(command, folder / "late-scheduler.log"):
            eventually("the scheduler listens", lambda: _listens(port), seconds=60)
            time.sleep(2 * seconds + 1)  # its lists come late, too
            yield


def _other(argument: str, *, config: Path, port: int) -> str:
    if argument.startswith("--config="):
        return f"--config={config}"
    return f"--secure-port={port}" if argument.startswith("--secure-port=") else argument


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex((LOOPBACK, port)) == 0
