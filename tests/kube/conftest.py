"""The scripted server and the client that leads to it, for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth_kube import ClientSettings, KubeClient, connect
from berth_kube.retries import Backoff, RetryPolicy
from berth_kube.watching import WatchSettings
from scripted_server import ScriptedServer

QUICK = ClientSettings(
    retries=RetryPolicy(attempts=4, deadline_seconds=60, backoff=Backoff(first_seconds=0.01)),
    watches=WatchSettings(backoff=Backoff(first_seconds=0.02, longest_seconds=0.2)),
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def client(server: ScriptedServer, tmp_path: Path) -> Iterator[KubeClient]:
    with connect(kubeconfig=server.kubeconfig(tmp_path), user_agent="berth-test/1", settings=QUICK) as connected:
        yield connected
