"""The PriorityClasses and PodGroups by which schedulers treat placeholders as they should."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from berth_core import (
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    RESERVATION_LABEL,
    PodGroup,
    PodSpec,
    PriorityClass,
    Reservation,
    SlotState,
    priority_class_name,
)
from berth_kube import (
    PRIORITY_CLASSES,
    AlreadyExistsError,
    ForbiddenError,
    KubeClient,
    NotFoundError,
)
from berth_operator import telemetry
from berth_operator.reservation.manifests import build_priority_class
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.schedulers.volcano import LOOSENED, POD_GROUPS, build_pod_group, is_gang, pod_group_name

_LOG = structlog.get_logger(__name__)


class PriorityClasses:
    """Cached classes; only missing ones are fetched from the API server."""

    def __init__(self, client: KubeClient, rules: ClusterRules) -> None:
        self._client = client
        self._rules = rules
        self._creating = threading.Lock()

    def of(self, spec: PodSpec) -> int:
        """Return the priority for a pod spec.

        Raises `NotFoundError` for an unknown class.
        """
        name = spec.priority_class_name
        if not name:
            default = self._rules.default_class()
            return default.value if default else 0
        known = self._rules.classes.get(name)
        if known is None:
            known = self._client.get(PRIORITY_CLASSES, name, type=PriorityClass)
            self._rules.classes.put(known)
        return known.value

    def ensure(self, value: int) -> None:
        """Create the placeholders' class for a value if it is missing."""
        name = priority_class_name(value)
        if self._rules.classes.get(name) is None:
            with self._creating:  # those that want it at the same time wait for the first
                self._create_missing(name, value)

    def _create_missing(self, name: str, value: int) -> None:
        if self._rules.classes.get(name) is not None:
            return
        body = build_priority_class(value)
        try:
            made = self._client.create(PRIORITY_CLASSES, body, type=PriorityClass)
        except AlreadyExistsError:
            made = self._client.get(PRIORITY_CLASSES, name, type=PriorityClass)
        self._rules.classes.put(made)

    def forget(self, value: int) -> None:
        """Forget that a class exists; the next placeholder creates it again."""
        self._rules.classes.forget(priority_class_name(value))

    def collect(self) -> None:
        """Delete the placeholders' classes; only while no Reservation is live."""
        for name in self._rules.managed_classes():
            try:
                self._client.delete(PRIORITY_CLASSES, name)
            except NotFoundError:
                pass
            else:
                _LOG.info(telemetry.CLASS_COLLECTED, **{telemetry.KEY_NAME: name})
            self._rules.classes.forget(name)


# --- Volcano's PodGroups ---------------------------------------------------------------------------------------------
# The placeholders of one Reservation get their places together or not at all.

_ABSENT_SECONDS: Final = 60.0
"""How long Volcano's CRD counts as missing after the API server did not know it."""

_MOST_COLLECTED: Final = 100
"""Deleted in one sweep: it runs in the thread that leads, whose silence costs the Lease."""

_WITH_OWNER: Final = {SlotState.HANDING_OVER, SlotState.TAKEN}


class PodGroups:
    """Creates, loosens and deletes PodGroups in Berth's own namespace.

    Where no Reservation of several slots names Volcano's scheduler, and where its CRD is missing, nothing is written.
    """

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._absent_until = 0.0
        self._exist: set[str] = set()
        """Uids of Reservations whose PodGroup exists."""
        self._loose: set[str] = set()
        """Uids of those that need no minimum any more."""

    def ensure(self, reservation: Reservation, *, priority: int) -> str:
        """Return the PodGroup for a new placeholder, creating it if it is missing; "" for none.

        Once a slot has an owner, too few placeholders are left for the minimum: a later one is scheduled by itself.
        """
        uid = reservation.metadata.uid
        is_late = uid in self._loose or any(slot.state in _WITH_OWNER for slot in reservation.status.slots)
        if not is_gang(reservation) or is_late or time.monotonic() < self._absent_until:
            return ""
        if uid not in self._exist:
            body = build_pod_group(reservation, priority=priority, namespace=self._namespace)
            try:
                self._client.create(POD_GROUPS, body, namespace=self._namespace)
            except AlreadyExistsError:
                pass
            except NotFoundError:
                self._absent_until = time.monotonic() + _ABSENT_SECONDS
                return ""
            self._exist.add(uid)
        return pod_group_name(uid)

    def loosen(self, reservation: Reservation) -> None:
        """Drop the minimum, before the first placeholder is deleted for its owner.

        A placeholder that still waits then is scheduled without the others.
        """
        uid = reservation.metadata.uid
        if uid in self._loose or not is_gang(reservation) or time.monotonic() < self._absent_until:
            return
        with suppress(NotFoundError):
            self._client.merge_patch(POD_GROUPS, pod_group_name(uid), LOOSENED, namespace=self._namespace)
        self._loose.add(uid)

    def collect(self, is_needed: Callable[[str], bool], *, everything: bool) -> tuple[str, ...]:
        """Delete the PodGroups whose Reservation is no longer needed, by its uid; return their names.

        Without `everything` only if this replica made some: a cluster without Volcano is not asked at each sweep.
        """
        if not self._exist and not everything:
            return ()
        try:
            found = self._client.list(
                POD_GROUPS,
                namespace=self._namespace,
                label_selector=f"{MANAGED_LABEL}={MANAGED_BY_OPERATOR}",
                type=PodGroup,
            ).items
        except (NotFoundError, ForbiddenError):
            return ()
        uids = {group.metadata.uid: group.metadata.labels.get(RESERVATION_LABEL, "") for group in found}
        needed = {uid for uid in uids.values() if is_needed(uid)}
        unused = [group.metadata for group in found if uids[group.metadata.uid] not in needed]
        self._exist = needed | {uids[meta.uid] for meta in unused[_MOST_COLLECTED:]}
        self._loose &= self._exist
        unused = unused[:_MOST_COLLECTED]
        for meta in unused:
            with suppress(NotFoundError):
                self._client.delete(POD_GROUPS, meta.name, namespace=self._namespace, uid=meta.uid)
        return tuple(meta.name for meta in unused)
