"""How a plan is shown."""

from rich.console import Console

from berth_core.snapshot import Snapshot
from berth_descheduler.node_map import draw_nodes
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from berth_descheduler.report import describe_plan, plan_to_json, print_plan, summarise_plan
from builders import node, owner, pod


def planned(pods_on_low: int = 1, **args: object) -> Plan:
    pods = [
        pod(f"p{i:02}", node="low", cpu="10m", memory=None, controller=owner(name=f"r{i}")) for i in range(pods_on_low)
    ]
    nodes = (node("full", cpu="10"), node("high", cpu="10"), node("low", cpu="10"), node("void", cpu="10"))
    used = (pod("a", node="high", cpu="8", memory=None), pod("b", node="full", cpu="10", memory=None))
    settings = PlannerSettings(args=DefragmentationArgs.parse(dict(args)))
    return plan(Snapshot(nodes=nodes, pods=(*pods, *used)), settings)


def shown(made: Plan) -> str:
    console = Console(width=160, record=True, force_terminal=False, file=None)
    with console.capture() as capture:
        print_plan(made, console)
    return capture.get()


def test_a_node_is_drawn_as_high_as_it_is_used() -> None:
    made = planned()

    assert draw_nodes(made.before, "cpu").plain == "█▇▁·"
    assert draw_nodes(made.after, "cpu").plain == "█▇··"


def test_many_nodes_are_drawn_in_lines() -> None:
    nodes = tuple(node(f"n{i:03}") for i in range(61))

    made = plan(Snapshot(nodes=nodes), PlannerSettings())

    assert draw_nodes(made.before, "cpu").plain == "·" * 60 + "\n·"


def test_a_plan_is_summed_up_in_a_sentence() -> None:
    assert summarise_plan(planned()) == "1 move in 1 wave free 1 of 4 nodes; 2 are empty then."
    assert summarise_plan(planned(0)) == "Nothing to move: none of the 4 nodes can be emptied by these rules."


def test_long_plans_are_cut_and_say_so() -> None:
    text = shown(planned(pods_on_low=50))

    assert "and 10 more; all of them with --output json" in text
    assert "p39" in text
    assert "p40" not in text


def test_what_stays_is_counted_by_reason_with_an_example() -> None:
    text = shown(planned())

    assert "2 nodes" in text
    assert "full: cpu is 100 % requested, not below 40 %" in text
    assert "void: nothing on the node has to be moved" in text


def test_the_json_ends_in_a_newline_and_holds_the_settings() -> None:
    made = planned(lowThresholds={"cpu": "33.5"})

    assert plan_to_json(made).endswith("}\n")
    assert describe_plan(made)["settings"]["lowThresholds"] == {"cpu": "33.5"}


def test_an_empty_cluster_can_be_shown() -> None:
    made = plan(Snapshot.empty(), PlannerSettings())

    assert describe_plan(made)["before"] == {"nodes": 0, "empty_nodes": 0, "pods": 0, "resources": {}}
    assert "Nothing to move" in shown(made)
