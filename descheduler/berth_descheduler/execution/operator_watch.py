"""Owns what the descheduler does for an operator that has fallen silent: its gates and guards are taken off.

It does not touch placeholders: they end by their own deadline. An operator whose Lease was renewed within the limit is
left to its work. Because clocks differ, a Lease that looks old is looked at again after its duration: an operator that
renews it meanwhile is alive, whatever the clocks say.
"""

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog

from berth_core.clock import Clock, parse_timestamp
from berth_core.errors import BerthError
from berth_core.labels import HANDOVER_TAINT, RESERVATION_LABEL
from berth_core.names import OPERATOR_LEASE
from berth_core.objects import Node
from berth_descheduler import log_keys
from berth_descheduler.execution.plan_objects import build_ungate_operations
from berth_descheduler.settings import CycleSettings
from berth_kube.client import KubeClient
from berth_kube.errors import ConflictError, InvalidObjectError, NotFoundError
from berth_kube.leases import Lease
from berth_kube.resources import LEASES, NODES, PODS
from berth_kube.taints import remove_taint

_LOG = structlog.get_logger(__name__)
_JOIN_SECONDS: Final = 5.0
_TRIES: Final = 8


def is_silent(lease: Lease, now: datetime, stale_seconds: float) -> bool:
    """Tell whether the holder of a Lease has not renewed it for its duration and the limit on top."""
    if lease.spec.renew_time is None:
        return True
    silent_seconds = (now - parse_timestamp(lease.spec.renew_time)).total_seconds()
    return silent_seconds > (lease.spec.lease_duration_seconds or 0) + stale_seconds


def release_stale_handovers(
    client: KubeClient, clock: Clock, namespace: str, stale_seconds: float, *, sleep: Callable[[float], object]
) -> int:
    """Take off the gates and guards of a silent operator and return how many; 0 while it is alive."""
    if not _operator_is_silent(client, clock, namespace, stale_seconds, sleep):
        return 0
    return _ungate_pods(client, clock, stale_seconds) + _unguard_nodes(client, clock, stale_seconds)


def _operator_is_silent(
    client: KubeClient, clock: Clock, namespace: str, stale_seconds: float, sleep: Callable[[float], object]
) -> bool:
    """Tell whether there is no operator, or one whose Lease looks old and does not change while one looks on."""
    lease = _read_lease(client, namespace)
    if lease is None:
        return True
    if not is_silent(lease, clock.now(), stale_seconds):
        return False
    sleep(float(lease.spec.lease_duration_seconds or 0))
    again = _read_lease(client, namespace)
    return again is None or again.spec.renew_time == lease.spec.renew_time


def _read_lease(client: KubeClient, namespace: str) -> Lease | None:
    try:
        return client.get(LEASES, OPERATOR_LEASE, namespace=namespace, type=Lease)
    except NotFoundError:
        return None


def _ungate_pods(client: KubeClient, clock: Clock, stale_seconds: float) -> int:
    count = 0
    for pod in client.list(PODS, label_selector=RESERVATION_LABEL).items:
        age_seconds = (clock.now() - parse_timestamp(pod["metadata"]["creationTimestamp"])).total_seconds()
        if age_seconds > stale_seconds and build_ungate_operations(pod):
            count += _ungate(client, pod)
    return count


def _ungate(client: KubeClient, pod: dict[str, Any]) -> bool:
    """Take our gate off a pod as it is by now; return whether it was there."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    keys = {log_keys.KEY_POD: f"{namespace}/{name}"}
    try:
        for tries_left in reversed(range(_TRIES)):
            operations = build_ungate_operations(pod)
            if not operations:
                return False
            try:
                client.json_patch(PODS, name, operations, namespace=namespace)
                break
            except (ConflictError, InvalidObjectError):
                known, pod = pod, client.get(PODS, name, namespace=namespace)
                if not tries_left or pod["metadata"]["resourceVersion"] == known["metadata"]["resourceVersion"]:
                    raise  # nobody has changed it: the patch itself is refused
    except BerthError as error:
        _LOG.warning(log_keys.CALL_FAILED, **keys, **{log_keys.KEY_ERROR: str(error)})
        return False
    _LOG.warning(log_keys.UNGATED, **keys)
    return True


def _unguard_nodes(client: KubeClient, clock: Clock, stale_seconds: float) -> int:
    count = 0
    for node in client.list(NODES, type=Node).items:
        guards = [taint.value for taint in node.spec.taints if taint.key == HANDOVER_TAINT]
        if any(is_past(value, clock.now(), stale_seconds) for value in guards):
            count += _unguard(client, node.metadata.name)
    return count


def _unguard(client: KubeClient, node: str) -> bool:
    """Take our guard off a node; return whether that was done."""
    try:
        remove_taint(client, node, key=HANDOVER_TAINT, type=Node)
    except BerthError as error:
        _LOG.warning(log_keys.CALL_FAILED, **{log_keys.KEY_NODE: node, log_keys.KEY_ERROR: str(error)})
        return False
    _LOG.warning(log_keys.UNGUARDED, **{log_keys.KEY_NODE: node})
    return True


def is_past(deadline: str, now: datetime, stale_seconds: float) -> bool:
    """Tell whether a guard's deadline (unix seconds) is long past; a value that is no number has none left."""
    return not deadline.isdecimal() or now.timestamp() > int(deadline) + stale_seconds


class OperatorWatch:
    """Looks after a silent operator from time to time, in a thread; use as a context manager."""

    def __init__(self, client: KubeClient, clock: Clock, namespace: str, *, every: float, stale: float) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._every_seconds = every
        self._stale_seconds = stale
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
                release_stale_handovers(
                    self._client, self._clock, self._namespace, self._stale_seconds, sleep=self._stop.wait
                )
            except BerthError as error:
                _LOG.warning(log_keys.WATCHDOG_FAILED, **{log_keys.KEY_ERROR: str(error)})


def watch_operator(client: KubeClient, clock: Clock, settings: CycleSettings) -> OperatorWatch:
    """Return what looks after the operator of Berth's own namespace, as often as the settings say."""
    execution = settings.execution
    return OperatorWatch(
        client,
        clock,
        settings.namespace,
        every=execution.watchdog_seconds,
        stale=execution.stale_operator_seconds,
    )
