"""The scheduling gate of queues, which every new pod in a namespace of a queue gets."""

from berth_core import QUEUE_GATE
from berth_operator import metrics
from berth_operator.admission.reviews import AdmissionReview, Answer, adding_gate, allow, name_of, patched, read_pod


def gate_for_queue(review: AdmissionReview) -> Answer:
    """Return the answer that adds the gate of queues; it depends on the review alone, so every replica gives the same.

    Pods with a node, pods of DaemonSets and static pods are left out. Kueue's label and gate do not exempt a pod:
    whoever creates it may set both, and the webhook is registered for no namespace in which Kueue has a LocalQueue.
    """
    request = review.request
    pod = read_pod(request)
    if pod is None or request.operation != "CREATE" or pod.spec.node_name or pod.belongs_to_node:
        return allow(request.uid)
    gates = {gate.name for gate in pod.spec.scheduling_gates}
    if QUEUE_GATE in gates:
        return allow(request.uid)
    return Answer(patched(request.uid, [adding_gate(pod, QUEUE_GATE)]), pod=name_of(pod), own_verdict="queued")


async def review_for_queue(review: AdmissionReview) -> Answer:
    """Answer a review at the path of queues, and count the verdict."""
    answer = gate_for_queue(review)
    metrics.WEBHOOK_REVIEWS.labels(verdict=answer.verdict).inc()
    return answer
