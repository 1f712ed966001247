"""`berth uninstall`: every kind of leftover is made first, and nothing of Berth is there afterwards."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from berth_core import (
    COOLING_LABEL,
    DRAINING_TAINT,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    QUEUE_GATE,
    ROOM_TAINT,
    SystemClock,
)
from berth_core.labels import (
    BEST_EFFORT_LABEL,
    COOLING_UNTIL_ANNOTATION,
    EVICTIONS_LABEL,
    FENCE_LABEL,
    HANDOVER_LABEL,
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
    PLACEHOLDER_LABEL,
    PREFIX,
    RELEASED_ANNOTATION,
    RELEASED_HASH,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    TEMPLATE_HASH_LABEL,
)
from berth_core.names import DEFAULT_NAMESPACE
from berth_descheduler.uninstall import Removal, Settings
from berth_kube.client import KubeClient
from berth_kube.errors import KubeError, NotFoundError
from berth_kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    LEASES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    SECRETS,
    Resource,
)
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, build_reservation, label_owner, make_namespace, pod_template
from control_planes import control_plane
from service_processes import script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NAMESPACE: Final = "shop"
AUTOSCALERS: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
OF_OTHERS: Final = "example.com/other"
GUARD: Final = "berth-pods-of-others"
KINDS: Final = (QUEUES, RESERVATION_WINDOWS, REVOCABLE_ZONES, DESCHEDULER_POLICIES, MIGRATION_PLANS, RESERVATIONS)
CLUSTER_KINDS: Final = (
    *(ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS),
    *(MUTATING_WEBHOOKS, PRIORITY_CLASSES, NAMESPACES, CRDS),
)


@pytest.fixture(scope="module")
def condemned_sandbox() -> Iterator[Sandbox]:
    """Yield a control plane of its own, since nothing of Berth is on it afterwards."""
    with control_plane(SandboxSettings(nodes=2)) as started:
        yield started


def build(resource: Resource, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of any object
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}


def make_objects(client: KubeClient) -> None:
    """Create an object of each kind of Berth; something that is gone holds one back by a finalizer."""
    profile = {"name": "default", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}
    moves = [{"namespace": NAMESPACE, "pod": "web-0", "source": "n1", "target": "n2", "wave": 1}]
    predicted = {"nodes": 2, "moves": 1, "waves": 1}
    window = {"schedule": "0 3 - 4 * * *", "podNumToReserve": 1, "resources": {"cpu": "1"}}
    specs: dict[Resource, dict[str, Any]] = {
        QUEUES: {},
        RESERVATION_WINDOWS: window,
        REVOCABLE_ZONES: {"windows": ["1:00-4:00"]},
        DESCHEDULER_POLICIES: {"mode": "Plan", "profiles": [profile]},
        MIGRATION_PLANS: {"mode": "Approve", "moves": moves, "predicted": predicted},
    }
    for resource, spec in specs.items():
        client.create(
            resource, build(resource, "left", spec=spec), namespace=NAMESPACE if resource.namespaced else None
        )
    reservation = build_reservation("left", cpu="1", owners=label_owner(app="web"))
    reservation["metadata"]["finalizers"] = [OF_OTHERS]
    client.create(RESERVATIONS, reservation, namespace=NAMESPACE)


def make_pods(client: KubeClient) -> None:
    """Create gated and marked pods, a released one, a placeholder and a fence, while no policy forbids it."""
    binding = client.get(ADMISSION_POLICY_BINDINGS, GUARD)
    client.delete(ADMISSION_POLICY_BINDINGS, GUARD)
    marks = dict.fromkeys((HANDOVER_LABEL, BEST_EFFORT_LABEL), "true") | {RESERVATION_LABEL: "uid"}
    people = {"app": "gated", EVICTIONS_LABEL: "Surge"}
    gated = pod_template(people | marks, cpu="1", schedulingGates=[{"name": HANDOVER_GATE}, {"name": QUEUE_GATE}])
    gated["metadata"]["annotations"] = {SLOT_ANNOTATION: "main/0/n1", OF_OTHERS: "stays"}
    of_others = pod_template({}, cpu="1", schedulingGates=[{"name": OF_OTHERS}, {"name": QUEUE_GATE}])
    own = {
        name: pod_template({label: "true"}, cpu="0")
        for name, label in {"p": PLACEHOLDER_LABEL, "f": FENCE_LABEL}.items()
    }
    for body in own.values():  # the namespace is held to the restricted level
        body["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        body["spec"]["containers"][0]["securityContext"] = rights

    def is_created(name: str, body: dict[str, Any], namespace: str) -> bool:
        with suppress(KubeError):  # until the API server has heard that the policy has no binding
            client.create(PODS, build(PODS, name, **{**body, "metadata": body["metadata"]}), namespace=namespace)
        return any(raw["metadata"]["name"] == name for raw in client.list(PODS, namespace=namespace).items)

    for name, body in {"gated": gated, "of-others": of_others}.items():
        eventually(f"{name} is there", lambda name=name, body=body: is_created(name, body, NAMESPACE))  # type: ignore[misc]
    for name, body in own.items():
        eventually(f"{name} is there", lambda name=name, body=body: is_created(name, body, DEFAULT_NAMESPACE))  # type: ignore[misc]
    client.create(DEPLOYMENTS, build_deployment("web", replicas=1, cpu="1"), namespace=NAMESPACE)
    eventually("web has a pod", lambda: client.list(PODS, namespace=NAMESPACE, label_selector="app=web").items)
    (web,) = client.list(PODS, namespace=NAMESPACE, label_selector="app=web").items
    released = {"labels": {TEMPLATE_HASH_LABEL: RELEASED_HASH}, "annotations": {RELEASED_ANNOTATION: "{}"}}
    client.merge_patch(PODS, web["metadata"]["name"], {"metadata": released}, namespace=NAMESPACE)
    client.create(
        ADMISSION_POLICY_BINDINGS, build(ADMISSION_POLICY_BINDINGS, GUARD, spec=binding["spec"]) | labelled(binding)
    )


def labelled(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata by which an object is known as one of the release."""
    return {"metadata": {key: raw["metadata"][key] for key in ("name", "labels", "annotations")}}


def make_leftovers(client: KubeClient) -> None:
    make_namespace(client, NAMESPACE)
    make_objects(client)
    make_pods(client)
    mark = {"at": NOON, "plan": "p", "policy": "n", "annotations": {AUTOSCALERS: "true"}}
    annotations = dict.fromkeys((LAST_DEFRAGMENTED_ANNOTATION, LAST_MOVED_ANNOTATION, COOLING_UNTIL_ANNOTATION), NOON)
    annotations |= {FREED_ANNOTATION: json.dumps(mark), AUTOSCALERS: "true", OF_OTHERS: "stays"}
    taints = [{"key": key, "value": "p", "effect": "NoSchedule"} for key in (*TAINTS, OF_OTHERS)]
    node = client.list(NODES).items[0]["metadata"]["name"]
    patch = {"metadata": {"labels": {COOLING_LABEL: "true"}, "annotations": annotations}, "spec": {"taints": taints}}
    client.merge_patch(NODES, node, patch)
    managed = {"labels": {"app.kubernetes.io/managed-by": "berth-operator"}}
    client.create(PRIORITY_CLASSES, build(PRIORITY_CLASSES, "berth-placeholder-7", value=7, metadata=managed))
    for name in ("berth-handover", "berth-queues"):
        client.create(MUTATING_WEBHOOKS, build(MUTATING_WEBHOOKS, name))
    client.create(LEASES, build(LEASES, "berth-descheduler"), namespace=DEFAULT_NAMESPACE)
    record = build(
        SECRETS, "sh.helm.release.v1.berth.v1", type="helm.sh/release.v1", metadata={"labels": {"name": "berth"}}
    )
    client.create(SECRETS, record, namespace=DEFAULT_NAMESPACE)


NOON: Final = "2026-01-01T12:00:00Z"
TAINTS: Final = (DRAINING_TAINT, FREED_TAINT, HANDOVER_TAINT, ROOM_TAINT)


def left(client: KubeClient) -> list[str]:
    """Return every name of Berth's, its objects', and what pods and nodes still have of it."""
    names = [raw["metadata"]["name"] for resource in CLUSTER_KINDS for raw in client.list(resource).items]
    left_names = [
        name for name in names if name.startswith("berth-") or name.endswith(PREFIX) or "reservations.batch" in name
    ]
    for resource in KINDS:
        with suppress(NotFoundError):
            left_names += [f"{resource.plural} {raw['metadata']['name']}" for raw in client.list(resource).items]
    for raw in (*client.list(PODS).items, *client.list(NODES).items):
        metadata, spec = raw["metadata"], raw["spec"]
        keys = [*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())]
        keys += [gate["name"] for gate in spec.get("schedulingGates") or ()]
        keys += [taint["key"] for taint in spec.get("taints") or ()]
        left_names += [
            f"{metadata['name']} {key}" for key in keys if key.startswith(f"{PREFIX}/") and key != EVICTIONS_LABEL
        ]
        left_names += [metadata["name"]] if RELEASED_HASH in (metadata.get("labels") or {}).values() else []
    return left_names


class InterruptedError(Exception):  # noqa: A001 - what a person does with a key
    """Ends an uninstallation in the middle."""


def interrupt_at(word: str) -> Callable[[str], None]:
    def report(line: str) -> None:
        if word in line:
            raise InterruptedError

    return report


def test_nothing_is_left_of_all_that_berth_can_leave(condemned_sandbox: Sandbox) -> None:
    def call(*options: str) -> subprocess.CompletedProcess[str]:
        command = [
            script("berth"),
            "uninstall",
            f"--kubeconfig={condemned_sandbox.kubeconfig}",
            "--timeout=1s",
            *options,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    with condemned_sandbox.connect() as client:
        make_leftovers(client)
        before = left(client)
        shown = call("--output=json")
        items = json.loads(shown.stdout)
        assert shown.returncode == 0
        assert "nothing was changed" in shown.stderr
        assert left(client) == before
        marks = {mark for item in items for mark in item["marks"]}
        assert {f"taint {key}" for key in TAINTS} <= marks
        assert f"annotation {LAST_MOVED_ANNOTATION}" in marks
        assert {"pod", "priorityclass.scheduling.k8s.io", "namespace"} <= {item["kind"] for item in items}

        settings = Settings(namespace=DEFAULT_NAMESPACE, release="berth", keep_crds=True, timeout_seconds=1)
        with pytest.raises(InterruptedError):
            Removal(client, SystemClock(), settings, interrupt_at(ADMISSION_POLICIES.plural)).carry_out()
        assert left(client)

        kept = call("--yes", "--keep-crds")
        assert kept.returncode == 0, kept.stderr
        assert {name.rpartition(".")[2] for name in left(client)} == {"sh"}  # the kinds alone
        assert len(left(client)) == len(KINDS)

        done = call("--yes")
        assert done.returncode == 0, done.stderr
        assert left(client) == []
        assert "nothing of Berth" in call().stderr

        gates = {
            raw["metadata"]["name"]: [gate["name"] for gate in raw["spec"].get("schedulingGates") or ()]
            for raw in client.list(PODS, namespace=NAMESPACE).items
        }
        assert (gates["gated"], gates["of-others"]) == ([], [OF_OTHERS])
        node = client.list(NODES).items[0]
        assert [taint["key"] for taint in node["spec"]["taints"]] == [OF_OTHERS]
        assert (OF_OTHERS in node["metadata"]["annotations"], AUTOSCALERS in node["metadata"]["annotations"]) == (
            True,
            False,
        )
