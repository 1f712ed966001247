"""The Reservation of a window's occurrence."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_core import (
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    MAY_MOVE_ANNOTATION,
    PLACEHOLDER_IMAGE,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    RESERVEABLE_ANNOTATION,
    SLOTS_ADD_UP_ANNOTATION,
    WINDOW_API_VERSION,
    WINDOW_KIND,
    WINDOW_LABEL,
    WINDOW_START_ANNOTATION,
    Capacity,
    Fence,
    MayMove,
    Occurrence,
    PodSpec,
    ReservationWindow,
    divided_resources,
    format_timestamp,
    requests_of_slot,
)
from berth_core.decoding import convert

Body = dict[str, Any]

TASK: Final = "window"


def build_window_reservation(
    window: ReservationWindow, raw_template: Mapping[str, Any] | None, times: Occurrence, nodes: Sequence[str]
) -> Body:
    """Return the Reservation of an occurrence; `raw_template` is the template as written, None for `resources`."""
    spec, meta = window.spec, window.metadata
    start = format_timestamp(times.start)
    owner = {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "name": meta.name, "uid": meta.uid}
    task = {
        "name": TASK,
        "replicas": spec.pod_num_to_reserve,
        "reservationNodeNames": list(nodes),
        "template": raw_template if raw_template is not None else {"spec": _raw_pod_spec(window)},
    }
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": window.reservation_name(start),
            "namespace": meta.namespace,
            "labels": {WINDOW_LABEL: meta.name, MANAGED_LABEL: MANAGED_BY_OPERATOR},
            "annotations": {
                WINDOW_START_ANNOTATION: start,
                **({SLOTS_ADD_UP_ANNOTATION: divided_resources(spec).to_annotation()} if raw_template is None else {}),
                **({} if spec.may_move is MayMove.NEVER else {MAY_MOVE_ANNOTATION: spec.may_move.value}),
            },
            # True would need the right to update finalizers of the window, where the admission plugin
            # OwnerReferencesPermissionEnforcement is on.
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "spec": {
            **({"schedulerName": spec.scheduler_name} if spec.scheduler_name else {}),
            "owners": [{"annotations": {RESERVEABLE_ANNOTATION: "true"}}],
            "expires": format_timestamp(times.end),
            "capacity": Capacity.WHEN_FREE.value,
            "fence": Fence.NODE.value,
            "tasks": [task],
        },
    }


def pod_spec_of(window: ReservationWindow) -> PodSpec:
    """Return the pod that a window holds places for; raises `InputError` for resources that cannot be divided."""
    template = window.spec.template
    return convert(_raw_pod_spec(window), PodSpec) if template is None else template.spec


def _raw_pod_spec(window: ReservationWindow) -> Body:
    requests = requests_of_slot(window.spec).to_quantities()
    containers = [{"name": "slot", "image": PLACEHOLDER_IMAGE, "resources": {"requests": requests}}]
    return {"containers": containers, "nodeSelector": window.spec.node_selector}
