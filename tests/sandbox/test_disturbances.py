"""Components of a sandbox can be killed, suspended and started again, and the cluster goes on."""

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import pytest

from berth_core import Node
from berth_kube.client import KubeClient, connect
from berth_kube.errors import UnreachableError
from berth_kube.listing import Listing
from berth_kube.resources import CONFIG_MAPS, NAMESPACES, NODES
from berth_kube.watch_items import Listed
from berth_sandbox.components import SERVICES, VOLCANO_COMPONENTS, Component
from berth_sandbox.errors import SandboxError
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from control_planes import control_plane
from sandbox.live_pods import SOON, make_pod, read_pod, wait_until
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


@pytest.fixture(scope="module")
def disturbed() -> Iterator[Sandbox]:
    """Yield a sandbox that no other test relies on."""
    with control_plane(SandboxSettings(nodes=2, second_scheduler=True)) as started:
        yield started


@pytest.fixture(scope="module")
def admin(disturbed: Sandbox) -> Iterator[KubeClient]:
    with disturbed.connect() as client:
        yield client


@pytest.fixture
def namespace(admin: KubeClient) -> str:
    name = f"test-{uuid4().hex[:8]}"
    admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.mark.parametrize("component", [one for one in Component if one not in {*VOLCANO_COMPONENTS, *SERVICES}])
def test_every_component_can_be_killed_and_started_again(
    disturbed: Sandbox, admin: KubeClient, namespace: str, component: Component
) -> None:
    before = disturbed.live_components()[component]
    disturbed.kill(component)
    eventually("it is gone", lambda: component not in disturbed.live_components(), seconds=SOON)
    with pytest.raises(SandboxError, match="not running"):
        disturbed.kill(component)
    disturbed.restart(component)
    assert disturbed.live_components()[component] != before
    make_pod(admin, namespace, "after")
    wait_until(admin, namespace, "after", "Running")


def test_a_suspended_scheduler_places_nothing_until_it_goes_on(
    disturbed: Sandbox, admin: KubeClient, namespace: str
) -> None:
    disturbed.suspend("kube-scheduler")
    try:
        make_pod(admin, namespace, "waiting")
        time.sleep(1.0)
        assert read_pod(admin, namespace, "waiting").spec.node_name == ""
    finally:
        disturbed.resume("kube-scheduler")
    wait_until(admin, namespace, "waiting", "Running")


def test_a_watch_outlasts_the_restart_of_the_api_server(disturbed: Sandbox, admin: KubeClient, namespace: str) -> None:
    stop = threading.Event()
    items = admin.watch(CONFIG_MAPS, namespace=namespace, stop=stop)
    assert isinstance(next(items), Listed)
    disturbed.restart("kube-apiserver")
    admin.create(CONFIG_MAPS, {"metadata": {"name": "after", "namespace": namespace}})
    giving_up = threading.Timer(SOON, stop.set)
    giving_up.start()
    try:
        # The server may have forgotten our place; then all is listed anew.
        assert any("'after'" in str(item) for item in items)
    finally:
        giving_up.cancel()
        stop.set()


def test_no_right_is_missing_while_the_api_server_starts_again(disturbed: Sandbox) -> None:
    """It answers 403 to all but its administrators until it has read the roles."""
    begun, back = threading.Event(), threading.Event()

    def read_on(client: KubeClient) -> Listing[Node]:
        client.list(NODES)
        begun.set()
        while not back.is_set():
            with suppress(UnreachableError):
                client.list(NODES)
        return client.list(NODES, type=Node)

    account = disturbed.service_account_kubeconfig("berth-descheduler")
    with connect(kubeconfig=str(account)) as client, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read_on, client)
        try:
            assert begun.wait(SOON)
            disturbed.restart("kube-apiserver")
        finally:
            back.set()
        assert reading.result(SOON).items


def test_a_component_can_be_sent_any_signal(disturbed: Sandbox) -> None:
    disturbed.kill("kwok", signal.SIGTERM)
    eventually("kwok is gone", lambda: Component.KWOK not in disturbed.live_components(), seconds=SOON)
    disturbed.restart("kwok")
