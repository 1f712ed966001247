"""Which pods queues admit, what they say, and that no pod stays gated, whatever is changed, late or killed."""

from itertools import count
from random import Random
from typing import Any, Final

import msgspec
import pytest
import yaml

from api_server_in_memory import error
from berth_core import GatedQueue, QueueCondition, ResourceAmounts, RetryableError
from berth_core.labels import (
    HANDOVER_GATE,
    QUEUE_GATE,
)
from berth_kube import KUEUE_LOCAL_QUEUES, PODS, QUEUES, KubeError
from berth_kube.errors import ForbiddenError, ServerError, UnreachableError
from berth_operator.admission.reviews import AdmissionRequest, AdmissionReview
from berth_operator.capabilities.queues.gate import gate_for_queue
from berth_operator.metrics import REGISTRY
from builders import as_api, owner, pod
from conventions.pages import blocks
from conventions.tracked import ROOT
from queue_simulation import GUARANTEE, QueueSimulation, megabytes, memory_node, simulated

ACCEPTED, ENFORCED, COVERED, _ = QueueCondition


def test_the_proposals_numbers() -> None:
    one = simulated()
    assert one.gated_namespaces() == ["a", "b"]
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len(one.free("a")) == 8
    first, second = one.queue("q1").status, one.queue("q2").status
    assert [megabytes(amounts) for amounts in (first.allocated, first.real_capability, first.request)] == [
        800,
        800,
        1000,
    ]
    assert (first.admitted, first.waiting, megabytes(first.deserved)) == (8, 2, 800)
    assert (megabytes(second.deserved), second.allocated) == (200, {}), "without a job"
    one.submit("urgent", "b", memory="200M")
    one.settle()
    assert one.free("b") == ["urgent"]
    assert one.says("q2", COVERED) == ("True", "Free")


def test_priority_comes_before_age_and_age_before_name() -> None:
    one = simulated(guarantee={"resource": {"memory": "800M"}})
    one.submit("z-old", "a", created="2026-11-21T10:00:00Z")
    one.submit("a-young", "a", created="2026-11-21T11:00:00Z")
    one.submit("important", "a", created="2026-11-21T11:30:00Z", priority=10)
    one.settle()
    assert one.free("a") == ["important", "z-old"]


def test_the_first_that_does_not_fit_holds_back_its_queue_and_no_other() -> None:
    one = simulated()
    one.namespace("c", team="q3")
    one.write("q3")
    one.submit("there", "a", memory="300M", node="node-a")
    one.settle()
    one.submit("large", "a", memory="600M", created="2026-11-21T10:00:00Z")
    one.submit("small", "a", created="2026-11-21T11:00:00Z")
    one.submit("others", "c", created="2026-11-21T11:00:00Z")
    one.settle()
    assert (one.free("a"), one.free("c")) == (["there"], ["others"])
    one.end("there", "a")
    one.settle()
    assert one.free("a") == ["large", "small"]


def test_a_pod_that_can_never_fit_holds_back_nothing_and_is_told_once() -> None:
    one = simulated()
    one.submit("huge", "a", memory="801M", priority=10)
    one.submit("small", "a")
    one.settle()
    assert one.free("a") == ["small"]
    assert one.queue("q1").status.too_large == 1
    assert one.events().count("QueueTooSmall") == 1


def test_a_pod_that_ends_gives_back() -> None:
    one = simulated()
    for number in range(9):
        one.submit(f"job-{number}", "a")
    one.settle()
    waiting = next(name for name in (f"job-{n}" for n in range(9)) if name not in one.free("a"))
    one.end(one.free("a")[0], "a")
    one.settle()
    assert waiting in one.free("a")


def test_what_was_admitted_counts_though_the_watch_is_behind() -> None:
    one = simulated()
    for number in range(8):
        one.submit(f"job-{number}", "a")
    one.settle()
    one.is_stale = True
    for number in range(8, 16):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len(one.free("a")) == 8


def test_another_leader_begins_with_what_the_first_admitted() -> None:
    one = simulated()
    for number in range(12):
        one.submit(f"job-{number}", "a")
    one.settle()
    one.restart()
    one.settle()
    assert len(one.free("a")) == 8


@pytest.mark.parametrize("after", range(4))
def test_an_operator_killed_between_two_pods_admits_the_rest_and_no_more(after: int) -> None:
    one = simulated()
    names = [f"job-{number}" for number in range(10)]
    for name in names:
        one.submit(name, "a")
    broken = f"patch pods {sorted(names)[after]}"
    one.api.faults[broken] = error(UnreachableError, url="", acted=False)
    one.clock.advance(3)
    one.controller.listen()
    one.hear()
    with pytest.raises(UnreachableError):
        one.controller.reconcile()
    assert len(one.free("a")) == after
    one.api.faults.clear()
    one.restart()
    one.settle()
    assert len(one.free("a")) == 8


@pytest.mark.parametrize("kind", [ServerError, ForbiddenError])
@pytest.mark.parametrize("has_queues", [True, False])
def test_a_pod_that_cannot_be_changed_keeps_no_other_gated(kind: type[KubeError], has_queues: bool) -> None:  # noqa: FBT001 - a case
    one = simulated()
    one.submit("broken", "a", priority=10)
    for namespace in "ab":
        one.submit("job", namespace)
    one.api.faults["patch pods broken"] = error(kind)
    if not has_queues:
        for name in ("q1", "q2"):
            one.delete_queue(name)
        one.restart()
    one.clock.advance(3)
    one.controller.listen()
    one.hear()
    with pytest.raises(kind):
        one.controller.reconcile()
    assert (one.free("a"), one.free("b")) == (["job"], ["job"])
    one.api.faults.clear()
    one.settle()
    assert one.free("a") == ["broken", "job"]


def test_pods_are_admitted_while_the_registration_cannot_be_written() -> None:
    one = simulated()
    one.submit("job", "a")
    one.namespace("c", team="q1")
    for verb in ("create", "merge"):
        one.api.faults[f"{verb} mutatingwebhookconfigurations berth-queues"] = error(ForbiddenError)
    one.clock.advance(3)
    one.controller.listen()
    one.hear()
    with pytest.raises(ForbiddenError):
        one.controller.reconcile()
    assert one.free("a") == ["job"]


def test_a_pod_that_cannot_be_changed_is_not_tried_at_each_change_of_a_pod() -> None:
    one = simulated()
    one.submit("broken", "a")
    one.api.faults["patch pods broken"] = error(ForbiddenError)
    one.hear()
    with pytest.raises(ForbiddenError):
        one.controller.reconcile()
    one.controller.reconcile()
    assert one.api.calls.count("patch pods broken") == 1
    one.clock.advance(1)
    with pytest.raises(ForbiddenError):
        one.controller.reconcile()


def test_a_pass_that_took_long_delays_the_next_one_by_seconds() -> None:
    one = simulated()
    decide = one.controller._nodes

    def be_paused() -> dict[str, ResourceAmounts]:
        one.clock.advance(600.0)
        return decide()

    one.controller._nodes = be_paused  # type: ignore[method-assign]
    one.settle()
    one.controller._nodes = decide  # type: ignore[method-assign]
    one.submit("job", "a")
    one.settle()
    assert one.free("a") == ["job"]


def test_without_the_lease_nothing_is_let_go() -> None:
    one = simulated()
    one.submit("job", "a")
    one.leads = False
    one.hear()
    with pytest.raises(RetryableError):
        one.controller.reconcile()
    assert not one.free("a")


def test_what_was_decided_before_the_lease_was_lost_is_not_carried_out_after_it_is_back() -> None:
    one = simulated()
    one.submit("job", "a")
    one.hear()
    decide, calls = one.controller._nodes, []

    def lose_meanwhile() -> dict[str, ResourceAmounts]:
        calls.append(one.controller.stop_term())
        return decide()

    one.controller._nodes = lose_meanwhile  # type: ignore[method-assign]
    with pytest.raises(RetryableError):
        one.controller.reconcile()
    assert (len(calls), one.free("a")) == (1, [])


def test_a_gate_that_moved_is_taken_off_in_the_next_pass() -> None:
    one = simulated()
    one.submit("job", "a", gates=["example.com/other"])
    one.hear()
    stored = one.api.objects[PODS.plural]["a", "job"]
    one.api.put(PODS, {**stored, "spec": {**stored["spec"], "schedulingGates": [{"name": QUEUE_GATE}]}})
    one.is_stale = True
    one.settle()
    assert one.free("a") == ["job"]


# --- changes while running -------------------------------------------------------------------------------------------


def test_a_guarantee_that_is_changed_counts_at_once() -> None:
    one = simulated()
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    one.write("q2", guarantee={"resource": {"memory": "10%"}})
    one.settle()
    assert len(one.free("a")) == 9
    one.write("q2", guarantee={"resource": {"memory": "500M"}})
    one.settle()
    assert len(one.free("a")) == 9, "nothing is preempted"
    assert one.says("q2", COVERED) == ("False", "UsedByOthers")
    assert "queue q1 uses 400M memory more than it may" in one.message("q2", COVERED)


@pytest.mark.parametrize("way", ["suspended", "deleted", "namespace left out"])
def test_switched_off_the_registration_goes_first_and_no_pod_stays_gated(way: str) -> None:
    one = simulated()
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    one.api.calls.clear()
    match way:
        case "suspended":
            one.write("q1", suspend=True)
        case "deleted":
            one.delete_queue("q1")
        case _:
            one.namespace("a", team="nobody")
    one.settle()
    assert len(one.free("a")) == 10
    assert one.gated_namespaces() == ["b"]
    changes = [call for call in one.api.calls if call.startswith(("merge mutating", "patch pods"))]
    assert changes[0].startswith("merge mutating")


def test_when_the_last_queue_is_gone_nothing_of_it_stays() -> None:
    one = simulated()
    one.submit("huge", "a", memory="900M")
    one.settle()
    for name in ("q1", "q2"):
        one.delete_queue(name)
    one.settle()
    assert (one.free("a"), one.gated_namespaces()) == (["huge"], [])
    for _ in range(8):
        one.settle()
    assert not one.is_watching
    calls = len(one.api.calls)
    one.settle()
    assert {call.split()[0] for call in one.api.calls[calls:]} == {"list"}
    assert not [call for call in one.api.calls[calls:] if "pods" in call]


def test_pods_left_gated_by_a_killed_operator_are_released_though_no_queue_is_left() -> None:
    one = simulated()
    one.submit("huge", "a", memory="900M")
    one.settle()
    for name in ("q1", "q2"):
        one.delete_queue(name)
    one.restart()
    one.settle()
    assert (one.free("a"), one.gated_namespaces(), one.is_watching) == (["huge"], [], False)


def test_a_pod_that_is_gated_after_the_registration_is_gone_is_released_though_no_queue_is_left() -> None:
    one = simulated()
    for name in ("q1", "q2"):
        one.delete_queue(name)
    one.restart()
    one.clock.advance(3)
    one.controller.listen()
    one.controller.reconcile()
    one.due.clear()
    one.submit("late", "a", gates=[QUEUE_GATE])
    one.settle()
    assert one.free("a") == ["late"]
    lists = len([call for call in one.api.calls if call.startswith("list pods")])
    one.settle()
    assert len([call for call in one.api.calls if call.startswith("list pods")]) == lists


def test_suspended_a_queue_is_guaranteed_nothing() -> None:
    one = simulated()
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.write("q2", suspend=True, **GUARANTEE)
    one.settle()
    assert len(one.free("a")) == 10
    assert (one.queue("q2").status.state, one.says("q2", ENFORCED)) == ("Suspended", ("False", "Suspended"))


def test_the_metrics_say_what_the_status_says_until_another_replica_leads() -> None:
    one = simulated()
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    read, is_open, pods = REGISTRY.get_sample_value, {"state": "Open"}, {"queue": "q1", "state": "waiting"}
    assert (read("berth_queues", is_open), read("berth_queue_pods", pods)) == (2, 2)
    assert read("berth_queue_amount", {"queue": "q1", "resource": "cpu", "kind": "allocated"}) == 0.8
    assert read("berth_queue_amount", {"queue": "q2", "resource": "memory", "kind": "guarantee"}) == 200_000_000
    one.controller.stop_term()
    assert (read("berth_queues", is_open), read("berth_queue_pods", pods)) == (None, None)


# --- which guarantees count ------------------------------------------------------------------------------------------


def test_a_guarantee_above_the_total_or_the_own_capability_is_refused() -> None:
    one = simulated(guarantee={"resource": {"memory": "1001M"}})
    assert one.says("q2", ACCEPTED) == ("False", "GuaranteeAboveTotal")
    assert one.queue("q2").status.state == "Refused"
    one.write("q2", capability={"memory": "100M"}, **GUARANTEE)
    one.settle()
    assert one.says("q2", ACCEPTED) == ("False", "GuaranteeAboveCapability")
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len(one.free("a")) == 10, "it does not count"
    one.write("q2", capability={"memory": "200M"}, **GUARANTEE)
    one.settle()
    assert one.says("q2", ACCEPTED) == ("True", "Fits")
    assert one.events().count("QueueRefused") == 2


def test_percentages_are_of_the_nodes_that_there_are_now() -> None:
    one = simulated(guarantee={"resource": {"memory": "20%"}}, capability={"memory": "50%"}, deserved={"memory": "30%"})
    one.submit("large", "b", memory="400M")
    one.settle()

    def told() -> list[int]:
        told = one.queue("q2").status
        return [megabytes(one) for one in (told.guarantee, told.real_capability, told.deserved)]

    assert told() == [200, 500, 300]
    one.cache.put_node(memory_node("node-c", "1000M"))
    one.settle()
    assert told() == [400, 1000, 400]


def test_of_two_guarantees_that_do_not_fit_together_the_older_counts() -> None:
    one = QueueSimulation()
    one.namespace("a", team="q1")
    one.write("q1", created="2026-11-21T11:00:00Z", guarantee={"resource": {"memory": "600M"}})
    one.write("q2", created="2026-11-21T10:00:00Z", guarantee={"resource": {"memory": "600M"}})
    one.settle()
    assert (one.says("q1", ACCEPTED)[0], one.says("q2", ACCEPTED)[0]) == ("False", "True")
    assert "memory: 400M left for 600M" in one.message("q1", ACCEPTED)


def test_nodes_that_are_lost_take_no_guarantee_away() -> None:
    one = simulated(guarantee={"resource": {"memory": "600M"}})
    one.cache.remove_node(one.nodes[1])
    one.settle()
    assert one.says("q2", ACCEPTED) == ("True", "Fits")
    assert one.says("q2", COVERED) == ("False", "NodesLack")
    one.submit("urgent", "b", memory="600M")
    one.submit("job", "a")
    one.settle()
    assert (one.free("a"), one.free("b")) == ([], ["urgent"])


def test_cordoned_and_lost_nodes_do_not_count_nor_does_what_runs_there() -> None:
    one = simulated()
    cordoned = memory_node("node-c", "9000M", spec={"unschedulable": True})
    lost = memory_node("node-d", "9000M")
    conditions = [{"type": "Ready", "status": "Unknown"}]
    body = {**msgspec.to_builtins(lost), "status": {**msgspec.to_builtins(lost.status), "conditions": conditions}}
    one.cache.put_node(cordoned)
    one.cache.put_node(msgspec.convert(body, type(lost)))
    for number in range(5):
        one.submit(f"there-{number}", "a", node="node-c")
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len([name for name in one.free("a") if name.startswith("job-")]) == 8


def test_an_unreadable_queue_says_which_field_is_wrong() -> None:
    one = simulated(guarantee={"resource": {"memory": "much"}})
    assert one.says("q2", ACCEPTED) == ("False", "Invalid")
    assert "spec.guarantee.resource" in one.message("q2", ACCEPTED)


# --- what else uses the nodes ----------------------------------------------------------------------------------------


def test_what_pods_of_no_queue_use_of_a_guarantee_is_said() -> None:
    one = simulated()
    for number in range(8):
        one.submit(f"job-{number}", "a")
    one.submit("stranger", "elsewhere", memory="150M", node="node-a")
    one.settle()
    assert one.says("q2", COVERED) == ("False", "UsedByOthers")
    assert "150M memory are neither used by the queue nor free" in one.message("q2", COVERED)
    assert "pods of no queue use 150M memory" in one.message("q2", COVERED)
    assert "QueueNotCovered" in one.events()
    one.end("stranger", "elsewhere")
    one.settle()
    assert one.says("q2", COVERED) == ("True", "Free")
    assert "QueueCovered" in one.events()


def test_a_pod_whose_gate_its_user_took_off_counts_against_its_own_queue() -> None:
    one = simulated()
    for number in range(8):
        one.submit(f"job-{number}", "a")
    one.settle()
    one.submit("cheat", "a", memory="100M", node="node-a")
    one.end("job-0", "a")
    one.submit("honest", "a")
    one.settle()
    assert "honest" not in one.free("a")
    one.submit("another-cheat", "a", memory="100M", node="node-a")
    one.settle()
    assert one.says("q2", COVERED) == ("False", "UsedByOthers")
    assert "queue q1 uses 100M memory more than it may" in one.message("q2", COVERED)


def test_a_namespace_that_kueue_manages_is_left_alone() -> None:
    one = simulated()
    one.submit("job", "a", memory="900M")
    one.settle()
    one.api.has_kueue = True
    one.api.put(KUEUE_LOCAL_QUEUES[0], {"metadata": {"name": "main", "namespace": "a"}})
    for _ in range(2):
        one.settle()
    assert one.gated_namespaces() == ["b"]
    assert one.free("a") == ["job"]
    assert one.says("q1", ENFORCED) == ("False", "ManagedByKueue")
    assert "a (main)" in one.message("q1", ENFORCED)


@pytest.mark.parametrize("is_new", [True, False])
def test_local_queues_that_cannot_be_listed_keep_no_pod_gated(is_new: bool) -> None:  # noqa: FBT001 - a case
    one = simulated()
    one.submit("job", "a")
    one.api.has_kueue = True
    for resource in KUEUE_LOCAL_QUEUES:
        one.api.faults[f"list {resource.plural} "] = error(ServerError)
    if is_new:
        one.restart()
    one.settle()
    assert one.free("a") == ["job"]
    one.api.faults.clear()
    one.api.put(KUEUE_LOCAL_QUEUES[0], {"metadata": {"name": "main", "namespace": "a"}})
    for _ in range(2):
        one.settle()
    assert one.gated_namespaces() == ["b"]


def test_of_two_queues_that_choose_a_namespace_the_older_has_it() -> None:
    one = QueueSimulation()
    one.namespace("a", team="shared")
    one.write("young", namespaces="shared", created="2026-11-21T11:00:00Z", capability={"memory": "0"})
    one.write("old", namespaces="shared", created="2026-11-21T10:00:00Z")
    one.settle()
    one.submit("job", "a")
    one.settle()
    assert one.free("a") == ["job"]
    assert one.says("young", ENFORCED) == ("False", "OfAnotherQueue")
    assert "a (old)" in one.message("young", ENFORCED)
    one.write("old", namespaces="shared", suspend=True)
    one.settle()
    assert one.says("young", ENFORCED) == ("True", "Gated")


def test_no_queue_takes_namespaces_of_the_system() -> None:
    one = QueueSimulation()
    for name in ("kube-system", "berth-system", "a"):
        one.namespace(name, team="q1")
    one.write("q1")
    one.settle()
    assert one.gated_namespaces() == ["a"]


def test_a_thousand_cores_are_not_a_million() -> None:
    one = QueueSimulation(nodes=(memory_node("large", status={"allocatable": {"cpu": "4k", "memory": "1Ti"}}),))
    one.write("q", guarantee={"resource": {"cpu": "1000", "memory": "200M"}})
    one.settle()
    assert one.queue("q").status.guarantee == {"cpu": "1000", "memory": "200M"}


# --- the webhook -----------------------------------------------------------------------------------------------------

EXEMPT: Final = {
    "with a node": pod(node="node-a"),
    "of a DaemonSet": pod(controller=owner("DaemonSet", "agent")),
    "of a kubelet": pod(annotations={"kubernetes.io/config.mirror": "x"}),
    "that has the gate": pod(gates=[QUEUE_GATE]),
}


def review(body: object, operation: str = "CREATE") -> AdmissionReview:
    raw = msgspec.Raw(msgspec.json.encode(body))
    request = AdmissionRequest(uid="u", namespace="a", operation=operation, object=raw)
    return AdmissionReview(api_version="admission.k8s.io/v1", kind="AdmissionReview", request=request)


@pytest.mark.parametrize("body", EXEMPT.values(), ids=EXEMPT)
def test_pods_that_get_no_gate(body: object) -> None:
    assert gate_for_queue(review(body)).verdict == "let be"


SIGNED: Final = {
    "the label": pod(labels={"kueue.x-k8s.io/managed": "true"}),
    "the gate, to be taken off later": pod(gates=["kueue.x-k8s.io/admission"]),
    "both": pod(gates=["kueue.x-k8s.io/admission"], labels={"kueue.x-k8s.io/managed": "true"}),
}


@pytest.mark.parametrize("body", SIGNED.values(), ids=SIGNED)
def test_kueues_signs_keep_no_gate_off_for_any_tenant_can_write_them(body: object) -> None:
    """Where Kueue has a LocalQueue, the webhook is not registered."""
    assert gate_for_queue(review(body)).verdict == "queued"


def test_any_other_new_pod_gets_the_gate_beside_its_own() -> None:
    assert gate_for_queue(review(pod(gates=[HANDOVER_GATE]))).verdict == "queued"
    assert gate_for_queue(review(as_api(pod()), "UPDATE")).verdict == "let be"
    assert gate_for_queue(review("no pod")).verdict == "let be"


# --- whatever happens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(4, 12))])
def test_whatever_happens_no_queue_has_more_than_it_may_and_no_pod_is_lost(seed: int) -> None:
    simulation, numbers = simulated(), count(1)

    def submit(chance: Random) -> None:
        memory = f"{chance.choice((50, 100, 300))}M"
        simulation.submit(f"job-{next(numbers)}", chance.choice("ab"), memory=memory, priority=chance.randrange(3))

    def end(chance: Random) -> None:
        namespace = chance.choice("ab")
        if free := simulation.free(namespace):
            simulation.end(chance.choice(free), namespace)

    def be_late_or_in_time(_: Random) -> None:
        simulation.is_stale = not simulation.is_stale

    events = (submit, submit, end, lambda _: simulation.restart(), be_late_or_in_time)
    for _ in simulation.happen(events, seed=seed, steps=40):
        has = {ns: sum(_memory(simulation, ns, name) for name in simulation.free(ns)) for ns in "ab"}
        assert has["a"] <= 800
        assert has["a"] + max(has["b"], 200) <= 1000
    simulation.is_stale = False
    for name in ("q1", "q2"):
        simulation.delete_queue(name)
    simulation.settle()
    of_namespaces = [namespace for namespace, _ in simulation.api.objects[PODS.plural]]
    assert all(len(simulation.free(namespace)) == of_namespaces.count(namespace) for namespace in "ab")


def _memory(one: QueueSimulation, namespace: str, name: str) -> int:
    (container,) = one.api.objects[PODS.plural][namespace, name]["spec"]["containers"]
    return megabytes(container["resources"]["requests"])


def test_the_example_of_the_page_is_the_file_beside_it() -> None:
    docs = ROOT / "operator" / "docs"
    examples = [yaml.safe_load(text) for text in blocks("yaml")]
    beside = list(yaml.safe_load_all((docs / "guaranteed-queue.yaml").read_text(encoding="utf-8")))
    assert [one for one in examples if one in beside]
    for body in (*beside, yaml.safe_load((docs / "held-queue.yaml").read_text(encoding="utf-8"))):
        assert not GatedQueue.read(body).in_amounts(ResourceAmounts({"memory": 10**12})).unreadable


@pytest.mark.parametrize("field", [{"spec": 7}, {"status": 7}, {"spec": {"held": 7}}], ids=str)
def test_a_queue_that_cannot_be_read_harms_no_other(field: dict[str, Any]) -> None:
    one = QueueSimulation()
    one.namespace("bank", team="bank")
    one.write("bank", **GUARANTEE)
    one.write("odd")
    one.api.put(QUEUES, {**one.api.objects[QUEUES.plural]["", "odd"], **field})
    one.settle()
    assert one.says("bank", QueueCondition.ENFORCED) == ("True", "Gated")
    assert one.gated_namespaces() == ["bank"]
