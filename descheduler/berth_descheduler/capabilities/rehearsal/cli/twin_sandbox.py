"""Makes a twin in an empty sandbox, whose controllers begin once all is made."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import msgspec

from berth_core import (
    Node,
    ObjectReference,
    PlannedMove,
    Pod,
    PodDisruptionBudget,
    RetryableError,
    Snapshot,
    count,
    matches_labels,
)
from berth_descheduler.capabilities.rehearsal.cli.twin import (
    NODE_LIFECYCLE,
    OWNER_KINDS,
    OwnerKey,
    Twin,
    TwinObject,
    owner_key,
)
from berth_kube import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    AlreadyExistsError,
    KubeClient,
    Resource,
)
from berth_sandbox.bootstrap import takes_pods
from berth_sandbox.components import Component
from berth_sandbox.sandbox import Sandbox

_AT_ONCE: Final = 16
_POLL_SECONDS: Final = 0.5
_SETTLE_SECONDS: Final = 300.0

Progress = Callable[[str], None]


def fill_sandbox(sandbox: Sandbox, twin: Twin, say: Progress) -> tuple[Mapping[OwnerKey, str], Mapping[str, str]]:
    """Make a twin in an empty sandbox; return the uids of owners, and of pods by namespace and name.

    Controllers begin once all is made, so that each owner finds its pods. Raises `RetryableError` if the cluster does
    not come to rest.
    """
    with sandbox.connect() as client, ThreadPoolExecutor(_AT_ONCE) as pool:
        for namespace in twin.namespaces:
            with suppress(AlreadyExistsError):
                client.create(NAMESPACES, namespace)
        names = [raw_namespace["metadata"]["name"] for raw_namespace in twin.namespaces]
        # The controller manager makes each namespace's ServiceAccount, without which pods are refused: so it is stopped
        # only after this.
        _await(lambda: all(takes_pods(client, name) for name in names), "service accounts")
        # With controllers at work a ReplicaSet would make pods of its own before those of the snapshot are there to be
        # adopted.
        sandbox.kill(Component.CONTROLLER_MANAGER)
        objects_text = f"{count(len(twin.nodes), 'node')} and {count(len(twin.pods), 'pod')}"
        say(f"making {objects_text} with their owners")
        for body in twin.priority_classes:
            client.create(PRIORITY_CLASSES, body)
        list(pool.map(lambda body: client.create(NODES, body), twin.nodes))
        deployments_made = _create_owned(client, pool, twin.owners, {}, of=(DEPLOYMENTS.kind,))
        other_owners_made = _create_owned(
            client, pool, twin.owners, deployments_made, of=OWNER_KINDS.keys() - {DEPLOYMENTS.kind}
        )
        owners = {**deployments_made, **other_owners_made}
        uids_of_pods = pool.map(lambda pod: _create(client, PODS, pod, owners), twin.pods)
        pods = {_key(pod.body): uid for pod, uid in zip(twin.pods, uids_of_pods, strict=True)}
        for body in twin.budgets:
            client.create(PDBS, body, namespace=body["metadata"]["namespace"])
        sandbox.restart(Component.CONTROLLER_MANAGER)
        say("waiting until all pods are ready")
        bound_pods = sum("nodeName" in pod.body["spec"] for pod in twin.pods)
        _await(lambda: _is_settled(client, bound_pods), "pods and disruption budgets")
    return owners, pods


def _key(body: Mapping[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _create_owned(
    client: KubeClient,
    pool: ThreadPoolExecutor,
    objects: Mapping[OwnerKey, TwinObject],
    owners: Mapping[OwnerKey, str],
    *,
    of: Collection[str],
) -> dict[OwnerKey, str]:
    """Create the owners of some kinds; return their uids."""
    keys = [key for key in objects if key.kind in of]
    uids = pool.map(lambda key: _create(client, OWNER_KINDS[key.kind], objects[key], owners), keys)
    return dict(zip(keys, uids, strict=True))


def _create(client: KubeClient, resource: Resource, twin_object: TwinObject, owners: Mapping[OwnerKey, str]) -> str:
    """Create an object with the reference to its owner; return its uid."""
    body, key = twin_object.body, twin_object.owner
    metadata = body["metadata"]
    if key is not None:
        reference = {"apiVersion": OWNER_KINDS[key.kind].api_version, "kind": key.kind, "name": key.name}
        references = [{**reference, "uid": owners[key], "controller": True, "blockOwnerDeletion": True}]
        body = {**body, "metadata": {**metadata, "ownerReferences": references}}
    return str(client.create(resource, body, namespace=metadata["namespace"])["metadata"]["uid"])


def _is_settled(client: KubeClient, bound: int) -> bool:
    """Return whether nodes and bound pods are ready, and the budgets count all that they cover."""
    if any(
        taint.key == f"{NODE_LIFECYCLE}not-ready"
        for node in client.list(NODES, type=Node).items
        for taint in node.taints
    ):
        return False
    ready = [pod for pod in client.list(PODS, type=Pod).items if pod.is_ready and not pod.is_terminating]
    if len(ready) < bound:
        return False
    return all(_counts_all(budget, ready) for budget in client.list(PDBS, type=PodDisruptionBudget).items)


def _counts_all(budget: PodDisruptionBudget, ready: Iterable[Pod]) -> bool:
    """Return whether a budget's status counts the pods that are ready."""
    namespace, selector = budget.metadata.namespace, budget.spec.selector
    covered_pods = sum(
        pod.metadata.namespace == namespace and matches_labels(selector, pod.metadata.labels) for pod in ready
    )
    # Until the disruption controller has counted the pods, disruptionsAllowed is 0, and each eviction would be refused
    # with 429 (`checkAndDecrement` in `pkg/registry/core/pod/storage/eviction.go`).
    return budget.status.observed_generation is not None and budget.status.current_healthy >= covered_pods


def _await(is_done: Callable[[], bool], awaited: str) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise RetryableError(f"the twin was not ready within {_SETTLE_SECONDS:g} s: {awaited}")
        time.sleep(_POLL_SECONDS)


def in_twin(
    move: PlannedMove, snapshot: Snapshot, owners: Mapping[OwnerKey, str], pods: Mapping[str, str]
) -> PlannedMove:
    """Return a move with the uids that its pod and owner have in the twin."""
    key = f"{move.namespace}/{move.pod}"
    pod = next((snapshot_pod for snapshot_pod in snapshot.pods if snapshot_pod.key == key), None)
    owner = owner_key(pod) if pod is not None else None
    reference = None
    if owner is not None:
        version = OWNER_KINDS[owner.kind].api_version
        reference = ObjectReference(
            api_version=version, kind=owner.kind, namespace=owner.namespace, name=owner.name, uid=owners[owner]
        )
    return msgspec.structs.replace(move, pod_uid=pods.get(key, ""), owner=reference)
