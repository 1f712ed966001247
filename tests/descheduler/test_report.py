"""How a plan is shown."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from berth_core import Pod, PodCondition, Toleration
from berth_core.clock import format_timestamp
from berth_core.migration_plans import Predicted
from berth_core.snapshot import Snapshot
from berth_descheduler.cli.main import run
from berth_descheduler.planner import Plan, plan
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from berth_descheduler.report.capacity import Capacity
from berth_descheduler.report.documents import describe_plan
from berth_descheduler.report.node_signs import draw_nodes
from berth_descheduler.report.policies import PolicyList
from berth_descheduler.report.schemas import ClusterCapacity, PlanDocument, PlanList, PlanProposal, RunDocument
from berth_descheduler.report.stakes import gain_in_words, stakes_in_words
from berth_descheduler.report.summary import summarise_plan
from berth_descheduler.report.tables import print_plan
from berth_descheduler.report.terminal import output_console
from berth_descheduler.report.top import TopDocument
from builders import NOON, disruption_budget, node, owner, pod
from planner_settings import planner_settings


def planned(pods_on_low: int = 1, **args: object) -> Plan:
    pods = [
        pod(f"p{i:02}", node="low", cpu="10m", memory=None, controller=owner(name=f"r{i}")) for i in range(pods_on_low)
    ]
    nodes = (node("full", cpu="10"), node("high", cpu="10"), node("low", cpu="10"), node("void", cpu="10"))
    used = (pod("a", node="high", cpu="8", memory=None), pod("b", node="full", cpu="10", memory=None))
    settings = planner_settings(args=DefragmentationArgs.parse(dict(args)))
    return plan(Snapshot(nodes=nodes, pods=(*pods, *used)), settings)


def shown(made: Plan, width: int = 160, *, wide: bool = False) -> str:
    console = Console(width=width, record=True, force_terminal=False, file=None)
    with console.capture() as capture:
        print_plan(made, console, wide=wide)
    return capture.get()


def started(made: Pod, seconds: int) -> Pod:
    """Return a pod that became ready so long after its start."""
    conditions = (PodCondition(type="Ready", status="True", last_transition_time=in_seconds(seconds)),)
    return replace(made, status=replace(made.status, start_time=in_seconds(0), conditions=conditions))


def in_seconds(seconds: int) -> str:
    return format_timestamp(NOON + timedelta(seconds=seconds))


def risky() -> Plan:
    """Return a plan that moves the three pods of a node, with a risk of each kind."""
    spec: dict[str, Any] = {"node": "low", "cpu": "100m", "memory": None}
    moved = (
        pod("covered-0", labels={"app": "covered"}, controller=owner(name="covered"), **spec),
        started(pod("alone-0", controller=owner(name="alone"), termination_grace_period_seconds=60, **spec), 15),
        started(pod("db-0", controller=owner(name="db", kind="StatefulSet"), **spec), 9999),
    )
    siblings = (
        pod("covered-1", node="high", cpu="8", memory=None, controller=owner(name="covered")),
        pod("db-1", node="high", cpu="3", memory=None, controller=owner(name="db", kind="StatefulSet")),
    )
    nodes = (node("high", cpu="12", memory="64Gi"), node("low", cpu="10", memory="32Gi"))
    budget = disruption_budget("covered", match_labels={"app": "covered"}, allowed=1)
    settings = planner_settings(args=DefragmentationArgs.parse({"strategy": "Consolidate"}))
    return plan(Snapshot(nodes=nodes, pods=(*moved, *siblings), disruption_budgets=(budget,)), settings)


def test_a_plan_says_what_it_brings_and_what_it_risks() -> None:
    predicted = risky().predicted
    assert (predicted.freed_nodes, predicted.freed_node_count) == (("low",), 1)
    assert predicted.freed_resources == {"cpu": "10", "memory": "32Gi"}
    assert (predicted.pods_without_budget, predicted.only_pods, predicted.stateful_set_pods) == (2, 1, 1)
    assert predicted.expected_seconds == 30 + 120, "all in one wave, and no start counts for longer than two minutes"


def test_gain_and_risk_come_first() -> None:
    first, gain, risk, *_ = shown(risky()).splitlines()
    assert first.startswith("3 moves free 1 of 2 nodes")
    assert gain == "Gain: 1 node with cpu 10, memory 32Gi."
    assert risk == (
        "Risk: 3 pods restarted, 2 with no disruption budget, 1 with no sibling, 1 of StatefulSets; "
        "about 2m30s by grace periods and earlier starts."
    )


@pytest.mark.parametrize(
    ("prices", "want"),
    [
        ({"node": 0.5}, "worth 0.50 an hour, 365 a month."),
        ({"cpu": 0.03, "memory": 0.005}, "worth 0.46 an hour, 336 a month."),
        ({"nvidia.com/gpu": 2.0}, "worth 0.00 an hour, 0 a month."),
    ],
)
def test_what_is_freed_is_worth_its_price(prices: dict[str, float], want: str) -> None:
    assert gain_in_words(risky().predicted, prices).endswith(want)


def test_a_plan_that_knows_its_price_says_it_exactly() -> None:
    predicted = replace(risky().predicted, freed_price_per_hour="1234.005")
    assert gain_in_words(predicted).endswith("worth 1,234.005 an hour, 900,824 a month.")


def test_of_nothing_there_is_neither_gain_nor_risk() -> None:
    assert stakes_in_words(Predicted(nodes=3, moves=0, waves=0)) == ()


@pytest.mark.parametrize("given", ["node", "node=much", "=3", "node=-1", "node=nan"])
def test_a_price_that_is_none_is_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--price", given]) == 2
    assert f"--price is '{given}'; expected a name and an amount from 0 on" in capsys.readouterr().err


def test_a_node_is_drawn_as_high_as_it_is_used() -> None:
    made = planned()

    assert draw_nodes(made.before, "cpu").plain == "█▇▁·"
    assert draw_nodes(made.after, "cpu").plain == "█▇··"


def test_many_nodes_are_drawn_in_lines() -> None:
    nodes = tuple(node(f"n{i:03}") for i in range(61))

    made = plan(Snapshot(nodes=nodes), planner_settings())

    assert draw_nodes(made.before, "cpu").plain == "·" * 60 + "\n·"


def test_in_a_large_cluster_a_sign_stands_for_several_nodes() -> None:
    nodes = tuple(node(f"n{i:04}", cpu="10") for i in range(1201))
    used = pod("a", node="n0001", cpu="10", memory=None)

    made = plan(Snapshot(nodes=nodes, pods=(used,)), planner_settings())

    assert draw_nodes(made.before, "cpu").plain.replace("\n", "") == "▅" + "·" * 600
    assert "(· is empty, 2 nodes to a sign)" in shown(made)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_wider_than_the_terminal_and_no_name_is_cut(width: int) -> None:
    long_name = "node-" + "0123456789" * 9
    nodes = (node("full", cpu="10"), node(long_name, cpu="10"))
    used = (pod("a", node="full", cpu="5", memory=None), pod("b" * 63, node=long_name, cpu="1", memory=None))
    settings = planner_settings(args=DefragmentationArgs.parse({"strategy": "consolidate"}))

    text = shown(plan(Snapshot(nodes=nodes, pods=used), settings), width)

    assert max(map(len, text.splitlines())) <= width
    assert long_name in "".join(char for char in text if char not in "│┃ \n")
    assert "…" not in text


def test_the_order_of_the_table_is_that_of_the_waves() -> None:
    alike = [pod(f"p{i}", node="low", cpu="1", memory=None) for i in range(2)]
    other = pod("q", node="low", cpu="500m", memory=None, controller=owner(name="q"))
    base = pod("base", node="high", cpu="15", memory=None, controller=owner(name="base"))
    nodes = (node("high", cpu="20"), node("low", cpu="10"))

    made = plan(Snapshot(nodes=nodes, pods=(*alike, other, base)), planner_settings())
    text = shown(made)

    assert [move.wave for move in made.moves] == [1, 2, 1]
    assert text.index("default/p0") < text.index("default/q ") < text.index("default/p1")


def test_people_are_told_what_a_plan_costs_frees_and_how_good_it_is() -> None:
    text = shown(planned(strategy="consolidate"))

    assert "Proven optimal: no plan reaches more than 1 freed nodes, nor this with fewer moves" in text
    assert "It restarts 1 pod of 1 controller, of priority 0." in text
    assert "Freed: low." in text


def test_people_are_told_what_room_is_made_and_how_much_less_is_lost() -> None:
    pods = [pod(f"p{i}", node=f"n{i}", cpu="4", memory=None, controller=owner(name=f"r{i}")) for i in range(2)]
    nodes = [node(f"n{i}", cpu="10") for i in range(2)]
    settings = planner_settings(args=DefragmentationArgs.parse({"strategy": "MakeRoom", "room": {"shapes": ["cpu=7"]}}))

    made = plan(Snapshot(nodes=tuple(nodes), pods=tuple(pods)), settings)
    text = shown(made)

    assert summarise_plan(made) == "1 move makes room: 1 fit then (cpu=7)."
    assert re.search(r"free cpu of no use to cpu=7 +│ 100.0 % │ +41.7 %", text)
    assert re.search(r"cpu=7 +│ +most │ +1 │ +0 │ +1 │ n[01]", text)


def test_nothing_is_proven_where_nothing_waits_for_room() -> None:
    args = DefragmentationArgs.parse({"strategy": "MakeRoom"})

    made = plan(Snapshot(nodes=(node("n"),)), planner_settings(args=args))
    text = shown(made)

    assert summarise_plan(made) == "Nothing waits for room."
    assert made.quality is not None
    assert "plan reaches more" not in text


def test_people_are_told_which_waiting_pods_no_taint_keeps_off_the_room() -> None:
    pods = [pod(f"p{i}", node=f"n{i}", cpu="4", memory=None, controller=owner(name=f"r{i}")) for i in range(2)]
    everything = (Toleration(operator="Exists"),)
    rival = pod("rival", node="", phase="Pending", ready=False, cpu="7", memory=None, tolerations=everything)
    nodes = tuple(node(f"n{i}", cpu="10") for i in range(2))
    settings = planner_settings(args=DefragmentationArgs.parse({"strategy": "MakeRoom", "room": {"shapes": ["cpu=7"]}}))

    made = plan(Snapshot(nodes=nodes, pods=(*pods, rival)), settings)

    assert "off the room while it is made, for they tolerate every one: default/rival." in shown(made)
    assert describe_plan(made).competing_pods == ("default/rival",)


def test_a_limit_on_moves_is_not_blamed_where_it_changes_nothing() -> None:
    whole = DefragmentationArgs(whole_nodes=True)
    made = plan(Snapshot(nodes=(node("n"),)), planner_settings(args=whole, max_moves=0))

    assert summarise_plan(made) == "Nothing to move: none of the 1 nodes can be emptied by these rules."


def test_standard_output_that_is_no_terminal_gets_wide_lines_without_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_plan(planned(), output_console())
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    print_plan(planned(), output_console())

    assert "\x1b" not in wide
    assert "full: cpu is 100 % requested, not below 40 %" in wide
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_a_plan_is_summed_up_in_a_sentence() -> None:
    whole = {"wholeNodes": True}
    assert summarise_plan(planned(**whole)) == "1 move frees 1 of 4 nodes; 2 are empty then."
    assert summarise_plan(planned(0, **whole)) == "Nothing to move: none of the 4 nodes can be emptied by these rules."


def test_a_plan_that_moves_single_pods_says_so() -> None:
    low = [pod(f"p{i}", node="low", cpu="2", memory=None, controller=owner(name=f"r{i}")) for i in range(2)]
    used = pod("a", node="high", cpu="16", memory=None, controller=owner(name="a"))
    nodes = (node("high", cpu="20"), node("low", cpu="20"))

    made = plan(Snapshot(nodes=nodes, pods=(*low, used)), planner_settings())

    assert summarise_plan(made) == "1 move takes single pods off 1 node and frees 0 of 2 nodes; 0 are empty then."
    assert summarise_plan(planned(0)) == "Nothing to move: no pod of the 4 nodes can be moved by these rules."
    (move,) = made.moves
    assert move.reason == "low is low: 20 % of its cpu is requested"
    assert "low is low: 20 %" in shown(made)
    assert {one.name: one.message for one in made.refused if one.node == "low"} == {
        "low": "1 of its 2 pods is moved; pod default/p1 finds no target",
        "p1": "no target takes a pod of cpu 2: 1 x would go above its protection threshold",
    }


def test_long_plans_are_cut_and_say_so() -> None:
    text = shown(planned(pods_on_low=50))

    assert "and 10 more; all of them with --output json" in text
    assert "p39" in text
    assert "p40" not in text
    assert "p40" in shown(planned(pods_on_low=50), wide=True)


def test_what_stays_is_counted_by_reason_with_an_example() -> None:
    text = shown(planned())

    assert "2 nodes" in text
    assert "full: cpu is 100 % requested, not below 40 %" in text
    assert "void: nothing on the node has to be moved" in text


def test_the_document_of_a_plan_holds_its_settings() -> None:
    made = planned(lowThresholds={"cpu": "33.5"})

    assert describe_plan(made).settings["lowThresholds"] == {"cpu": "33.5"}


DOCUMENTS = (PlanProposal, PlanDocument, PlanList, RunDocument, PolicyList, Capacity, TopDocument)
TIMES = {"created", "approveBefore", "startTime", "completionTime", "lastRunTime", "nextRunTime", "measuredAt"}
AS_IN_THE_API = {
    "Achieved",
    "Condition",
    "FragmentationStatus",
    "ObjectReference",
    "Predicted",
    "ResourceUse",
    "Restriction",
    "ShapeRoom",
    "Trigger",
}


def test_every_field_of_a_document_is_always_there_and_only_a_time_is_a_text_that_may_be_null() -> None:
    _, schemas = msgspec.json.schema_components(DOCUMENTS)
    ours = {name: one for name, one in schemas.items() if one.get("type") == "object" and name not in AS_IN_THE_API}

    assert len(ours) > 20
    for name in ours:
        fields = ours[name]["properties"]
        assert set(ours[name]["required"]) == set(fields), name
        assert not [field for field in fields if "_" in field], name
        assert {field for field, one in fields.items() if is_text_or_null(one)} <= TIMES, name


def is_text_or_null(schema: dict[str, Any]) -> bool:
    kinds = {one.get("type") for one in schema.get("anyOf", ())}
    return {"string", "null"} <= kinds


def test_the_document_of_room_says_where_it_is_and_how_much_less_is_stranded() -> None:
    pods = [pod(f"p{i}", node=f"n{i}", cpu="4", memory=None, controller=owner(name=f"r{i}")) for i in range(2)]
    nodes = tuple(node(f"n{i}", cpu="10") for i in range(2))
    settings = planner_settings(args=DefragmentationArgs.parse({"strategy": "MakeRoom", "room": {"shapes": ["cpu=7"]}}))

    made = describe_plan(plan(Snapshot(nodes=nodes, pods=tuple(pods)), settings))

    (room,) = msgspec.to_builtins(made.rooms)
    (free,) = room["slotsPerNode"]
    assert free in {"n0", "n1"}
    assert room == {
        "name": "cpu=7",
        "wanted": None,
        "fitted": 1,
        "slotsPerNode": {free: 1},
        "fitsBefore": 0,
        "fitsAfter": 1,
        "strandedRatioBefore": {"cpu": 1.0},
        "strandedRatioAfter": {"cpu": 0.4167},
    }


def test_an_empty_cluster_can_be_shown() -> None:
    made = plan(Snapshot.empty(), planner_settings())

    assert describe_plan(made).before == ClusterCapacity(nodes=0, empty_nodes=0, pods=0, resources=())
    assert "Nothing to move" in shown(made)
