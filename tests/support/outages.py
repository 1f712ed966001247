"""The long outages of the control plane, each played once in a sandbox of its own beside the other tests.

For the operator each outage begins with a place that is held, one
whose time is up meanwhile, and a hand-over in its middle. That may be given up, for it has a minute in all; and where
the node is taken for not ready at first when the API server is back, the owner is let go and may find another one.
For the descheduler it begins in the middle of a run; for kopf it is the kind of Reservations that goes and comes back.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from background_runs import BackgroundRun
from berth_core import Node
from berth_core.clock import SystemClock, format_timestamp
from berth_core.errors import BerthError, RetryableError
from berth_core.reservations import ConditionType, ReservationPhase, SlotState
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from berth_kube.resources import CRDS, NODES, PODS, RESERVATIONS
from berth_sandbox.invariants import Invariant, Violation, find_troubles, monitor_invariants, read_state
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import (
    PATIENCE,
    build_reservation,
    is_gone,
    label_owner,
    make_namespace,
    pod_template,
    read_reservation,
)
from control_planes import control_plane
from descheduling_stage import Scene
from service_processes import running_operator
from waiting import eventually

WHOLE_NODE: Final = "4"
HELD, EXPIRING, CHANGING = "held", "expiring", "changing"
OWNER: Final = "owner of what changes hands"
WITNESS: Final = "witness"
"""A pod without a Reservation, made when the component is back: schedulers and kubelets are when it runs and all nodes
are ready."""
PATIENCE_SECONDS: Final = 400.0
"""Clients of the API server that failed for long wait up to a minute before they try again, and may fail once more."""
AWAY_SECONDS: Final = 60.0
RUN_SECONDS: Final = 300.0
"""A run that is disturbed takes its time."""
RUN_OPTIONS: Final = ("--reserve-timeout=20s", "--land-timeout=20s", "--ready-timeout=20s", "--pending-wait=5s")
LONG_SECONDS: Final = 60.0
"""Several times what kopf's longest pause and a new start of it take."""


@dataclass(frozen=True)
class Recovery:
    """What was true after an outage."""

    seconds: dict[str, float]
    """From the component's return until each Reservation was where it had to be for good, until the owner ran,
    until schedulers and kubelets were back; what never came about is missing."""
    phases: dict[str, ReservationPhase]
    breaches: tuple[Violation, ...]
    handed_over_afterwards: bool


@dataclass(frozen=True)
class Outage:
    component: str
    seconds: float
    begin: Callable[[Sandbox, str], None]
    end: Callable[[Sandbox, str], None]


OUTAGES: Final = {
    "the API server is killed and away for 60 s": Outage("kube-apiserver", 60.0, Sandbox.kill, Sandbox.restart),
    "etcd stands still for 20 s": Outage("etcd", 20.0, Sandbox.suspend, Sandbox.resume),
}


def play_outages(folder: Path) -> dict[str, Recovery]:
    """Play the outages one after the other."""
    with control_plane() as sandbox, sandbox.connect() as client, running_operator(sandbox, folder):
        return {
            name: _play_one(sandbox, client, f"outage-{number}", outage)
            for number, (name, outage) in enumerate(OUTAGES.items())
        }


def _play_one(sandbox: Sandbox, client: KubeClient, namespace: str, outage: Outage) -> Recovery:
    make_namespace(client, namespace)
    nodes = sandbox.add_nodes(4, NodeShape(cpu=WHOLE_NODE, memory="16Gi"), prefix=f"{namespace}-")
    for name, node in zip((HELD, EXPIRING, CHANGING), nodes, strict=False):
        body = build_reservation(name, cpu=WHOLE_NODE, owners=label_owner(app=name), nodes=[node], ttl="1h")
        client.create(RESERVATIONS, body, namespace=namespace)
    eventually(
        "all is held", lambda: set(_phases(client, namespace).values()) == {ReservationPhase.AVAILABLE}, seconds=60
    )
    eventually("the way is proven", lambda: _is_proven(client, namespace), seconds=60)
    _let_expire(client, namespace, EXPIRING, after_seconds=outage.seconds / 2)
    _create_pod(client, namespace, CHANGING)
    outage.begin(sandbox, outage.component)
    time.sleep(outage.seconds)
    outage.end(sandbox, outage.component)
    return _watch_recovery(client, namespace)


def _watch_recovery(client: KubeClient, namespace: str) -> Recovery:
    returned = time.monotonic()
    phases: dict[str, ReservationPhase] = {}
    wanted = {HELD: ReservationPhase.AVAILABLE, EXPIRING: ReservationPhase.FAILED}
    checks = {
        CHANGING: lambda: _is_over(client, namespace),
        OWNER: lambda: _runs(client, namespace, CHANGING),
        WITNESS: lambda: _runs(client, namespace, WITNESS) and _are_nodes_ready(client),
    }
    seconds: dict[str, float] = {}
    eventually("a pod can be made again", lambda: _is_created(client, namespace, WITNESS, cpu="1"), seconds=60)
    while seconds.keys() < wanted.keys() | checks.keys() and time.monotonic() - returned < PATIENCE_SECONDS:
        with suppress(BerthError):
            phases = _phases(client, namespace)
        for name, phase in wanted.items():
            if phases.get(name) is not phase:
                seconds.pop(name, None)  # its node may be taken for not ready only after the first looks
            elif name not in seconds:
                seconds[name] = time.monotonic() - returned
        for name in checks.keys() - seconds.keys():
            if checks[name]():
                seconds[name] = time.monotonic() - returned
        time.sleep(0.1)
    breaches = monitor_invariants(lambda: _troubles(client), SystemClock(), bounds=PATIENCE)
    _create_pod(client, namespace, HELD)
    handed_over = False
    with suppress(AssertionError):
        eventually("", lambda: _phases(client, namespace)[HELD] is ReservationPhase.SUCCEEDED, seconds=120)
        handed_over = True
    return Recovery(
        seconds=seconds,
        phases=phases,
        breaches=breaches,
        handed_over_afterwards=handed_over,
    )


def _troubles(client: KubeClient) -> list[Violation]:
    found = find_troubles(read_state(client), now=SystemClock().now())
    return [violation for violation in found if violation.invariant is not Invariant.PRIORITY_CLASS_LEFT]


def _create_pod(client: KubeClient, namespace: str, name: str, *, cpu: str = WHOLE_NODE) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": name}, cpu=cpu)}
    body["metadata"]["name"] = name
    client.create(PODS, body, namespace=namespace)


def _is_created(client: KubeClient, namespace: str, name: str, *, cpu: str) -> bool:
    """Create a pod, and return whether it is there: a control plane that has just come back may not be able to yet."""
    with suppress(AlreadyExistsError):
        try:
            _create_pod(client, namespace, name, cpu=cpu)
        except (RetryableError, ForbiddenError):
            return False
    return True


def _let_expire(client: KubeClient, namespace: str, name: str, *, after_seconds: float) -> None:
    """Let the time of a Reservation be up some seconds from now, however long it took until it was held."""
    end = format_timestamp(SystemClock().now() + timedelta(seconds=after_seconds))
    client.merge_patch(RESERVATIONS, name, {"spec": {"ttl": None, "expires": end}}, namespace=namespace)


def _phases(client: KubeClient, namespace: str) -> dict[str, ReservationPhase]:
    return {name: read_reservation(client, namespace, name).phase for name in (HELD, EXPIRING, CHANGING)}


def _runs(client: KubeClient, namespace: str, name: str) -> bool:
    with suppress(BerthError):
        return bool(client.get(PODS, name, namespace=namespace)["status"]["phase"] == "Running")
    return False


def _are_nodes_ready(client: KubeClient) -> bool:
    with suppress(BerthError):
        return all(node.ready for node in client.list(NODES, type=Node).items)
    return False


def _is_over(client: KubeClient, namespace: str) -> bool:
    """Return whether the hand-over is over: taken, lost, or its place held again while its owner has found another."""
    with suppress(BerthError):
        reservation = read_reservation(client, namespace, CHANGING)
        node = client.get(PODS, CHANGING, namespace=namespace)["spec"].get("nodeName")
        went_elsewhere = all(
            slot.state is SlotState.HELD and node not in {None, slot.node} for slot in reservation.status.slots
        )
        return reservation.phase.terminal or went_elsewhere
    return False


def _is_proven(client: KubeClient, namespace: str) -> bool:
    return all(
        read_reservation(client, namespace, name).condition(ConditionType.HANDOVER_READY)
        for name in (HELD, EXPIRING, CHANGING)
    )


# --- the descheduler and kopf ---------------------------------------------------------------------------------------


def play_outage_in_a_run(folder: Path) -> float:
    """Let the API server be away in the middle of a run; return the seconds from its return until all is at peace."""
    with (
        control_plane() as sandbox,
        sandbox.connect() as client,
        running_operator(sandbox, folder),
    ):
        scene = Scene(sandbox, client, folder, "shop")
        scene.set_up()
        run = scene.start(*RUN_OPTIONS, "--taint-freed")
        scene.wait_for("a pod is evicted", scene.has_evicted)
        sandbox.kill("kube-apiserver")
        time.sleep(AWAY_SECONDS)
        sandbox.restart("kube-apiserver")
        returned = time.monotonic()
        run.wait(RUN_SECONDS)
        # kwok takes up to two minutes to play the kubelets again, and does not say again that pods are Ready whose
        # nodes were given up meanwhile.
        scene.run(*RUN_OPTIONS)
        scene.require_peace(Invariant.WORKLOAD_SHORT, within_seconds=240)
        return time.monotonic() - returned


def play_removal_of_a_kind(folder: Path) -> int | None:
    """Remove the kind of Reservations, install it anew, have one answered; return how the operator has ended, if so."""
    with (
        control_plane() as sandbox,
        sandbox.connect() as client,
        running_operator(sandbox, folder, "--sweep-seconds=3600") as operator,
    ):
        make_namespace(client, "anew")
        kind = f"{RESERVATIONS.plural}.{RESERVATIONS.group}"
        definition = client.get(CRDS, kind)
        client.delete(CRDS, kind)
        eventually("kopf has ended", lambda: "watch Reservations" in operator.tail(1000), seconds=2 * LONG_SECONDS)
        eventually("the kind is gone", lambda: is_gone(client, CRDS, kind), seconds=LONG_SECONDS)
        metadata = {"name": kind, "annotations": definition["metadata"].get("annotations", {})}
        client.create(CRDS, {**definition, "metadata": metadata, "status": {}})
        eventually("the kind is served", lambda: _is_served(client), seconds=LONG_SECONDS)

        body = build_reservation("place", cpu="1", owners=label_owner(app="owner"))
        client.create(RESERVATIONS, body, namespace="anew")
        eventually(
            "it is answered",
            lambda: read_reservation(client, "anew", "place").status.observed_generation == 1,
            seconds=3 * LONG_SECONDS,
        )
        return operator.exit_code


def _is_served(client: KubeClient) -> bool:
    try:
        client.list(RESERVATIONS)
    except NotFoundError:
        return False
    return True


# --- fixtures -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def outages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundRun[dict[str, Recovery]]]:
    with BackgroundRun("outages", partial(play_outages, tmp_path_factory.mktemp("outages"))) as run:
        yield run


@pytest.fixture(scope="session")
def outage_in_a_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundRun[float]]:
    with BackgroundRun("outage in a run", partial(play_outage_in_a_run, tmp_path_factory.mktemp("outage"))) as run:
        yield run


@pytest.fixture(scope="session")
def removal_of_a_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundRun[int | None]]:
    with BackgroundRun("removal", partial(play_removal_of_a_kind, tmp_path_factory.mktemp("removal"))) as run:
        yield run
