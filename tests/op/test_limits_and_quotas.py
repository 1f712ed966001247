"""A namespace holds no more than its limits and quotas allow, however its Reservations come."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from berth_core import ObjectMeta, PodSpec, PodTemplate, PriorityClass, Toleration
from berth_core.errors import InputError
from berth_core.labels import FENCE_LIMITS_ANNOTATION
from berth_core.reservations import Reservation, ReservationPhase, ReservationTask, SlotState
from berth_core.resources import ResourceAmounts
from berth_kube.watch_items import Changed, Listed
from berth_operator.quota.holdings import open_slots
from berth_operator.quota.limits import (
    LimitSettings,
    NamespaceLimit,
    parse_limit,
    parse_namespace_limits,
    parse_namespace_tolerations,
    why_not_tolerable,
)
from berth_operator.quota.resource_quota import PodTraits, ResourceQuota, counts, traits_of, usage_of
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.store.cluster_rules import ClusterRules, NodeCapacity
from handover_builders import place, slot

UNLIMITED = NamespaceLimit(slots=None, share_percent=None)


class CapacityNode(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: NodeCapacity


def offering(name: str, **allocatable: str) -> CapacityNode:
    return CapacityNode(ObjectMeta(name=name), NodeCapacity(allocatable=allocatable))


def quota(name: str = "few", *, used: dict[str, str] | None = None, **spec: Any) -> ResourceQuota:
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"used": used or {}}}
    return msgspec.convert(body, ResourceQuota)


def asking(number: int = 0, *, cpu: str = "1", replicas: int = 1, phase: Any = None, **spec: Any) -> Reservation:
    """A Reservation of its own uid, of one task."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    template = msgspec.convert({"spec": {"containers": [container], **spec}}, PodTemplate)
    made = place(tasks=[ReservationTask(name="web", template=template, replicas=replicas)], phase=phase)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, uid=f"uid-{number}", name=f"place-{number}")
    )


def book(
    *quotas: ResourceQuota,
    limit: NamespaceLimit = UNLIMITED,
    nodes: Sequence[CapacityNode] = (),
    classes: Sequence[PriorityClass] = (),
    **settings: Any,
) -> QuotaAdmission:
    rules = ClusterRules()
    rules.quotas.take(Listed(quotas, "1"))
    rules.classes.take(Listed(tuple(classes), "1"))
    rules.nodes.replace(nodes)
    return QuotaAdmission(LimitSettings(default=limit, **settings), rules)


# --- limits ---------------------------------------------------------------------------------------------------------

LIMITS: dict[str, tuple[NamespaceLimit, Reservation, str]] = {
    "as many slots as are allowed": (NamespaceLimit(slots=3, share_percent=None), asking(replicas=3), ""),
    "one slot more than is allowed": (
        NamespaceLimit(slots=3, share_percent=None),
        asking(replicas=4),
        "the Reservations of namespace default may hold 3 slots together, 3 are left and 4 are asked for (limit slots)",
    ),
    "half of the cluster, where half is allowed": (NamespaceLimit(share_percent=50), asking(cpu="8"), ""),
    "more than half of the cluster": (
        NamespaceLimit(share_percent=50),
        asking(cpu="8500m"),
        (
            "the Reservations of namespace default may hold 8 of cpu together, 50 % of the cluster's 16, "
            "8 is left and 8500m is asked for (limit share)"
        ),
    ),
    "an amount that is too much": (
        NamespaceLimit(share_percent=None, amounts={"memory": 3 << 30}),
        asking(replicas=4),
        (
            "the Reservations of namespace default may hold 3Gi of memory together, "
            "3Gi is left and 4Gi is asked for (limit memory)"
        ),
    ),
    "a resource of which nothing may be held": (
        NamespaceLimit(share_percent=None, amounts={"cpu": 0}),
        asking(),
        "the Reservations of namespace default may hold 0 of cpu together, 0 is left and 1 is asked for (limit cpu)",
    ),
}


@pytest.mark.parametrize(("limit", "reservation", "want"), LIMITS.values(), ids=LIMITS.keys())
def test_a_limit_is_named_with_its_value_and_what_is_left(
    limit: NamespaceLimit, reservation: Reservation, want: str
) -> None:
    nodes = [offering("a", cpu="10", memory="64Gi"), offering("b", cpu="6", memory="64Gi")]
    assert book(limit=limit, nodes=nodes).admit(reservation) == want


def test_what_a_cluster_offers_none_of_is_left_to_the_scheduler() -> None:
    assert book(limit=NamespaceLimit(share_percent=50)).admit(asking(cpu="64")) == ""


def test_pods_are_counted_however_little_they_ask_for() -> None:
    allowances = book(limit=NamespaceLimit(share_percent=50), nodes=[offering("a", cpu="10", pods="10")])
    assert allowances.admit(asking(cpu="1m", replicas=5)) == ""
    assert "may hold 5 of pods together, 50 % of the cluster's 10, 0 is left" in allowances.admit(asking(1, cpu="1m"))
    several = book(limit=NamespaceLimit(share_percent=None, amounts={"pods": 2}))
    assert "(limit pods)" in several.admit(asking(replicas=3))


def test_all_namespaces_together_have_a_limit_of_their_own() -> None:
    allowances = book(limit=NamespaceLimit(slots=3), cluster=NamespaceLimit(slots=4, share_percent=None))
    assert allowances.admit(asking(replicas=3)) == ""
    other = asking(1, replicas=2)
    other = msgspec.structs.replace(other, metadata=msgspec.structs.replace(other.metadata, namespace="other"))
    assert allowances.admit(other) == (
        "the Reservations of all namespaces may hold 4 slots together, 1 are left and 2 are asked for (limit slots)"
    )
    allowances.forget("uid-0")
    assert allowances.admit(other) == ""


def test_several_namespaces_cannot_hold_the_whole_cluster_unless_they_are_told_so() -> None:
    rules = ClusterRules()
    rules.nodes.replace([offering("a", cpu="10", pods="100")])
    allowances = QuotaAdmission(LimitSettings(), rules)
    told = []
    for number, namespace in enumerate("abc"):
        one = asking(number, cpu="1", replicas=4)
        told.append(
            allowances.admit(
                msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, namespace=namespace))
            )
        )
    assert told[:2] == ["", ""]
    assert "80 % of the cluster's 10" in told[2]


def test_a_class_of_too_high_a_value_needs_a_quota_whatever_its_name() -> None:
    classes = [
        msgspec.convert({"metadata": {"name": name}, "value": value}, PriorityClass)
        for name, value in (("urgent", 2000), ("usual", 1000))
    ]
    allowances = book(classes=classes, highest_priority=1000)
    assert allowances.admit(asking(priorityClassName="usual")) == ""
    assert allowances.admit(asking(1, priorityClassName="urgent")) == (
        "namespace default may not reserve with PriorityClass urgent, whose value 2000 is above 1000: "
        "it has no ResourceQuota that is scoped to it"
    )
    scoped = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]}
    granting = quota(hard={"pods": "5"}, scopeSelector=scoped)
    assert book(granting, classes=classes, highest_priority=1000).admit(asking(priorityClassName="urgent")) == ""


TOLERATED: dict[str, tuple[list[Toleration], str]] = {
    "none": ([], ""),
    "what each pod is given": ([Toleration(key="node.kubernetes.io/not-ready", effect="NoExecute")], ""),
    "what the namespace may": ([Toleration(key="gpu")], ""),
    "what all may": ([Toleration(key="spot")], ""),
    "what another may": ([Toleration(key="secret")], "the taint secret"),
    "everything": ([Toleration(operator="Exists")], "every taint"),
}


@pytest.mark.parametrize(("tolerations", "want"), TOLERATED.values(), ids=TOLERATED.keys())
def test_without_dry_runs_a_namespace_tolerates_what_it_is_allowed(tolerations: list[Toleration], want: str) -> None:
    given = parse_namespace_tolerations("--namespace-tolerations", ["team-a:gpu, x", "team-b:secret", "*:spot"])
    told = why_not_tolerable(tolerations, LimitSettings(tolerations=given).tolerable("team-a"))
    assert told == (
        f"it tolerates {want}, which its namespace is not allowed to (--namespace-tolerations)" if want else ""
    )


def test_a_namespace_may_be_allowed_to_tolerate_everything() -> None:
    given = parse_namespace_tolerations("--namespace-tolerations", ["team-a:*"])
    keys = LimitSettings(tolerations=given).tolerable("team-a")
    assert why_not_tolerable([Toleration(operator="Exists"), Toleration(key="any")], keys) == ""


@pytest.mark.parametrize("texts", [["gpu"], [":gpu"], ["a:"], ["a:gpu", "a:spot"]])
def test_tolerations_that_cannot_be_meant_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="--namespace-tolerations"):
        parse_namespace_tolerations("--namespace-tolerations", texts)


def test_a_namespace_of_its_own_limit_has_no_other() -> None:
    allowances = book(
        limit=NamespaceLimit(slots=0, share_percent=None), by_namespace={"default": NamespaceLimit(slots=1)}
    )
    assert allowances.admit(asking()) == ""
    assert "0 are left" in allowances.admit(asking(1))


def test_nodes_that_come_and_go_change_the_share() -> None:
    rules = ClusterRules()
    rules.nodes.replace([offering("a", cpu="10"), offering("b", cpu="10")])
    rules.nodes.put(offering("a", cpu="4"))
    rules.nodes.put(offering("c", cpu="1"))
    rules.nodes.forget("b")
    assert rules.nodes.total() == ResourceAmounts({"cpu": 5000})


def test_of_many_reservations_at_once_no_more_are_admitted_than_fit() -> None:
    allowances = book(limit=NamespaceLimit(slots=10, share_percent=None))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(allowances.admit, [asking(number) for number in range(200)]))
    assert answers.count("") == 10
    assert "0 are left" in allowances.admit(asking(200))


def test_being_asked_twice_about_the_same_reservation_counts_once() -> None:
    allowances = book(limit=NamespaceLimit(slots=1, share_percent=None))
    assert [allowances.admit(asking()) for _ in range(2)] == ["", ""]


ENDS = {
    "it has ended": lambda book: book.note(asking(phase=ReservationPhase.FAILED)),
    "it is gone": lambda book: book.forget("uid-0"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_reservation_gives_its_allowance_back_when(end: Any) -> None:
    allowances = book(limit=NamespaceLimit(slots=1, share_percent=None))
    allowances.admit(asking())
    assert allowances.admit(asking(1)) != ""
    end(allowances)
    assert allowances.admit(asking(1)) == ""


def test_after_a_restart_what_is_held_is_known_from_the_statuses() -> None:
    allowances = book(limit=NamespaceLimit(slots=3, share_percent=None))
    allowances.note(place(slot(SlotState.HELD), slot(SlotState.HELD, 1), replicas=2))
    allowances.note(asking(7))  # nothing is held for this one yet: it is judged like a new one
    assert "1 are left" in allowances.admit(asking(1, replicas=2))


def test_slots_that_an_owner_has_begun_to_take_are_not_held_any_more() -> None:
    states = [SlotState.PENDING, SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN, SlotState.LOST]
    slots = [slot(state, index) for index, state in enumerate(states)]
    assert open_slots(place(*slots, replicas=6)) == {"web": 3}


TEXTS = {
    "nothing": ("", NamespaceLimit()),
    "a number of slots": ("slots=20", NamespaceLimit(slots=20)),
    "all of it": (
        "slots=20, share=12.5%,cpu=1500m,example.com/gpu=0",
        NamespaceLimit(slots=20, share_percent=12.5, amounts={"cpu": 1500, "example.com/gpu": 0}),
    ),
    "no limit at all": ("slots=none,share=none", UNLIMITED),
}


@pytest.mark.parametrize(("text", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_a_limit_is_read(text: str, want: NamespaceLimit) -> None:
    assert parse_limit("--limit", text) == want


@pytest.mark.parametrize(
    "text", ["slots", "slots=-1", "share=50", "share=101%", "cpu=much", "slots=1,slots=2", "=1", "nvidia.com/gpu=1.5"]
)
def test_a_limit_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--limit"):
        parse_limit("--limit", text)


def test_the_lease_says_how_many_nodes_may_be_fenced() -> None:
    assert LimitSettings().notes() == {FENCE_LIMITS_ANNOTATION: "10% or 5,25% or 5"}
    asked = [parse_limit("--limit", f"maxFencedNodes={text}") for text in ("12.5%", "7", "none")]
    assert [str(limit.fenced_nodes) for limit in asked] == ["12.5%", "7", "none"]


def test_limits_of_namespaces_are_read() -> None:
    assert parse_namespace_limits("--namespace-limit", ["a:slots=1", "b:share=none"]) == {
        "a": NamespaceLimit(slots=1),
        "b": NamespaceLimit(share_percent=None),
    }


@pytest.mark.parametrize("texts", [["slots=1"], [":slots=1"], ["a:slots=1", "a:slots=2"]])
def test_limits_of_namespaces_that_cannot_be_meant_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputError, match="--namespace-limit"):
        parse_namespace_limits("--namespace-limit", texts)


# --- quotas ---------------------------------------------------------------------------------------------------------

HIGH: dict[str, Any] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
NO_CLASS: dict[str, Any] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}
ANY_CLASS: dict[str, Any] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
OTHERS: dict[str, Any] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]}
LIMITED: dict[str, Any] = {
    "containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]
}
BARE: dict[str, Any] = {"containers": [{"name": "main"}]}
QUOTAS: dict[str, tuple[ResourceQuota, Reservation, str]] = {
    "room for all": (quota(hard={"requests.cpu": "4"}, used={"requests.cpu": "2"}), asking(replicas=2), ""),
    "too much cpu": (
        quota(hard={"requests.cpu": "4"}, used={"requests.cpu": "2500m"}),
        asking(replicas=2),
        (
            "exceeded quota: few, requested: requests.cpu=2, used with what is reserved: requests.cpu=2500m, "
            "limited: requests.cpu=4, left: requests.cpu=1500m"
        ),
    ),
    "too much by the short name": (quota(hard={"memory": "1Gi"}), asking(replicas=2), "limited: memory=1Gi"),
    "too many pods": (quota(hard={"pods": "2"}, used={"pods": "1"}), asking(replicas=2), "left: pods=1"),
    "too many objects": (quota(hard={"count/pods": "1"}), asking(replicas=2), "limited: count/pods=1"),
    "another thing is bounded": (quota(hard={"services": "0", "persistentvolumeclaims": "0"}), asking(), ""),
    "its limits are too high": (quota(hard={"limits.cpu": "1"}), asking(**LIMITED), "requested: limits.cpu=2"),
    "it names no limit": (quota(hard={"limits.cpu": "9"}), asking(), "must specify limits.cpu for every container"),
    "it asks for nothing, where a quota bounds memory": (
        quota(hard={"memory": "9Gi"}),
        asking(**BARE),
        "must specify memory for every container",
    ),
    "a quota of its class": (quota(hard={"pods": "0"}, scopeSelector=HIGH), asking(priorityClassName="high"), "pods=0"),
    "a quota of another class": (quota(hard={"pods": "0"}, scopeSelector=HIGH), asking(priorityClassName="low"), ""),
    "a quota of pods without a class": (quota(hard={"pods": "0"}, scopeSelector=NO_CLASS), asking(), "pods=0"),
    "a quota of other classes counts pods without one": (
        quota(hard={"pods": "0"}, scopeSelector=OTHERS),
        asking(),
        "pods=0",
    ),
    "it counts no pod of those classes": (
        quota(hard={"pods": "0"}, scopeSelector=OTHERS),
        asking(priorityClassName="high"),
        "",
    ),
    "a quota of any class": (quota(hard={"pods": "0"}, scopeSelector=ANY_CLASS), asking(), ""),
    "a quota of best effort pods": (quota(hard={"pods": "0"}, scopes=["BestEffort"]), asking(), ""),
    "a best effort pod": (quota(hard={"pods": "0"}, scopes=["BestEffort"]), asking(**BARE), "exceeded quota"),
    "a quota of all but best effort": (quota(hard={"pods": "0"}, scopes=["NotBestEffort"]), asking(), "exceeded"),
    "a quota of pods that end": (quota(hard={"pods": "0"}, scopes=["Terminating"]), asking(), ""),
    "a pod that ends": (quota(hard={"pods": "0"}, scopes=["Terminating"]), asking(activeDeadlineSeconds=9), "exceeded"),
    "a quota of pods that stay": (quota(hard={"pods": "0"}, scopes=["NotTerminating"]), asking(), "exceeded"),
}


@pytest.mark.parametrize(("given", "reservation", "want"), QUOTAS.values(), ids=QUOTAS.keys())
def test_what_a_quota_would_refuse_as_a_pod_is_refused(
    given: ResourceQuota, reservation: Reservation, want: str
) -> None:
    answer = book(given).admit(reservation)
    assert want in answer
    assert bool(want) == bool(answer)


def test_a_quota_of_another_namespace_does_not_count() -> None:
    foreign = msgspec.structs.replace(quota(hard={"pods": "0"}), metadata=ObjectMeta(name="few", namespace="other"))
    assert book(foreign).admit(asking()) == ""


def test_what_other_reservations_hold_counts_in_the_quota() -> None:
    allowances = book(quota(hard={"pods": "4"}, used={"pods": "1"}))
    assert allowances.admit(asking(0, replicas=2)) == ""
    assert "left: pods=1" in allowances.admit(asking(1, replicas=2))
    assert allowances.admit(asking(2)) == ""


def test_what_others_hold_counts_only_in_quotas_that_count_them() -> None:
    allowances = book(quota(hard={"pods": "1"}, scopeSelector=HIGH))
    assert allowances.admit(asking(0, replicas=5)) == ""
    assert allowances.admit(asking(1, priorityClassName="high")) == ""
    assert "exceeded quota" in allowances.admit(asking(2, priorityClassName="high"))


def test_a_pod_without_a_class_has_the_clusters_default_class() -> None:
    default = PriorityClass(metadata=ObjectMeta(name="high"), value=1000, global_default=True)
    assert "exceeded" in book(quota(hard={"pods": "0"}, scopeSelector=HIGH), classes=[default]).admit(asking())


def test_a_guarded_class_needs_a_quota_that_is_scoped_to_it() -> None:
    critical = asking(priorityClassName="system-cluster-critical")
    scoped = {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}]
    }
    assert "it has no ResourceQuota that is scoped to it" in book(quota(hard={"pods": "9"})).admit(critical)
    assert book(quota(hard={"pods": "9"}, scopeSelector=scoped)).admit(critical) == ""
    assert book(guarded_classes=frozenset()).admit(critical) == ""


def test_a_quota_that_changes_counts_as_it_is_now() -> None:
    rules = ClusterRules()
    allowances = QuotaAdmission(LimitSettings(default=UNLIMITED), rules)
    rules.quotas.take(Changed(quota(hard={"pods": "0"}), added=True))
    assert "exceeded" in allowances.admit(asking())
    rules.quotas.take(Changed(quota(hard={"pods": "1"}), added=False))
    assert allowances.admit(asking()) == ""


def test_affinity_to_pods_elsewhere_is_a_scope() -> None:
    term = {"topologyKey": "zone", "namespaces": ["other"]}
    spec = msgspec.convert(
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}, PodSpec
    )
    crossing = traits_of(spec, "")
    assert crossing == PodTraits(best_effort=True, crosses_namespaces=True)
    scoped = quota(scopes=["CrossNamespacePodAffinity"])
    assert [counts(scoped, crossing), counts(scoped, PodTraits())] == [True, False]


def test_a_scope_that_is_not_known_counts_nothing() -> None:
    assert not counts(quota(scopes=["Moonlit"]), PodTraits())


def test_limits_stand_in_for_requests_that_are_missing() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}, "requests": {"cpu": "500m"}}
    spec = msgspec.convert({"containers": [{"name": "main", "resources": resources}]}, PodSpec)
    assert usage_of(spec) == {
        "pods": 1,
        "count/pods": 1,
        "cpu": 500,
        "requests.cpu": 500,
        "limits.cpu": 2000,
        "memory": 1 << 30,
        "requests.memory": 1 << 30,
        "limits.memory": 1 << 30,
        "requests.example.com/gpu": 1,
    }
