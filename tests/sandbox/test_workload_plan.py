import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.resources import ResourceAmounts
from berth_sandbox.workload import (
    NAMESPACE_NAMES,
    DeploymentPlan,
    already_scaled_down,
    build_budget,
    build_deployment,
    plan_deployments,
)

GIBI = 1 << 30


def room(nodes: int) -> ResourceAmounts:
    return ResourceAmounts({"cpu": 16_000, "memory": 64 * GIBI, "pods": 110}).times(nodes)


def requested(plans: tuple[DeploymentPlan, ...]) -> ResourceAmounts:
    return ResourceAmounts.total(plan.requests for plan in plans)


@given(seed=st.integers(0, 10_000))
def test_the_same_seed_gives_the_same_workload(seed: int) -> None:
    once = plan_deployments(room(20), seed=seed, requested_share=0.75)
    assert once == plan_deployments(room(20), seed=seed, requested_share=0.75)


@given(seed=st.integers(0, 10_000), nodes=st.integers(4, 200))
def test_the_workload_fits_the_cluster_and_its_pods_fit_a_node(seed: int, nodes: int) -> None:
    plans = plan_deployments(room(nodes), seed=seed, requested_share=0.75)
    limit = ResourceAmounts({"cpu": 12_000 * nodes, "memory": 48 * GIBI * nodes})
    assert requested(plans).fits_within(limit)
    assert sum(plan.replicas for plan in plans) <= 110 * nodes
    for plan in plans:
        assert 250 <= plan.cpu_millis <= 4_000
        assert GIBI // 2 <= plan.memory_bytes <= 8 * GIBI
        assert 2 <= plan.replicas <= 24


@given(seed=st.integers(0, 10_000))
def test_what_is_scaled_down_from_the_start_is_the_same_in_the_end(seed: int) -> None:
    plans = plan_deployments(room(60), seed=seed, requested_share=0.75)
    small = already_scaled_down(plans)
    assert [(plan.name, plan.replicas, plan.replicas_after, plan.cpu_millis, plan.budget) for plan in small] == [
        (plan.name, plan.replicas_after, plan.replicas_after, plan.cpu_millis, plan.budget) for plan in plans
    ]


@given(seed=st.integers(0, 10_000))
def test_a_third_is_scaled_to_a_fifth_and_never_to_nothing(seed: int) -> None:
    plans = plan_deployments(room(60), seed=seed, requested_share=0.75)
    shrunk = [plan for plan in plans if plan.replicas_after < plan.replicas]
    assert len(shrunk) == len(plans) // 3
    assert all(plan.replicas_after == max(1, plan.replicas // 5) for plan in shrunk)


@pytest.mark.parametrize("seed", range(1, 6))
def test_sixty_nodes_are_filled_as_the_demo_needs_it(seed: int) -> None:
    plans = plan_deployments(room(60), seed=seed, requested_share=0.75)
    assert 35 <= len(plans) <= 75
    assert requested(plans).get("cpu") >= 0.65 * room(60).get("cpu")
    assert any(plan.budget for plan in plans)
    assert {plan.namespace for plan in plans} == set(NAMESPACE_NAMES)
    assert len({(plan.namespace, plan.name) for plan in plans}) == len(plans)


def test_a_deployment_asks_for_what_was_planned_and_ends_quickly() -> None:
    (plan, *_) = plan_deployments(room(60), seed=1, requested_share=0.75)
    body = build_deployment(plan)
    spec = body["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 1
    asked = ResourceAmounts.from_quantities(spec["containers"][0]["resources"]["requests"])
    assert asked.times(plan.replicas) == plan.requests
    assert body["spec"]["selector"]["matchLabels"] == body["spec"]["template"]["metadata"]["labels"]
    assert build_budget(plan)["spec"]["selector"] == body["spec"]["selector"]
