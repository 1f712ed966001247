"""A rule that cannot be read refuses in its namespace; a node that cannot be read takes no place and ends no watch."""

from typing import Any

import pytest
from msgspec.structs import replace

from berth_core import ObjectMeta, PodSpec, PriorityClass, offered_to_queues
from berth_core.decoding import convert
from berth_core.unreadable import stand_in
from berth_kube import Changed, Listed
from berth_operator.quota.limit_range import LimitRange
from berth_operator.quota.limits import LimitSettings
from berth_operator.quota.resource_quota import ResourceQuota
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.reservation.store.nodes import GuardableNode
from builders import reservation

WHY = "Expected `object`, got `int` - at `$.spec`"


def odd(kind: type[Any], name: str, namespace: str = "default") -> Any:  # noqa: ANN401 - of the kind
    return stand_in({"metadata": {"name": name, "namespace": namespace}, "spec": 7}, kind, WHY)


@pytest.mark.parametrize(
    ("namespace", "want"),
    [
        ("default", f"ResourceQuota few cannot be read: {WHY}"),
        ("", f"ResourceQuota few cannot be read: {WHY}"),
        ("elsewhere", ""),
    ],
)
def test_a_quota_that_cannot_be_read_refuses_in_its_namespace(namespace: str, want: str) -> None:
    rules = ClusterRules()
    rules.quotas.take(Changed(odd(ResourceQuota, "few", namespace), added=True))
    assert QuotaAdmission(LimitSettings(), rules).admit(reservation("r")) == want


def test_a_limit_range_that_cannot_be_read_refuses_in_its_namespace() -> None:
    rules = ClusterRules()
    rules.limit_ranges.take(Listed((odd(LimitRange, "range"),), "7"))
    assert rules.why_unknown("default") == f"LimitRange range cannot be read: {WHY}"
    assert rules.why_unknown("elsewhere") == ""


def test_a_class_that_cannot_be_read_has_no_value() -> None:
    rules = ClusterRules()
    rules.classes.put(PriorityClass(metadata=ObjectMeta(name="high", unreadable=WHY)))
    (task,) = reservation("r").spec.tasks
    spec = replace(task.template.spec, priority_class_name="high")
    of_class = reservation("r", tasks=[replace(task, template=replace(task.template, spec=spec))])
    assert QuotaAdmission(LimitSettings(), rules).admit(of_class) == f"PriorityClass high cannot be read: {WHY}"


def guardable(name: str, **allocatable: str) -> GuardableNode:
    body = {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
    return convert(body, GuardableNode)


def test_a_node_with_odd_amounts_offers_nothing() -> None:
    rules = ClusterRules()
    rules.nodes.replace([guardable("good", cpu="4"), guardable("odd", cpu="many")])
    assert rules.nodes.total().get("cpu") == 4_000
    rules.nodes.put(guardable("good", cpu="few"))
    assert rules.nodes.total().get("cpu") == 0
    rules.nodes.put(guardable("odd", cpu="2"))
    rules.nodes.forget("good")
    assert rules.nodes.total().get("cpu") == 2_000


def test_a_node_that_cannot_be_read_takes_no_place() -> None:
    node = odd(GuardableNode, "odd")
    assert not node.admits(PodSpec(), on_control_plane=True)
    assert offered_to_queues([node]) == {}
