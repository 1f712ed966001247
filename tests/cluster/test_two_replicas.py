"""Two operators: both gate pods, one acts; when one goes, however it goes, no slot is lost and none is given twice."""

import base64
import itertools
import json
import os
import signal
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from berth_core import Pod
from berth_core.labels import PROBE_LABEL, VERSION_ANNOTATION
from berth_core.names import DEFAULT_NAMESPACE, WEBHOOK_CONFIGURATION, WEBHOOK_SECRET
from berth_core.reservations import ConditionType, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from berth_operator.admission.certificates import CertificateBundle
from berth_operator.reservation.manifests import build_probe
from berth_operator.settings import PlaceholderSettings
from berth_sandbox.ports import LOOPBACK
from berth_sandbox.sandbox import Sandbox
from cluster_objects import overbooked_nodes
from fault_proxy import FaultProxy
from faults import Call, Fault, FaultKind, NoFaults
from issuers import Issuer
from replicas import Replica, Replicas, running_replicas
from reservation_stage import WHOLE_NODE, Stage, is_gated
from service_processes import WEBHOOK_SECONDS
from waiting import eventually

pytestmark = pytest.mark.cluster

DRAIN_SECONDS = 300
"""Longer than everything that is waited for meanwhile."""
LIFE_SECONDS = 30
"""Of a certificate; three lives later the authority is renewed, too. What replicas must have heard of meanwhile has a
few seconds."""


@pytest.fixture(scope="module")
def replicas(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with running_replicas(sandbox, tmp_path_factory.mktemp("operators"), 2) as started:
        yield started


@pytest.fixture(autouse=True)
def two_are_up(replicas: Replicas, stage: Stage) -> Iterator[None]:  # noqa: ARG001 - the stage is cleared after this
    """Replace what a test before has ended, and clear the stage while a replica acts."""
    while sum(replica.is_ready() for replica in replicas.all) < 2:
        replicas.start_one()
    assert replicas.leader.is_leading()
    yield
    if not any(replica.is_ready() for replica in replicas.all):
        replicas.start_one()
    assert replicas.leader.is_leading()


def registration(client: KubeClient) -> dict[str, Any]:
    config: dict[str, Any] = client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)["webhooks"][0]["clientConfig"]
    return config


def trusting(config: dict[str, Any]) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=base64.b64decode(config["caBundle"]).decode())


def review_directly(config: dict[str, Any], port: int, pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Ask one replica as the API server would."""
    path = config["url"].split("/", 3)[3]
    request = {"uid": "1", "namespace": namespace, "operation": "CREATE", "dryRun": True, "object": pod}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    call = urllib.request.Request(
        f"https://{LOOPBACK}:{port}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(call, timeout=60, context=trusting(config)) as answer:  # noqa: S310 - our own
        response: dict[str, Any] = json.load(answer)["response"]
    return response


def owner_body(stage: Stage, name: str = "owner", cpu: str = WHOLE_NODE) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": name}, cpu=cpu)}
    body["metadata"]["name"] = name
    return body


def try_owner(stage: Stage, name: str) -> Pod:
    """Return what would become of a small owner."""
    body = owner_body(stage, name, cpu="1")
    return stage.client.create(PODS, body, namespace=stage.namespace, dry_run=True, type=Pod)


def test_both_replicas_gate_under_the_same_certificate_and_one_leads(replicas: Replicas, stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    config = registration(stage.client)

    both = (replicas.leader, replicas.follower)
    answers = [review_directly(config, one.webhook_port, owner_body(stage), stage.namespace) for one in both]
    certificates = {ssl.get_server_certificate((LOOPBACK, one.webhook_port)) for one in both}

    assert ["patch" in answer for answer in answers] == [True, True]
    assert len(certificates) == 1
    assert [one.is_leading() for one in both] == [True, False]


def test_when_the_leader_is_killed_the_other_acts_and_every_slot_has_one_pod(replicas: Replicas, stage: Stage) -> None:
    for number in range(8):
        stage.reserve(f"place-{number}", app=f"owner-{number}", template=stage.template(cpu="1"))
    for number in range(8):
        stage.wait_until_proven(f"place-{number}")
    victim = replicas.leader

    for number in range(4):
        stage.create_pod(f"owner-{number}", app=f"owner-{number}", cpu="1")
    victim.kill()
    killed = time.monotonic()
    replicas.wait_until_left_out(victim)  # a Service, too, goes on for a while to send calls to a pod that is no more
    eventually("the API server asks the other", lambda: is_gated(try_owner(stage, "owner-7")))
    for number in range(4, 8):
        stage.create_pod(f"owner-{number}", app=f"owner-{number}", cpu="1")
        assert is_gated(stage.pod(f"owner-{number}"))
    assert replicas.leader is not victim
    seconds = time.monotonic() - killed

    taken = [stage.wait_for(ReservationPhase.SUCCEEDED, f"place-{number}") for number in range(8)]
    owners = [slot.owner for reservation in taken for slot in reservation.status.slots]
    assert [owner.name for owner in owners if owner] == [f"owner-{number}" for number in range(8)]
    assert overbooked_nodes(stage.client) == []
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)
    print(f"acted {seconds:.1f} s after the kill")  # noqa: T201 - a figure for people


@pytest.mark.deep
def test_a_leader_that_was_paused_never_acts_beside_the_next(replicas: Replicas, stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    paused = replicas.leader

    os.kill(paused.pid, signal.SIGSTOP)
    try:
        other = next(one for one in replicas.all if one is not paused and one.is_ready())
        eventually("the other leads", other.is_leading, seconds=60)
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    both = [(paused.is_leading(), other.is_leading()) for _ in range(20)]

    assert set(both) == {(False, True)}
    stage.wait_until_proven()
    stage.create_pod("owner")
    assert stage.wait_for(ReservationPhase.SUCCEEDED).status.node == stage.nodes[0]


@pytest.mark.deep
def test_a_rolling_update_under_load_loses_nothing(replicas: Replicas, stage: Stage) -> None:
    ended = threading.Event()
    landed: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(hand_over_again_and_again, stage, lane, landed, ended) for lane in range(4)]
        try:
            for old in [one for one in replicas.all if one.is_ready()]:
                time.sleep(2)
                replicas.start_one()
                old.stop()
                assert old.exit_code == 0
            time.sleep(2)
            eventually("hand-overs went on", lambda: len(landed) >= 12 or any(one.done() for one in loads), seconds=400)
        finally:
            ended.set()
        for load in loads:
            load.result()
    assert len(landed) >= 12
    assert overbooked_nodes(stage.client) == []
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)
    print(f"{len(landed)} hand-overs while two replicas were replaced")  # noqa: T201 - a figure for people


def hand_over_again_and_again(stage: Stage, lane: int, landed: list[str], ended: threading.Event) -> None:
    """Reserve a place on one node and have a pod take it, which wants another node by itself, until told to end."""
    node = stage.nodes[lane % 2]
    for number in itertools.takewhile(lambda _: not ended.is_set(), itertools.count()):
        name = f"lane-{lane}-{number}"
        stage.reserve(name, app=name, template=stage.template(cpu="1"), nodes=[node])
        stage.wait_until_proven(name, seconds=300)  # a fence of the leader before may stand for minutes
        stage.create_pod(name, app=name, cpu="1")
        taken = stage.wait_for(ReservationPhase.SUCCEEDED, name, seconds=300)
        owner = taken.status.slots[0].owner
        assert owner is not None
        assert (owner.name, taken.status.node, stage.pod(name).spec.node_name) == (name, node, node)
        stage.client.delete(PODS, name, namespace=stage.namespace, grace_seconds=0)
        landed.append(name)


@pytest.mark.deep
def test_a_replica_that_was_asked_to_stop_gates_for_places_that_its_successor_holds(
    sandbox: Sandbox, stage: Stage, replicas: Replicas, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It wrote itself that the place is not held; until it stops to answer it has to believe what another writes."""
    for one in replicas.all:
        one.stop()
    patient = (f"--drain-seconds={DRAIN_SECONDS}",)
    with running_replicas(sandbox, tmp_path_factory.mktemp("patient"), 2, *patient) as both:
        old, new = both.leader, both.follower
        stage.create_pod("in-the-way", app="other", nodeName=stage.nodes[0])
        stage.reserve(nodes=[stage.nodes[0]])
        eventually("the place is said not to be held", lambda: stage.read().status.slots, seconds=60)
        assert old.is_leading()

        os.kill(old.pid, signal.SIGTERM)
        eventually("the other leads", new.is_leading, seconds=60)
        stage.client.delete(PODS, "in-the-way", namespace=stage.namespace, grace_seconds=0)
        stage.wait_until_proven()

        def answer_of_the_old() -> dict[str, Any]:
            config = registration(stage.client)
            return review_directly(config, old.webhook_port, owner_body(stage), stage.namespace)

        eventually("it gates", lambda: "patch" in answer_of_the_old(), seconds=60)
        for one in both.all:
            one.kill()


class Deaf(NoFaults):
    """Lets no list or watch of Reservations through."""

    def decide(self, call: Call) -> Fault:
        unheard = call.method == "GET" and call.path.endswith("/reservations")
        return Fault(FaultKind.STALL, seconds=DRAIN_SECONDS) if unheard else super().decide(call)


@pytest.mark.deep
def test_a_replica_gates_for_a_place_of_which_it_has_not_heard_yet_that_it_is_held(
    sandbox: Sandbox, stage: Stage, replicas: Replicas, tmp_path: Path
) -> None:
    with FaultProxy(sandbox.service_account_kubeconfig("berth-operator")) as proxy:
        through = proxy.write_kubeconfig(tmp_path / "through-the-proxy.yaml")
        follower = replicas.start_one(f"--kubeconfig={through}")
        stage.create_pod("in-the-way", app="other", nodeName=stage.nodes[0])
        stage.reserve(nodes=[stage.nodes[0]])
        eventually("the follower has heard of the Reservation", lambda: knows(follower, stage), seconds=60)
        proxy.plan = Deaf()
        proxy.cut_watches()

        stage.client.delete(PODS, "in-the-way", namespace=stage.namespace, grace_seconds=0)
        stage.wait_until_proven()
        config = registration(stage.client)
        answer = review_directly(config, follower.webhook_port, owner_body(stage), stage.namespace)
        follower.kill()

    assert "patch" in answer


def test_a_probe_shows_by_which_registration_the_api_server_calls_the_webhook(replicas: Replicas, stage: Stage) -> None:
    assert replicas.all
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()

    def gates(asked: str) -> bool:
        body = build_probe(stage.read(), asked, PlaceholderSettings())
        return is_gated(stage.client.create(PODS, body, namespace=DEFAULT_NAMESPACE, dry_run=True, type=Pod))

    def in_use() -> str:
        _, probe = stage.client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)["webhooks"]
        digest: str = probe["objectSelector"]["matchExpressions"][1]["values"][0]
        return digest

    # A replica may have to hear of the Reservation's last version, the API server of the registration.
    eventually("a probe by the registration is gated", lambda: gates(in_use()), seconds=60)
    eventually("a probe by any is gated", lambda: gates("any"), seconds=60)
    assert not gates("0" * 32)


def knows(replica: Replica, stage: Stage) -> bool:
    """Return whether a replica gates a probe for the Reservation of the stage as it is stored now."""
    metadata = stage.read().metadata
    if not stage.client.list(MUTATING_WEBHOOKS).items:
        return False
    probe = owner_body(stage)
    probe["metadata"] |= {
        "labels": {PROBE_LABEL: metadata.uid},
        "annotations": {VERSION_ANNOTATION: metadata.resource_version},
    }
    answer = review_directly(registration(stage.client), replica.webhook_port, probe, stage.namespace)
    return "patch" in answer


@pytest.mark.deep
def test_every_creation_is_gated_while_certificates_and_their_authority_are_renewed(
    sandbox: Sandbox, stage: Stage, replicas: Replicas, tmp_path_factory: pytest.TempPathFactory
) -> None:
    life = f"--certificate-life={LIFE_SECONDS}s"
    with replaced_by_two(replicas, sandbox, stage, tmp_path_factory.mktemp("short"), life) as both:
        leaves: set[bytes] = set()
        authorities: set[str] = set()
        missed: list[str] = []
        created = 0
        with watched(stage) as denied:
            began = time.monotonic()
            while time.monotonic() - began < 12 * LIFE_SECONDS and (len(leaves) < 4 or len(authorities) < 2):
                created += 1
                missed += passed_at_once(stage)
                authorities.add(registration(stage.client)["caBundle"])
                leaves |= {served_certificate(one.webhook_port, stage.client) for one in both.all}
    assert (missed, denied) == ([], [])
    assert len(leaves) >= 4
    assert len(authorities) >= 2
    print(f"{created} creations gated, {len(leaves)} certificates, {len(authorities)} authorities")  # noqa: T201


@pytest.mark.deep
def test_every_creation_is_gated_while_an_issuer_changes_the_certificate_and_its_authority(
    sandbox: Sandbox, stage: Stage, replicas: Replicas, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("issued")
    issuer = Issuer(folder / "mounted", LOOPBACK, datetime.now(UTC))
    options = (f"--certificate-life={LIFE_SECONDS}s", f"--certificate-folder={issuer.folder}")
    missed: list[str] = []

    def is_served(issued: CertificateBundle) -> bool:
        missed.extend(passed_at_once(stage))
        wanted = ssl.PEM_cert_to_DER_cert(issued.certificate.decode())
        return {served_certificate(one.webhook_port, stage.client) for one in both.all} == {wanted}

    with replaced_by_two(replicas, sandbox, stage, folder, *options) as both, watched(stage) as denied:
        for what in ("the issuer's first one", "its next one", "one of another authority"):
            if what == "one of another authority":
                issuer.change_authority(datetime.now(UTC))
            issued = issuer.issue(datetime.now(UTC))
            eventually(f"both serve {what}", partial(is_served, issued), seconds=120)
    assert (missed, denied) == ([], [])


@contextmanager
def replaced_by_two(
    replicas: Replicas, sandbox: Sandbox, stage: Stage, folder: Path, *options: str
) -> Iterator[Replicas]:
    """Yield two replicas with these options and certificates of their own, which have proven a place."""
    for one in replicas.all:
        one.stop()
    stage.client.delete(SECRETS, WEBHOOK_SECRET, namespace=DEFAULT_NAMESPACE)
    with running_replicas(sandbox, folder, 2, *options) as both:
        stage.reserve(nodes=[stage.nodes[0]])
        stage.wait_until_proven()
        yield both


def passed_at_once(stage: Stage) -> list[str]:
    """Create a pod and return how soon it passed ungated, nothing if it was gated.

    A certificate that is not trusted is refused at once. One that passes after the webhook's time limit was let through
    because the machine was busy, whatever the certificate.
    """
    began = time.monotonic()
    pod = stage.client.create(PODS, owner_body(stage), namespace=stage.namespace, dry_run=True, type=Pod)
    took = time.monotonic() - began
    return [] if is_gated(pod) or took >= WEBHOOK_SECONDS else [f"after {took:.1f} s"]


@contextmanager
def watched(stage: Stage) -> Iterator[list[str]]:
    """Yield what the Reservation said of its hand-over path whenever that was not proven."""
    found: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            if not stage.read().condition(ConditionType.HANDOVER_READY):
                found.append("not proven")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def served_certificate(port: int, client: KubeClient) -> bytes:
    """Return the certificate of a handshake that trusts what the API server trusts; raises where it fails.

    Where that was announced anew while the handshake was under way, another follows.
    """
    while True:
        announced = registration(client)
        try:
            return shake_hands(port, trusting(announced))
        except ssl.SSLCertVerificationError:
            if registration(client) == announced:
                raise


def shake_hands(port: int, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection((LOOPBACK, port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate
