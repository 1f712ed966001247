"""Which labels Berth's accounts may give pods under the admission policies, and which word on windows."""

import json

from account_calls import (
    NAMESPACE,
    OTHER_GATE,
    ApiCall,
    ApiTargets,
    Body,
    changed,
    create,
    patch_pod,
    tenants_pod,
    windows_reservation,
)
from berth_core.labels import (
    AWAITS_CAPACITY_LABEL,
    BEST_EFFORT_LABEL,
    DAEMON_POD_LABEL,
    EMPTY_BY_ANNOTATION,
    EVICT_PERIOD_ANNOTATION,
    EVICTIONS_LABEL,
    EVICTIONS_SURGE,
    FENCE_LABEL,
    HANDOVER_GATE,
    HANDOVER_LABEL,
    PREEMPTABLE_LABEL,
    QUEUE_SLOT_LABEL,
    RELEASED_ANNOTATION,
    RELEASED_HASH,
    RESERVATION_LABEL,
    RESERVEABLE_ANNOTATION,
    STANDING_FENCE_LABEL,
    SUCCESSOR_LABEL,
    TEMPLATE_HASH_LABEL,
    WINDOW_LABEL,
)
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.resources import PODS, RESERVATIONS
from berth_sandbox.bootstrap import DESCHEDULER, OPERATOR
from cluster_objects import build_reservation

HASH = "5d4f8c7b9"
LET_GO = {TEMPLATE_HASH_LABEL: RELEASED_HASH}
REPLICA_SET = f"theirs-{HASH}"
NOTE = {RELEASED_ANNOTATION: json.dumps({"plan": "p", "replicaSet": REPLICA_SET, "hash": HASH})}
DEPLOYMENT = {
    "apiVersion": "example.com/v1",  # of a group that is not there, else the garbage collector would delete the pod
    "kind": "Deployment",
    "name": "theirs",
    "uid": "00000000-0000-0000-0000-000000000000",
    "controller": False,
    "blockOwnerDeletion": False,
}
CONTROLLER = {**DEPLOYMENT, "kind": "ReplicaSet", "name": REPLICA_SET, "controller": True}
FENCE_NOTES = {
    "metadata": {"annotations": {EVICT_PERIOD_ANNOTATION: "1m", EMPTY_BY_ANNOTATION: "2026-11-21T04:00:00Z"}}
}
ANOTHER = "another"
"""Any account but the two, with every right."""


def idle_pod() -> Body:
    """Return a tenant's pod without requests."""
    body = changed(tenants_pod(), "metadata.name", "idle")
    del body["spec"]["containers"][0]["resources"]
    return body


def labelled_pod(
    label: str, *, name: str = "labelled", gate: str = HANDOVER_GATE, owners: tuple[Body, ...] = ()
) -> Body:
    """Return a tenant's pod with one label and one scheduling gate."""
    body = tenants_pod()
    body["metadata"] |= {"name": name, "labels": {label: "true"}, "ownerReferences": list(owners)}
    body["spec"]["schedulingGates"] = [{"name": gate}]
    return body


def hashed_pod(name: str = "hashed", value: str = HASH) -> Body:
    """Return a tenant's pod as a ReplicaSet of a Deployment knows it."""
    body = changed(labelled_pod("app", name=name), f"metadata.labels.{TEMPLATE_HASH_LABEL}", value)
    body["metadata"]["labels"][EVICTIONS_LABEL] = EVICTIONS_SURGE
    body["metadata"]["ownerReferences"] = [CONTROLLER]
    return body


def annotated_pod(name: str, key: str, value: str) -> Body:
    """Return the same pod with an annotation."""
    body = hashed_pod(name)
    body["metadata"]["annotations"] = {key: value}
    return body


KEPT = (
    annotated_pod("kept", "cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    annotated_pod("undisturbed", "karpenter.sh/do-not-disrupt", "true"),
    annotated_pod("unevicted", "karpenter.sh/do-not-evict", "true"),
)
"""Pods that an annotation keeps on their nodes."""


def uncontrolled_pod() -> Body:
    """Return a pod with a template hash and without a ReplicaSet."""
    return changed(hashed_pod("uncontrolled"), "metadata.ownerReferences", [])


def unasked_pod() -> Body:
    """Return the same pod, of which nothing says that a replacement comes before an eviction."""
    body = hashed_pod("unasked")
    del body["metadata"]["labels"][EVICTIONS_LABEL]
    return body


def patch_hashed(account: str, labels: Body, **metadata: object) -> ApiCall:
    return patch_pod(account, {"metadata": {"labels": labels, **metadata}}, of=(NAMESPACE, "hashed"))


def let_go(name: str) -> ApiCall:
    """Have the descheduler take a pod out of its ReplicaSet as a plan does."""
    return patch_pod(DESCHEDULER, {"metadata": {"labels": LET_GO, "annotations": NOTE}}, of=(NAMESPACE, name))


def give_back_elsewhere(targets: ApiTargets) -> None:
    of = (NAMESPACE, "goes")
    let_go("goes")(targets)
    patch_pod(DESCHEDULER, {"metadata": {"labels": {TEMPLATE_HASH_LABEL: "5d4f8c7ba"}}}, of=of)(targets)


def controller(kind: str) -> Body:
    uid = "00000000-0000-0000-0000-000000000000"
    return {"apiVersion": "apps/v1", "kind": kind, "name": "theirs", "uid": uid, "controller": True}


def queue_slot(label: str) -> Body:
    """Return a Reservation for a slot of a queue with one label."""
    body = windows_reservation("slot")
    body["metadata"]["labels"] = {label: "ml"}
    body["metadata"]["ownerReferences"][0] |= {"kind": "Queue", "name": "ml"}
    return body


def owned_in(namespace: str) -> Body:
    """Return a Reservation for a Deployment of a namespace."""
    deployment = {"kind": "Deployment", "name": "theirs", "namespace": namespace}
    return build_reservation("for-a-deployment", cpu="1", owners=[{"object": deployment}])


REFUSED_LABELS: dict[str, tuple[ApiCall, str]] = {
    "a slot of a queue with the label of a window": (
        create(OPERATOR, RESERVATIONS, queue_slot(WINDOW_LABEL), NAMESPACE),
        "only Reservations that a ReservationWindow or a Queue controls",
    ),
    "a Reservation for an owner of another namespace": (
        create(ANOTHER, RESERVATIONS, owned_in("kube-system"), NAMESPACE),
        "spec.owners[].object.namespace",
    ),
    "a pod with requests let past fences": (
        patch_pod(OPERATOR, {"metadata": {"labels": {BEST_EFFORT_LABEL: "true"}}}),
        "only a pod without requests and limits",
    ),
    "a pod said to take no slot of windows": (
        patch_pod(OPERATOR, {"metadata": {"annotations": {RESERVEABLE_ANNOTATION: "false"}}}),
        "of annotations only",
    ),
    **{
        f"another's pod with {label}": (create(ANOTHER, PODS, labelled_pod(label), NAMESPACE), "only Berth's operator")
        for label in (
            HANDOVER_LABEL,
            AWAITS_CAPACITY_LABEL,
            SUCCESSOR_LABEL,
            BEST_EFFORT_LABEL,
            PREEMPTABLE_LABEL,
            FENCE_LABEL,
            STANDING_FENCE_LABEL,
        )
    },
    "another's pod let past fences later": (
        patch_pod(ANOTHER, {"metadata": {"labels": {BEST_EFFORT_LABEL: "true"}}}, of=(NAMESPACE, "idle")),
        "only Berth's operator",
    ),
    "another's pod let past the fence of a hand-over later": (
        patch_pod(ANOTHER, {"metadata": {"labels": {HANDOVER_LABEL: "true"}}}),
        "only Berth's operator",
    ),
    "a pod let past the fence of a hand-over by the descheduler": (
        patch_pod(DESCHEDULER, {"metadata": {"labels": {HANDOVER_LABEL: "true"}}}),
        "of a pod's labels only",
    ),
    "another's pod with a Reservation's label and no gate": (
        create(ANOTHER, PODS, labelled_pod(RESERVATION_LABEL, gate=OTHER_GATE), NAMESPACE),
        "comes only with Berth's scheduling gate",
    ),
    "another's pod with a Reservation's label later": (
        patch_pod(ANOTHER, {"metadata": {"labels": {RESERVATION_LABEL: "u"}}}),
        "comes only with Berth's scheduling gate",
    ),
    "another's pod with another Reservation's label": (
        patch_pod(ANOTHER, {"metadata": {"labels": {RESERVATION_LABEL: "other"}}}, of=(NAMESPACE, "sent")),
        "comes only with Berth's scheduling gate",
    ),
    "our gate taken off without the label": (
        patch_pod(ANOTHER, {"spec": {"schedulingGates": None}}, of=(NAMESPACE, "sent")),
        "goes only together with the label",
    ),
    "what only fences say, said of another's pod": (
        patch_pod(OPERATOR, FENCE_NOTES, of=(NAMESPACE, "idle")),
        "of annotations only",
    ),
    "another's pod made as one that was let go": (
        create(ANOTHER, PODS, hashed_pod("let-go", RELEASED_HASH), NAMESPACE),
        "only Berth and who may carry out plans may take a pod out of its ReplicaSet",
    ),
    "a pod let go by the operator where nothing asks for it": (
        patch_pod(OPERATOR, {"metadata": {"labels": LET_GO}}, of=(NAMESPACE, "unasked")),
        "lets go only pods whose evictions surge",
    ),
    "another value of the template hash by the operator": (
        patch_hashed(OPERATOR, {TEMPLATE_HASH_LABEL: "other"}),
        "of labels only",
    ),
    "another note on a pod that the operator lets go": (
        patch_hashed(OPERATOR, LET_GO, annotations={"note": "ours"}),
        "of annotations only",
    ),
    "a controller for a pod that the operator lets go": (
        patch_hashed(OPERATOR, LET_GO, ownerReferences=[controller("ReplicaSet")]),
        "owners and finalizers",
    ),
    "a pod without a template hash let go": (
        patch_pod(DESCHEDULER, {"metadata": {"labels": LET_GO}}),
        "of a pod's labels only",
    ),
    "a pod let go without a note": (
        patch_hashed(DESCHEDULER, LET_GO),
        "notes its name and hash",
    ),
    "a pod let go with the note of another hash": (
        patch_hashed(
            DESCHEDULER,
            LET_GO,
            annotations={
                RELEASED_ANNOTATION: NOTE[RELEASED_ANNOTATION].replace(f'"hash": "{HASH}"', '"hash": "other"')
            },
        ),
        "notes its name and hash",
    ),
    "a pod let go that no ReplicaSet controls": (
        let_go("uncontrolled"),
        "only pods that a ReplicaSet controls",
    ),
    **{
        f"a pod let go that is {body['metadata']['name']}": (
            let_go(body["metadata"]["name"]),
            "none that an annotation keeps in place",
        )
        for body in KEPT
    },
    "a pod given back to another ReplicaSet": (
        give_back_elsewhere,
        "is given back to the ReplicaSet that its annotation",
    ),
    **{
        f"a pod let go with a note that has {how}": (
            patch_hashed(
                DESCHEDULER, LET_GO, annotations={RELEASED_ANNOTATION: NOTE[RELEASED_ANNOTATION][:-1] + f", {more}}}"}
            ),
            "notes its name and hash once",
        )
        for how, more in {
            "another hash, too": '"hash": "other"',
            "another hash, without a space": '"hash":"other"',
            "another hash, with its key escaped": '"h\\u0061sh": "other"',
            "another ReplicaSet, too": '"replicaSet": "other"',
            "another ReplicaSet, before the colon a space": '"replicaSet" : "other"',
        }.items()
    },
    "another value of the template hash": (
        patch_hashed(DESCHEDULER, {TEMPLATE_HASH_LABEL: "other"}),
        "of a pod's labels only",
    ),
    "another's label of a pod that is let go": (
        patch_hashed(DESCHEDULER, {**LET_GO, "app": "other"}),
        "of a pod's labels only",
    ),
    "the note of a pod that is not let go": (
        patch_hashed(DESCHEDULER, {}, annotations=NOTE),
        "of a pod's annotations only",
    ),
    "another note on a pod that is let go": (
        patch_hashed(DESCHEDULER, LET_GO, annotations={"note": "ours"}),
        "of a pod's annotations only",
    ),
    "a controller for a pod that is let go": (
        patch_hashed(DESCHEDULER, LET_GO, ownerReferences=[controller("ReplicaSet")]),
        "finalizers and controller",
    ),
    "an owner of a pod that is not let go": (
        patch_hashed(DESCHEDULER, {}, ownerReferences=[DEPLOYMENT]),
        "finalizers and controller",
    ),
    "another's pod labelled as of a DaemonSet": (
        create(ANOTHER, PODS, labelled_pod(DAEMON_POD_LABEL), NAMESPACE),
        "only a pod that a DaemonSet controls",
    ),
    "a pod of a ReplicaSet labelled as of a DaemonSet": (
        create(ANOTHER, PODS, labelled_pod(DAEMON_POD_LABEL, owners=(controller("ReplicaSet"),)), NAMESPACE),
        "only a pod that a DaemonSet controls",
    ),
}

ALLOWED_LABELS: dict[str, ApiCall] = {
    "a pod let go that may be disrupted": let_go("disrupted"),
    "a Reservation for an owner of its own namespace": create(
        ANOTHER, RESERVATIONS, owned_in(NAMESPACE), NAMESPACE, dry_run=True
    ),
    "a slot of a queue": create(OPERATOR, RESERVATIONS, queue_slot(QUEUE_SLOT_LABEL), NAMESPACE, dry_run=True),
    "a pod without requests let past fences": patch_pod(
        OPERATOR, {"metadata": {"labels": {BEST_EFFORT_LABEL: "true"}}}, of=(NAMESPACE, "idle")
    ),
    "a preemptable pod let onto lent nodes": patch_pod(
        OPERATOR, {"metadata": {"labels": {PREEMPTABLE_LABEL: "true"}}}, of=(NAMESPACE, "idle")
    ),
    "what the fence of a lent node says": patch_pod(OPERATOR, FENCE_NOTES, of=(DEFAULT_NAMESPACE, "held")),
    "what its group says of a pod": patch_pod(
        OPERATOR, {"metadata": {"annotations": {RESERVEABLE_ANNOTATION: "true"}}}, of=(NAMESPACE, "idle")
    ),
    "another's pod that was let past fences": patch_pod(
        ANOTHER, {"metadata": {"labels": {"app": "other"}}}, of=(NAMESPACE, "idle")
    ),
    "our gate and the label taken off by another": patch_pod(
        ANOTHER,
        {"metadata": {"labels": {RESERVATION_LABEL: None}}, "spec": {"schedulingGates": None}},
        of=(NAMESPACE, "sent"),
    ),
    "a gated pod with a Reservation's label": create(
        ANOTHER, PODS, labelled_pod(RESERVATION_LABEL), NAMESPACE, dry_run=True
    ),
    "a pod let go with a note and its Deployment": patch_hashed(
        DESCHEDULER, LET_GO, annotations=NOTE, ownerReferences=[CONTROLLER, DEPLOYMENT]
    ),
    "another's label of a pod that was let go": patch_hashed(ANOTHER, {"theirs": "x"}),
    "a pod given back": patch_hashed(
        DESCHEDULER, {TEMPLATE_HASH_LABEL: HASH}, annotations={RELEASED_ANNOTATION: None}, ownerReferences=[CONTROLLER]
    ),
    "a pod let go once more": patch_hashed(DESCHEDULER, LET_GO, annotations=NOTE),
    "a pod given back by another": patch_hashed(ANOTHER, {TEMPLATE_HASH_LABEL: HASH}),
    "a pod let go by who may carry out plans": patch_hashed(ANOTHER, LET_GO),
    "a pod given back by the operator": patch_hashed(
        OPERATOR, {TEMPLATE_HASH_LABEL: HASH}, annotations={RELEASED_ANNOTATION: None}, ownerReferences=[CONTROLLER]
    ),
    "a pod let go by the operator": patch_hashed(
        OPERATOR, LET_GO, annotations=NOTE, ownerReferences=[CONTROLLER, DEPLOYMENT]
    ),
    "a pod of a DaemonSet": create(
        ANOTHER, PODS, labelled_pod(DAEMON_POD_LABEL, owners=(controller("DaemonSet"),)), NAMESPACE, dry_run=True
    ),
}
"""In an order in which each is possible."""
