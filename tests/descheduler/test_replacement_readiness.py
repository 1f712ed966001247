"""What a replacement needs to become Ready: time that its probes ask for, or something that it lacks."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest

from berth_core import Pod
from berth_core.migration_plans import MoveReason
from berth_descheduler.migration.moves.replacement_readiness import (
    LONGEST_START_SECONDS,
    describe_unready,
    find_trouble,
    seconds_to_start,
)

CREATING: Final = {"waiting": {"reason": "ContainerCreating"}}
RUNNING: Final = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}


def read(status: dict[str, Any], spec: dict[str, Any] | None = None) -> Pod:
    return msgspec.convert({"spec": {"nodeName": "target", **(spec or {})}, "status": status}, Pod)


def container(name: str = "app", *, state: dict[str, Any], **rest: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"name": name, "ready": False, "restartCount": 0, "state": state, **rest}


def pending(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": list(containers), "initContainerStatuses": list(init)}


def waits(reason: str, message: str = "", **rest: Any) -> dict[str, Any]:  # noqa: ANN401
    return container(state={"waiting": {"reason": reason, "message": message}}, **rest)


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def failed(reason: str = "", message: str = "", *containers: dict[str, Any]) -> dict[str, Any]:
    return {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": list(containers)}


@dataclass(frozen=True)
class Case:
    status: dict[str, Any]
    want: str = ""
    want_words: str = ""
    want_at_once: bool = False
    """Whether a pod that was let go is taken back at the first sight of it."""

    want_final: bool = False
    want_ended: bool = False


CASES = {
    "a pod whose image is being pulled needs time": Case(pending(container(state=CREATING))),
    "a pod whose init container runs needs time": Case(
        pending(waits("PodInitializing"), init=(container("setup", state=RUNNING),))
    ),
    "a pod that runs and is not Ready needs time": Case({"phase": "Running", "containerStatuses": []}),
    "an image that is not there": Case(
        pending(waits("ErrImagePull", "shop:9: not found")), "ImagePullBackOff", "ErrImagePull: shop:9: not found"
    ),
    "an image in its back-off": Case(
        pending(waits("ImagePullBackOff", 'Back-off pulling image "shop:9"')), "ImagePullBackOff", "shop:9"
    ),
    "an image that may not be pulled": Case(
        pending(waits("ErrImageNeverPull", "not present with pull policy of Never")),
        "ErrImageNeverPull",
        "pull policy of Never",
        want_at_once=True,
        want_final=True,
    ),
    "a name that no image has": Case(
        pending(waits("InvalidImageName")), "InvalidImageName", want_at_once=True, want_final=True
    ),
    "a Secret that is not there": Case(
        pending(waits("CreateContainerConfigError", 'secret "db" not found')),
        "CreateContainerConfigError",
        'secret "db" not found',
    ),
    "a container that cannot be made": Case(pending(waits("CreateContainerError")), "CreateContainerError"),
    "a command that is not there": Case(pending(waits("RunContainerError")), "RunContainerError"),
    "a first crash is none": Case(
        {"phase": "Running", "containerStatuses": [container(state=ended(1), restartCount=0)]}
    ),
    "a container that has crashed once waits": Case(
        {"phase": "Running", "containerStatuses": [waits("CrashLoopBackOff", restartCount=1, lastState=ended(1))]},
        "CrashLoopBackOff",
        "container app: CrashLoopBackOff after 2 starts, the last of which ended with exit code 1 (Error)",
    ),
    "one that has crashed four times is not waited for": Case(
        {
            "phase": "Running",
            "containerStatuses": [
                waits("CrashLoopBackOff", restartCount=3, lastState=ended(137, "OOMKilled", "no memory"))
            ],
        },
        "CrashLoopBackOff",
        "after 4 starts, the last of which ended with exit code 137 (OOMKilled: no memory)",
        want_at_once=True,
    ),
    "an init container that crashes": Case(
        pending(waits("PodInitializing"), init=(waits("CrashLoopBackOff", restartCount=5),)),
        "CrashLoopBackOff",
        "init container app",
        want_at_once=True,
    ),
    "of two troubles the one that nothing mends": Case(
        pending(waits("ErrImagePull"), waits("InvalidImageName")),
        "InvalidImageName",
        want_at_once=True,
        want_final=True,
    ),
    "a pod that the kubelet refuses": Case(
        failed("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000"),
        "RefusedByKubelet",
        "OutOfcpu: Pod was rejected",
        want_at_once=True,
        want_final=True,
        want_ended=True,
    ),
    "a pod that is refused and whose containers the kubelet lists all the same": Case(
        failed("NodeAffinity", "", container(state=CREATING)),
        "RefusedByKubelet",
        "NodeAffinity",
        want_at_once=True,
        want_final=True,
        want_ended=True,
    ),
    "a pod that the kubelet evicts": Case(
        failed("Evicted", "The node was low on resource: memory.", container(state=ended(137))),
        "EvictedByKubelet",
        "low on resource",
        want_at_once=True,
        want_final=True,
        want_ended=True,
    ),
    "a pod that is never started again and has failed": Case(
        failed("", "", container(state=ended(3))),
        "ReplacementFailed",
        "container app ended with exit code 3",
        want_at_once=True,
        want_final=True,
        want_ended=True,
    ),
    "a pod that ran and took longer than it may": Case(
        failed("DeadlineExceeded", "", container(state=ended(0, "Completed"))),
        "ReplacementFailed",
        "DeadlineExceeded",
        want_at_once=True,
        want_final=True,
        want_ended=True,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_keeps_a_replacement_from_becoming_ready(case: Case) -> None:
    trouble = find_trouble(read(case.status))

    assert (trouble.reason if trouble else MoveReason.NONE) == case.want
    if trouble is not None:
        assert case.want_words in trouble.message
        assert (trouble.patience_seconds == 0) is case.want_at_once
        assert (trouble.is_final, trouble.has_ended) == (case.want_final, case.want_ended)


def test_a_message_of_a_container_is_cut() -> None:
    trouble = find_trouble(read(failed("", "", container(state=ended(1, "Error", "x" * 100_000)))))
    assert trouble is not None
    assert len(trouble.message) < 1000


def test_a_pod_that_needs_time_says_what_it_waits_for() -> None:
    unready = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "unready status: [app]"}
    status = {**pending(container(state=CREATING, restartCount=1, lastState=ended(2))), "conditions": [unready]}
    assert describe_unready(read(status)) == (
        "ContainersNotReady: unready status: [app]; container app waits: ContainerCreating; "
        "container app was started again 1 times, the last of which ended with exit code 2 (Error)"
    )


SLOW: Final = {"initialDelaySeconds": 10, "periodSeconds": 5, "failureThreshold": 60}
TIMES: Final[dict[str, tuple[dict[str, Any], float]]] = {
    "a pod without probes asks for nothing": ({"containers": [{"name": "app"}]}, 0),
    "a startup probe asks for its delay and its tries": ({"containers": [{"startupProbe": SLOW}]}, 310),
    "what it does not say is as Kubernetes has it": ({"containers": [{"startupProbe": {}}]}, 30),
    "a readiness probe asks for its delay": ({"containers": [{"readinessProbe": {"initialDelaySeconds": 45}}]}, 45),
    "and for as many successes as it needs": (
        {"containers": [{"readinessProbe": {"periodSeconds": 20, "successThreshold": 3}}]},
        40,
    ),
    "both delays count from the start": (
        {"containers": [{"startupProbe": SLOW, "readinessProbe": {"initialDelaySeconds": 45}}]},
        310,
    ),
    "containers start side by side": ({"containers": [{"startupProbe": SLOW}, {"startupProbe": SLOW}]}, 310),
    "sidecars start before": (
        {
            "initContainers": [{"restartPolicy": "Always", "startupProbe": {}}, {"startupProbe": SLOW}],
            "containers": [{"startupProbe": SLOW}],
        },
        340,
    ),
    "nothing is waited for without an end": (
        {"containers": [{"startupProbe": {"failureThreshold": 2147483647}}]},
        LONGEST_START_SECONDS,
    ),
}


@pytest.mark.parametrize(("spec", "want"), TIMES.values(), ids=TIMES)
def test_how_long_a_pod_may_take_by_its_probes(spec: dict[str, Any], want: float) -> None:
    assert seconds_to_start(read({}, spec)) == want
