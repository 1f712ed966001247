"""Owns who may take which slot: namespace, owner and template, and of several tasks the tightest.

It does not give slots away: `berth_operator.reconcile` does.
"""

from collections.abc import Mapping

from berth_core.matching import owner_matches, template_matches
from berth_core.objects import Pod
from berth_core.pod_requests import effective_requests
from berth_core.reservations import Reservation, ReservationTask


def may_own(reservation: Reservation, pod: Pod) -> bool:
    """Tell whether a pod is in the Reservation's namespace and one of its owners."""
    return pod.metadata.namespace == reservation.metadata.namespace and any(
        owner_matches(owner, pod) for owner in reservation.spec.owners
    )


def choose_task(reservation: Reservation, pod: Pod, free: Mapping[str, int]) -> ReservationTask | None:
    """Return the task with the smallest requests whose slot the pod may take; None where there is none.

    `free` counts the free slots by task name. Taking the smallest leaves the larger slots to larger pods.
    """
    if not may_own(reservation, pod):
        return None
    fitting = [
        task
        for task in reservation.spec.tasks
        if free.get(task.name, 0) > 0
        and template_matches(task.template, pod, scheduler_name=reservation.spec.scheduler_name)
    ]
    return min(fitting, key=_size, default=None)


def _size(task: ReservationTask) -> tuple[int, int, str]:
    requests = effective_requests(task.template.spec)
    return requests.get("cpu"), requests.get("memory"), task.name
