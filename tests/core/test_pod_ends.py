"""When a pod is expected to end: deadlines, annotations of pods and groups, deadlines of Jobs."""

from datetime import UTC, datetime

import pytest

from berth_core import ObjectMeta, Pod, PodSpec, PodStatus, TimedJob, expected_end

START = "2026-03-01T02:00:00Z"


def pod(
    *, runtime: str | None = None, deadline: int | None = None, started: str | None = START, deleted: str | None = None
) -> Pod:
    notes = {} if runtime is None else {"volcano.sh/maximum-runtime": runtime}
    meta = ObjectMeta(name="a", namespace="b", annotations=notes, deletion_timestamp=deleted)
    return Pod(metadata=meta, spec=PodSpec(active_deadline_seconds=deadline), status=PodStatus(start_time=started))


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, second, tzinfo=UTC)


def timed_job(seconds: int | None, started: str | None = START) -> TimedJob:
    job = TimedJob()
    spec, status = type(job.spec), type(job.status)
    return TimedJob(spec=spec(active_deadline_seconds=seconds), status=status(start_time=started))


def test_a_pod_without_any_time_has_no_end() -> None:
    assert expected_end(pod()) is None


def test_the_annotation_counts_from_the_start() -> None:
    assert expected_end(pod(runtime="500s")) == at(2, 8, 20)


def test_the_deadline_counts_from_the_start() -> None:
    assert expected_end(pod(deadline=60)) == at(2, 1)


def test_the_earliest_of_all_times_counts() -> None:
    found = expected_end(pod(runtime="1h", deadline=7200), job=timed_job(1800))
    assert found == at(2, 30)


def test_a_terminating_pod_ends_at_its_deletion() -> None:
    assert expected_end(pod(runtime="1h", deleted="2026-03-01T02:00:30Z")) == at(2, 0, 30)


def test_the_group_speaks_for_a_pod_that_says_nothing() -> None:
    group = ObjectMeta(name="g", annotations={"volcano.sh/maximum-runtime": "10m"})
    assert expected_end(pod(), group=group) == at(2, 10)
    assert expected_end(pod(runtime="5m"), group=group) == at(2, 5)


def test_a_pod_that_has_not_started_has_no_end_of_its_own() -> None:
    assert expected_end(pod(runtime="500s", deadline=60, started=None)) is None
    assert expected_end(pod(runtime="500s", started=None), job=timed_job(60)) == at(2, 1)


@pytest.mark.parametrize("runtime", ["", "soon", "500", "-5s", "0s"])
def test_an_unreadable_runtime_says_nothing(runtime: str) -> None:
    assert expected_end(pod(runtime=runtime)) is None


@pytest.mark.parametrize(("seconds", "started"), [(None, START), (60, None), (60, "yesterday"), (10**12, START)])
def test_a_job_without_usable_times_says_nothing(seconds: int | None, started: str | None) -> None:
    assert expected_end(pod(), job=timed_job(seconds, started)) is None
