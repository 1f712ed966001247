"""Volcano's PodGroups of placeholders: those of one Reservation get their places together or not at all."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from berth_core import MANAGED_BY_OPERATOR, MANAGED_LABEL, RESERVATION_LABEL, PodGroup, Reservation, SlotState
from berth_kube import AlreadyExistsError, ForbiddenError, KubeClient, NotFoundError
from berth_operator.schedulers.volcano import LOOSENED, POD_GROUPS, build_pod_group, is_gang, pod_group_name

_ABSENT_SECONDS: Final = 60.0
"""How long Volcano's CRD counts as missing after the API server did not know it."""

_MAX_COLLECTED: Final = 100
"""Deleted in one sweep: it runs in the thread that leads, whose silence costs the Lease."""

_OWNED: Final = {SlotState.HANDING_OVER, SlotState.TAKEN}


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
        """Return the name of the PodGroup for a new placeholder, creating it if it is missing; "" for none."""
        uid = reservation.metadata.uid
        # Once a slot has an owner, too few placeholders are left for `minMember`: a later one is scheduled by itself.
        is_late = uid in self._loose or any(slot.state in _OWNED for slot in reservation.status.slots)
        if not is_gang(reservation) or is_late or time.monotonic() < self._absent_until:
            return ""
        if uid not in self._exist:
            body = build_pod_group(reservation, priority=priority, namespace=self._namespace)
            try:
                self._client.create(POD_GROUPS, body, namespace=self._namespace)
            except AlreadyExistsError:
                pass
            except NotFoundError:
                # 404 on a create means that the kind is not served, as Volcano is not installed.
                self._absent_until = time.monotonic() + _ABSENT_SECONDS
                return ""
            self._exist.add(uid)
        return pod_group_name(uid)

    def loosen(self, reservation: Reservation) -> None:
        """Drop the minimum before the first placeholder is deleted for its owner: each is then placed by itself."""
        uid = reservation.metadata.uid
        if uid in self._loose or not is_gang(reservation) or time.monotonic() < self._absent_until:
            return
        with suppress(NotFoundError):
            self._client.merge_patch(POD_GROUPS, pod_group_name(uid), LOOSENED, namespace=self._namespace)
        self._loose.add(uid)

    def collect(self, is_needed: Callable[[str], bool], *, everything: bool) -> tuple[str, ...]:
        """Delete the PodGroups whose Reservation needs none any more, and return their names.

        Without `everything` this does nothing unless this replica has made some, so that a cluster without Volcano is
        not asked at each sweep.
        """
        if not self._exist and not everything:
            return ()
        try:
            groups = self._client.list(
                POD_GROUPS,
                namespace=self._namespace,
                label_selector=f"{MANAGED_LABEL}={MANAGED_BY_OPERATOR}",
                type=PodGroup,
            ).items
        # Without Volcano the kind is not served, and the chart may grant no right on it.
        except (NotFoundError, ForbiddenError):
            return ()
        uids = {group.metadata.uid: group.metadata.labels.get(RESERVATION_LABEL, "") for group in groups}
        needed_uids = {uid for uid in uids.values() if is_needed(uid)}
        unused = [group.metadata for group in groups if uids[group.metadata.uid] not in needed_uids]
        self._exist = needed_uids | {uids[meta.uid] for meta in unused[_MAX_COLLECTED:]}
        self._loose &= self._exist
        unused = unused[:_MAX_COLLECTED]
        for meta in unused:
            with suppress(NotFoundError):
                self._client.delete(POD_GROUPS, meta.name, namespace=self._namespace, uid=meta.uid)
        return tuple(meta.name for meta in unused)
