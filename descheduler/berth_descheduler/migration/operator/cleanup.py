"""The descheduler removes the gates and guards of an operator that has fallen silent.

Placeholders stay: they end by their own deadline. An operator is silent when its Lease was observed unchanged for its
duration and the limit on top, while the API server answered. So an operator that was away together with the API
server, or with this process, has that time to come back, and clocks need not agree.

A gate comes off first: its pod may be waiting for a place that is free already. The guard of that place then stays,
as under a living operator, until the pod runs or has had a full time with a scheduler: an operator that comes back
finds either a pod that runs, or one whose place is still kept.
"""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from berth_core import (
    HANDOVER_GATE,
    HANDOVER_SECONDS,
    HANDOVER_TAINT,
    LATEST_UNIX_SECONDS,
    OPERATOR_LEASE,
    RESERVATION_LABEL,
    SLOT_ANNOTATION,
    UNTRIED_SECONDS,
    BerthError,
    Clock,
    Node,
    parse_timestamp,
    read_whole_number,
)
from berth_descheduler import telemetry
from berth_descheduler.settings import CycleSettings
from berth_kube import (
    LEASES,
    NODES,
    PODS,
    ConflictError,
    InvalidObjectError,
    KubeClient,
    Lease,
    NotFoundError,
    remove_taint,
)

_LOG = structlog.get_logger(__name__)

_JOIN_SECONDS: Final = 5.0
_TRIES: Final = 8
_LONGEST_STEP_LOOKS: Final = 2
"""A longer pause between two reads counts as this many usual ones: the Lease was not watched meanwhile."""

_GATED_REASON: Final = "SchedulingGated"

RawPod = dict[str, Any]


def _ungate(client: KubeClient, pod: dict[str, Any]) -> bool:
    """Remove our gate from a pod; return whether it was there."""
    pod_name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    keys = {telemetry.KEY_POD: f"{namespace}/{pod_name}"}
    try:
        for tries_left in reversed(range(_TRIES)):
            operations = build_ungate_operations(pod)
            if not operations:
                return False
            try:
                client.json_patch(PODS, pod_name, operations, namespace=namespace)
                break
            # 422 is the answer where a test of the patch fails, as after another controller has taken its gate off.
            except (ConflictError, InvalidObjectError):
                pod_before, pod = pod, client.get(PODS, pod_name, namespace=namespace)
                if not tries_left or pod["metadata"]["resourceVersion"] == pod_before["metadata"]["resourceVersion"]:
                    raise  # the pod has not changed: the API server refuses the patch itself
    except BerthError as error:
        _LOG.warning(telemetry.CALL_FAILED, **keys, **{telemetry.KEY_ERROR: str(error)})
        return False
    _LOG.warning(telemetry.UNGATED, **keys)
    return True


def _unguard(client: KubeClient, node: str) -> bool:
    """Remove our guard from a node; return whether that worked."""
    try:
        remove_taint(client, node, key=HANDOVER_TAINT, type=Node)
    except BerthError as error:
        _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_NODE: node, telemetry.KEY_ERROR: str(error)})
        return False
    _LOG.warning(telemetry.UNGUARDED, **{telemetry.KEY_NODE: node})
    return True


def is_past(deadline: str, now: datetime, stale_seconds: float) -> bool:
    """Return whether a guard's deadline, in unix seconds, is long past; an unreadable one counts as past."""
    seconds = read_whole_number(deadline, most=LATEST_UNIX_SECONDS)
    return seconds is None or now.timestamp() > seconds + stale_seconds


def _node_of_slot(pod: RawPod) -> str:
    """Return the node of a pod's slot annotation, "" without one."""
    note = (pod["metadata"].get("annotations") or {}).get(SLOT_ANNOTATION) or ""
    return note.split("/")[2] if note.count("/") > 1 else ""


def _is_waiting(pod: RawPod) -> bool:
    """Return whether a pod does not run yet but still may."""
    phase = (pod.get("status") or {}).get("phase")
    return pod["metadata"].get("deletionTimestamp") is None and phase in {None, "", "Pending"}


def _is_tried(pod: RawPod) -> bool:
    """Return whether a scheduler has tried a pod since it was gated."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    reason = next(
        (condition.get("reason") or "" for condition in conditions if condition["type"] == "PodScheduled"), ""
    )
    return reason not in {"", _GATED_REASON}


def _full_time_seconds(*, is_tried: bool) -> float:
    return HANDOVER_SECONDS if is_tried else UNTRIED_SECONDS


class StaleOperatorCleanup:
    """Cleans up after a silent operator, in a thread; a context manager."""

    def __init__(self, client: KubeClient, clock: Clock, namespace: str, *, every: float, stale: float) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._every_seconds = every
        self._stale_seconds = stale
        self._looked_at = clock.monotonic()
        self._lease: Lease | None = None
        self._silent_seconds = 0.0
        self._waiting: dict[tuple[str, bool], float] = {}
        """Seconds for which a waiting pod was observed, by its uid and whether a scheduler has tried it."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            try:
                self.look()
            except BerthError as error:
                _LOG.warning(telemetry.WATCHDOG_FAILED, **{telemetry.KEY_ERROR: str(error)})

    def look(self) -> int:
        """Read the Lease, remove what a silent operator left, and return how many gates and guards that were."""
        now = self._clock.monotonic()
        step, self._looked_at = min(now - self._looked_at, _LONGEST_STEP_LOOKS * self._every_seconds), now
        lease_before, self._lease = self._lease, self._read_lease()
        is_unchanged = (lease_before and lease_before.spec.renew_time) == (self._lease and self._lease.spec.renew_time)
        self._silent_seconds = self._silent_seconds + step if is_unchanged else 0.0
        duration_seconds = (self._lease.spec.lease_duration_seconds or 0) if self._lease else 0
        if self._silent_seconds <= duration_seconds + self._stale_seconds:
            self._waiting.clear()
            return 0
        # Raw objects, for the JSON patch addresses the gate by its position in the list as the API server has it.
        pods = self._client.list(PODS, label_selector=RESERVATION_LABEL).items
        return self._ungate_pods(pods) + self._unguard_nodes(self._nodes_to_keep(pods, step))

    def _read_lease(self) -> Lease | None:
        try:
            return self._client.get(LEASES, OPERATOR_LEASE, namespace=self._namespace, type=Lease)
        except NotFoundError:
            return None

    def _ungate_pods(self, pods: Iterable[RawPod]) -> int:
        now = self._clock.now()
        gated_pods = [pod for pod in pods if build_ungate_operations(pod)]
        ages = ((pod, now - parse_timestamp(pod["metadata"]["creationTimestamp"])) for pod in gated_pods)
        return sum(_ungate(self._client, pod) for pod, age in ages if age.total_seconds() > self._stale_seconds)

    def _nodes_to_keep(self, pods: Iterable[RawPod], step_seconds: float) -> set[str]:
        """Return the nodes of slots whose pods have not yet had their full time with a scheduler."""
        nodes = {(pod["metadata"]["uid"], _is_tried(pod)): _node_of_slot(pod) for pod in pods if _is_waiting(pod)}
        waited_seconds, self._waiting = self._waiting, {}
        for pod_key in nodes:
            self._waiting[pod_key] = waited_seconds[pod_key] + step_seconds if pod_key in waited_seconds else 0.0
        return {
            node
            for waiting_pod_key, node in nodes.items()
            if self._waiting[waiting_pod_key] < _full_time_seconds(is_tried=waiting_pod_key[1])
        }

    def _unguard_nodes(self, kept: set[str]) -> int:
        now, count = self._clock.now(), 0
        for node in self._client.list(NODES, type=Node).items:
            guards = [taint.value for taint in node.spec.taints if taint.key == HANDOVER_TAINT]
            is_left_over = any(is_past(guard_time, now, self._stale_seconds) for guard_time in guards)
            if is_left_over and node.metadata.name not in kept:
                count += _unguard(self._client, node.metadata.name)
        return count


def clean_up_after_operator(client: KubeClient, clock: Clock, settings: CycleSettings) -> StaleOperatorCleanup:
    """Return the cleanup for the operator in Berth's namespace, at the interval of the settings."""
    execution = settings.execution
    return StaleOperatorCleanup(
        client,
        clock,
        settings.namespace,
        every=execution.watchdog_seconds,
        stale=execution.stale_operator_seconds,
    )


def build_ungate_operations(raw_pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return JSON patch operations that remove Berth's gate from a pod.

    They apply to exactly this pod; without a gate there are none. They test the entry first, so that a changed list of
    gates is not patched at the wrong index.
    """
    operations: list[dict[str, Any]] = []
    gates = raw_pod["spec"].get("schedulingGates") or ()
    # From the end, as each removal moves up the entries behind it (RFC 6902).
    for index in reversed(range(len(gates))):
        if gates[index].get("name") == HANDOVER_GATE:
            path = f"/spec/schedulingGates/{index}"
            operations.append({"op": "test", "path": f"{path}/name", "value": HANDOVER_GATE})
            operations.append({"op": "remove", "path": path})
    # A patch names its object by name only, and a StatefulSet may have made the pod again by now.
    uid_test = {"op": "test", "path": "/metadata/uid", "value": raw_pod["metadata"]["uid"]}
    return [uid_test, *operations] if operations else []
