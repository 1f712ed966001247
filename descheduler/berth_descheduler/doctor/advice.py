"""What people are told about each broken invariant: what it is, why it matters, what to do.

It does not find anything: `berth_sandbox.invariants` does, and capabilities do, which have their own advice.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Final

from berth_core import (
    COOLING_LABEL,
    DESCHEDULER_LEASE,
    DRAINING_TAINT,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    OPERATOR_LEASE,
    QUEUE_GATE,
    REPLACEMENT_TRIAL,
    RESERVATION_LABEL,
    ROOM_TAINT,
)
from berth_core.labels import HANDOVER_LABEL
from berth_descheduler.capability import OPERATOR_LOG, Advice
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_kube import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    VALIDATING_WEBHOOKS,
    Access,
)
from berth_sandbox.invariants import Invariant

_GATE_OFF: Final = {
    "metadata": {"labels": {RESERVATION_LABEL: None, HANDOVER_LABEL: None}},
    "spec": {"schedulingGates": [{"name": HANDOVER_GATE, "$patch": "delete"}]},
}
_QUEUE_GATE_OFF: Final = {"spec": {"schedulingGates": [{"name": QUEUE_GATE, "$patch": "delete"}]}}
_NAMESPACES: Final = Access("list", NAMESPACES)
_OPERATOR: Final = Access("get", LEASES, OPERATOR_LEASE)
_QUEUES: Final = Access("list", QUEUES)
_NOMINATION_OFF: Final = {"status": {"nominatedNodeName": None}}


def _patch(body: object, *options: str) -> str:
    """Return the kubectl command that patches the pod that was found."""
    return " ".join(["kubectl -n {namespace} patch pod {name}", *options, "-p", shlex.quote(json.dumps(body))])


_OF_THE_KERNEL: Final[Mapping[Invariant, Advice]] = {
    Invariant.OPERATOR_ABSENT: Advice(
        what="No operator holds its Lease.",
        why="Places stay held, but nothing is handed over, expires or is cleared away until one runs.",
        to_do="See why no operator runs:",
        command="kubectl -n {own} describe deployment -l app.kubernetes.io/component=operator",
        rights=(_OPERATOR,),
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
        rights=(_QUEUES, _NAMESPACES),
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
        rights=(Access("list", PRIORITY_CLASSES), _OPERATOR),
    ),
    Invariant.WEBHOOK_LEFT: Advice(
        what="A webhook of Berth's is registered although no Reservation is live, or no queue switched on.",
        why="Pods of the namespaces that it names are sent to it; without an answer, each waits out its time limit.",
        to_do="Delete the registration; the operator makes it again when it is needed:",
        command="kubectl delete mutatingwebhookconfiguration {name}",
        rights=(Access("list", MUTATING_WEBHOOKS), _QUEUES),
    ),
    Invariant.STATUS_UNTRUE: Advice(
        what="The status of a Reservation is not what its pods and nodes say.",
        why="Clients that wait for the Reservation, such as the descheduler, act on a wrong status.",
        to_do="Only the operator may write it. If one runs, its log says what keeps it from doing so:",
        command=OPERATOR_LOG,
    ),
    Invariant.WORKLOAD_SHORT: Advice(
        what="A workload that a Reservation is for has fewer pods running than it asks for.",
        why="That is what Berth promises not to cause; it can also have reasons of its own.",
        to_do="The events of its pods say what they wait for:",
        command="kubectl -n {namespace} get events --field-selector=involvedObject.kind=Pod --sort-by=.lastTimestamp",
        rights=tuple(Access("list", resource) for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS)),
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
        rights=(Access("get", LEASES, DESCHEDULER_LEASE),),
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
    Invariant.EVICTIONS_UNANSWERED: Advice(
        what="Pods ask for a replacement before they are evicted, and nothing answers evictions.",
        why="They are evicted as ever: a Deployment of one replica is down until its replacement is Ready.",
        to_do="Set operator.evictions.enabled in the chart's values; if it is, see why no operator runs:",
        command="kubectl -n {own} describe deployment -l app.kubernetes.io/component=operator",
        rights=(_NAMESPACES, Access("list", VALIDATING_WEBHOOKS)),
    ),
    Invariant.OBJECT_UNREADABLE: Advice(
        what="An object that plans go by cannot be read: it has values that its kind does not have.",
        why="What depends on it stays where it is: its pods, its node, or the pods of its namespace.",
        to_do="Mend the field that is named; a field of a newer Kubernetes needs a newer Berth:",
        command="kubectl get {kind} -A --field-selector metadata.name={name} -o yaml",
    ),
    Invariant.PLACEHOLDER_REFUSED: Advice(
        what="Admission in Berth's own namespace refuses the placeholder that would hold a place, or does not answer.",
        why="The place is not held, and nothing is evicted for it. Berth tries again until the Reservation ends.",
        to_do="The message has the answer, or the pod to delete; exempt Berth's namespace, or mend the webhook. "
        "What is in force there:",
        command="kubectl get limitranges,resourcequotas --namespace {own}",
    ),
    Invariant.TRIAL_UNBOUNDED: Advice(
        what="The account that tries replacements by dry run is not held to dry runs.",
        why="It may create pods, so Berth does not use it, and no replacement is tried before an eviction.",
        to_do="Have helm restore the admission policy and its binding, or switch the trial off in the chart:",
        command="kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings {name} -o yaml",
        rights=tuple(
            Access("get", resource, REPLACEMENT_TRIAL)
            for resource in (SERVICE_ACCOUNTS, ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)
        ),
    ),
}
_BY_INVARIANT: Final = {
    **_OF_THE_KERNEL,
    **{invariant: advice for capability in EVERY_CAPABILITY for invariant, advice in capability.advice().items()},
}
ADVICE: Final[Mapping[Invariant, Advice]] = {
    invariant: _BY_INVARIANT[invariant] for invariant in Invariant if invariant in _BY_INVARIANT
}
"""In the order in which findings are shown: what is the cause of others comes first."""
