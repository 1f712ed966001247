"""Reconcile one Reservation: observe, decide, write the status, act."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import structlog

from berth_core import BerthError, Pod, Reservation
from berth_kube import NODES, PODS, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context, find_pod
from berth_operator.reservation.act.executor import ActionExecutor
from berth_operator.reservation.act.orphans import OrphanCollector
from berth_operator.reservation.act.pending_owners import PendingOwners
from berth_operator.reservation.actions import Action, AssignSlot, DeletePlaceholder, Probe, Release, Validate
from berth_operator.reservation.decide import Decision, decide, may_validate_first
from berth_operator.reservation.fair_sharing import FairSharing, has_share
from berth_operator.reservation.forged_status import without_forged_claims
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.pod_state import holds_our_gate, is_at_same_step
from berth_operator.reservation.status import has_just_expired, newly_lost
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.throttle import Throttle, only_starts
from berth_operator.runtime.workqueue import Key

_LATER_SECONDS: Final = 1.0
"""Delay before a deferred probe or hand-over is tried again."""
_LONGEST_GATED_WAIT_SECONDS: Final = 60.0
"""An owner that must wait longer for its turn does not keep our gate meanwhile."""

_LOG = structlog.get_logger(__name__)


class ReservationReconciler:
    """Reconciles Reservations, each in one thread at a time."""

    def __init__(
        self,
        context: Context,
        *,
        executor: ActionExecutor,
        orphans: OrphanCollector,
        pending: PendingOwners,
        throttle: Throttle,
        enqueue: Callable[[Key, float], None],
    ) -> None:
        self._client = context.client
        self._cache = context.cache
        self._settings = context.settings
        self._clock = context.clock
        self._rules = context.rules
        self._executor = executor
        self._orphans = orphans
        self._pending = pending
        self._throttle = throttle
        self._fair_sharing = FairSharing()
        self._enqueue = enqueue
        self._freed: set[str] = set()
        """Uids of expired Reservations whose places were released before their status says so."""
        self._begun: set[str] = set()
        """Uids of Reservations that were validated, or failed to be, before their first decision."""

    def reconcile(self, key: Key) -> None:
        """Write the status of a Reservation, then execute its actions."""
        pause = self._throttle.reconcile_delay(key.name, only_starts=self._only_starts(key.name))
        if pause:
            self._enqueue(key, pause)
            return
        observation = self._observe_validated(key.name)
        if observation is None:
            self._throttle.forget(key.name)
            self._fair_sharing.forget(key.name)
            self._freed.discard(key.name)
            self._begun.discard(key.name)
            self._orphans.release(key.name)
            return
        reservation = observation.reservation
        is_patient, counted_in = self._rules.is_patient(reservation), self._rules.counted_in(reservation)
        observation = replace(observation, is_patient=is_patient, counted_in=counted_in)
        decision = decide(observation, self._clock.now(), self._settings)
        # A lost slot is final, and the cache may be behind the pod that has just been bound.
        if self._lost_pods_changed(observation, decision):
            self._enqueue(key, 0.0)
            return
        self._fair_sharing.observe(reservation, decision.status)
        if self._releases_first(key, observation, decision):
            return
        # The status comes first, so that it never promises more than is there: an operator that ends right after it has
        # only done less than it says.
        pause = self._throttle.status_delay(key.name, reservation.status, decision.status)
        if pause:
            self._enqueue(key, pause)
        else:
            with self._cache.writing(key.name, decision.status):
                self._executor.write_status(reservation, decision.status, is_settled=decision.is_settled)
        self._executor.execute(reservation, self._due_actions(key, reservation, decision.actions))
        if decision.seeks_owners:
            self._pending.request(key.name)
        if decision.wake_seconds is not None:
            self._enqueue(key, decision.wake_seconds)

    def _lost_pods_changed(self, seen: Observation, decision: Decision) -> bool:
        """Refetch owners of slots about to be lost, which is final; return whether any changed."""
        lost_owners = {slot.owner.uid for slot in newly_lost(seen.reservation.status, decision.status) if slot.owner}
        return any(self._has_changed(pod) for pod in seen.owners if pod.metadata.uid in lost_owners)

    def _has_changed(self, pod: Pod) -> bool:
        """Refetch a pod; return whether its hand-over step changed."""
        current = find_pod(self._client, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        if current is None:
            self._cache.remove_pod(pod)
            return True
        self._cache.put_pod(current)
        return not is_at_same_step(pod, current)

    def _only_starts(self, uid: str) -> bool:
        """Return whether a Reservation only waits for its placeholders to start."""
        reservation = self._cache.reservation(uid)
        placeholders, owners = self._cache.pods_of(uid)
        return reservation is not None and not owners and only_starts(reservation, placeholders)

    def _releases_first(self, key: Key, seen: Observation, decision: Decision) -> bool:
        """Release an expired Reservation's places first if much is due; return whether its status waits for that."""
        frees = any(isinstance(action, DeletePlaceholder) for action in decision.actions)
        is_first = key.name not in self._freed and has_just_expired(seen.reservation, decision.status)
        if not (frees and is_first and self._throttle.is_busy):
            self._freed.discard(key.name)
            return False
        self._executor.execute(seen.reservation, decision.actions)
        self._freed.add(key.name)
        self._enqueue(key, 0.0)
        return True

    def _due_actions(self, key: Key, reservation: Reservation, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """Return the due actions; requeue the Reservation if any are deferred."""
        due_actions = actions
        if any(isinstance(action, Probe) for action in actions) and not self._throttle.may_probe(key.name):
            due_actions = tuple(action for action in actions if not isinstance(action, Probe))
        if any(isinstance(action, AssignSlot) for action in due_actions):
            due_actions = tuple(self._in_turn(reservation.metadata.namespace, due_actions))
        if due_actions != actions:
            self._enqueue(key, _LATER_SECONDS)
        return due_actions

    def _in_turn(self, namespace: str, actions: tuple[Action, ...]) -> Iterator[Action]:
        """Yield the actions whose turn it is, and release owners from their gate whose turn is far off."""
        under_way = self._cache.guards.handovers()
        for action in actions:
            if not isinstance(action, AssignSlot):
                yield action
                continue
            pause = self._fair_sharing.delay(namespace, action.assignment.node)
            if pause > _LONGEST_GATED_WAIT_SECONDS:
                if holds_our_gate(action.pod):
                    yield Release(action.pod)
            elif not pause and has_share(namespace, under_way, self._settings.handover.at_once):
                under_way[namespace] += len(action.assignment.slots)
                yield action

    def _observe_validated(self, uid: str) -> Observation | None:
        """Return the observation; a new Reservation is validated first, once."""
        observation = self._observe(uid)
        # Once: while validation fails, the status has to say why, and it is written before each further try.
        if observation is None or uid in self._begun or not may_validate_first(observation, self._clock.now()):
            return observation
        self._begun.add(uid)
        try:
            self._executor.execute(observation.reservation, (Validate(),))
        except BerthError:
            self._throttle.hurry(uid)  # admission may have hung for half a minute already
            raise
        return self._observe(uid)

    def _observe(self, uid: str) -> Observation | None:
        """Return the observation, without claims of the status that placeholders disprove."""
        observation = self._observe_with_nodes(uid)
        if observation is None or self._cache.is_own(uid):
            return observation
        believed = without_forged_claims(observation, self._clock.now(), self._settings.handover, self._runs_on)
        if believed is not observation:
            _LOG.warning(telemetry.CLAIM_DENIED, **{telemetry.KEY_RESERVATION: observation.reservation.key})
        return believed

    def _runs_on(self, placeholder: Pod) -> bool:
        """Return whether the API server reports a placeholder as running and not terminating."""
        meta = placeholder.metadata
        try:
            pod = self._client.get(PODS, meta.name, namespace=meta.namespace, type=Pod)
        except NotFoundError:
            return False
        return pod.metadata.uid == meta.uid and pod.status.phase == "Running" and not pod.is_terminating

    def _observe_with_nodes(self, uid: str) -> Observation | None:
        """Return the observation of a Reservation, in which a node is missing only if the API server confirms it."""
        # Pods and nodes come through separate watches, without an order between them (kubernetes/kubernetes#87083): a
        # placeholder may arrive before the new node that it is on.
        observation = self._cache.observe(uid)
        if observation is None or observation.reservation.phase.terminal or not observation.missing_nodes:
            return observation
        for node_name in sorted(observation.missing_nodes):
            try:
                self._cache.put_node(self._client.get(NODES, node_name, type=GuardableNode))
            except NotFoundError:
                continue
        return self._cache.observe(uid)
