"""What people are told about each broken invariant: what it is, why it matters, what to do.

It does not find anything: `berth_sandbox.invariants` does.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_core import (
    COOLING_LABEL,
    DRAINING_TAINT,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    QUEUE_GATE,
    RESERVATION_LABEL,
    ROOM_TAINT,
)
from berth_core.labels import HANDOVER_LABEL
from berth_sandbox.invariants import Invariant, Violation

_GATE_OFF: Final = {
    "metadata": {"labels": {RESERVATION_LABEL: None, HANDOVER_LABEL: None}},
    "spec": {"schedulingGates": [{"name": HANDOVER_GATE, "$patch": "delete"}]},
}
_QUEUE_GATE_OFF: Final = {"spec": {"schedulingGates": [{"name": QUEUE_GATE, "$patch": "delete"}]}}
_NOMINATION_OFF: Final = {"status": {"nominatedNodeName": None}}
_OPERATOR_LOG: Final = "kubectl -n {own} logs -l app.kubernetes.io/component=operator --tail=100"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to say of one invariant.

    `command` has places for `{own}`, `{kind}`, `{namespace}` and `{name}`, and for the `{last}` word of the detail.
    """

    what: str
    why: str
    to_do: str
    command: str

    def command_for(self, violation: Violation, own_namespace: str) -> str:
        """Return the command with the names of what was found."""
        filled, last_word = self.command, violation.detail.rpartition(" ")[2]
        places = {"own": own_namespace, "namespace": violation.namespace, "name": violation.name, "last": last_word}
        places["kind"] = violation.kind
        for placeholder, value in places.items():
            filled = filled.replace(f"{{{placeholder}}}", value)
        return filled


def _patch(body: object, *options: str) -> str:
    """Return the kubectl command that patches the pod that was found."""
    return " ".join(["kubectl -n {namespace} patch pod {name}", *options, "-p", shlex.quote(json.dumps(body))])


ADVICE: Final[Mapping[Invariant, Advice]] = {
    Invariant.OPERATOR_ABSENT: Advice(
        what="No operator holds its Lease.",
        why="Places stay held, but nothing is handed over, expires or is cleared away until one runs.",
        to_do="See why no operator runs:",
        command="kubectl -n {own} describe deployment -l app.kubernetes.io/component=operator",
    ),
    Invariant.HANDOVER_UNPROVEN: Advice(
        what="A place is held, but the way of handing it over does not work: a dry-run pod did not come back gated.",
        why="Nothing is evicted for this Reservation, and a pod that is made for it now may land elsewhere.",
        to_do="Mostly the API server does not reach the webhook; the operator's log and its Service say more:",
        command="kubectl -n {own} get endpointslices -l app.kubernetes.io/component=webhook",
    ),
    Invariant.QUEUE_GATE_LEFT: Advice(
        what="A pod is kept back by the scheduling gate of queues, and no queue has its namespace.",
        why="No scheduler looks at the pod while it has the gate: it stays Pending for ever.",
        to_do="The operator takes such gates off within seconds; see first whether one runs. By hand:",
        command=_patch(_QUEUE_GATE_OFF),
    ),
    Invariant.GATE_LEFT: Advice(
        what="A pod is kept back by Berth's scheduling gate, and no reserved place waits for it.",
        why="No scheduler looks at the pod while it has the gate: it stays Pending for ever.",
        to_do="The operator takes such gates off within seconds; see first whether one runs. By hand:",
        command=_patch(_GATE_OFF),
    ),
    Invariant.LABEL_LEFT: Advice(
        what="A pod carries the label of a hand-over that is over.",
        why="It harms nothing by itself, but whatever selects pods by their labels sees it.",
        to_do="Take the label off:",
        command=f"kubectl -n {{namespace}} label pod {{name}} {RESERVATION_LABEL}- {HANDOVER_LABEL}-",
    ),
    Invariant.NOMINATION_LEFT: Advice(
        what="A waiting pod is still nominated to the node of a hand-over that does not run.",
        why="Schedulers keep room on that node for it, which others could use.",
        to_do="Clear the nomination; the pod is scheduled as usual:",
        command=_patch(_NOMINATION_OFF, "--subresource=status", "--type=merge"),
    ),
    Invariant.PLACEHOLDER_LEFT: Advice(
        what="A placeholder pod holds capacity that no live Reservation needs.",
        why="No pod can use that capacity.",
        to_do="Delete the placeholder; it is only a pause container:",
        command="kubectl -n {namespace} delete pod {name}",
    ),
    Invariant.GUARD_LEFT: Advice(
        what="A node carries the taint that guards it during a hand-over, and none is going on there.",
        why="No new pod is scheduled to the node.",
        to_do="Take the taint off:",
        command=f"kubectl taint node {{name}} {HANDOVER_TAINT}-",
    ),
    Invariant.FENCE_LEFT: Advice(
        what="A pod fences a node off for a hand-over, a Reservation that waits or a zone, and there is none.",
        why="It keeps new pods off the node until it ends by itself: within an hour, for a zone within a day.",
        to_do="Delete the fence; it is only a pause container:",
        command="kubectl -n {namespace} delete pod {name}",
    ),
    Invariant.DRAINING_LEFT: Advice(
        what="A node carries the taint of a plan that is not running.",
        why="No new pod is scheduled to the node.",
        to_do="The next run of the descheduler takes it off. By hand:",
        command=f"kubectl taint node {{name}} {DRAINING_TAINT}-",
    ),
    Invariant.RELEASED_LEFT: Advice(
        what="A pod was taken out of its ReplicaSet for a surge move, and no plan that runs moves it.",
        why="It runs on beside the one that was made in its stead, and no scaling or roll-out reaches it.",
        to_do="The descheduler gives it back within a minute. By hand, with the value that its label had:",
        command="kubectl -n {namespace} label pod {name} --overwrite pod-template-hash={last}",
    ),
    Invariant.ROOM_GUARD_LEFT: Advice(
        what="A node carries the taint by which a plan kept room there, and the plan is not running.",
        why="No new pod is scheduled to the node.",
        to_do="The next run of the descheduler takes it off. By hand:",
        command=f"kubectl taint node {{name}} {ROOM_TAINT}-",
    ),
    Invariant.FREED_LEFT: Advice(
        what="A node carries what a plan put on it when it freed it, though it is in use again.",
        why="Pods that could go there go elsewhere first, and an autoscaler may take the node for one to be removed.",
        to_do="The service takes it off within a pass, the next run by hand as well. By hand:",
        command=f"kubectl taint node {{name}} {FREED_TAINT}- && kubectl annotate node {{name}} {FREED_ANNOTATION}-",
    ),
    Invariant.COOLING_LEFT: Advice(
        what="A node is labelled as cooling though it has rested since a plan moved pods off or onto it.",
        why="Deschedulers that select by the label leave the node alone for no reason.",
        to_do="The service takes it off within a pass, the next run by hand as well. By hand:",
        command=f"kubectl label node {{name}} {COOLING_LABEL}-",
    ),
    Invariant.PRIORITY_CLASS_LEFT: Advice(
        what="A PriorityClass that the operator made for placeholders is left, and no operator runs.",
        why="It does no harm and has no use.",
        to_do="Delete it; the operator makes it again when it is needed:",
        command="kubectl delete priorityclass {name}",
    ),
    Invariant.WEBHOOK_LEFT: Advice(
        what="A webhook of Berth's is registered although no Reservation is live, or no queue switched on.",
        why="Pods of the namespaces that it names are sent to it; without an answer, each waits out its time limit.",
        to_do="Delete the registration; the operator makes it again when it is needed:",
        command="kubectl delete mutatingwebhookconfiguration {name}",
    ),
    Invariant.STATUS_UNTRUE: Advice(
        what="The status of a Reservation is not what its pods and nodes say.",
        why="Clients that wait for the Reservation, such as the descheduler, act on a wrong status.",
        to_do="Only the operator may write it. If one runs, its log says what keeps it from doing so:",
        command=_OPERATOR_LOG,
    ),
    Invariant.WORKLOAD_SHORT: Advice(
        what="A workload that a Reservation is for has fewer pods running than it asks for.",
        why="That is what Berth promises not to cause; it can also have reasons of its own.",
        to_do="The events of its pods say what they wait for:",
        command="kubectl -n {namespace} get events --field-selector=involvedObject.kind=Pod --sort-by=.lastTimestamp",
    ),
    Invariant.POD_PENDING: Advice(
        what="A pod waits for a place.",
        why="It does not do its work.",
        to_do="Its events say what it waits for:",
        command="kubectl -n {namespace} describe pod {name}",
    ),
    Invariant.NODE_OVERBOOKED: Advice(
        what="The pods of a node request more than the node has.",
        why="Two schedulers may have used one place; the kubelet turns pods away, or they starve one another.",
        to_do="See which pods are there, and delete one that its controller makes again:",
        command="kubectl describe node {name}",
    ),
    Invariant.PLAN_ABANDONED: Advice(
        what="A plan is Running and no descheduler carries it out.",
        why="Its source nodes stay tainted and its places held until the next run takes it up or they expire.",
        to_do="Start the descheduler, which goes on with it, or delete the plan, which releases everything:",
        command="kubectl delete migrationplan {name}",
    ),
    Invariant.STARVING_LIMIT: Advice(
        what="A policy may keep more nodes for starving jobs than the operator fences.",
        why="A gang that needs more nodes than the operator allows its namespace waits until it is given up.",
        to_do="Raise maxFencedNodes in --limit and --cluster-limit of the operator, or lower reservedNodePercent:",
        command="kubectl edit deschedulerpolicy {name}",
    ),
    Invariant.ROOM_UNFENCED: Advice(
        what="The operator fences no more nodes, and a Reservation waits for its own.",
        why="It gets none. Nodes for a starving job count for its policy, so that jobs behind it may wait as well.",
        to_do="Wait until other fences end, or raise maxFencedNodes of the operator. To let others go first:",
        command="kubectl -n {namespace} delete reservation {name}",
    ),
    Invariant.WAITS_IN_VAIN: Advice(
        what="A Reservation waits for capacity, and no node could hold it, whatever ends there.",
        why="It holds nothing, and the pods that it is for wait.",
        to_do="Ask for less, let it use other nodes, or add one that is large enough:",
        command="kubectl -n {namespace} describe reservation {name}",
    ),
    Invariant.ROOM_UNCLAIMED: Advice(
        what="All places for a starving job are held, and its pods do not take them.",
        why="No other pod can use that capacity until its pods come or the Reservation gives up.",
        to_do="A gang takes its places together; see which of its pods lacks, or runs elsewhere:",
        command="kubectl -n {namespace} describe reservation {name}",
    ),
    Invariant.STARVES_FOR_GOOD: Advice(
        what="A job starves, and nothing is reserved for it: no waiting helps.",
        why="Its pods stay Pending.",
        to_do="Mend what the event says, or delete the Reservation that gave up to have the job tried again:",
        command="kubectl -n {namespace} describe pod {name}",
    ),
    Invariant.QUEUE_REFUSED: Advice(
        what="The guarantee of a queue does not count.",
        why="Other queues may use what it asks for; its own pods are admitted within what these leave.",
        to_do="Lower the guarantee, raise the capability, or mend the field that is named:",
        command="kubectl edit bq {name}",
    ),
    Invariant.QUEUE_NOT_ENFORCED: Advice(
        what="A queue does not have all namespaces that it chooses, or chooses none.",
        why="The pods there are not admitted by it, and use nothing of its guarantee.",
        to_do="Choose other namespaces, or leave these to the other queue or to Kueue:",
        command="kubectl edit bq {name}",
    ),
    Invariant.QUEUE_NOT_COVERED: Advice(
        what="A part of what a queue is guaranteed is neither used by its pods nor free.",
        why="Its pods wait for a place until the pods that use it end.",
        to_do="The message says who uses it. A queue over all namespaces, or enforcement Held, prevents it:",
        command="kubectl describe bq {name}",
    ),
    Invariant.QUEUE_NOT_HELD: Advice(
        what="A part of what a queue is guaranteed is neither used by its pods nor held by its slots.",
        why="Other pods may use it, also those of no queue.",
        to_do="The reason says whether it waits for room, or what to change (held.shape, held.namespace, limits):",
        command="kubectl describe bq {name}",
    ),
    Invariant.EVICTIONS_UNANSWERED: Advice(
        what="Pods ask for a replacement before they are evicted, and nothing answers evictions.",
        why="They are evicted as ever: a Deployment of one replica is down until its replacement is Ready.",
        to_do="Set operator.evictions.enabled in the chart's values; if it is, see why no operator runs:",
        command="kubectl -n {own} describe deployment -l app.kubernetes.io/component=operator",
    ),
    Invariant.WINDOW_INVALID: Advice(
        what="A ReservationWindow cannot open.",
        why="Nothing is reserved for its pods, and they wait like all others.",
        to_do="Mend the field that is named:",
        command="kubectl -n {namespace} edit reservationwindow {name}",
    ),
    Invariant.WINDOW_OVERLAPS: Advice(
        what="A ReservationWindow is open so often at once that occurrences are left out.",
        why="Each occurrence holds places of its own, and those left out hold none.",
        to_do="Make its duration or startReserveAgo shorter, or its schedule rarer:",
        command="kubectl -n {namespace} edit reservationwindow {name}",
    ),
    Invariant.WINDOW_WITHOUT_MOVES: Advice(
        what="A ReservationWindow may move pods to have its capacity, and no policy does so by itself.",
        why="It waits for pods that may not end before its start.",
        to_do="Approve the plan that waits (berth plans), or enable the balance plugin ReservationWindows in a policy "
        "of mode Auto, and run a descheduler:",
        command="kubectl -n {namespace} describe reservationwindow {name}",
    ),
    Invariant.WINDOW_SHORT: Advice(
        what="A ReservationWindow does not find its capacity by its start.",
        why="Some of its pods may not start in time.",
        to_do="Reserve earlier (startReserveAgo), choose other nodes, or let pods be moved (mayMove: Consolidate):",
        command="kubectl -n {namespace} edit reservationwindow {name}",
    ),
    Invariant.ZONE_INVALID: Advice(
        what="A RevocableZone cannot open.",
        why="Its nodes stay closed to all pods but those of DaemonSets.",
        to_do="Mend the field that is named:",
        command="kubectl edit revocablezone {name}",
    ),
    Invariant.ZONE_UNKNOWN: Advice(
        what="A node's label names a RevocableZone that does not exist.",
        why="While there is any zone, only pods of DaemonSets may come. Nothing empties the node, or moves pods there.",
        to_do="Make the zone, or mend or take off the label:",
        command="kubectl label node {name} volcano.sh/revocable-zone-",
    ),
    Invariant.ZONE_WITHOUT_NODES: Advice(
        what="No node has the label of a RevocableZone.",
        why="It lends nothing.",
        to_do="Label its nodes:",
        command="kubectl label node NODE volcano.sh/revocable-zone={name}",
    ),
    Invariant.ZONE_UNFENCED: Advice(
        what="Nodes of a RevocableZone lack the fence that they should have.",
        why="Pods may come to them that should not, or preemptable pods may be kept off.",
        to_do="A node without a spare pod slot gets none; else the operator's log says why:",
        command=_OPERATOR_LOG,
    ),
    Invariant.ZONE_NOT_EMPTIED: Advice(
        what="The policy that empties a RevocableZone is not in mode Auto, is suspended, or runs too seldom.",
        why="Pods are still on the nodes when these are given back.",
        to_do="Run it in mode Auto once in each evictPeriod, or remove LentNodes (or rename it, if it is called"
        " revocablezone-NAME), so that the zone empties itself:",
        command="kubectl describe revocablezone {name}",
    ),
    Invariant.ZONE_LATE: Advice(
        what="The nodes of a RevocableZone are not empty at the end of its window, or will not be.",
        why="Whoever gets the nodes next finds pods there.",
        to_do="A budget (jdb or disruption) may keep pods; let more leave at once, or earlier (evictBefore):",
        command="kubectl describe revocablezone {name}",
    ),
    Invariant.DAEMON_KEPT_OFF: Advice(
        what="A DaemonSet selects lent nodes and does not tolerate their taints.",
        why="Its pods are missing there: logs, metrics or the network of pods on lent nodes may be, too.",
        to_do="Let it tolerate the taint, or select other nodes:",
        command="kubectl -n {namespace} edit daemonset {name}",
    ),
    Invariant.OBJECT_UNREADABLE: Advice(
        what="An object that plans go by cannot be read: it has values that its kind does not have.",
        why="What depends on it stays where it is: its pods, its node, or the pods of its namespace.",
        to_do="Mend the field that is named; a field of a newer Kubernetes needs a newer Berth:",
        command="kubectl get {kind} -A --field-selector metadata.name={name} -o yaml",
    ),
    Invariant.PLACEHOLDER_REFUSED: Advice(
        what="Admission in Berth's own namespace refuses the placeholder that would hold a place.",
        why="The place is not held, and nothing is evicted for it. Berth tries again until the Reservation ends.",
        to_do="The message has the refusal; exempt Berth's namespace from it. What is in force there:",
        command="kubectl get limitranges,resourcequotas --namespace {own}",
    ),
    Invariant.TRIAL_UNBOUNDED: Advice(
        what="The account that tries replacements by dry run is not held to dry runs.",
        why="It may create pods, so Berth does not use it, and no replacement is tried before an eviction.",
        to_do="Have helm restore the admission policy and its binding, or switch the trial off in the chart:",
        command="kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings {name} -o yaml",
    ),
}
"""In the order in which they are told: what is the cause of others comes first."""
