"""Chooses nodes for slots that take capacity when it is free, and reads when pods end."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from berth_core import (
    FENCE_LABEL,
    INDEX_ANNOTATION,
    PLACEHOLDER_LABEL,
    TASK_ANNOTATION,
    BerthError,
    Fence,
    Pod,
    PodSpec,
    Reservation,
    ReservationReason,
    ResourceAmounts,
    TimedJob,
    expected_end,
    volcano_group_of,
)
from berth_core.workloads import JOB_KIND
from berth_kube import JOBS, PODS, HasMetadata, KubeClient, Resource
from berth_operator.reservation.act.context import NOT_ENDED, Annotated, Context
from berth_operator.reservation.fitting import slots_by_key, trusted_assignment
from berth_operator.reservation.manifests import FenceKind
from berth_operator.reservation.node_choice import (
    CandidateNode,
    EndingPod,
    FenceBudget,
    NodeChoice,
    SlotId,
    TaskDemand,
    choose_nodes,
)
from berth_operator.reservation.pod_state import awaited_node
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.pods import reservation_uid
from berth_operator.reservation.surveys import slot_requests, taken_by
from berth_operator.schedulers.volcano import POD_GROUPS

_KNOWN_SECONDS: Final = 60.0
_ONE_BY_ONE: Final = 20
"""Up to this many objects are read by name."""
_FENCES: Final = ResourceAmounts({"pods": len(FenceKind)})

_SHARED_SECONDS: Final = 2.0
"""Choices within this time share one list of all pods of the cluster: many Reservations may choose at a time."""
_SHARED_TIMES: Final = 4.0
"""They share it for so many times as long as it took, if that is more."""


class ExpectedEnds:
    """Reads when pods are expected to end, as they, their groups or their Jobs say; thread-safe."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._jobs = _Reader(context.client, JOBS, TimedJob)
        self._groups = _Reader(context.client, POD_GROUPS, Annotated)

    def of(self, pods: Iterable[Pod]) -> dict[str, datetime]:
        """Return the expected ends of pods by uid; pods that have outlived theirs are absent."""
        all_pods = tuple(pods)
        jobs = self._jobs.of(key for pod in all_pods if (key := _job_of(pod)) is not None)
        groups = self._groups.of(key for pod in all_pods if (key := _group_of(pod)) is not None)
        now = self._clock.now()
        ends: dict[str, datetime] = {}
        for pod in all_pods:
            job, group = jobs.get(_job_of(pod)), groups.get(_group_of(pod))
            end = expected_end(pod, job=job, group=group.metadata if group is not None else None)
            if end is not None and end > now:
                ends[pod.metadata.uid] = end
        return ends


class NodeChooser:
    """Chooses nodes by all pods of the cluster, for one Reservation at a time: no choice counts on another's room."""

    def __init__(self, context: Context, budget_of: Callable[[str], FenceBudget]) -> None:
        """`budget_of` returns how many nodes may be fenced for a namespace."""
        self._client = context.client
        self._cache = context.cache
        self._may_be_on = context.admits
        self._budget_of = budget_of
        self._lock = threading.Lock()
        self._seen: Mapping[str, tuple[GuardableNode, CandidateNode]] = {}
        self._look_again = 0.0
        """Monotonic time from which that is too old."""
        self._ends = ExpectedEnds(context)

    def choose(self, reservation: Reservation, slots: Sequence[SlotId]) -> None:
        """Choose a node for each slot that some node can hold, and record the choice."""
        with self._lock:
            choice = self._choose(reservation, slots)
            self._cache.put_choice(reservation.metadata.uid, choice)

    def _choose(self, reservation: Reservation, slots: Sequence[SlotId]) -> NodeChoice:
        nodes = self._look()
        is_fenced = reservation.spec.fence is Fence.NODE
        kept_nodes = self._cache.fenced.kept_from(reservation.metadata.namespace)
        demands = [
            TaskDemand(
                slots=tuple(slot for slot in slots if slot[0] == task.name),
                requests=slot_requests(task.template.spec),
                nodes=tuple(
                    node_name
                    for node_name, (node, _) in nodes.items()
                    if node_name not in kept_nodes and task.allows(node_name) and self._admits(node, task.template.spec)
                ),
            )
            for task in reservation.spec.tasks
        ]
        claims = self._claims(reservation.metadata.uid)
        fence = _FENCES if is_fenced else ResourceAmounts.empty()
        candidates = {
            node_name: replace(candidate, claimed=ResourceAmounts.total((candidate.claimed, claims[node_name], fence)))
            for node_name, (_, candidate) in nodes.items()
        }
        budget = self._budget_of(reservation.metadata.namespace) if is_fenced else None
        choice = choose_nodes([demand for demand in demands if demand.slots], candidates, budget)
        return (
            NodeChoice({}, choice.reason, choice.message) if _is_part_of_a_gang(reservation, slots, choice) else choice
        )

    def _admits(self, node: GuardableNode, spec: PodSpec) -> bool:
        """Return whether a node admits placeholders of a template."""
        # A cordoned node is about to go, whatever a placeholder tolerates. One whose kubelet has not reported yet may
        # never be ready.
        has_reported = any(condition.type == "Ready" for condition in node.status.conditions)
        return has_reported and not node.spec.unschedulable and self._may_be_on(node, spec)

    def _look(self) -> Mapping[str, tuple[GuardableNode, CandidateNode]]:
        """Return the nodes with what their pods take, as they were at most a few seconds ago."""
        started = time.monotonic()
        if started >= self._look_again:
            self._seen = self._read_nodes()
            now = time.monotonic()
            self._look_again = now + max(_SHARED_SECONDS, _SHARED_TIMES * (now - started))
        return self._seen

    def _read_nodes(self) -> dict[str, tuple[GuardableNode, CandidateNode]]:
        nodes = {node.metadata.name: node for node in self._cache.nodes()}
        claims: defaultdict[str, ResourceAmounts] = defaultdict(ResourceAmounts.empty)
        ending: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self._client.list(PODS, field_selector=NOT_ENDED, type=Pod).items:
            node = pod.spec.node_name or self._promised_node(pod)
            if not node or {PLACEHOLDER_LABEL, FENCE_LABEL} & pod.metadata.labels.keys():
                continue  # the cache has the placeholders
            # Pods of DaemonSets and static pods stay; a pod with a note will come. Neither frees anything.
            if pod.belongs_to_node or not pod.spec.node_name:
                claims[node] = claims[node].plus(taken_by(pod))
            else:
                ending[node].append(pod)
        ends = self.ends(pod for group in ending.values() for pod in group)
        return {
            node_name: (
                node,
                CandidateNode(
                    node_name,
                    node.offered,
                    claims[node_name],
                    tuple(EndingPod(taken_by(pod), ends.get(pod.metadata.uid)) for pod in ending[node_name]),
                ),
            )
            for node_name, node in nodes.items()
        }

    def _promised_node(self, pod: Pod) -> str:
        """Return the node of the slot that a pod was given, or ""; anyone may write a note."""
        reservation = self._cache.reservation(reservation_uid(pod))
        assignment = (
            trusted_assignment(reservation, pod, slots_by_key(reservation)) if reservation is not None else None
        )
        return assignment.node if assignment is not None else ""

    def _claims(self, besides: str) -> defaultdict[str, ResourceAmounts]:
        """Return what placeholders hold or await, and what other choices are about to."""
        claims: defaultdict[str, ResourceAmounts] = defaultdict(ResourceAmounts.empty)
        placed: set[tuple[str, str, str]] = set()
        for pod in self._cache.placeholders():
            notes = pod.metadata.annotations
            placed.add((reservation_uid(pod), notes.get(TASK_ANNOTATION, ""), notes.get(INDEX_ANNOTATION, "")))
            node = pod.spec.node_name or awaited_node(pod)
            if node and not pod.is_terminal:
                claims[node] = claims[node].plus(slot_requests(pod.spec))
        for uid, choice in self._cache.choices().items():
            reservation = self._cache.reservation(uid)
            if uid == besides or reservation is None or not reservation.is_live:
                continue
            tasks = {task.name: task for task in reservation.spec.tasks}
            for (task, index), node in choice.nodes.items():
                # The placeholders of a choice that was just made are not in the cache yet; two Reservations must not
                # count on the same room.
                if choice.is_recent and task in tasks and (uid, task, str(index)) not in placed:
                    claims[node] = claims[node].plus(slot_requests(tasks[task].template.spec))
        return claims

    def ends(self, pods: Iterable[Pod]) -> dict[str, datetime]:
        """Return the expected ends of pods by uid."""
        return self._ends.of(pods)


def _is_part_of_a_gang(reservation: Reservation, slots: Sequence[SlotId], choice: NodeChoice) -> bool:
    """Return whether a limit of fences leaves nodes for too few of the slots that are wanted together."""
    # Fences for some of them would keep those nodes from all others for nothing.
    spec = reservation.spec
    is_limited = spec.all_or_nothing and choice.reason is ReservationReason.FENCE_LIMIT
    return is_limited and len(slots) == spec.replicas and len(choice.nodes) < spec.wanted


_NamespacedName = tuple[str, str]


T = TypeVar("T", bound=HasMetadata)


def _job_of(pod: Pod) -> _NamespacedName | None:
    """Return namespace and name of a pod's Job, None without one."""
    controller = pod.controller
    is_job = controller is not None and controller.group_kind == JOB_KIND
    return (pod.metadata.namespace, controller.name) if controller is not None and is_job else None


def _group_of(pod: Pod) -> _NamespacedName | None:
    """Return namespace and name of a pod's Volcano PodGroup, None without one."""
    group_name = volcano_group_of(pod)
    return (pod.metadata.namespace, group_name) if group_name else None


class _Reader(Generic[T]):
    """Reads objects by name, each at most once a minute; those that cannot be read are left out."""

    def __init__(self, client: KubeClient, resource: Resource, type_: type[T]) -> None:
        self._client = client
        self._resource = resource
        self._type = type_
        self._lock = threading.Lock()
        self._known: dict[_NamespacedName, tuple[float, T | None]] = {}

    def of(self, names: Iterable[_NamespacedName]) -> dict[_NamespacedName | None, T]:
        """Return the objects of these names that exist."""
        now = time.monotonic()
        with self._lock:
            self._known = {name: cached for name, cached in self._known.items() if cached[0] > now - _KNOWN_SECONDS}
            wanted_names = set(names)
            missing_names = wanted_names - self._known.keys()
            if len(missing_names) > _ONE_BY_ONE:
                # Also those that the list lacks are known to be missing for a while, or each look would list again.
                self._known |= dict.fromkeys(missing_names, (now, None))
                with suppress(BerthError):
                    objects = self._client.list(self._resource, type=self._type).items
                    self._known |= {
                        (stored.metadata.namespace, stored.metadata.name): (now, stored) for stored in objects
                    }
            else:
                self._known |= {name: (now, self._get(name)) for name in missing_names}
            return {name: known_object for name in wanted_names if (known_object := self._known[name][1]) is not None}

    def _get(self, name: _NamespacedName) -> T | None:
        try:
            return self._client.get(self._resource, name[1], namespace=name[0], type=self._type)
        except BerthError:
            return None
