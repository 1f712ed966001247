"""What room is asked for: the argument `room`, and the pods that are meant by it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_core import Container, InputError, ObjectMeta, Pod, PodSpec, ResourceRequirements, Snapshot
from berth_descheduler.planner import is_pending, odd_requests
from berth_descheduler.planner.pending_pods import SHAPE_NAMESPACE, gang_of
from berth_descheduler.planner.rooms import GuaranteedRoom, RoomOfGuarantee, RoomOwners, Shape

_POD_EXPECTED: Final = "the namespace and the name of a pod, such as shop/web-0"


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """What to make room for; without names that is every pending pod, as many as possible."""

    shapes: tuple[Shape, ...] = ()
    pods: tuple[tuple[str, str], ...] = ()
    """Namespaces and names."""

    owners: RoomOwners | None = None
    """Whose pods may take the room of the shapes; None: no pods, it is only kept free."""

    queue: str = ""
    """The queue whose unused guarantee gets room; its pods and shapes follow from the cluster."""

    room_of_guarantee: RoomOfGuarantee | None = None
    """What knows the guarantees of queues."""

    names_must_exist: bool = False
    """Whether pods that do not wait and queues that are not there are errors, as where a person has just typed them.

    Those of a policy are passed over: what it names comes and goes between its runs.
    """

    def __post_init__(self) -> None:
        """Refuse owners without shapes, and an open count beside others.

        Of several it would be open which goes first.
        """
        if self.owners is not None and not self.shapes and not self.queue:
            raise InputError("room.owners", self.owners.to_mapping(), "shapes beside it: a pod is its own owner")
        if any(shape.count is None for shape in self.shapes) and len(self.shapes) + len(self.pods) > 1:
            raise InputError("shape", self.shapes[0].text, "a count where more than one thing must fit")

    @classmethod
    def parse(cls, raw: object) -> "RoomRequest":
        """Return the request of a mapping with lists `shapes` and `pods`; raises `InputError` for an invalid one."""
        if raw is None:
            return cls()
        if not isinstance(raw, Mapping) or not set(raw) <= {"shapes", "pods", "owners", "queue"}:
            expected = "a mapping with a list shapes, a list pods, or both, or a queue; owners beside shapes or a queue"
            raise InputError("room", raw, expected)
        queue = raw.get("queue") or ""
        if not isinstance(queue, str):
            raise InputError("room.queue", queue, "the name of a queue")
        if queue and (raw.get("shapes") or raw.get("pods")):
            raise InputError("room.queue", queue, "neither shapes nor pods beside it: the queue's own are meant")
        return cls(
            tuple(map(Shape.parse, _listed(raw, "shapes"))),
            tuple(map(_pod_key, _listed(raw, "pods"))),
            RoomOwners.parse(raw.get("owners")),
            queue,
        )

    def guaranteed(self, snapshot: Snapshot) -> GuaranteedRoom | None:
        """Return what is left of the guarantee of the queue that it names, None if it names none.

        Raises `InputError` for a queue that is not known or has no guarantee.
        """
        if not self.queue:
            return None
        room = self.room_of_guarantee and self.room_of_guarantee(snapshot, self.queue, self.owners)
        if room is None:
            raise InputError("room.queue", self.queue, "nothing: no part of this program knows queues")
        return room

    @property
    def names_nothing(self) -> bool:
        """Return whether nothing is named."""
        return not self.shapes and not self.pods and not self.queue

    @property
    def all_or_none(self) -> bool:
        """Return whether a part of it is of no use."""
        if self.queue:
            return False
        return not self.names_nothing and all(shape.count is not None for shape in self.shapes)

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        parts = {
            "shapes": [shape.written() for shape in self.shapes],
            "pods": ["/".join(pod) for pod in self.pods],
            "owners": self.owners.to_mapping() if self.owners else None,
            "queue": self.queue,
        }
        return {name: value for name, value in parts.items() if value}


def _pod_key(text: object) -> tuple[str, str]:
    namespace, slash, name = text.partition("/") if isinstance(text, str) else ("", "", "")
    if not slash or not namespace or not name or "/" in name:
        raise InputError("pod", text, _POD_EXPECTED)
    return namespace, name


def _listed(raw: Mapping[str, Any], key: str) -> Iterable[object]:
    raw_list = raw.get(key) or []
    if not isinstance(raw_list, list | tuple):
        raise InputError(f"room.{key}", raw_list, "a list")
    return raw_list


def find_pods_to_fit(request: RoomRequest, snapshot: Snapshot) -> tuple[Pod, ...]:
    """Return the pods to make room for.

    Raises `InputError` for a named pod that is not pending, if names must exist; else others are passed over.
    """
    pending = [pod for pod in snapshot.pods if is_pending(pod)]
    if request.names_nothing:
        return _without_places_in_view(pending)
    by_key = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pending}
    named_pods = []
    for key in request.pods:
        if key in by_key:
            named_pods.append(by_key[key])
        elif request.names_must_exist:
            raise _not_waiting(key, snapshot)
    # A scheduler places the members of a gang together or not at all, so room for the named one alone would be of no
    # use.
    gangs = {gang for pod in named_pods if (gang := gang_of(pod)) is not None}
    members = (pod for pod in pending if gang_of(pod) in gangs)
    pods_to_fit = {pod.key: pod for pod in (*named_pods, *members)}
    if (
        request.names_must_exist
        and (unreadable_pod := next(filter(odd_requests, pods_to_fit.values()), None)) is not None
    ):
        expected = "a pod whose requests can be read"
        raise InputError(
            "pod", unreadable_pod.key, expected, said=f"{unreadable_pod.key}, of which {odd_requests(unreadable_pod)}"
        )
    return (*(_pod_of_shape(shape) for shape in request.shapes), *_with_known_requests(list(pods_to_fit.values())))


def _not_waiting(key: tuple[str, str], snapshot: Snapshot) -> InputError:
    """Return the error for a pod that is not pending, with the state that it is in."""
    name = "/".join(key)
    named_pod = next((pod for pod in snapshot.pods if (pod.metadata.namespace, pod.metadata.name) == key), None)
    expected = "a pending pod that no gate holds back"
    return InputError("pod", name, expected, said=f"{name}, {_instead_of_waiting(named_pod)}")


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
    """Return the pods without a nominated node.

    Leaves out pods with unreadable requests, with their gangs.
    """
    # The scheduler has preempted pods for a nominated one and tries that node before all others (KEP-1923): it needs no
    # room but what those pods leave.
    return tuple(pod for pod in _with_known_requests(pending) if not pod.status.nominated_node_name)


def _with_known_requests(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return the pods but for those with unreadable requests, and their gangs."""
    unreadable_pods = [pod for pod in pods if odd_requests(pod)]
    keys, gangs = {pod.key for pod in unreadable_pods}, {gang_of(pod) for pod in unreadable_pods} - {None}
    return tuple(pod for pod in pods if pod.key not in keys and gang_of(pod) not in gangs)


def _pod_of_shape(shape: Shape) -> Pod:
    """Return a pod that represents a shape."""
    requests = ResourceRequirements(requests=shape.amounts.to_quantities())
    spec = PodSpec(containers=(Container(name="shape", resources=requests),))
    return Pod(metadata=ObjectMeta(namespace=SHAPE_NAMESPACE, name=shape.text), spec=spec)
