"""When pods are expected to end, by their own annotations, their groups and their Jobs.

An expected end is no promise: a pod may end earlier or, with `volcano.sh/maximum-runtime`, later. It is used to sort
and to inform, never to release anything.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from berth_core.clock import read_timestamp
from berth_core.durations import DurationError, parse_duration
from berth_core.labels import MAXIMUM_RUNTIME_ANNOTATION
from berth_core.objects.metadata import ApiStruct, ObjectMeta
from berth_core.objects.pods import Pod
from berth_core.pod_groups import PodGroup, volcano_group_of


class _JobSpec(ApiStruct, frozen=True, kw_only=True):
    active_deadline_seconds: int | None = None


class _JobStatus(ApiStruct, frozen=True, kw_only=True):
    start_time: str | None = None


class TimedJob(ApiStruct, frozen=True, kw_only=True):
    """The part of a Job from which the latest end of its pods follows."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    @property
    def expected_end(self) -> datetime | None:
        """Return when the Job's `activeDeadlineSeconds` ends its pods, None without a deadline."""
        # A Job that is suspended and resumed gets a new startTime, so its deadline begins anew (KEP-2232).
        return _after(self.status.start_time, self.spec.active_deadline_seconds)


def expected_end(pod: Pod, *, job: TimedJob | None = None, group: ObjectMeta | None = None) -> datetime | None:
    """Return when a pod is expected to have ended, None if nothing says so.

    It is the earliest of its deletion, its own deadline, its Job's, and its start plus `volcano.sh/maximum-runtime` of
    the pod or its group. A pod that has not started has no end by its own times.
    """
    started = pod.status.start_time
    ends = (
        read_timestamp(pod.metadata.deletion_timestamp),
        # The kubelet counts from status.startTime, when it has seen the pod, and not from the creation: the wait in the
        # scheduler's queue is not counted (pkg/kubelet/active_deadline.go).
        _after(started, pod.spec.active_deadline_seconds),
        job.expected_end if job is not None else None,
        _after(started, _maximum_runtime(pod.metadata, group)),
    )
    return min((end for end in ends if end is not None), default=None)


class PodEnds:
    """The expected ends of pods, by their own annotations and those of their groups."""

    def __init__(self, groups: Iterable[PodGroup]) -> None:
        self._groups = {(group.metadata.namespace, group.metadata.name): group.metadata for group in groups}

    def of(self, pod: Pod) -> datetime | None:
        """Return when a pod is expected to have ended, None if nothing says so."""
        scheduled_with = pod.spec.scheduling_group
        names = (volcano_group_of(pod), scheduled_with.pod_group_name if scheduled_with is not None else "")
        groups = (self._groups.get((pod.metadata.namespace, name)) for name in names if name)
        return expected_end(pod, group=next((group for group in groups if group is not None), None))


def _maximum_runtime(pod: ObjectMeta, group: ObjectMeta | None) -> float | None:
    """Return the annotated runtime in seconds; None without a readable one above 0.

    The pod's annotation hides its group's, even if it cannot be read.
    """
    for meta in (pod, group):
        text = meta.annotations.get(MAXIMUM_RUNTIME_ANNOTATION) if meta is not None else None
        if text is None:
            continue
        try:
            seconds = parse_duration(text.strip()).total_seconds()
        except DurationError:
            return None
        return seconds if seconds > 0 else None
    return None


def _after(start: str | None, seconds: float | None) -> datetime | None:
    began = read_timestamp(start)
    if began is None or seconds is None:
        return None
    try:
        return began + timedelta(seconds=seconds)
    # Of pods an int32 is accepted, of Jobs an int64: an end beyond the year 9999 is none.
    except OverflowError:
        return None
