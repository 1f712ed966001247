"""What the operator needs of a scheduler."""

from typing import Any, Protocol

from berth_core import Pod


class Scheduler(Protocol):
    """Reads what a scheduler reports on pods, and leads pods to nodes."""

    def is_untried(self, pod: Pod) -> bool:
        """Return whether the pod still waits for the scheduler's first report.

        The scheduler may bind it and has not reported on it since its gate.
        """

    def is_refused(self, pod: Pod) -> bool:
        """Return whether the scheduler has reported that it could not bind the pod."""

    def why_refused(self, pod: Pod) -> str:
        """Return the scheduler's message on a pod, "" without one."""

    def was_preempted(self, pod: Pod) -> bool:
        """Return whether the scheduler evicts a pod for one of higher priority."""

    def bound_at(self, pod: Pod) -> str | None:
        """Return when the pod was bound, None if that is not reported."""

    def steer(self, node: str | None) -> dict[str, Any]:
        """Return the status of a pod that has the scheduler try a node first; None takes that back."""

    def steered_to(self, pod: Pod) -> str:
        """Return the node that the scheduler tries first, "" for none."""
