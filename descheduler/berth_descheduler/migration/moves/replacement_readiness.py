"""What a replacement that has its place needs to become Ready: time, or what it lacks.

The kubelet reports both in the pod's spec and status, so that a restarted run finds the same. Nothing here is decided:
`moves` decides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from berth_core import Container, ContainerStatus, MoveReason, Pod, Probe, TerminatedContainer

LONGEST_START_SECONDS: Final = 3600.0
"""The most that counts of what probes ask for: a threshold of millions means never, and no plan waits for that."""

_MOST_RESTARTS: Final = 3
"""A container that has ended once more than this is not waited for, although the kubelet starts it again."""

_IMAGE_SECONDS: Final = 45.0
"""Three pulls, at 0, 10 and 30 seconds (`imageBackOffPeriod` in pkg/kubelet/kubelet.go, doubled each time): a registry
may fail once or twice."""

_CONTAINER_SECONDS: Final = 30.0
"""What a container lacks, such as a Secret, may be made a moment later."""

_CRASH_SECONDS: Final = 60.0
"""A container whose restarts are not counted high enough is not waited for after so long in its back-off."""

NODE_SECONDS: Final = 20.0
"""A node is NotReady only after its kubelet was silent for most of a minute (`--node-monitor-grace-period`); more than
this is no restart."""

_LONGEST_MESSAGE: Final = 400
"""Characters of a container's own message: it may have written kilobytes."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a replacement does not become Ready, in the words of the kubelet."""

    reason: MoveReason
    message: str
    patience_seconds: float = 0.0
    """How long it may last while another pod serves; 0: it has lasted long enough."""

    is_final: bool = False
    """Nothing that the kubelet tries again mends it."""

    has_ended: bool = False
    """The replacement itself has ended."""


_WAITING: Final[Mapping[str, tuple[MoveReason, float]]] = {
    "CrashLoopBackOff": (MoveReason.CRASH_LOOP_BACK_OFF, _CRASH_SECONDS),
    "ErrImagePull": (MoveReason.IMAGE_PULL_BACK_OFF, _IMAGE_SECONDS),
    "ImagePullBackOff": (MoveReason.IMAGE_PULL_BACK_OFF, _IMAGE_SECONDS),
    "ImageInspectError": (MoveReason.IMAGE_PULL_BACK_OFF, _IMAGE_SECONDS),
    "RegistryUnavailable": (MoveReason.IMAGE_PULL_BACK_OFF, _IMAGE_SECONDS),
    "SignatureValidationFailed": (MoveReason.IMAGE_PULL_BACK_OFF, _IMAGE_SECONDS),
    "ErrImageNeverPull": (MoveReason.ERR_IMAGE_NEVER_PULL, 0.0),
    "InvalidImageName": (MoveReason.INVALID_IMAGE_NAME, 0.0),
    "CreateContainerConfigError": (MoveReason.CREATE_CONTAINER_CONFIG_ERROR, _CONTAINER_SECONDS),
    "CreateContainerError": (MoveReason.CREATE_CONTAINER_ERROR, _CONTAINER_SECONDS),
    "PreCreateHookError": (MoveReason.CREATE_CONTAINER_ERROR, _CONTAINER_SECONDS),
    "RunContainerError": (MoveReason.RUN_CONTAINER_ERROR, _CONTAINER_SECONDS),
    "PreStartHookError": (MoveReason.RUN_CONTAINER_ERROR, _CONTAINER_SECONDS),
    "PostStartHookError": (MoveReason.RUN_CONTAINER_ERROR, _CONTAINER_SECONDS),
}
"""Why a container waits, as the kubelet writes it (pkg/kubelet/images/types.go, and kuberuntime_container.go in
pkg/kubelet/kuberuntime). `ContainerCreating` and `PodInitializing` are no trouble."""

_FINAL: Final = frozenset({MoveReason.ERR_IMAGE_NEVER_PULL, MoveReason.INVALID_IMAGE_NAME})

_EVICTED: Final = frozenset({"Evicted", "Preempting"})

_UNKNOWN: Final = "ContainerStatusUnknown"
"""The kubelet writes it of containers that the runtime does not know, such as those that never started."""


def find_trouble(pod: Pod) -> Trouble | None:
    """Return why a pod does not become Ready, the gravest first; None while it may just need time."""
    if pod.status.phase == "Failed":
        return _failure(pod)
    troubles = [_trouble_of(*container) for container in _containers(pod)]
    troubles_found = [trouble for trouble in troubles if trouble is not None]
    return min(troubles_found, key=lambda trouble: (not trouble.is_final, trouble.patience_seconds), default=None)


def describe_unready(pod: Pod) -> str:
    """Return what the kubelet says of a pod that is not Ready, "" if nothing."""
    waiting_texts = (
        f"{label} waits: {status.state.waiting.reason}"
        for label, status in _containers(pod)
        if status.state is not None and status.state.waiting is not None and status.state.waiting.reason
    )
    restart_texts = (
        f"{label} was started again {status.restart_count} times{_last_end(status)}"
        for label, status in _containers(pod)
        if status.restart_count
    )
    conditions = (
        _joined(condition.reason, condition.message)
        for condition in pod.status.conditions
        if condition.type == "Ready" and condition.status != "True"
    )
    return "; ".join(filter(None, (*conditions, *waiting_texts, *restart_texts)))


def seconds_to_start(pod: Pod) -> float:
    """Return how long the pod's probes allow its containers to take until they are Ready, beside any other wait.

    Sidecars start one after the other, and before the containers; init containers say nothing of their time.
    """
    sidecar_seconds = [
        _probed_seconds(container) for container in pod.spec.init_containers if container.restart_policy == "Always"
    ]
    container_seconds = [_probed_seconds(container) for container in pod.spec.containers]
    # Ordinary containers start without waiting for one another, so the slowest counts; a sidecar has to have passed its
    # startup probe before the next container starts (KEP-753).
    return min(sum(sidecar_seconds) + max(container_seconds, default=0.0), LONGEST_START_SECONDS)


def _probed_seconds(container: Container) -> float:
    """Return how long a container may take by its probes; both count from its start."""
    startup, readiness = container.startup_probe, container.readiness_probe
    # Until the startup probe has succeeded, the kubelet runs no other probe (KEP-950).
    started = startup.initial_delay_seconds + startup.period_seconds * startup.failure_threshold if startup else 0
    delay = readiness.initial_delay_seconds if readiness else 0
    return float(max(started, delay) + (_repeated(readiness) if readiness else 0))


def _repeated(probe: Probe) -> int:
    """Return how long it takes until a probe has succeeded as often as it has to."""
    return probe.period_seconds * max(0, probe.success_threshold - 1)


def _containers(pod: Pod) -> Iterator[tuple[str, ContainerStatus]]:
    """Yield the pod's containers with what to call them, in the order in which they start."""
    for status in pod.status.init_container_statuses:
        # Init containers first: as long as one fails, the others only wait (`PodInitializing`).
        yield f"init container {status.name}", status
    for status in pod.status.container_statuses:
        yield f"container {status.name}", status


def _trouble_of(label: str, status: ContainerStatus) -> Trouble | None:
    waiting_state = status.state.waiting if status.state is not None else None
    reason_and_patience = _WAITING.get(waiting_state.reason) if waiting_state is not None else None
    if waiting_state is None or reason_and_patience is None:
        return None
    reason, patience_seconds = reason_and_patience
    message = f"{label}: {_joined(waiting_state.reason, waiting_state.message[:_LONGEST_MESSAGE])}"
    if reason is MoveReason.CRASH_LOOP_BACK_OFF:
        message = f"{label}: {waiting_state.reason} after {status.restart_count + 1} starts{_last_end(status)}"
        patience_seconds = 0.0 if status.restart_count >= _MOST_RESTARTS else patience_seconds
    return Trouble(reason, message, patience_seconds, is_final=reason in _FINAL)


def _last_end(status: ContainerStatus) -> str:
    """Return how the last run of a container ended, "" if that is not known."""
    terminated = status.last_state.terminated if status.last_state is not None else None
    return f", the last of which ended with {_describe_end(terminated)}" if terminated is not None else ""


def _describe_end(ended: TerminatedContainer) -> str:
    cause = _joined(ended.reason, ended.message.strip()[:_LONGEST_MESSAGE])
    return f"exit code {ended.exit_code}{f' ({cause})' if cause else ''}"


def _failure(pod: Pod) -> Trouble:
    """Return why a pod has failed: it was evicted, or refused before anything ran, or its containers have ended."""
    ends = [
        (label, status.state.terminated)
        for label, status in _containers(pod)
        if status.state is not None
        and status.state.terminated is not None
        and status.state.terminated.reason != _UNKNOWN
    ]
    cause = _joined(pod.status.reason, pod.status.message[:_LONGEST_MESSAGE])
    if pod.status.reason in _EVICTED:
        # Node pressure, or a critical pod that the kubelet made room for: the node is a bad target, the pod is not at
        # fault (`pkg/kubelet/eviction`, `pkg/kubelet/preemption`).
        return Trouble(MoveReason.EVICTED_BY_KUBELET, cause, is_final=True, has_ended=True)
    # The kubelet's admission (`OutOfcpu`, `NodeAffinity`, `TopologyAffinityError`) fails a pod before any container is
    # made.
    if pod.status.reason and not ends:
        return Trouble(MoveReason.REFUSED_BY_KUBELET, cause, is_final=True, has_ended=True)
    failed_end = next(((label, ended) for label, ended in ends if ended.exit_code), None)
    end = f"{failed_end[0]} ended with {_describe_end(failed_end[1])}" if failed_end else ""
    message = "; ".join(filter(None, (cause, end))) or "its phase is Failed"
    return Trouble(MoveReason.REPLACEMENT_FAILED, message, is_final=True, has_ended=True)


def _joined(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part)
