"""Decides what is done for queues: whose pods are admitted, which slots are held, and what the statuses say."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from berth_core import (
    Enforcement,
    GatedQueueStatus,
    NamespaceChoice,
    QueueRoom,
    QueueState,
    ResourceAmounts,
    choose_namespaces,
    format_timestamp,
    queue_of_slot,
    uncovered,
)
from berth_operator.capabilities.queues.admission import admit
from berth_operator.capabilities.queues.guarantees import CountedQueues, accept_queues
from berth_operator.capabilities.queues.held_slots import SlotDecision, decide_slots
from berth_operator.capabilities.queues.places import QueuePlaces, QueuePod, Sum
from berth_operator.capabilities.queues.slot_reservations import QueueSlots, read_slots
from berth_operator.capabilities.queues.statuses import QueuePass, status_of
from berth_operator.capabilities.queues.tally import Tally
from berth_operator.capabilities.queues.view import QueueView

_MAX_AT_ONCE: Final = 200
"""Maximum number of admissions in one pass; the next one follows at once."""
_LONGEST_END: Final = timedelta(minutes=10)
"""Pods that have longer to terminate still count as staying. One may have a grace period of a year, and its queue must
not hold its share a second time meanwhile."""


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """What to do for the queues, in this order."""

    gated: frozenset[str]
    """Namespaces in which new pods get the gate."""
    releases: tuple[QueuePod, ...]
    """Gated pods in namespaces of no queue; their gates come off at once."""
    admits: tuple[QueuePod, ...]
    """Pods whose gates come off because they fit."""
    too_large: tuple[tuple[QueuePod, str], ...]
    """Pods that could never be admitted, each with the reason."""
    statuses: Mapping[str, GatedQueueStatus]
    """Statuses by uid of the queue."""
    slots: tuple[SlotDecision, ...] = ()
    """For the queues with `enforcement: Held`, and for those that still have slots from before."""
    is_whole: bool = True
    """Whether everything that fits is admitted and held; if not, the next pass follows at once."""


def decide_queues(view: QueueView, now: datetime) -> QueueDecision:
    """Return what to do for the queues.

    1. count the guarantees that fit, and give each namespace to one queue
    2. read the slots that are there, and add up what pods use, ask for and leave soon
    3. admit the pods that fit, in order
    4. decide which slots hold what is left of each guarantee
    5. write all of that into the statuses
    """
    total = view.total
    accepted = accept_queues(view.queues, total)
    choice = choose_namespaces(view.queues, view.namespaces, view.of_kueue, view.own_namespace)
    queues = [queue for queue in accepted.queues if queue.state is QueueState.OPEN]
    slots = _read_slots(view, accepted, choice)
    tally = Tally(view, choice.queue_of, slots, format_timestamp(now + _LONGEST_END))
    uses = {queue.name: tally.use(queue.name) for queue in queues}
    releases = tuple(pod for pod in view.pods if pod.is_gated and pod.namespace not in choice.queue_of)
    room = QueueRoom(queues, uses, total)
    admission = admit(tally.waiting, tally.queue_of, room, tally, _MAX_AT_ONCE)
    free = total.minus(tally.used_by_others).minus(ResourceAmounts.total(use.allocated for use in uses.values()))
    slot_decisions = {
        queue_name: decide_slots(
            queue_slots,
            accepted.guarantees[queue_name],
            tally.staying(queue_name, is_fenced=queue_slots.queue.metadata.uid in view.admitting),
            tuple(view.nodes.values()),
            coming=tally.coming,
            labelled=view.labelled,
            places=_places(queue_slots, view, tally) if queue_slots.queue.metadata.uid in view.admitting else None,
            now=now,
        )
        for queue_name, queue_slots in slots.items()
    }
    outcome = QueuePass(
        view=view,
        total=total,
        accepted=accepted,
        choice=choice,
        queues=queues,
        uses=uses,
        shares=room.shares,
        reals=room.reals,
        tally=tally,
        admission=admission,
        lacks=uncovered(queues, uses, free),
        slots=slot_decisions,
    )
    return QueueDecision(
        gated=frozenset(choice.queue_of),
        releases=tuple(pod for pod in releases if not pod.is_terminating),
        admits=tuple(admission.admits),
        too_large=tuple(admission.too_large),
        statuses={queue.metadata.uid: status_of(queue, outcome, now) for queue in view.queues},
        slots=tuple(slot_decisions.values()),
        is_whole=admission.is_whole and all(decision.is_whole for decision in slot_decisions.values()),
    )


def _read_slots(view: QueueView, accepted: CountedQueues, choice: NamespaceChoice) -> dict[str, QueueSlots]:
    """Return the slots of the queues that hold any, or still have some from before, by name of the queue."""
    uids_with_slots = {queue_of_slot(reservation) for reservation in view.reservations}
    slots_by_queue = {}
    for queue in view.queues:
        if queue.spec.enforcement is not Enforcement.HELD and queue.metadata.uid not in uids_with_slots:
            continue
        name = queue.metadata.name
        namespaces = [namespace for namespace, queue_name in choice.queue_of.items() if queue_name == name]
        refusal = view.refused.get(queue.metadata.uid, "")
        slots_by_queue[name] = read_slots(queue, namespaces, accepted.guarantees[name], view.reservations, refusal)
    return slots_by_queue


def _places(slots: QueueSlots, view: QueueView, tally: Tally) -> QueuePlaces:
    """Return on which nodes the pods and slots of a queue are, and what room there is beside all pods."""
    meta, takers = slots.queue.metadata, slots.takers
    own_use, used_by_node = defaultdict[str, Sum](Sum), defaultdict[str, Sum](Sum)
    for pod in view.pods:
        is_own = tally.queue_of.get(pod.namespace) == meta.name and not pod.is_of_node
        # Anyone may write a node on a pod, so it counts only if a Reservation's status says that the pod takes a slot.
        is_promised = is_own and pod.uid in takers and not tally.is_held(pod)
        node = pod.node or (pod.promised if is_promised else "")
        if node not in view.nodes:
            continue
        if is_own:
            own_use[node].add(pod.requests)
        if not (is_own and tally.ends_soon(pod)) and not slots.awaits(pod.reservation):
            used_by_node[node].add(pod.requests)
    return QueuePlaces(
        own={node: node_use.total for node, node_use in own_use.items()},
        rooms={node: offered.minus(used_by_node[node].total) for node, offered in view.nodes.items()},
        admitting=view.admitting[meta.uid]
        - {node for node, namespaces in view.fenced.items() if namespaces and slots.namespace not in namespaces},
        before=slots.queue.status.fenced_nodes,
        fenced=frozenset(view.fenced),
        unfenced=view.unfenced,
        away=view.away,
    )
