"""Gives up nodes that are no longer needed for starving jobs, and records which pods they keep off.

This runs in a thread of its own, so that no fence outlasts its use while a run of a policy takes hours. It makes no
calls while no policy enables `StarvingJobs`, no fence is left and no plan of the plugin is under way.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from itertools import islice
from typing import Final

import structlog

from berth_core import (
    POLICY_LABEL,
    STARVING_JOB_LABEL,
    STARVING_JOBS,
    BerthError,
    ObjectReference,
    PermanentError,
    Reservation,
    ReservationPhase,
    ReservationReason,
    Snapshot,
)
from berth_descheduler import telemetry
from berth_descheduler.capabilities.starving_jobs.pending_jobs import find_pending_jobs
from berth_descheduler.capabilities.starving_jobs.placement import pods_kept_off
from berth_descheduler.capabilities.starving_jobs.slots_needed import SlotNeed, slots_needed
from berth_descheduler.capability import KnownPolicy, Leading
from berth_descheduler.event_reasons import COMPONENT, PodEventReason
from berth_descheduler.planner.standing_fences import standing_fences
from berth_kube import RESERVATIONS, ConflictError, NotFoundError, record_event

_LOG = structlog.get_logger(__name__)
_PAUSE_SECONDS: Final = 5.0
_SHARE: Final = 10
"""A pass may take at most a tenth of the time, so it is made less often on a large cluster."""
_PASSES: Final = 2
"""How many passes in a row must find a Reservation unneeded: a pod may be missing because it is being replaced."""
_LOOK_SECONDS: Final = 0.2
_MOST_EVENTS: Final = 50
_TRIED_AGAIN: Final = frozenset(
    {
        ReservationReason.PREEMPTED,
        ReservationReason.NODE_LOST,
        ReservationReason.HANDOVER_TIMEOUT,
        ReservationReason.PLACE_TAKEN,
    }
)
"""Failures for which the Reservation is deleted, so that the next run tries the job again."""


class KeptNodesSweep:
    """Deletes Reservations that no starving job needs, and records events on pods that fences keep off."""

    def __init__(self, leading: Leading) -> None:
        self._client, self._clock, self._picture = leading.client, leading.clock, leading.picture
        self._known_policies, self._known_plans = leading.known_policies, leading.known_plans
        self._show_kept_nodes = leading.show_kept_nodes
        self._watch: ExitStack | None = None
        """Open while Reservations exist: keeps the cluster watched, so that a pass lists nothing."""
        self._known_left = True
        """Whether Reservations may exist; true at first, as an earlier process may have left some."""
        self._seen_plans: frozenset[tuple[str, str]] = frozenset()
        """Uids and phases of the plugin's plans at the last pass; a change may mean a new Reservation."""
        self._passes: dict[str, int] = {}
        """How many passes in a row found a Reservation unneeded, by uid."""
        self._recorded: frozenset[tuple[str, str]] = frozenset()
        """Pairs of a waiting pod's uid and a node for which the event has been recorded."""

    def work_until(self, over: Callable[[], bool]) -> None:
        """Make passes until `over` returns true; a pass that fails is logged and made again."""
        stop = threading.Event()
        while not over():
            begun_at = self._clock.monotonic()
            try:
                self.pass_once()
            except BerthError as error:
                _LOG.warning(telemetry.CHORE_FAILED, **{telemetry.KEY_ERROR: str(error)})
            except Exception:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.exception(telemetry.CHORE_FAILED)
            pause = max(_PAUSE_SECONDS, _SHARE * (self._clock.monotonic() - begun_at))
            ends_at = self._clock.monotonic() + pause
            while not over() and self._clock.monotonic() < ends_at:
                stop.wait(_LOOK_SECONDS)
        self._watch_while(needed=False)

    def pass_once(self) -> None:
        """Make one pass."""
        policies = self._known_policies()
        plans = frozenset(
            (plan.metadata.uid, plan.phase.value)
            for plan in self._known_plans()
            if plan.spec.objective.plugin == STARVING_JOBS
        )
        is_used = self._known_left or any(policy.enables(STARVING_JOBS) for policy in policies.values())
        if not is_used and plans == self._seen_plans:
            return
        self._seen_plans = plans
        raw_reservations = self._client.list(RESERVATIONS, label_selector=STARVING_JOB_LABEL).items
        reservations = [Reservation.read(raw_reservation) for raw_reservation in raw_reservations]
        self._known_left = bool(reservations)
        # Shown before the picture is read, which may fail: a count of fences that are long gone would be worse than
        # none.
        self._show_kept_nodes(0)
        self._watch_while(needed=bool(reservations))
        if not reservations:
            self._passes, self._recorded = {}, frozenset()
            return
        snapshot = self._picture.snapshot()
        self._show_kept_nodes(len(standing_fences(snapshot)))
        self._release(reservations, snapshot, policies)
        self._record_kept_off(snapshot)

    def _watch_while(self, *, needed: bool) -> None:
        if needed and self._watch is None:
            self._watch = ExitStack()
            self._watch.enter_context(self._picture.watched())
        elif not needed and self._watch is not None:
            self._watch.close()
            self._watch = None

    def _release(
        self, reservations: Iterable[Reservation], snapshot: Snapshot, policies: Mapping[str, KnownPolicy]
    ) -> None:
        jobs = find_pending_jobs(snapshot, on_their_way=True)
        counts: dict[str, int] = {}
        for reservation in reservations:
            uid = reservation.metadata.uid
            if reservation.metadata.deletion_timestamp is not None:
                continue
            if (
                reservation.phase is ReservationPhase.FAILED
                and reservation.status.state
                and reservation.status.state.reason in _TRIED_AGAIN
            ):
                self._delete(
                    reservation, f"it failed ({reservation.status.state.reason}), and the next run tries again"
                )
            elif reservation.is_live and (why_off := _why_switched_off(reservation, policies)):
                self._delete(reservation, why_off)
            elif reservation.is_live and (need := slots_needed(reservation, snapshot, jobs)) != SlotNeed():
                counts[uid] = self._passes.get(uid, 0) + 1
                if counts[uid] >= _PASSES:
                    self._adapt(reservation, need)
        self._passes = counts

    def _adapt(self, reservation: Reservation, need: SlotNeed) -> None:
        """Lower `minAvailable` to the slots that the job needs; delete a Reservation of which it needs none."""
        if need.wanted is None:
            self._delete(reservation, need.why_none)
            return
        meta = reservation.metadata
        # With the uid, the patch fails if the name belongs to another object by now.
        body = {"metadata": {"uid": meta.uid}, "spec": {"minAvailable": need.wanted}}
        try:
            self._client.merge_patch(RESERVATIONS, meta.name, body, namespace=meta.namespace)
        except (NotFoundError, ConflictError):
            return
        except PermanentError as error:
            self._delete(reservation, f"its job needs fewer slots by now, and the API server refuses that: {error}")
            return
        text = f"{need.wanted} of {reservation.spec.replicas}: pods of its job were placed elsewhere"
        keys = {telemetry.KEY_RESERVATION: reservation.key, telemetry.KEY_MESSAGE: text}
        _LOG.info(telemetry.FEWER_SUFFICE, **keys)

    def _delete(self, reservation: Reservation, why: str) -> None:
        meta = reservation.metadata
        keys = {telemetry.KEY_RESERVATION: reservation.key, telemetry.KEY_MESSAGE: why}
        try:
            # The uid is sent as a precondition: a Reservation that was made under this name since the list was read is
            # not meant.
            self._client.delete(RESERVATIONS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return
        except BerthError as error:
            _LOG.warning(telemetry.RELEASE_FAILED, **keys, **{telemetry.KEY_ERROR: str(error)})
            return
        _LOG.info(telemetry.RELEASED, **keys)

    def _record_kept_off(self, snapshot: Snapshot) -> None:
        """Record an event on the pods that a fence keeps off, once for each pod and node, a few at each sweep."""
        kept_off = pods_kept_off(snapshot)
        without_event = ((pod, node) for pod, node in kept_off if (pod.metadata.uid, node) not in self._recorded)
        new_events = [*islice(without_event, _MOST_EVENTS)]
        for pod, node in new_events:
            text = f"node(s) resource was(were) reserved: {node} is kept for a starving job"
            record_event(
                self._client,
                regarding=ObjectReference.of("v1", "Pod", pod.metadata),
                reason=PodEventReason.RESOURCE_RESERVED.value,
                message=text,
                reporting_component=COMPONENT,
                clock=self._clock,
            )
        waiting = {pod.metadata.uid for pod, _ in kept_off}
        newly_recorded = {(pod.metadata.uid, node) for pod, node in new_events}
        self._recorded = frozenset(
            newly_recorded | {pod_and_node for pod_and_node in self._recorded if pod_and_node[0] in waiting}
        )


def _why_switched_off(reservation: Reservation, policies: Mapping[str, KnownPolicy]) -> str:
    """Return why the policy of a Reservation wants it no more; "" for a policy that cannot be read now."""
    name = reservation.metadata.annotations.get(POLICY_LABEL)
    if name is None:
        return ""
    if name not in policies:
        return f"there is no policy {name}"
    switched_off = policies[name].enables(STARVING_JOBS) is False
    return f"the policy {name} does not enable StarvingJobs any more" if switched_off else ""
