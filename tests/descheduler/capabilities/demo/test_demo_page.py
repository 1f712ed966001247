"""The page that `berth demo --report` writes of its run."""

from berth_core import ObjectMeta
from berth_core.migration_plans import (
    Achieved,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    MoveState,
    MoveStatus,
    PlanPhase,
)
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.demo.cli.command import build_demo_page
from berth_descheduler.capabilities.demo.cli.scenario import DemoResult, DemoRun
from berth_descheduler.planner import Plan, plan
from berth_descheduler.report.page import Tone
from builders import bare_pod, node, owner, pod
from planner_settings import planner_settings


def one_node_freed() -> Plan:
    """Return a plan of three moves that free a node."""
    web = (
        pod(f"web-{number}", node="low", cpu="500m", memory="1Gi", controller=owner(name="web")) for number in range(3)
    )
    kept = bare_pod("kept", node="high", cpu="8", memory=None)
    snapshot = Snapshot(nodes=(node("high", cpu="10"), node("low", cpu="10")), pods=(kept, *web))
    made = plan(snapshot, planner_settings())
    assert (len(made.moves), made.freed_nodes) == (3, ("low",))
    return made


def test_the_demo_shows_its_run_with_what_was_measured() -> None:
    made = one_node_freed()
    landed = tuple(
        MoveStatus(namespace=move.namespace, pod=move.pod, state=MoveState.LANDED, node=move.target)
        for move in made.moves
    )
    status = MigrationPlanStatus(
        phase=PlanPhase.SUCCEEDED, moves=landed, achieved=Achieved(freed_nodes=("low",), seconds=7.0)
    )
    spec = MigrationPlanSpec(moves=made.moves)
    carried_out = MigrationPlan(metadata=ObjectMeta(name="plan-1"), spec=spec, status=status)
    result = DemoResult(
        nodes=2,
        freed_nodes=1,
        upper_bound=1,
        proven_optimal=True,
        moves=3,
        landed_on_target=3,
        elsewhere=0,
        pending=0,
        lost=0,
        pods=4,
        seconds=9.0,
        plan="plan-1",
        outcome="",
    )

    page = build_demo_page(DemoRun(result, made, carried_out, made.after))
    nothing = build_demo_page(DemoRun(result, made, None, made.before))

    assert (page.tone, page.headline) == (Tone.WELL, "3 of 3 pods landed on their targets; 1 node freed in 7.0 s.")
    assert {promise.kept for promise in page.promises} == {True}
    assert nothing.tone is Tone.PLANNED
