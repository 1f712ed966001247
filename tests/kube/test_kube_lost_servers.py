"""Address, authority, proxy and credentials are read anew where connections fail, whatever they fail of."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from berth_core import Pod
from berth_kube import NO_RETRIES, ClientSettings, KubeClient, connect, transport
from berth_kube.errors import UnreachableError
from berth_kube.resources import NODES, PODS
from berth_kube.retries import Backoff
from berth_kube.watch_items import Changed, Listed
from berth_kube.watching import WatchSettings
from relays import ConnectProxy, Relay
from scripted_server import ScriptedServer, Stream, event, nobody_listening, page
from tls_files import TlsFiles

PATH = "/api/v1/nodes"
LONGEST_SILENCE_SECONDS = 5.0
SETTINGS = ClientSettings(
    retries=NO_RETRIES, watches=WatchSettings(server_seconds=1, silence_seconds=1, backoff=Backoff(0.01))
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pause between two renewals be none: its length is no matter of these tests."""
    monkeypatch.setattr(transport, "_RENEWAL_PAUSE_SECONDS", 0.0)


def write(folder: Path, server: str, files: TlsFiles | None, proxy: str = "") -> str:
    cluster = {"server": server} | ({"proxy-url": proxy} if proxy else {})
    if files is not None:
        cluster["certificate-authority"] = str(files.authority)
    document = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": "secret"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path = folder / "kubeconfig.yaml"
    path.write_text(json.dumps(document))
    return str(path)


def client_of(kubeconfig: str) -> KubeClient:
    return connect(kubeconfig=kubeconfig, settings=SETTINGS, request_timeout=LONGEST_SILENCE_SECONDS)


@pytest.fixture
def old(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "old", "old")


@pytest.fixture
def new(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "new", "new")


@pytest.fixture
def server(old: TlsFiles) -> Iterator[ScriptedServer]:
    with ScriptedServer(tls=old.serve("127.0.0.1")) as running:
        yield running.on("GET", PATH, page())


def test_a_new_authority_counts_in_the_very_call_that_finds_the_old_one_untrusted(
    server: ScriptedServer, old: TlsFiles, new: TlsFiles, tmp_path: Path
) -> None:
    with client_of(write(tmp_path, server.url, old)) as client:
        client.list(NODES)
        server.tls = new.serve("127.0.0.1")
        client.close()
        with pytest.raises(UnreachableError):
            client.list(NODES)
        write(tmp_path, server.url, new)
        client.list(NODES)


def test_a_watch_goes_on_with_the_new_authority(
    server: ScriptedServer, old: TlsFiles, new: TlsFiles, tmp_path: Path
) -> None:
    path, body = "/api/v1/pods", {"metadata": {"name": "a", "uid": "a", "resourceVersion": "11"}}
    server.on("GET", path, page()).on("WATCH", path, Stream((), "cut"), Stream([event("ADDED", body)]))
    stop = threading.Event()
    with client_of(write(tmp_path, server.url, old)) as client:
        items = client.watch(PODS, type=Pod, stop=stop)
        assert isinstance(next(iter(items)), Listed)
        server.tls = new.serve("127.0.0.1")
        write(tmp_path, server.url, new)
        assert any(isinstance(item, Changed) for item in items)
        stop.set()
        assert list(items) == []


def test_another_address_counts_after_failures_in_a_row(server: ScriptedServer, old: TlsFiles, tmp_path: Path) -> None:
    with nobody_listening() as nowhere, client_of(write(tmp_path, nowhere, old)) as client:
        for _ in range(2):
            with pytest.raises(UnreachableError):
                client.list(NODES)
        write(tmp_path, server.url, old)
        with pytest.raises(UnreachableError):
            client.list(NODES)
        client.list(NODES)


def test_another_proxy_counts_after_failures_in_a_row(server: ScriptedServer, old: TlsFiles, tmp_path: Path) -> None:
    with (
        ConnectProxy({"127.0.0.1": ("127.0.0.1", server.port)}) as proxy,
        nobody_listening() as nowhere,
        client_of(write(tmp_path, server.url, old, nowhere)) as client,
    ):
        for _ in range(3):
            with pytest.raises(UnreachableError):
                client.list(NODES)
            write(tmp_path, server.url, old, f"http://127.0.0.1:{proxy.port}")
        client.list(NODES)


@dataclass(frozen=True, slots=True)
class Together:
    """Answers only once there are so many requests, each of which has a connection of its own then."""

    requests: threading.Barrier

    def send(self, handler: Any) -> bool:  # noqa: ANN401 - the scripted server's own
        self.requests.wait(300)
        return page().send(handler)


def test_one_silent_answer_drops_the_other_connections_that_may_be_forgotten(
    server: ScriptedServer, old: TlsFiles, tmp_path: Path
) -> None:
    with (
        Relay(("127.0.0.1", server.port)) as balancer,
        client_of(write(tmp_path, f"https://127.0.0.1:{balancer.port}", old)) as client,
    ):
        server.on("GET", PATH, Together(threading.Barrier(3)))
        threads = [threading.Thread(target=client.list, args=(NODES,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert server.connections == 3
        server.on("GET", PATH, page())
        assert balancer.forget() == 3
        with pytest.raises(UnreachableError, match="timed out"):
            client.list(NODES)
        client.list(NODES)


def test_how_long_the_server_says_nothing_is_known(
    server: ScriptedServer, old: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(transport.time, "monotonic", lambda: now)
    with client_of(write(tmp_path, server.url, old)) as client:
        now += 70
        assert client.silent_seconds() == 70
        client.list(NODES)
        assert client.silent_seconds() == 0
