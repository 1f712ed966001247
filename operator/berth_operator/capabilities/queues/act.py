"""Carries out what is decided for Queues: takes gates off, makes and ends slots, writes statuses.

`decide` looks at everything at once, in one thread at a time. Which pods were admitted is in the API server alone, as
those without the gate: a new leader first lists all pods, and so knows all that earlier ones admitted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from berth_core import (
    CPU,
    QUEUE_API_VERSION,
    QUEUE_KIND,
    RESERVATION_LABEL,
    BerthError,
    Enforcement,
    Fence,
    GatedQueue,
    GatedQueueState,
    GatedQueueStatus,
    InputError,
    ObjectReference,
    PermanentError,
    Pod,
    QueueCondition,
    Reservation,
    ResourceAmounts,
    offered_to_queues,
)
from berth_kube import PODS, QUEUES, InvalidObjectError, KubeClient, NotFoundError, ServerError
from berth_operator import telemetry
from berth_operator.admission.reviews import Review
from berth_operator.capabilities.queues import logs, metrics
from berth_operator.capabilities.queues.decide import QueueDecision, decide_queues
from berth_operator.capabilities.queues.gate import review_for_queue
from berth_operator.capabilities.queues.held_slots import SlotDecision
from berth_operator.capabilities.queues.manifests import build_queue_ungating
from berth_operator.capabilities.queues.places import QueuePod
from berth_operator.capabilities.queues.registration import QUEUE_PATH, QueueRegistration
from berth_operator.capabilities.queues.rule import QueueRule, list_kueue
from berth_operator.capabilities.queues.slot_reservations import (
    build_slot,
    may_be_slot,
    slot_end,
    slot_template,
    takes_slot,
)
from berth_operator.capabilities.queues.store import QueueStore, read_queue_pod
from berth_operator.capabilities.queues.watches import QueueWatches
from berth_operator.reservation.act.context import (
    WITHOUT_NODE,
    create_reservation,
    delete_reservation,
    find_pod,
    require_lease,
    set_expiry,
    write_status,
)
from berth_operator.reservation.act.events import RecordedEvent
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.capability import Capability, Kernel
from berth_operator.runtime.workqueue import Key, KeyKind

QUEUES_KEY: Final = Key("queues")
"""The key of all queues, as the admission of a pod depends on all of them."""
TOO_LARGE: Final = "QueueTooSmall"
"""Reason of the event on a pod that requests more than its queue may ever use."""
_EVENTS: Final = {
    QueueCondition.ACCEPTED: ("QueueAccepted", "QueueRefused"),
    QueueCondition.ENFORCED: ("QueueEnforced", "QueueNotEnforced"),
    QueueCondition.COVERED: ("QueueCovered", "QueueNotCovered"),
    QueueCondition.HELD: ("QueueHeld", "QueueNotHeld"),
}
"""Reasons of the events on a queue whose condition becomes true, or false."""

_KUEUE_SECONDS: Final = 15.0
"""How often the namespaces that Kueue manages are listed."""
_LINGER_SECONDS: Final = 60.0
"""How long pods are watched after the last queue is gone. Each API server has an informer of its own for registrations
(kubernetes/kubernetes#119180), and has pods gated until it sees that ours is gone."""
_STATUS_SECONDS: Final = 1.0
"""Seconds between two writes of a status in which only numbers have changed."""
_UNLISTED_SECONDS: Final = 1.0
_TRIES: Final = 5
_REST_FACTOR: Final = 10.0
"""After a pass the next one waits this many times as long as the decision took, so that it uses a tenth of a core."""
_LONGEST_REST_SECONDS: Final = 10.0
"""Limit of that for a decision in the middle of which the process was paused."""
_FAILED_SECONDS: Final = 1.0
"""How long the next pass waits at least after a failure, however often pods change."""
_REFUSED_SECONDS: Final = 60.0
"""How long no slots are created for a queue after one was refused."""
_MAX_FAILURES: Final = 5
"""After so many failures to change pods of one namespace in a pass, its other pods wait for the next one."""
_MILLI: Final = 1000

_LOG = structlog.get_logger(__name__)


class Queues(Capability):
    """Carries out what is decided for all queues; `reconcile` runs in one thread at a time."""

    kinds = frozenset({QUEUES_KEY.kind})

    @staticmethod
    def build_rule(client: KubeClient) -> QueueRule:
        return QueueRule(client)

    def __init__(self, kernel: Kernel) -> None:
        context, enqueue = kernel.context, kernel.enqueue
        self._client = context.client
        self._cache = context.cache
        self._clock = context.clock
        self._admits = context.admits
        self._allows_control_plane = context.settings.limits.control_plane_nodes
        self._own_namespace = context.settings.placeholders.namespace
        self._recorder = kernel.recorder
        self._registration = QueueRegistration(
            context.client,
            client_config=kernel.client_config,
            timeout_seconds=context.settings.webhook.timeout_seconds,
        )
        self._leads = kernel.leads
        self._enqueue = enqueue
        self._listing = kernel.listing(QUEUES, self._list)
        self.store = QueueStore(self._own_namespace)
        self.watches = QueueWatches(self._client, self.store, lambda: enqueue(QUEUES_KEY, 0.0))
        self._term = 0
        """Number of the term for which this replica leads; what was decided in an earlier one is not carried out."""
        self._is_watching = self._is_clear = False
        self._kueue_at = self._seen_at = self._next_pass = -_LINGER_SECONDS
        self._written: dict[str, float] = {}
        """Monotonic time at which the status of a queue was last written, by uid."""
        self._templates: dict[tuple[str, int | None], dict[str, Any] | None] = {}
        """Templates of slots as users wrote them, by uid and generation of the queue."""
        self._refused: dict[str, tuple[float, str]] = {}
        """Monotonic time and text of the last refusal to create a slot, by uid of its queue."""
        self._reported_as_large: set[str] = set()
        """Uids of pods with an event that they are too large."""

    def listen(self) -> None:
        """List queues if that is due, and watch pods while there are any queues; called repeatedly while leading."""
        if not self._listing.listen():
            return
        now = self._clock.monotonic()
        if self.store.queues:
            self._seen_at = now
            if not self._is_watching:
                self.watches.start()
                self._is_watching, self._is_clear = True, False
        elif not self._is_watching:
            self._cache.fenced.keep_nodes({})
        # The last queue may be replaced in a moment, as by `kubectl replace --force`; and pods that have the gate would
        # wait for ever if nothing watched them.
        elif now - self._seen_at >= _LINGER_SECONDS and not self.store.has_gated():
            self._stop_watching()
        if self._is_watching or not self._is_clear:
            self._enqueue(QUEUES_KEY, 0.0)

    def stop_term(self) -> None:
        """Stop watching and forget what was known, since this replica no longer leads."""
        self._term += 1
        self._is_clear = False
        self._listing.stop()
        self._registration.forget()
        self._cache.fenced.keep_nodes(None)
        _forget_metrics()  # the replica that leads reports them
        metrics.QUEUES.clear()
        if self._is_watching:
            self._stop_watching()

    def _stop_watching(self) -> None:
        self.watches.stop()
        self._is_watching = False
        self.store.clear()

    def _list(self) -> bool:
        """List queues and, while there are any, the namespaces that Kueue manages; return whether to keep doing so."""
        try:
            bodies = self._client.list(QUEUES).items
        except NotFoundError:  # the CRD is not installed
            bodies = ()
        queues = [GatedQueue.read(body) for body in bodies]
        self.store.replace_queues(queues)
        self._templates = {
            (queue.metadata.uid, queue.metadata.generation): _slot_template_in(body)
            for queue, body in zip(queues, bodies, strict=True)
            if not queue.metadata.unreadable
        }
        states = Counter(queue.status.state for queue in self.store.queues)
        for state in GatedQueueState:
            metrics.QUEUES.labels(state=state.value).set(states[state.value])
        now = self._clock.monotonic()
        # LocalQueues are polled, as a cluster without Kueue does not serve their kind and has nothing to watch.
        if bodies and (not self._is_watching or now - self._kueue_at >= _KUEUE_SECONDS):
            self._kueue_at = now
            self._registration.forget()
            try:
                self.store.replace_kueue(list_kueue(self._client))
            except BerthError as error:  # the last list stays in force, or pods would wait while Kueue's API is broken
                _LOG.warning(telemetry.SWEEP_FAILED, **{telemetry.KEY_ERROR: str(error)})
        return bool(bodies) or self._is_watching or not self._is_clear

    def reviews(self) -> Mapping[str, Review]:
        return {QUEUE_PATH: review_for_queue}

    def reconcile(self, _: Key = QUEUES_KEY) -> None:
        """Make one pass; raises the last error, after everything else has been carried out.

        1. wait until pods and namespaces are listed, and for the rest after the last pass
        2. decide, from one view of everything
        3. register the webhook for the namespaces of queues
        4. take the gates off the pods that are admitted or have no queue
        5. write the statuses, then make, renew and end slots
        """
        term = self._term
        if not self._is_watching:
            self._clear_away(term)
            return
        if not self.store.is_complete:
            self._enqueue(QUEUES_KEY, _UNLISTED_SECONDS)
            return
        started_at = self._clock.monotonic()
        if started_at < self._next_pass:
            self._enqueue(QUEUES_KEY, self._next_pass - started_at)
            return
        reservations = self._reservations()
        reservations_with_owners = frozenset(
            reservation.metadata.uid for reservation in reservations if self._cache.pods_of(reservation.metadata.uid)[1]
        )
        refusals = {uid: why for uid, (_, why) in self._refused.items()}
        nodes, known_nodes = self._nodes(), self._cache.nodes()
        view = replace(
            self.store.view(nodes, reservations, reservations_with_owners, refusals),
            admitting=self._admitting(known_nodes),
            fenced={node: self._cache.fenced.users(node) for node in self._cache.fenced.nodes()},
            unfenced=self._cache.fenced.unfenced(),
            away=frozenset(node.metadata.name for node in known_nodes).difference(nodes),
        )
        decision = decide_queues(view, self._clock.now())
        ended_at = self._clock.monotonic()
        # Each decision looks at all pods. Its cost sets the pace, so that many queues do not starve the workers.
        self._next_pass = ended_at + min(_REST_FACTOR * (ended_at - started_at), _LONGEST_REST_SECONDS)
        self._require(term)
        self._keep(decision.slots)
        pending_error: BerthError | None = None
        try:
            # Before any gate comes off: a pod that is created in between must not slip past its queue.
            self._registration.put(decision.gated)
        except (PermanentError, ServerError) as error:
            pending_error = error  # pods that have the gate can be admitted all the same
        pending_error = self._ungate_all((*decision.releases, *decision.admits), term) or pending_error
        if decision.admits:
            metrics.ADMISSIONS.inc(len(decision.admits))
        # The status comes before the slots: it says which nodes are kept, for an operator that takes over in between.
        pending_error = self._write_statuses(decision, term) or pending_error
        pending_error = self._hold_all(decision.slots, term) or pending_error
        self._report(decision)
        if not decision.is_whole:
            self._enqueue(QUEUES_KEY, 0.0)
        if pending_error is not None:
            self._next_pass = max(self._next_pass, self._clock.monotonic() + _FAILED_SECONDS)
            raise pending_error

    def _nodes(self) -> dict[str, ResourceAmounts]:
        return offered_to_queues(self._cache.nodes(), control_plane=self._allows_control_plane)

    def _admitting(self, nodes: Sequence[GuardableNode]) -> dict[str, frozenset[str]]:
        """Return for each queue that keeps others off its nodes, by uid, on which nodes a slot of it may run."""
        nodes_by_queue: dict[str, frozenset[str]] = {}
        for queue in self.store.queues:
            if queue.spec.enforcement is Enforcement.HELD and queue.spec.held.fence is Fence.NODE:
                try:
                    spec = slot_template(queue).spec
                except InputError:
                    continue  # its condition reports the shape
                nodes_by_queue[queue.metadata.uid] = frozenset(
                    node.metadata.name for node in nodes if self._admits(node, spec)
                )
        return nodes_by_queue

    def _keep(self, decisions: Iterable[SlotDecision]) -> None:
        """Record the nodes that queues keep, each with the namespaces of these queues, for the kernel to fence."""
        namespaces_by_node: dict[str, frozenset[str]] = {}
        for decision in decisions:
            for node in decision.kept:
                namespaces_by_node[node] = namespaces_by_node.get(node, frozenset()) | {decision.slots.namespace}
        self._cache.fenced.keep_nodes(namespaces_by_node)

    def _reservations(self) -> tuple[Reservation, ...]:
        """Return the Reservations whose names are like those of slots."""
        return tuple(reservation for reservation in self._cache.reservations() if may_be_slot(reservation))

    def _hold_all(self, decisions: Iterable[SlotDecision], term: int) -> BerthError | None:
        """Create, renew and end slots; return the first error, which does not stop other queues or slots."""
        pending_error: BerthError | None = None
        kept_refusals: dict[str, tuple[float, str]] = {}
        for decision in decisions:
            uid = decision.slots.queue.metadata.uid
            try:
                pending_error = self._hold(decision, term) or pending_error
            except BerthError as error:
                pending_error = pending_error or error
            if uid in self._refused and decision.creates:
                kept_refusals[uid] = self._refused[uid]
        self._refused = kept_refusals
        return pending_error

    def _hold(self, decision: SlotDecision, term: int) -> BerthError | None:
        """Create, renew and end the slots of a queue; return the first refused change, raise a refused creation."""
        first_error: BerthError | None = None
        changes = [(self._end_slot, ended) for ended in (*decision.ends, *self._surplus(decision))]
        for change, reservation in (*changes, *((self._renew_slot, renewed) for renewed in decision.renews)):
            try:
                change(reservation, term)
            except PermanentError as error:
                first_error = first_error or error
        uid, now = decision.slots.queue.metadata.uid, self._clock.monotonic()
        # A quota that refuses one slot refuses the next as well; each try would be a failed request and an entry in the
        # audit log.
        refused_at, _ = self._refused.get(uid, (-_REFUSED_SECONDS, ""))
        if decision.creates and now - refused_at >= _REFUSED_SECONDS:
            try:
                self._create_slots(decision, term)
            except PermanentError as error:
                self._refused[uid] = now, str(error)
                raise
            self._refused.pop(uid, None)
        return first_error

    def _surplus(self, decision: SlotDecision) -> tuple[Reservation, ...]:
        """Return the held slots that are too many and that no waiting pod may take."""
        if not decision.spare:
            return ()
        # A pod that was created while the webhook was away has no slot yet, and would lose its room to others if the
        # slot ended.
        pods = self._client.list(PODS, namespace=decision.slots.namespace, field_selector=WITHOUT_NODE, type=Pod).items
        takers = sum(
            RESERVATION_LABEL not in pod.metadata.labels
            and not pod.is_terminating
            and not read_queue_pod(pod, self._own_namespace).is_gated
            and takes_slot(decision.slots.queue, pod)
            for pod in pods
        )
        slots_kept = max(0, len(decision.spare) - takers)
        for reservation in decision.spare[slots_kept:]:
            self._enqueue(Key(KeyKind.RESERVATION, reservation.metadata.uid), 0.0)  # its reconcile looks for such pods
        return decision.spare[:slots_kept]

    def _create_slots(self, decision: SlotDecision, term: int) -> None:
        """Create Reservations with names made of their numbers; one that exists already is read."""
        queue, namespace = decision.slots.queue, decision.slots.namespace
        version = (queue.metadata.uid, queue.metadata.generation)
        if version not in self._templates:
            return  # the queue has changed since the list, and the next one has its template
        template = self._templates[version]
        for number in decision.creates:
            self._require(term)
            expires, node = slot_end(self._clock.now()), decision.pins.get(number, "")
            body = build_slot(queue, template, namespace, number, expires=expires, node=node)
            if create_reservation(self._client, self._cache, body):
                _LOG.info(logs.SLOT_CREATED, **{telemetry.KEY_RESERVATION: body["metadata"]["name"]})

    def _end_slot(self, reservation: Reservation, term: int) -> None:
        self._require(term)
        delete_reservation(self._client, self._cache, reservation)
        _LOG.info(logs.SLOT_ENDED, **{telemetry.KEY_RESERVATION: reservation.key})

    def _renew_slot(self, reservation: Reservation, term: int) -> None:
        self._require(term)
        set_expiry(self._client, self._cache, reservation, slot_end(self._clock.now()))

    def _clear_away(self, term: int) -> None:
        """Remove the webhook's registration and all gates, as there is no queue."""
        self._require(term)
        # First the webhook, then the gates: the other way round a pod could be gated after the last look for gates.
        self._registration.put(frozenset())
        pods = self._client.list(PODS, field_selector=WITHOUT_NODE, type=Pod).items
        gated_pods = [pod for pod in (read_queue_pod(pod, self._own_namespace) for pod in pods) if pod.is_gated]
        first_error = self._ungate_all(gated_pods, term)
        if first_error is not None:
            raise first_error
        # API servers see late that the registration is gone; the next pass finds the pods that were gated meanwhile.
        self._is_clear = not gated_pods and self._registration.is_absent
        self._registration.forget()

    def _ungate_all(self, pods: Iterable[QueuePod], term: int) -> BerthError | None:
        """Remove gates; return the first error, which does not stop other pods."""
        first_error: BerthError | None = None
        failures = Counter[str]()
        for pod in pods:
            # A namespace in which every update fails would cost a time-out per pod, and hold back all other namespaces.
            if failures[pod.namespace] >= _MAX_FAILURES:
                continue
            try:
                self._ungate(pod, term)
            except PermanentError as error:
                first_error = first_error or error
            except ServerError as error:  # such as a broken webhook for all pods of the namespace
                failures[pod.namespace] += 1
                first_error = first_error or error
        return first_error

    def _ungate(self, pod: QueuePod, term: int) -> None:
        """Take the gate of queues off a pod; read the pod again if its gates have changed meanwhile."""
        for _ in range(_TRIES):
            self._require(term)
            try:
                patched_pod = self._client.json_patch(
                    PODS, pod.name, build_queue_ungating(pod.uid, pod.gate_index), namespace=pod.namespace, type=Pod
                )
            except NotFoundError:
                self.store.remove_pod(pod.uid)
                return
            # The API server answers 422 where a test of a JSON patch fails (`applyJSPatch` in k8s.io/apiserver,
            # pkg/endpoints/handlers/patch.go); it does so for an object that the patch would make invalid as well.
            except InvalidObjectError:  # a test in the patch has failed
                current = self._read_again(pod)
                if current is None or not current.is_gated:
                    return
                pod = current
            else:
                # The watch may be later than the next pass, which would ungate the pod once more.
                self.store.put_pod(patched_pod)
                _LOG.info(logs.UNGATED, **{telemetry.KEY_POD: f"{pod.namespace}/{pod.name}"})
                return

    def _read_again(self, pod: QueuePod) -> QueuePod | None:
        current = find_pod(self._client, pod.namespace, pod.name, pod.uid)
        if current is None:
            self.store.remove_pod(pod.uid)
            return None
        self.store.put_pod(current)
        return read_queue_pod(current, self._own_namespace)

    def _require(self, term: int) -> None:
        """Raise `NotLeadingError` unless this replica still leads in the term in which it decided."""
        require_lease(lambda: term == self._term and self._leads())

    def _write_statuses(self, decision: QueueDecision, term: int) -> BerthError | None:
        """Write all statuses; return the first refusal."""
        first_error: BerthError | None = None
        for queue in self.store.queues:
            try:
                self._write_status(queue, decision.statuses.get(queue.metadata.uid), term)
            except (PermanentError, ServerError) as error:
                first_error = first_error or error
        return first_error

    def _write_status(self, queue: GatedQueue, status: GatedQueueStatus | None, term: int) -> None:
        """Write a status that has changed, and record events; numbers alone are written at most once a second."""
        # Amounts change with every pod: unthrottled, a Job of a thousand pods would be as many writes to one object in
        # etcd.
        if status is None or status == queue.status:
            return
        uid, now = queue.metadata.uid, self._clock.monotonic()
        write_due = self._written.get(uid, -_STATUS_SECONDS) + _STATUS_SECONDS
        if _signs(status) == _signs(queue.status) and now < write_due:
            self._enqueue(QUEUES_KEY, write_due - now)
            return
        self._require(term)
        try:
            body = write_status(self._client, QUEUES, queue.metadata, status)
        except NotFoundError:
            return  # the queue is gone, as the next list shows
        self._written[uid] = now
        self.store.put_queue(GatedQueue.read(body))
        self._record_changes(queue, status)

    def _record_changes(self, queue: GatedQueue, status: GatedQueueStatus) -> None:
        """Record an event for each condition that became true or false; one that is true from the start gets none."""
        for condition in status.conditions:
            known_condition = queue.condition(QueueCondition(condition.type))
            status_before = (
                (known_condition.status, known_condition.reason)
                if known_condition is not None
                else ("True", condition.reason)
            )
            if condition.status == "Unknown" or (condition.status, condition.reason) == status_before:
                continue
            became, ceased = _EVENTS[QueueCondition(condition.type)]
            is_well = condition.status == "True"
            if is_well and (known_condition is None or known_condition.status != "False"):
                continue
            regarding = ObjectReference.of(QUEUE_API_VERSION, QUEUE_KIND, queue.metadata)
            event = RecordedEvent(
                regarding, "Normal" if is_well else "Warning", became if is_well else ceased, condition.message
            )
            self._recorder.record(event)

    def _report(self, decision: QueueDecision) -> None:
        """Record an event on each pod that is too large, once, and set the metrics."""
        for pod, why in decision.too_large:
            if pod.uid not in self._reported_as_large:
                regarding = ObjectReference(
                    api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid
                )
                self._recorder.record(RecordedEvent(regarding, "Warning", TOO_LARGE, why))
        # Uids of pods that are gone drop out, so that the set does not grow.
        self._reported_as_large = {pod.uid for pod, _ in decision.too_large}
        _forget_metrics()
        for queue in self.store.queues:
            status, queue_name = decision.statuses.get(queue.metadata.uid), queue.metadata.name
            if status is None:
                continue
            for state, number in (("admitted", status.admitted), ("waiting", status.waiting)):
                metrics.PODS.labels(queue=queue_name, state=state).set(number)
            for state, number in (("held", status.held_slots), ("waiting", status.waiting_slots)):
                metrics.SLOTS.labels(queue=queue_name, state=state).set(number)
            of_kinds = {"guarantee": status.guarantee, "deserved": status.deserved, "allocated": status.allocated}
            for kind, quantities in of_kinds.items():
                for resource, amount in ResourceAmounts.from_quantities(quantities).items():
                    metrics.AMOUNTS.labels(queue=queue_name, resource=resource, kind=kind).set(
                        amount / _MILLI if resource == CPU else amount
                    )


def _forget_metrics() -> None:
    for gauge in (metrics.PODS, metrics.AMOUNTS, metrics.SLOTS):
        gauge.clear()


def _signs(status: GatedQueueStatus) -> tuple[object, ...]:
    """Return the part of a status whose changes are written at once: all but numbers, and messages, which have some."""
    conditions = (
        (condition.type, condition.status, condition.reason, condition.observed_generation)
        for condition in status.conditions
    )
    return status.state, status.fenced_nodes, *conditions


def _slot_template_in(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the template of a queue's slots as the user wrote it, None if there is none."""
    held_spec = (body.get("spec") or {}).get("held") or {}
    template: dict[str, Any] | None = held_spec.get("template")
    return template
