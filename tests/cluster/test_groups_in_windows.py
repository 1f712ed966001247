"""A PodGroup's annotation lets its pods take a window's slots, on a control plane with Volcano's CRD alone."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from berth_core import (
    HANDOVER_GATE,
    RESERVATION_LABEL,
    RESERVEABLE_ANNOTATION,
    ConditionType,
    ReservationWindow,
    SlotState,
)
from berth_kube.errors import NotFoundError
from berth_kube.resources import CRDS, PODS, RESERVATION_WINDOWS, VOLCANO_POD_GROUPS
from reservation_stage import Stage, delete_all, delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

LONG_SECONDS: Final = 120
NAME: Final = f"{VOLCANO_POD_GROUPS.plural}.{VOLCANO_POD_GROUPS.group}"


@pytest.fixture(autouse=True)
def groups(stage: Stage) -> Iterator[None]:
    """Serve Volcano's PodGroup, with any fields."""
    version = {
        "name": VOLCANO_POD_GROUPS.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": VOLCANO_POD_GROUPS.plural, "kind": VOLCANO_POD_GROUPS.kind}
    spec = {"group": VOLCANO_POD_GROUPS.group, "names": names, "scope": "Namespaced", "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME}}
    stage.client.create(CRDS, {**head, "spec": spec})
    eventually("PodGroups are served", lambda: is_served(stage), seconds=LONG_SECONDS)
    yield
    delete_all(stage.client, RESERVATION_WINDOWS, stage.namespace)
    delete_all(stage.client, PODS, stage.namespace)
    delete_if_there(stage.client, CRDS, NAME)
    eventually("PodGroups are served no more", lambda: not is_served(stage), seconds=LONG_SECONDS)


def is_served(stage: Stage) -> bool:
    try:
        stage.client.list(VOLCANO_POD_GROUPS)
    except NotFoundError:
        return False
    return True


def open_window(stage: Stage) -> None:
    """Create a window that began this minute, with a place of a whole node on each of the stage's."""
    now = datetime.now(UTC)
    spec = {
        "schedule": f"{now.minute} {now.hour} * * *",
        "duration": "1h",
        "podNumToReserve": 2,
        "template": stage.template(),
    }
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "ReservationWindow", "metadata": {"name": "nightly"}}
    stage.client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=stage.namespace)


def reservation_of(stage: Stage) -> str:
    window = ReservationWindow.read(stage.client.get(RESERVATION_WINDOWS, "nightly", namespace=stage.namespace))
    return next((one.reservation for one in window.status.active), "")


def create(stage: Stage, name: str, group: str = "books", **spec: Any) -> None:  # noqa: ANN401 - a field of the pod
    body = {"apiVersion": "v1", "kind": "Pod", **stage.template(**spec)}
    body["metadata"] = {"name": name, "annotations": {"scheduling.k8s.io/group-name": group}}
    stage.client.create(PODS, body, namespace=stage.namespace)


def create_gated(stage: Stage, name: str) -> bool:
    """Create a pod; return False, without it, if the webhook had no answer in time on a busy machine."""
    create(stage, name)
    if RESERVATION_LABEL in stage.pod(name).metadata.labels:
        return True
    stage.client.delete(PODS, name, namespace=stage.namespace, grace_seconds=0)
    return False


def is_one_held(stage: Stage) -> bool:
    found = stage.read(reservation_of(stage))
    held = [one for one in found.status.slots if one.state is SlotState.HELD]
    return len(held) == 1 and found.condition(ConditionType.HANDOVER_READY)


def test_pods_whose_group_says_so_take_the_places_at_their_creation_and_when_they_have_waited(
    stage: Stage,
) -> None:
    create(stage, "filler", group="others", nodeName=stage.nodes[1])
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    for name, annotations in (("books", {RESERVEABLE_ANNOTATION: "true"}), ("others", {})):
        meta = {"name": name, "annotations": annotations}
        stage.client.create(VOLCANO_POD_GROUPS, {**head, "metadata": meta}, namespace=stage.namespace)
    open_window(stage)
    eventually("the window reserves", lambda: reservation_of(stage), seconds=LONG_SECONDS)
    eventually("one place is held, and pods are gated for it", lambda: is_one_held(stage), seconds=LONG_SECONDS)

    create(stage, "other", group="others")
    assert RESERVATION_LABEL not in stage.pod("other").metadata.labels
    eventually("a pod of the group is gated", lambda: create_gated(stage, "gated"), seconds=LONG_SECONDS)
    assert stage.pod("gated").metadata.annotations[RESERVEABLE_ANNOTATION] == "true"
    eventually("it runs in its place", lambda: stage.pod("gated").status.phase == "Running", seconds=LONG_SECONDS)
    assert stage.pod("gated").spec.node_name == stage.nodes[0]

    create(stage, "early")
    assert HANDOVER_GATE not in {gate.name for gate in stage.pod("early").spec.scheduling_gates}
    eventually(
        "nobody else takes it", lambda: stage.pod("early").condition("PodScheduled") == "False", seconds=LONG_SECONDS
    )
    eventually("its node is fenced", lambda: stage.is_fenced(stage.nodes[1]), seconds=LONG_SECONDS)
    stage.client.delete(PODS, "filler", namespace=stage.namespace, grace_seconds=0)
    eventually("it gets its place", lambda: stage.pod("early").status.phase == "Running", seconds=LONG_SECONDS)
    assert stage.pod("early").spec.node_name == stage.nodes[1]
    assert stage.pod("other").spec.node_name == ""
