"""Pods at the real pace: what kubelets write, when, and what annotations of a pod have them do."""

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pytest

from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import CSI_NODES, JOBS, NAMESPACES, NODES, PODS
from berth_kube.watch_items import Changed, Removed
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_namespace, pod_template
from waiting import eventually

pytestmark = pytest.mark.cluster

PREFIX: Final = "sandbox.berth.volcano.sh/"
NAMESPACE: Final = "pace"
NODE: Final = "pace-000"
AT_ONCE: Final = {"starts-after-seconds": "0", "ready-after-seconds": "0"}
PLAIN: Final = tuple(f"plain-{number}" for number in range(8))
READY: Final = 2
"""So many of the plain ones are waited for, as all of them may take a minute."""
NOT_READY: Final = "containers with unready status: [main]"

PODS_AT_PACE: Final[Mapping[str, tuple[dict[str, str], dict[str, Any]]]] = {
    **dict.fromkeys(PLAIN, ({}, {})),
    "exact": (
        {"starts-after-seconds": "2", "ready-after-seconds": "3"},
        {
            "initContainers": [
                {"name": "init", "image": "init"},
                {"name": "side", "image": "side", "restartPolicy": "Always"},
            ],
            "readinessGates": [{"conditionType": "example.com/gate"}],
        },
    ),
    "elsewhere": ({"only-on": "other-", "starts-after-seconds": "never", "crashes": "always"}, {}),
    "crashes": ({**AT_ONCE, "crashes": "2"}, {}),
    "no-image": ({"starts-after-seconds": "1", "start-error": "ErrImagePull"}, {}),
    "never-pulled": ({"starts-after-seconds": "1", "start-error": "ErrImageNeverPull"}, {}),
    "no-secret": ({"starts-after-seconds": "1", "start-error": "CreateContainerConfigError"}, {}),
    "no-cpu": ({"start-error": "OutOfcpu"}, {}),
    "flaps": ({**AT_ONCE, "ready-for-seconds": "1", "unready-for-seconds": "2"}, {}),
    "handles-term": ({**AT_ONCE, "ends-after-seconds": "2"}, {"terminationGracePeriodSeconds": 600}),
    "hears-no-term": (AT_ONCE, {"terminationGracePeriodSeconds": 3}),
    "never-ends": ({**AT_ONCE, "ends-after-seconds": "never"}, {"terminationGracePeriodSeconds": 1}),
    "not-started": ({"starts-after-seconds": "never"}, {"terminationGracePeriodSeconds": 600}),
    "late": ({"starts-after-seconds": "never"}, {"activeDeadlineSeconds": 2}),
}
"""The annotations and the fields of each pod; all are made at once."""
ENDING: Final = ("handles-term", "hears-no-term", "never-ends", "not-started")


class Lives:
    """All versions of the pods of a namespace, and which of them are gone."""

    def __init__(self) -> None:
        self.versions: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.gone: set[str] = set()

    def take(self, item: object) -> None:
        if isinstance(item, Changed):
            self.versions[item.item["metadata"]["name"]].append(item.item)
        elif isinstance(item, Removed):
            self.gone.add(item.item["metadata"]["name"])

    def last(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.versions[name][-1]["status"] if self.versions[name] else {}
        return found

    def containers(self, name: str) -> list[dict[str, Any]]:
        """Return the different statuses that the first container had, one after the other."""
        found: list[dict[str, Any]] = []
        for version in self.versions[name]:
            for container in version["status"].get("containerStatuses", [])[:1]:
                found += [container] if found[-1:] != [container] else []
        return found

    def reasons(self, name: str) -> list[str]:
        """Return why the first container waited, one reason after the other."""
        waited = [container["state"].get("waiting", {}).get("reason", "") for container in self.containers(name)]
        return [reason for reason, before in zip(waited, ["", *waited], strict=False) if reason not in {"", before}]

    def readiness(self, name: str) -> list[str]:
        """Return the statuses that the condition Ready had, one after the other."""
        found = [condition(version["status"], "Ready").get("status", "") for version in self.versions[name]]
        return [status for status, before in zip(found, ["", *found], strict=False) if status not in {"", before}]


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((one for one in status.get("conditions", []) if one["type"] == kind), {})


def since(status: dict[str, Any], kind: str) -> dt.datetime:
    return parsed(condition(status, kind)["lastTransitionTime"])


def parsed(time: str) -> dt.datetime:
    return dt.datetime.fromisoformat(time)


def started_at(status: dict[str, Any]) -> dt.datetime:
    return parsed(status["containerStatuses"][0]["state"]["running"]["startedAt"])


def make_all(client: KubeClient) -> None:
    for name, (notes, spec) in PODS_AT_PACE.items():
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="10m", **spec)}
        body["metadata"] = {"name": name, "annotations": annotations(notes)}
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
        client.create(PODS, body, namespace=NAMESPACE)
    for name, notes in {"completes": {"runs-for-seconds": "1"}, "fails": {"crashes": "1"}}.items():
        template = pod_template({}, cpu="10m", restartPolicy="Never")
        template["metadata"]["annotations"] = annotations({**AT_ONCE, "ready-after-seconds": "never", **notes})
        job = {"backoffLimit": 0, "template": template}
        client.create(
            JOBS,
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job},
            namespace=NAMESPACE,
        )


def annotations(notes: Mapping[str, str]) -> dict[str, str]:
    return {f"{PREFIX}{key}": value for key, value in notes.items()}


def job_condition(client: KubeClient, name: str) -> set[str]:
    found = client.get(JOBS, name, namespace=NAMESPACE)["status"].get("conditions", [])
    return {one["type"] for one in found if one["status"] == "True"}


@pytest.fixture(scope="module")
def client(paced_sandbox: Sandbox) -> Iterator[KubeClient]:
    with paced_sandbox.connect() as made:
        yield made


@pytest.fixture(scope="module")
def lives(paced_sandbox: Sandbox, client: KubeClient) -> Iterator[Lives]:
    """Have all pods live at once, and yield what became of them."""
    paced_sandbox.add_nodes(1, NodeShape(), prefix="pace-")
    make_namespace(client, NAMESPACE)
    found, stop = Lives(), threading.Event()

    def watch() -> None:
        for item in client.watch(PODS, namespace=NAMESPACE, stop=stop):
            found.take(item)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        make_all(client)
        live_through(client, found)
        yield found
    finally:
        stop.set()
        watcher.join(60)
        for name in ("completes", "fails"):
            client.delete(JOBS, name, namespace=NAMESPACE, propagation="Background")
        for pod in client.list(PODS, namespace=NAMESPACE).items:
            with suppress(NotFoundError):
                client.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE, grace_seconds=0)
        client.delete(NODES, NODE)
        client.delete(NAMESPACES, NAMESPACE)


def live_through(client: KubeClient, lives: Lives) -> None:
    """Delete those that are to end once they run, mend what kept one from starting, and wait for the rest."""
    running = lambda name: lives.last(name).get("phase") == "Running"  # noqa: E731
    eventually("those that end are ready", lambda: all(lives.readiness(name)[-1:] == ["True"] for name in ENDING[:-1]))
    eventually("one is being created", lambda: lives.containers("not-started"))
    for name in ENDING:
        client.delete(PODS, name, namespace=NAMESPACE)
    eventually("a pull was tried again", lambda: lives.reasons("no-image").count("ErrImagePull") > 1)
    client.merge_patch(
        PODS,
        "no-image",
        {"metadata": {"annotations": {f"{PREFIX}start-error": None}}},
        namespace=NAMESPACE,
    )
    eventually("some are ready", lambda: sum("True" in lives.readiness(name) for name in PLAIN) >= READY)
    for name in (*PLAIN, "exact", "elsewhere", "no-image"):
        eventually(f"{name} runs", lambda name=name: running(name))
    for name in ("exact", "elsewhere", "crashes"):
        eventually(f"{name} is ready", lambda name=name: lives.readiness(name)[-1:] == ["True"])
    eventually("readiness flaps", lambda: len(lives.readiness("flaps")) > 4)
    eventually("the Jobs are over", lambda: job_condition(client, "completes") and job_condition(client, "fails"))
    eventually("the others are gone", lambda: lives.gone >= set(ENDING) - {"never-ends"})
    eventually("one is past its deadline", lambda: lives.last("late")["phase"] == "Failed")


def test_a_node_has_a_csi_node_without_drivers_as_the_api_server_serves_it(
    lives: Lives, client: KubeClient, paced_sandbox: Sandbox
) -> None:
    assert lives.versions
    assert client.get(CSI_NODES, NODE)["spec"] == {"drivers": None}
    (other,) = paced_sandbox.add_nodes(1, NodeShape(), prefix="leaves-")
    client.delete(NODES, other)
    eventually("its CSINode goes with the node", lambda: is_gone(client, CSI_NODES, other))


def test_containers_are_created_for_two_to_twenty_seconds_as_the_uid_of_the_pod_draws(lives: Lives) -> None:
    statuses = [lives.last(name) for name in PLAIN]
    seconds = [(started_at(status) - parsed(status["startTime"])).total_seconds() for status in statuses]
    assert min(seconds) >= 2
    assert len(set(seconds)) > 1, "not all take the same time"
    assert {tuple(lives.reasons(name)) for name in PLAIN} == {("ContainerCreating",)}


def test_a_pod_is_ready_some_time_after_it_runs_as_its_uid_draws(lives: Lives) -> None:
    ready = [name for name in PLAIN if lives.readiness(name) == ["False", "True"]]
    assert ready
    assert any(since(lives.last(name), "Ready") > started_at(lives.last(name)) for name in ready)


def test_a_pod_that_is_created_has_the_conditions_of_a_kubelet(lives: Lives) -> None:
    status = next(v["status"] for v in lives.versions[PLAIN[0]] if v["status"].get("containerStatuses"))
    assert status["phase"] == "Pending"
    assert {one["type"]: (one["status"], one.get("reason"), one.get("message")) for one in status["conditions"]} == {
        "PodScheduled": ("True", None, None),
        "PodReadyToStartContainers": ("False", None, None),
        "Initialized": ("True", None, None),
        "ContainersReady": ("False", "ContainersNotReady", NOT_READY),
        "Ready": ("False", "ContainersNotReady", NOT_READY),
    }
    assert {"podIP", "podIPs"}.isdisjoint(status)
    assert status["hostIP"]


def test_a_pod_runs_and_is_ready_after_the_seconds_of_its_annotations(lives: Lives) -> None:
    status = lives.last("exact")
    accepted, started, ready = parsed(status["startTime"]), started_at(status), since(status, "Ready")
    assert (started - accepted).total_seconds() >= 2
    assert (ready - started).total_seconds() >= 3
    assert since(status, "Initialized") == started
    assert accepted < since(status, "PodReadyToStartContainers") < started
    assert condition(status, "example.com/gate")["status"] == "True"
    assert not condition(status, "Ready").get("reason")
    main, (init, side) = status["containerStatuses"][0], status["initContainerStatuses"]
    assert (main["ready"], main["started"], main["restartCount"]) == (True, True, 0)
    assert main["allocatedResources"] == {"cpu": "10m", "memory": "128Mi"}
    assert init["state"]["terminated"]["reason"] == "Completed"
    assert "running" in side["state"]
    assert lives.reasons("exact") == ["PodInitializing"]


def test_annotations_count_on_the_nodes_that_a_pod_names_and_elsewhere_it_is_ready_at_once(lives: Lives) -> None:
    status = lives.last("elsewhere")
    assert status["containerStatuses"][0]["restartCount"] == 0
    assert lives.readiness("elsewhere")[-1] == "True"


def test_a_start_that_crashes_is_tried_again_with_a_back_off(lives: Lives) -> None:
    containers = lives.containers("crashes")
    assert lives.reasons("crashes")[-1] == "CrashLoopBackOff"
    waiting = next(c for c in containers if c["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")
    assert waiting["state"]["waiting"]["message"].startswith(
        "back-off 10s restarting failed container=main pod=crashes_"
    )
    assert waiting["restartCount"] == 1
    assert [container["restartCount"] for container in containers] == sorted(c["restartCount"] for c in containers)
    assert containers[-1]["restartCount"] == 2
    last = containers[-1]["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (1, "Error")
    assert (started_at(lives.last("crashes")) - parsed(last["finishedAt"])).total_seconds() >= 10
    assert lives.readiness("crashes") == ["False", "True"], "it was not ready before it had crashed twice"


@pytest.mark.parametrize(
    ("pod", "reasons", "message"),
    [
        ("never-pulled", ["ErrImageNeverPull"], "is not present with pull policy of Never"),
        ("no-secret", ["CreateContainerConfigError"], "not found"),
    ],
)
def test_a_container_that_cannot_start_waits_with_its_reason(
    lives: Lives, pod: str, reasons: list[str], message: str
) -> None:
    assert lives.reasons(pod) == ["ContainerCreating", *reasons]
    assert message in lives.containers(pod)[-1]["state"]["waiting"]["message"]
    assert lives.last(pod)["phase"] == "Pending"


def test_an_image_that_is_not_there_is_pulled_again_and_starts_once_it_is(lives: Lives) -> None:
    reasons = lives.reasons("no-image")
    assert reasons[:4] == ["ContainerCreating", "ErrImagePull", "ImagePullBackOff", "ErrImagePull"]
    assert "running" in lives.containers("no-image")[-1]["state"]


def test_a_pod_that_the_kubelet_refuses_has_failed_with_its_reason(lives: Lives) -> None:
    status = lives.last("no-cpu")
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == "Pod was rejected: Node didn't have enough resource: cpu"
    assert "containerStatuses" not in status


def test_readiness_flaps_as_the_annotations_say_and_the_container_runs_on(lives: Lives) -> None:
    assert lives.readiness("flaps")[:5] == ["False", "True", "False", "True", "False"]
    running = [c for c in lives.containers("flaps") if "running" in c["state"]]
    assert {container["ready"] for container in running} == {True, False}
    assert len({container["state"]["running"]["startedAt"] for container in running}) == 1


@pytest.mark.parametrize(
    ("pod", "phase", "exit_code", "least_seconds"),
    [("handles-term", "Succeeded", 0, 2), ("hears-no-term", "Failed", 137, 3)],
)
def test_a_deleted_pod_stays_until_its_containers_have_ended(
    lives: Lives, pod: str, phase: str, exit_code: int, least_seconds: int
) -> None:
    version = lives.versions[pod][-1]
    ending = [v for v in lives.versions[pod] if "deletionTimestamp" in v["metadata"]]
    assert ending[0]["status"]["phase"] == "Running"
    assert condition(ending[0]["status"], "Ready")["status"] == "True", "it answers until it ends"
    over = version["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (version["status"]["phase"], over["exitCode"]) == (phase, exit_code)
    grace = dt.timedelta(seconds=ending[0]["metadata"]["deletionGracePeriodSeconds"])
    asked = parsed(ending[0]["metadata"]["deletionTimestamp"]) - grace
    assert (parsed(over["finishedAt"]) - asked).total_seconds() >= least_seconds
    assert pod in lives.gone


def test_a_pod_that_never_ends_goes_only_by_force(lives: Lives, client: KubeClient) -> None:
    assert "never-ends" not in lives.gone
    assert lives.last("never-ends")["phase"] == "Running"
    client.delete(PODS, "never-ends", namespace=NAMESPACE, grace_seconds=0)
    eventually("it is gone", lambda: is_gone(client, PODS, "never-ends", NAMESPACE))


def test_a_pod_that_has_not_started_needs_no_grace(lives: Lives) -> None:
    assert "not-started" in lives.gone
    assert lives.last("not-started")["phase"] == "Failed"


def test_jobs_complete_and_fail_by_their_pods(lives: Lives, client: KubeClient) -> None:
    assert lives.versions
    assert "Complete" in job_condition(client, "completes")
    assert "Failed" in job_condition(client, "fails")


def test_a_deadline_counts_also_while_containers_are_created(lives: Lives) -> None:
    status = lives.last("late")
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
