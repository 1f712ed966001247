"""The API server is reached again: after another authority, forgotten connections, and a backup of etcd."""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from background_runs import LONGEST_SECONDS
from berth_core.reservations import ReservationPhase
from berth_kube import KubeError, NotFoundError
from berth_kube.resources import CONFIG_MAPS, NODES, PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_reservation, label_owner, make_namespace, pod_template, read_reservation
from control_planes import control_plane
from fault_proxy import FaultProxy
from health_port import ask_state
from relays import Relay
from reservation_stage import Stage
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = pytest.mark.cluster

WITHOUT_SWEEPS: Final = "--sweep-seconds=3600"
"""So that nothing finds what a watch has not heard."""


@dataclass(frozen=True, slots=True)
class Way:
    """An operator, and what stands between it and the API server."""

    operator: OperatorProcess
    kubeconfig: Path
    proxy: FaultProxy


@pytest.fixture
def way(sandbox: Sandbox, tmp_path: Path) -> Iterator[Way]:
    with FaultProxy(sandbox.service_account_kubeconfig("berth-operator")) as proxy:
        path = proxy.write_kubeconfig(tmp_path / "through-the-proxy.yaml")
        with running_operator(sandbox, tmp_path, f"--kubeconfig={path}", WITHOUT_SWEEPS) as operator:
            yield Way(operator, path, proxy)


def test_a_new_authority_of_the_cluster_costs_no_watch(way: Way, stage: Stage) -> None:
    stage.reserve()
    stage.wait_for(ReservationPhase.AVAILABLE)

    way.proxy.rotate_authority()
    way.proxy.cut_watches()
    eventually("kopf cannot connect", lambda: "connections in a row have failed" in way.operator.tail(10_000))
    way.proxy.write_kubeconfig(way.kubeconfig)

    stage.reserve("another", app="another", template=stage.template(cpu="1"))
    stage.wait_for(ReservationPhase.AVAILABLE, "another", seconds=120)
    eventually("it is healthy and ready", lambda: is_good(way.operator))


def is_good(operator: OperatorProcess) -> bool:
    return [ask_state(f"127.0.0.1:{operator.health_port}", path)[0] for path in ("/healthz", "/readyz")] == [200, 200]


@pytest.fixture
def balancer(sandbox: Sandbox, tmp_path: Path) -> Iterator[Relay]:
    """Yield a balancer between an operator and the API server."""
    with Relay(("127.0.0.1", sandbox.ports.api_server)) as relay:
        path = through(relay, sandbox.service_account_kubeconfig("berth-operator"), tmp_path / "balanced.yaml")
        with running_operator(sandbox, tmp_path, f"--kubeconfig={path}"):
            yield relay


def through(balancer: Relay, kubeconfig: Path, path: Path) -> Path:
    """Write a kubeconfig by which a client goes through the balancer."""
    document = yaml.safe_load(kubeconfig.read_text())
    for cluster in document["clusters"]:
        server = urlsplit(cluster["cluster"]["server"])
        cluster["cluster"]["server"] = server._replace(netloc=f"127.0.0.1:{balancer.port}").geturl()
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


HELD_AGAIN_SECONDS: Final = 90.0
"""Twice what it takes where others do not use the machine, and less than the silence that was waited for once."""


@pytest.mark.parametrize("before", ["a live Reservation", pytest.param("none", marks=pytest.mark.deep)])
def test_a_reservation_is_held_although_the_balancer_has_forgotten_all_connections(
    balancer: Relay, stage: Stage, before: str
) -> None:
    """Without a live Reservation connections may be silent for longer, until one comes."""
    if before != "none":
        stage.reserve(template=stage.template(cpu="1"))
        stage.wait_for(ReservationPhase.AVAILABLE)
    assert balancer.forget() > 0
    started = time.monotonic()
    stage.reserve("another", app="another", template=stage.template(cpu="1"))
    stage.wait_for(ReservationPhase.AVAILABLE, "another", seconds=300)
    seconds = time.monotonic() - started
    print(f"held {seconds:.1f} s after the connections were forgotten")  # noqa: T201 - a figure for people
    assert seconds < HELD_AGAIN_SECONDS


# --- a backup of etcd ------------------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.timeout(LONGEST_SECONDS + 60)
def test_places_are_handed_over_after_etcd_was_restored_from_a_backup(tmp_path: Path) -> None:
    with (
        control_plane(SandboxSettings(nodes=2)) as sandbox,
        sandbox.connect() as client,
        running_operator(sandbox, tmp_path, WITHOUT_SWEEPS),
    ):
        make_namespace(client, "shop")
        reserve(sandbox, "place")
        wait_for(sandbox, "place", ReservationPhase.AVAILABLE)
        back_up(sandbox, tmp_path / "backup")
        reserve(sandbox, "of-the-other-history")
        wait_for(sandbox, "of-the-other-history", ReservationPhase.AVAILABLE)
        for number in range(500):  # far more than what comes after the restore
            client.create(CONFIG_MAPS, {"metadata": {"name": f"change-{number}"}}, namespace="shop")
        highest = version_of(sandbox)

        restore(sandbox, tmp_path / "backup")
        assert version_of(sandbox) < highest
        with pytest.raises(NotFoundError):
            client.get(RESERVATIONS, "of-the-other-history", namespace="shop")
        reserve(sandbox, "afterwards")
        wait_for(sandbox, "afterwards", ReservationPhase.AVAILABLE)
        create_owner(sandbox, "place")
        wait_for(sandbox, "place", ReservationPhase.SUCCEEDED)
        pod = client.get(PODS, "place", namespace="shop")
        assert pod["spec"]["nodeName"] == read_reservation(client, "shop", "place").status.slots[0].node
        assert version_of(sandbox) < highest, "all this was done in versions that had been there before"


def reserve(sandbox: Sandbox, name: str) -> None:
    template = pod_template({}, cpu="1")
    body = build_reservation(name, cpu="1", owners=label_owner(app=name), template=template, ttl="1h")
    with sandbox.connect() as client:
        client.create(RESERVATIONS, body, namespace="shop")


def create_owner(sandbox: Sandbox, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": name}, cpu="1")}
    body["metadata"]["name"] = name
    with sandbox.connect() as client:
        client.create(PODS, body, namespace="shop")


def wait_for(sandbox: Sandbox, name: str, phase: ReservationPhase) -> None:
    def is_reached() -> bool:
        with suppress(KubeError), sandbox.connect() as client:
            return read_reservation(client, "shop", name).phase is phase
        return False

    eventually(f"{name} is {phase}", is_reached, seconds=300, pause_seconds=0.5)


def version_of(sandbox: Sandbox) -> int:
    with sandbox.connect() as client:
        return int(client.list(NODES).resource_version)


def back_up(sandbox: Sandbox, backup: Path) -> None:
    sandbox.kill("etcd")
    shutil.copytree(sandbox.folder / "etcd", backup)
    sandbox.restart("etcd")


def restore(sandbox: Sandbox, backup: Path) -> None:
    """Restore etcd, and start what knows of the other history but the operator, as manuals say."""
    for component in ("kube-apiserver", "etcd"):
        sandbox.kill(component)
    shutil.rmtree(sandbox.folder / "etcd")
    shutil.copytree(backup, sandbox.folder / "etcd")
    for component in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
        sandbox.restart(component)
