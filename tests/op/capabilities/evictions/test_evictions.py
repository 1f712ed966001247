"""Evictions by others of pods that ask for a replacement: what is answered, and what becomes of the pods."""

import asyncio
import copy
from datetime import timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from api_server_in_memory import ApiServerInMemory, error
from berth_core.clock import format_timestamp
from berth_core.errors import InputError
from berth_core.labels import EVICTIONS_LABEL, RELEASED_ANNOTATION, RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_core.names import EVICTION_WEBHOOK_CONFIGURATION
from berth_kube.errors import EvictionBlockedError, ForbiddenError, KubeError, ServerError
from berth_kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, VALIDATING_WEBHOOKS
from berth_kube.surge import Note
from berth_operator.admission.reviews import AdmissionRequest, UserInfo
from berth_operator.capabilities.evictions import moves
from berth_operator.capabilities.evictions.manifests import build_eviction_webhooks
from berth_operator.capabilities.evictions.moves import EvictionMoves
from berth_operator.capabilities.evictions.replacements import may_go
from berth_operator.capabilities.evictions.settings import EvictionSettings
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock

Raw = dict[str, Any]

NAMESPACE: Final = "shop"
HASH: Final = "5d4f8c7b9"
LABELS: Final = {"app": "web", TEMPLATE_HASH_LABEL: HASH}
DEADLINE_SECONDS: Final = 120
KUBECTL: Final = "somebody"


def owner(kind: str, name: str) -> list[Raw]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def pod(name: str = "web-1", *, ready: bool = True, **labels: str) -> Raw:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": format_timestamp(NOON)}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "labels": {**LABELS, **{key.replace("__", "/"): value for key, value in labels.items()}},
            "ownerReferences": owner("ReplicaSet", "web-a"),
        },
        "spec": {"nodeName": "a", "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "conditions": [condition]},
    }


def asking(name: str = "web-1") -> Raw:
    raw = pod(name)
    raw["metadata"]["labels"][EVICTIONS_LABEL] = "Surge"
    return raw


def let_go(name: str = "web-1", *, ready: bool = True, **note: str) -> Raw:
    raw = pod(name, ready=ready)
    said = {"replicaSet": "web-a", "hash": HASH} | note
    raw["metadata"]["labels"][TEMPLATE_HASH_LABEL] = RELEASED_HASH
    raw["metadata"]["annotations"] = {RELEASED_ANNOTATION: str(said).replace("'", '"')}
    raw["metadata"]["ownerReferences"] = []
    return raw


REPLICA_SET: Final[Raw] = {
    "metadata": {
        "name": "web-a",
        "namespace": NAMESPACE,
        "uid": "uid-web-a",
        "ownerReferences": owner("Deployment", "web"),
    },
    "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}},
}
DEPLOYMENT: Final[Raw] = {
    "metadata": {"name": "web", "namespace": NAMESPACE, "generation": 1},
    "spec": {"replicas": 1},
    "status": {"observedGeneration": 1, "updatedReplicas": 1},
}


class Cluster(ApiServerInMemory):
    """The API of a cluster in which pods are evicted, by Berth if at all."""

    def __init__(self, *pods: Raw) -> None:
        super().__init__()
        self.put(REPLICA_SETS, copy.deepcopy(REPLICA_SET))
        self.put(DEPLOYMENTS, copy.deepcopy(DEPLOYMENT))
        for one in pods:
            self.put(PODS, copy.deepcopy(one))
        self.evicted: list[str] = []
        self.refusal: KubeError | None = None

    def evict(self, _namespace: str, name: str, *, uid: str, resource_version: str) -> None:
        found = self._find(PODS, name, NAMESPACE)["metadata"]
        assert (uid, resource_version) == (found["uid"], found["resourceVersion"])
        if self.refusal is not None:
            raise self.refusal
        self.evicted.append(name)
        self.delete(PODS, name, namespace=NAMESPACE)

    def hash_of(self, name: str = "web-1") -> str:
        return str(self._find(PODS, name, NAMESPACE)["metadata"]["labels"][TEMPLATE_HASH_LABEL])

    def change(self, name: str, value: str) -> None:
        """Have somebody set a pod's label."""
        self._find(PODS, name, NAMESPACE)["metadata"]["labels"][TEMPLATE_HASH_LABEL] = value


class Desk:
    """The operator's answers to evictions, with a clock that stands."""

    def __init__(self, *pods: Raw, beside: "Desk | None" = None) -> None:
        self.api: Cluster = beside.api if beside else Cluster(*pods)
        self.clock: FakeClock = beside.clock if beside else FakeClock()
        settings = OperatorSettings(capabilities=(EvictionSettings(enabled=True, deadline_seconds=DEADLINE_SECONDS),))
        self.evictions = EvictionMoves(self.api.as_client(), settings, self.clock)

    def ask(self, name: str = "web-1", *, by_namespace: bool = True, dry_run: bool = False) -> Raw:
        request = AdmissionRequest(
            uid="review",
            namespace=NAMESPACE,
            name=name,
            operation="CREATE",
            dry_run=dry_run,
            user_info=UserInfo(username=KUBECTL),
        )
        answer = asyncio.run(self.evictions.answer(request, by_namespace=by_namespace))
        response: Raw = answer.body["response"]
        return response

    def move(self, name: str = "web-1") -> str:
        """Ask, and have the thread take the move up; return what the next asker is told."""
        self.ask(name)
        self.evictions.pass_once()
        return told(self.ask(name))

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.evictions.pass_once()


def told(response: Raw) -> str:
    """Return "" for an eviction that passes, else the message; a warning where it passes without a replacement."""
    if response["allowed"]:
        return "; ".join(response.get("warnings", ()))
    status = response["status"]
    assert (status["code"], status["reason"]) == (429, "TooManyRequests")
    assert status["details"] == {"retryAfterSeconds": 2}
    return str(status["message"])


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_PATIENCE_SECONDS", 0)


def test_an_eviction_waits_until_another_pod_serves_and_then_passes() -> None:
    desk = Desk(pod())
    first = told(desk.ask())
    assert "it is being looked at" in first
    assert format_timestamp(NOON + timedelta(seconds=DEADLINE_SECONDS)) in first

    assert "its replacement is not available yet" in desk.move()
    assert desk.api.hash_of() == RELEASED_HASH
    desk.api.put(PODS, pod("web-2", ready=False))
    assert "its replacement is not available yet" in told(desk.ask())
    desk.api.put(PODS, pod("web-2"))
    assert desk.ask() == {"uid": "review", "allowed": True}
    assert desk.api.evicted == []


LEFT_ALONE: Final = {
    "a pod of a namespace that does not ask": (pod(), False),
    "a pod that wants to be evicted as ever": (
        pod() | {"metadata": pod()["metadata"] | {"labels": LABELS | {EVICTIONS_LABEL: "Evict"}}},
        True,
    ),
    "a pod that leaves": (pod() | {"metadata": pod()["metadata"] | {"deletionTimestamp": "now"}}, True),
    "a pod that has ended": (pod() | {"status": {"phase": "Succeeded"}}, True),
    "a pod that has no node": (pod() | {"spec": {"containers": []}}, True),
    "a pod that is gone": (pod("another"), True),
}


@pytest.mark.parametrize("claim", LEFT_ALONE)
def test_it_is_left_alone(claim: str) -> None:
    raw, by_namespace = LEFT_ALONE[claim]
    desk = Desk(raw)
    assert desk.ask(by_namespace=by_namespace) == {"uid": "review", "allowed": True}
    desk.evictions.pass_once()
    assert not [call for call in desk.api.calls if not call.startswith("get pods")]


def test_a_pod_may_ask_for_itself() -> None:
    assert told(Desk(asking()).ask(by_namespace=False))


def test_a_dry_run_changes_nothing() -> None:
    desk = Desk(pod())
    assert desk.ask(dry_run=True)["allowed"]
    desk.evictions.pass_once()
    assert desk.api.calls == []


def test_what_cannot_surge_passes_and_says_why() -> None:
    raw = pod()
    raw["metadata"]["ownerReferences"] = owner("StatefulSet", "web")
    assert "it belongs to a StatefulSet" in Desk(raw).move()


def test_a_deployment_in_change_is_waited_for_a_moment() -> None:
    desk = Desk(pod())
    desk.api.objects["deployments"][NAMESPACE, "web"]["status"] = {"observedGeneration": 1, "updatedReplicas": 0}
    assert "is being rolled out or scaled. Try again" in desk.move()
    desk.after(9)
    desk.ask()
    desk.after(2)
    assert "without a replacement: its Deployment is being rolled out" in told(desk.ask())


def test_after_the_deadline_it_passes_as_it_was_and_is_given_back_if_it_stays() -> None:
    desk = Desk(pod())
    desk.move()
    desk.clock.advance(DEADLINE_SECONDS)
    assert f"no other pod was available within {DEADLINE_SECONDS} s" in told(desk.ask())
    desk.after(14)
    assert desk.api.hash_of() == RELEASED_HASH
    desk.after(1)
    assert desk.api.hash_of() == HASH


def test_all_replicas_keep_the_deadline_of_the_one_that_was_asked_first() -> None:
    first = Desk(pod())
    first.move()
    first.clock.advance(DEADLINE_SECONDS - 1)

    other = Desk(beside=first)
    assert format_timestamp(NOON + timedelta(seconds=DEADLINE_SECONDS)) in told(other.ask())

    other.clock.advance(1)
    assert f"no other pod was available within {DEADLINE_SECONDS} s" in told(other.ask())


def test_another_replica_goes_on_where_one_was_killed() -> None:
    killed = Desk(pod())
    killed.move()

    other = Desk(beside=killed)
    assert "its replacement is not available yet" in other.move()
    other.api.put(PODS, pod("web-2"))
    assert other.ask() == {"uid": "review", "allowed": True}
    other.after(11)
    assert other.api.evicted == ["web-1"], "nobody asks again"


@pytest.mark.parametrize("until", ["2099-01-01T00:00:00Z", "soon", ""])
def test_who_writes_a_later_deadline_on_a_pod_gains_no_time(until: str) -> None:
    desk = Desk(let_go(until=until))
    desk.ask()
    desk.clock.advance(DEADLINE_SECONDS)
    assert desk.ask()["allowed"]


def test_who_gives_the_pod_back_again_and_again_gains_no_time() -> None:
    desk = Desk(pod())
    for _ in range(12):
        desk.move()
        desk.api.change("web-1", HASH)
        assert told(desk.ask())
        desk.after(10)
    assert desk.ask()["allowed"]
    desk.clock.advance(599)
    assert desk.ask()["allowed"]


def test_a_deadline_begins_anew_when_nobody_has_asked_for_long() -> None:
    desk = Desk(pod())
    desk.ask()
    desk.after(DEADLINE_SECONDS)
    desk.after(601)
    assert not desk.ask()["allowed"]


def test_berth_evicts_a_replaced_pod_whose_asker_does_not_come_back() -> None:
    desk = Desk(pod())
    desk.move()
    desk.after(11)
    assert desk.api.evicted == []
    desk.api.put(PODS, pod("web-2"))
    desk.api.refusal = error(EvictionBlockedError)
    desk.after(1)
    desk.api.refusal = None
    desk.after(1)
    assert desk.api.evicted == ["web-1"]
    desk.after(1)
    assert desk.api.evicted == ["web-1"]


def test_no_pod_is_let_go_once_its_asker_is_gone() -> None:
    desk = Desk(pod())
    desk.ask()
    desk.after(10)
    assert desk.api.hash_of() == HASH


def test_another_pod_of_the_same_name_waits_by_itself() -> None:
    desk = Desk(pod())
    desk.move()
    desk.clock.advance(DEADLINE_SECONDS - 1)
    another = pod()
    another["metadata"]["uid"] = "uid-another"
    desk.api.put(PODS, another)
    desk.ask()
    desk.clock.advance(2)
    assert not desk.ask()["allowed"]


def test_only_so_many_pods_are_moved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_MAX_OUT_PER_NAMESPACE", 1)
    desk = Desk(pod(), pod("web-2"))
    desk.api.objects["replicasets"][NAMESPACE, "web-a"]["spec"]["replicas"] = 2
    desk.api.objects["deployments"][NAMESPACE, "web"]["spec"]["replicas"] = 2
    desk.api.objects["deployments"][NAMESPACE, "web"]["status"]["updatedReplicas"] = 2
    desk.ask("web-2")
    desk.move()
    assert desk.api.hash_of("web-2") == RELEASED_HASH
    assert "1 other pods are moved first" in told(desk.ask())
    assert desk.api.hash_of() == HASH


def test_without_an_answer_of_the_api_server_only_who_is_known_to_ask_waits() -> None:
    desk = Desk(pod())
    desk.api.faults["get pods web-1"] = error(ServerError)
    assert "could not be read" in told(desk.ask(by_namespace=False))
    assert "did not answer in time" in told(desk.ask())
    desk.clock.advance(DEADLINE_SECONDS)
    assert desk.ask()["allowed"]


def test_a_call_that_can_never_work_lets_the_eviction_pass() -> None:
    desk = Desk(pod())
    desk.api.faults["merge pods web-1"] = error(ForbiddenError)
    assert "without a replacement: cannot change" in desk.move()


UNTIL: Final = format_timestamp(NOON)


def test_what_was_let_go_and_is_seen_through_by_nobody_is_given_back() -> None:
    left, of_plan = let_go("web-1", until=UNTIL), let_go("web-3", plan="plan")
    under_way = let_go("web-2", until=format_timestamp(NOON + timedelta(seconds=30)))
    desk = Desk(left, under_way, of_plan)
    desk.clock.advance(31)
    desk.evictions.give_back_left()
    assert [desk.api.hash_of(name) for name in ("web-1", "web-2", "web-3")] == [HASH, RELEASED_HASH, RELEASED_HASH]


MAY_GO: Final[dict[str, tuple[list[Raw], int, list[str]]]] = {
    "nobody goes before a replacement is Ready": ([let_go("a"), pod("x", ready=False)], 1, []),
    "one goes for one that is Ready": ([let_go("a"), pod("x")], 1, ["a"]),
    "the first by name go first": ([let_go("b"), let_go("a"), pod("x")], 2, ["a"]),
    "pods of others do not count": ([let_go("a"), pod("x") | {"metadata": {"name": "x"}}], 1, []),
    "one that leaves does not count": (
        [let_go("a"), pod("x") | {"metadata": pod("x")["metadata"] | {"deletionTimestamp": "now"}}],
        1,
        [],
    ),
    "one of another ReplicaSet does not count": ([let_go("a"), let_go("b", replicaSet="other"), pod("x")], 2, []),
    "all go when none is wanted any more": ([let_go("a"), let_go("b")], 0, ["a", "b"]),
    "one that is not Ready goes at once": ([let_go("a", ready=False)], 1, ["a"]),
}


@pytest.mark.parametrize("claim", MAY_GO)
def test_as_many_go_as_others_serve(claim: str) -> None:
    raw_pods, replicas, want = MAY_GO[claim]
    replica_set = REPLICA_SET | {"spec": REPLICA_SET["spec"] | {"replicas": replicas}}
    out = [one for one in raw_pods if one["metadata"].get("annotations")]
    going = [one["metadata"]["name"] for one in out if may_go(one, replica_set, raw_pods, NOON)]
    assert sorted(going) == want


def test_a_replacement_counts_once_it_has_been_ready_for_long_enough() -> None:
    replica_set = REPLICA_SET | {"spec": REPLICA_SET["spec"] | {"minReadySeconds": 30}}
    pods = [let_go("a"), pod("x")]
    found = [may_go(pods[0], replica_set, pods, NOON + timedelta(seconds=after)) for after in (29, 30)]
    assert found == [False, True]


def test_the_webhooks_never_keep_an_eviction_for_long() -> None:
    config = {"url": "https://127.0.0.1:1/handover/secret", "caBundle": "x"}
    found = build_eviction_webhooks(config, "berth-system", ["system:serviceaccount:berth-system:berth-descheduler"])
    assert [one["clientConfig"]["url"].removeprefix(config["url"]) for one in found] == [
        "/evictions/namespaces",
        "/evictions/pods",
    ]
    for one in found:
        assert (one["failurePolicy"], one["timeoutSeconds"], one["sideEffects"]) == ("Ignore", 3, "NoneOnDryRun")
        assert one["namespaceSelector"]["matchExpressions"][0]["values"] == ["berth-system"]
        assert "berth-descheduler" in one["matchConditions"][1]["expression"]


def test_a_service_gets_the_path_of_its_own() -> None:
    config = {"service": {"name": "berth-webhook", "namespace": "berth-system", "path": "/handover/secret"}}
    first, _ = build_eviction_webhooks(config, "berth-system", ())
    assert first["clientConfig"]["service"]["path"] == "/handover/secret/evictions/namespaces"
    assert len(first["matchConditions"]) == 1


def test_the_note_of_a_pod_says_who_asked_and_until_when() -> None:
    desk = Desk(pod())
    desk.move()
    note = Note.read(desk.api.objects["pods"][NAMESPACE, "web-1"]["metadata"]["annotations"])
    assert (note.plan, note.requester, note.source) == ("", KUBECTL, "a")
    assert note.until == format_timestamp(NOON + timedelta(seconds=DEADLINE_SECONDS + 15))


@pytest.mark.parametrize("seconds", [0, -1, 1801])
def test_a_deadline_is_from_a_second_to_half_an_hour(seconds: float) -> None:
    with pytest.raises(InputError, match="deadline_seconds"):
        EvictionSettings(deadline_seconds=seconds)


def test_the_webhooks_are_written_into_the_charts_configuration_and_again_when_they_change() -> None:
    desk = Desk()
    desk.api.put(VALIDATING_WEBHOOKS, {"metadata": {"name": EVICTION_WEBHOOK_CONFIGURATION}})
    call = f"merge validatingwebhookconfigurations {EVICTION_WEBHOOK_CONFIGURATION}"
    counts = []
    for url, seconds in (("one", 0), ("one", 29), ("two", 0), ("two", 30)):
        desk.clock.advance(seconds)
        desk.evictions.register({"url": url})
        counts.append(desk.api.calls.count(call))
    assert counts == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("served", "want"),
    [
        (True, "no controller of Kubernetes acts on it yet"),
        (False, "does not serve lifecycle.k8s.io/v1alpha1"),
        (error(ServerError), "is not known"),
    ],
    ids=["served", "absent", "unknown"],
)
def test_why_eviction_requests_are_left_alone_is_logged(
    served: bool | KubeError,  # noqa: FBT001 - of a table
    want: str,
) -> None:
    desk = Desk()

    def serves(_resource: object) -> bool:
        if isinstance(served, KubeError):
            raise served
        return served

    desk.api.serves = serves  # type: ignore[attr-defined]
    with capture_logs() as logs:
        desk.evictions.note_requests()
    (line,) = logs
    assert want in line["reason"]
