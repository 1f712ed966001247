"""Pods whose replacement has other labels, by which rules select pods."""

import msgspec
import pytest

from berth_core import (
    Affinity,
    LabelSelector,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodTemplate,
    TopologySpreadConstraint,
)
from berth_core.objects.disruption_budgets import PodDisruptionBudgetSpec
from berth_descheduler.framework.refusals import RefusalReason as Reason
from builders import pod
from planner.owners.workloads import container, controller, pod_of, reference, refusals_of, template, with_spec

APP = container(cpu="1", memory="1Gi")
BY_TIER = LabelSelector(match_labels={"tier": "front"})
AWAY = PodAffinity(
    required_during_scheduling_ignored_during_execution=(
        PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=BY_TIER),
    )
)


def labelled(**labels: str) -> PodTemplate:
    return msgspec.structs.replace(template(APP), metadata=ObjectMeta(labels=labels))


def asked(asking: PodTemplate, *others: Pod, budgets: tuple[PodDisruptionBudget, ...] = (), **labels: str) -> str:
    """Return why a pod with these labels stays where its ReplicaSet has this template."""
    web = controller("ReplicaSet", "web", replicas=1, template=asking)
    placed = with_spec(pod_of(web, "web-a", labels=labels), containers=(APP,))
    refusals = refusals_of(placed, web, others=others, disruption_budgets=budgets)
    assert {refusal.reason for refusal in refusals} <= {Reason.TEMPLATE_DIFFERS}
    return ", ".join(refusal.message for refusal in refusals)


REPELLED = with_spec(
    pod("other", controller=reference("ReplicaSet", "other")), affinity=Affinity(pod_anti_affinity=AWAY)
)
SPREAD = with_spec(
    pod("other", controller=reference("ReplicaSet", "other")),
    topology_spread_constraints=(
        TopologySpreadConstraint(topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=BY_TIER),
    ),
)
WISHED = with_spec(
    pod("other", controller=reference("ReplicaSet", "other")),
    topology_spread_constraints=(
        TopologySpreadConstraint(topology_key="zone", when_unsatisfiable="ScheduleAnyway", label_selector=BY_TIER),
    ),
)


@pytest.mark.parametrize("other", [REPELLED, SPREAD])
@pytest.mark.parametrize("labels", [{}, {"tier": "back"}])
def test_a_pod_stays_whose_replacement_has_another_label_that_a_rule_selects_by(
    other: Pod, labels: dict[str, str]
) -> None:
    want = "makes the replacement from its template, which has the label tier=front, by which pods are selected"
    assert want in asked(labelled(tier="front"), other, **labels)


def test_so_does_one_whose_label_a_budget_selects_by() -> None:
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(namespace="default", name="b"), spec=PodDisruptionBudgetSpec(selector=BY_TIER)
    )
    assert "has the label tier=front" in asked(labelled(tier="front"), budgets=(budget,))


LEFT_ALONE = {
    "the same label": (labelled(tier="front"), REPELLED, {"tier": "front"}),
    "a label that no rule selects by": (labelled(version="2"), REPELLED, {"version": "1"}),
    "a label that is only wished for": (labelled(tier="front"), WISHED, {}),
    "a label that only the pod has": (labelled(), REPELLED, {"tier": "front"}),
    "a hash of the controller's": (labelled(**{"pod-template-hash": "a"}), REPELLED, {"pod-template-hash": "b"}),
}


@pytest.mark.parametrize(("asking", "other", "labels"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_other_labels_keep_no_pod(asking: PodTemplate, other: Pod, labels: dict[str, str]) -> None:
    assert asked(asking, other, **labels) == ""
