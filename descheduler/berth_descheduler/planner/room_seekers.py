"""Owns which pods room is to be made for: those that a request names or describes, with their gangs, or all pending.

It does not own whether there is room.
"""

from collections.abc import Sequence
from typing import Final

from berth_core.errors import InputError
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.classes import odd_requests
from berth_descheduler.plugins.room_requests import RoomRequest, Shape

SHAPE_NAMESPACE: Final = "(shape)"
"""The namespace of pods that stand for shapes: no name that a cluster could have."""

_GROUP_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.x-k8s.io/pod-group")
"""Annotations or labels by which batch schedulers know the pods of a gang."""


def find_seekers(request: RoomRequest, snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the pods that room is to be made for; raises `InputError` for a named one that is not pending."""
    pending = [pod for pod in snapshot.pods if is_pending(pod)]
    if request.names_nothing:
        return _without_places_in_view(pending)
    by_key = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pending}
    named = []
    for key in request.pods:
        if key not in by_key:
            raise _not_waiting(key, snapshot)
        named.append(by_key[key])
    gangs = {gang for pod in named if (gang := gang_of(pod)) is not None}
    members = (pod for pod in pending if gang_of(pod) in gangs)
    found = {pod.key: pod for pod in (*named, *members)}
    for pod in found.values():
        if odd := odd_requests(pod):
            raise InputError("pod", pod.key, "a pod whose requests can be read", said=f"{pod.key}, of which {odd}")
    return (*(stand_in(shape) for shape in request.shapes), *found.values())


def _not_waiting(key: tuple[str, str], snapshot: Snapshot) -> InputError:
    """Return the error for a pod that does not wait for room, with what it does instead."""
    name = "/".join(key)
    found = next((pod for pod in snapshot.pods if (pod.metadata.namespace, pod.metadata.name) == key), None)
    expected = "a pending pod that no gate holds back"
    return InputError("pod", name, expected, said=f"{name}, {_instead_of_waiting(found)}")


def _instead_of_waiting(pod: Pod | None) -> str:
    if pod is None:
        return "which does not exist"
    if pod.is_terminal or pod.is_terminating:
        return "which has ended or is about to"
    if pod.spec.node_name:
        return f"which is on {pod.spec.node_name}"
    if pod.is_gated:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return f"which its scheduling gates hold back ({gates})"
    return "which holds the place of a Reservation"


def _without_places_in_view(pending: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return the pods that are nominated nowhere; a gang of which it is not known what it asks for is left out."""
    odd = [pod for pod in pending if odd_requests(pod)]
    keys, gangs = {pod.key for pod in odd}, {gang_of(pod) for pod in odd} - {None}
    known = (pod for pod in pending if pod.key not in keys and gang_of(pod) not in gangs)
    return tuple(pod for pod in known if not pod.status.nominated_node_name)


def is_pending(pod: Pod) -> bool:
    """Tell whether a pod waits for room; placeholders do, but that is their Reservation's matter."""
    waits = not pod.spec.node_name and not pod.is_terminal and not pod.is_terminating and not pod.is_gated
    return waits and PLACEHOLDER_LABEL not in pod.metadata.labels


def gang_of(pod: Pod) -> tuple[str, str] | None:
    """Return the gang of a pod: its namespace and the group's name."""
    values = (pod.metadata.annotations.get(key) or pod.metadata.labels.get(key) for key in _GROUP_KEYS)
    name = next((value for value in values if value), None)
    return None if name is None else (pod.metadata.namespace, name)


def stand_in(shape: Shape) -> Pod:
    """Return a pod that stands for a shape."""
    requests = ResourceRequirements(requests=shape.amounts.to_quantities())
    spec = PodSpec(containers=(Container(name="shape", resources=requests),))
    return Pod(metadata=ObjectMeta(namespace=SHAPE_NAMESPACE, name=shape.text), spec=spec)
