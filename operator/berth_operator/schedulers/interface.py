"""The operator's view of a scheduler."""

from typing import Any, Protocol

from berth_core import Pod


class Scheduler(Protocol):
    """Reads what a scheduler reports on pods, and leads pods to nodes."""

    def is_untried(self, pod: Pod) -> bool:
        """Return whether the scheduler may bind the pod by now, but has not reported on it since its last gate."""

    def is_refused(self, pod: Pod) -> bool:
        """Return whether the scheduler has reported that it could not bind the pod."""

    def why_refused(self, pod: Pod) -> str:
        """Return the scheduler's message on a pod, "" if there is none."""

    def was_preempted(self, pod: Pod) -> bool:
        """Return whether the scheduler evicts a pod for one of higher priority."""

    def bound_at(self, pod: Pod) -> str | None:
        """Return when the pod was bound, None if that is not reported."""

    def steer(self, node: str | None) -> dict[str, Any]:
        """Return the patch of a pod's status that has the scheduler try a node first; None takes that back."""

    def steered_to(self, pod: Pod) -> str:
        """Return the node that the scheduler tries first for a pod, "" for none."""
