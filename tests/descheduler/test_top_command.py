"""`berth top`: what is shown of nodes, places and the plan under way, live and once."""

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from berth_core import Node, Taint
from berth_core.errors import RetryableError
from berth_core.labels import (
    DRAINING_TAINT,
    FREED_ANNOTATION,
    FREED_TAINT,
    HANDOVER_TAINT,
    PLACEHOLDER_LABEL,
    ROOM_TAINT,
)
from berth_core.migration_plans import MigrationPlan
from berth_core.snapshot import Snapshot
from berth_descheduler.cli import top as top_commands
from berth_descheduler.cli.main import run
from berth_descheduler.report.top import NodeMark, mark_of, view_cluster
from berth_descheduler.report.top_frame import Scroll, render_frame
from berth_descheduler.watched_cluster import WatchedCluster
from berth_kube.errors import ForbiddenError, NotFoundError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS
from builders import NOON, node, owner, pod
from descheduler.cluster_script import serve
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from descheduler.fake_cluster import node as raw_node
from descheduler.stored_bodies import how, move, plan
from scripted_server import ScriptedServer
from terminals import on_terminal
from waiting import soon

Captured = pytest.CaptureFixture[str]
BERTH = "from berth_descheduler.cli.main import main; main()"


def stored(body: dict[str, Any]) -> MigrationPlan:
    return msgspec.convert(body, MigrationPlan)


def tainted(key: str, effect: str = "NoSchedule") -> Node:
    return node(taints=(Taint(key=key, effect=effect),))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = fragmented_cluster()
    monkeypatch.setattr("berth_descheduler.cli.top.connect", lambda **_: made)
    return made


# --- what is shown ----------------------------------------------------------------------------------------------------

MARKS = {
    "an ordinary node": (node(), NodeMark.NONE),
    "a node that is not ready": (node(ready=False), NodeMark.NOT_READY),
    "a cordoned node": (node(unschedulable=True), NodeMark.CORDONED),
    "a source of a plan": (tainted(DRAINING_TAINT), NodeMark.DRAINING),
    "a node where room is made": (tainted(ROOM_TAINT), NodeMark.ROOM),
    "a node with a hand-over": (tainted(HANDOVER_TAINT), NodeMark.HANDOVER),
    "a freed node by its taint": (tainted(FREED_TAINT, "PreferNoSchedule"), NodeMark.FREED),
    "a freed node by its mark": (node(annotations={FREED_ANNOTATION: "{}"}), NodeMark.FREED),
    "what is wrong goes first": (node(ready=False, unschedulable=True), NodeMark.NOT_READY),
    "a taint of somebody else": (tainted("gpu"), NodeMark.NONE),
}


@pytest.mark.parametrize(("given", "want"), MARKS.values(), ids=MARKS.keys())
def test_the_mark_of_a_node(given: Node, want: NodeMark) -> None:
    assert mark_of(given) is want


def test_pods_and_places_are_counted_where_they_are() -> None:
    place = {"labels": {PLACEHOLDER_LABEL: "true"}, "namespace": "berth-system"}
    snapshot = Snapshot(
        nodes=(node("a"), node("b")),
        pods=(
            pod("web-0", node="a", cpu="8", memory="32Gi"),
            pod("agent", node="b", cpu="1", memory="1Gi", controller=owner("DaemonSet", "agent")),
            pod("held", node="b", cpu="4", memory="1Gi", **place),
            pod("over", node="b", phase="Succeeded"),
            pod("waits", cpu="40"),
            pod("to-be-held", cpu="1", **place),
        ),
    )

    found = view_cluster(snapshot, ())

    assert (found.pods, found.waiting, found.held) == (3, 1, 1)
    lines = {line.usage.name: line for line in found.nodes}
    assert (lines["a"].held, lines["b"].held) == (0, 1)
    assert lines["a"].share("cpu") == pytest.approx(0.5)
    assert lines["b"].share("cpu") == pytest.approx(5 / 16)
    assert found.fragmentation.empty_nodes == ()


@dataclass(frozen=True)
class Under:
    plans: list[dict[str, Any]]
    want: str | None


UNDER_WAY = {
    "none": Under([], None),
    "one that is over is not under way": Under([plan("a", "Succeeded")], None),
    "one that runs goes before one that waits": Under(
        [plan("a", "Running"), plan("b", "Proposed", created="2026-11-21T12:30:00Z")], "a"
    ),
    "of two that wait the newer": Under(
        [plan("a", "Proposed"), plan("b", "Proposed", created="2026-11-21T12:30:00Z")], "b"
    ),
    "one that was only asked for": Under([plan("a", None, freed=None)], "a"),
}


@pytest.mark.parametrize("case", UNDER_WAY.values(), ids=UNDER_WAY.keys())
def test_the_plan_under_way(case: Under) -> None:
    found = view_cluster(Snapshot.empty(), [stored(one) for one in case.plans]).plan
    assert (found.metadata.name if found else None) == case.want


# --- how it looks -----------------------------------------------------------------------------------------------------


def drawn(snapshot: Snapshot, *plans: dict[str, Any], height: int | None = None, width: int = 120) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(render_frame(view_cluster(snapshot, [stored(one) for one in plans]), NOON, height))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_a_frame_has_a_sign_for_each_node_that_needs_no_colour() -> None:
    marked = [
        node("a"),
        node("b", unschedulable=True),
        node("c", ready=False),
        msgspec.structs.replace(tainted(DRAINING_TAINT), metadata=node("d").metadata),
        node("e"),
    ]
    full = pod("web", node="e", cpu="16", memory="1Gi")

    lines = drawn(Snapshot(nodes=tuple(marked), pods=(full,)))

    assert "·x!v█" in lines
    assert "! not ready: 1, v draining: 1, x cordoned: 1" in "\n".join(lines)
    assert lines[0].startswith("12:00:00Z  5 nodes, 4 empty; 1 pod, 0 waiting; 0 places held; requested: cpu 20.0 %")


def test_a_frame_shows_the_progress_of_the_plan_and_what_is_on_its_way() -> None:
    moves = [move(f"web-{number}") for number in range(4)]
    states = ["Landed", "Evicted", "Reserved", "Pending"]
    statuses = [how(f"web-{number}", state) for number, state in enumerate(states)]

    text = "\n".join(drawn(Snapshot(nodes=(node("a"),)), plan("plan-7", "Running", moves=moves, statuses=statuses)))

    assert "plan-7 of policy nightly: Running" in text
    assert "1 of 4 over" in text
    assert "1 pending, 1 reserved, 1 evicted, 1 landed" in text
    assert text.index("Evicted   shop/web-1  low-1 -> high-1") < text.index("Reserved  shop/web-2")
    assert "shop/web-3" not in text


def test_a_frame_is_no_higher_than_the_terminal() -> None:
    nodes = tuple(node(f"n{number:03}") for number in range(300))
    moves = [move(f"web-{number}") for number in range(20)]
    running = plan("p", "Running", moves=moves, statuses=[how(one["pod"], "Evicted") for one in moves])

    for height in (24, 50):
        lines = drawn(Snapshot(nodes=nodes), running, height=height)
        assert len(lines) <= height
        assert "more" in lines[-1]


@pytest.mark.parametrize("number", [1, 60, 361, 2_000])
def test_a_frame_fits_into_80_columns_and_24_lines(number: int) -> None:
    nodes = tuple(node(f"ip-10-0-{number:04}.eu-central-1.compute.internal") for number in range(number))
    moves = [move(f"a-pod-with-a-long-name-{'x' * 60}-{number}") for number in range(20)]
    running = plan("p" * 63, "Running", moves=moves, statuses=[how(one["pod"], "Evicted") for one in moves])

    scroll = Scroll()
    console = Console(file=StringIO(), width=80)
    console.print(render_frame(view_cluster(Snapshot(nodes=nodes), [stored(running)]), NOON, 24, scroll=scroll))

    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert (scroll.nodes, scroll.first) == (number, 0)
    assert scroll.rows >= 1
    assert number <= scroll.rows or lines[-1].startswith(f"nodes 1 to {scroll.rows} of {number}; ")


SCROLLED = {
    "down and up": ("\x1b[B\x1b[B\x1b[A", 1),
    "no further up": ("\x1b[A", 0),
    "a page, with a line of the one before": ("\x1b[6~", 9),
    "a page and back": ("\x1b[6~\x1b[5~", 0),
    "to the end, where the last page is full": ("\x1b[F", 90),
    "no further down": ("G\x1b[B ", 90),
    "to the end and home": ("\x1b[F\x1b[H", 0),
    "the keys of less": ("jj b", 2),
    "another key": ("x\x1b[C", 0),
}


@pytest.mark.parametrize(("typed", "want"), SCROLLED.values(), ids=SCROLLED.keys())
def test_keys_scroll_the_nodes(typed: str, want: int) -> None:
    scroll = Scroll()
    scroll.fit(100, 10)
    for key in top_commands._KEY.findall(typed):
        scroll.press(key)
    assert scroll.first == want


def test_nodes_that_are_gone_scroll_back() -> None:
    scroll = Scroll(first=90, rows=10, nodes=100)
    scroll.fit(20, 10)
    assert scroll.first == 10


def test_nodes_where_something_goes_on_come_first() -> None:
    nodes = (node("a"), node("b", unschedulable=True), node("c"))
    lines = drawn(Snapshot(nodes=nodes, pods=(pod("web", node="c"),)))
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("node ")) + 1 :]
    assert [line.split()[0] for line in table] == ["b", "c", "a"]


def test_only_nodes_with_the_labels_are_shown_with_their_pods_and_what_waits() -> None:
    nodes = (node("a", labels={"pool": "ml"}), node("b"))
    pods = (pod("web", node="b"), pod("train", node="a"), pod("waits"))

    found = view_cluster(Snapshot(nodes=nodes, pods=pods), (), "pool=ml")

    assert [line.usage.name for line in found.nodes] == ["a"]
    assert (found.pods, found.waiting) == (1, 1)


# --- once -------------------------------------------------------------------------------------------------------------


def test_where_there_is_no_terminal_one_frame_is_shown(cluster: FakeCluster, capsys: Captured) -> None:
    cluster.add(MIGRATION_PLANS, plan("plan-1", "Running"))

    assert run(["top"]) == 0

    text = capsys.readouterr().out
    assert "4 nodes, 0 empty" in text
    assert "plan-1 of policy nightly: Running" in text
    assert "\x1b" not in text
    assert {call.plural for call in cluster.calls if call.verb == "list"} == {
        "nodes",
        "pods",
        "reservations",
        "queues",
        "volcanoqueues",
        "migrationplans",
    }


def test_the_json_has_every_node(cluster: FakeCluster, capsys: Captured) -> None:
    assert run(["top", "--output", "json"]) == 0

    found = json.loads(capsys.readouterr().out)

    assert (found["nodes"], found["pods"], found["plan"]) == (4, 5, None)
    assert found["nodeList"][0] == {
        "name": "high-1",
        "state": "",
        "pods": 1,
        "heldPlaces": 0,
        "requestedRatio": {"cpu": 0.75, "memory": 0.0156},
    }
    assert not [call.verb for call in cluster.calls if call.verb != "list"]


def test_names_and_the_wide_table_have_every_node(
    cluster: FakeCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth_descheduler.report.top_frame._PLAIN_ROWS", 2)
    assert run(["top", "-o", "name"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == ["node/high-1", "node/high-2", "node/low-1", "node/low-2"]

    assert run(["top"]) == 0
    assert "and 2 more" in capsys.readouterr().out
    assert run(["top", "-o", "wide"]) == 0
    assert "more" not in capsys.readouterr().out
    assert cluster.calls


def test_a_cluster_without_berth_has_nodes_too(cluster: FakeCluster, capsys: Captured) -> None:
    missing = NotFoundError(call("list", MIGRATION_PLANS, ""), failure(404, "no such resource"))
    cluster.faults["list migrationplans"] = [missing]

    assert run(["top", "--once"]) == 0
    assert "4 nodes" in capsys.readouterr().out


REFUSED = {
    "an interval that is none": (["--interval", "often"], "--interval is 'often'"),
    "an interval of nothing": (["--interval", "0s"], "--interval is '0s'"),
    "a selector that cannot be read": (["-l", "a in b"], "--selector is 'a in b'"),
    "an output that does not exist": (["--output", "picture"], "'picture' is not one of"),
}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("arguments", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_input_is_exit_code_2(capsys: Captured, arguments: list[str], want: str) -> None:
    assert run(["top", *arguments]) == 2
    assert want in capsys.readouterr().err


# --- live -------------------------------------------------------------------------------------------------------------


def test_the_picture_follows_the_cluster(cluster: FakeCluster) -> None:
    with WatchedCluster(cluster) as watched:  # type: ignore[arg-type]
        watched.await_first_look(60)
        assert (len(watched.snapshot().nodes), len(watched.snapshot().pods), watched.plans()) == (4, 5, ())

        cluster.add(NODES, raw_node("new"))
        cluster.add(MIGRATION_PLANS, plan("plan-1", "Running"))
        cluster.remove(PODS, cluster.objects["pods"]["shop", "web-1"])

        soon("the node is there", lambda: len(watched.snapshot().nodes) == 5)
        soon("the plan is there", lambda: len(watched.plans()) == 1)
        soon("the pod is gone", lambda: len(watched.snapshot().pods) == 4)
        watched.check()


def test_what_ends_a_watch_is_raised(cluster: FakeCluster) -> None:
    def forbid(verb: str, plural: str, _name: str) -> None:
        if plural == "pods":
            raise ForbiddenError(call(verb, PODS, ""), failure(403, "not you"))

    cluster.watch = refusing(cluster, forbid)  # type: ignore[method-assign]

    with WatchedCluster(cluster) as watched, pytest.raises(ForbiddenError, match="not you"):  # type: ignore[arg-type]
        watched.await_first_look(60)


def test_a_first_look_that_takes_too_long_is_raised(cluster: FakeCluster) -> None:
    hang = threading.Event()
    cluster.watch = refusing(cluster, lambda *_: hang.wait(60))  # type: ignore[method-assign]

    with WatchedCluster(cluster) as watched, pytest.raises(RetryableError, match=r"not read within 0\.1 s"):  # type: ignore[arg-type]
        watched.await_first_look(0.1)
    hang.set()


def refusing(cluster: FakeCluster, act: Any) -> Any:  # noqa: ANN401
    before = cluster.watch

    def watch(resource: Any, **rest: Any) -> Any:  # noqa: ANN401
        act("watch", resource.plural, "")
        yield from before(resource, **rest)

    return watch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_it_is_live_until_it_is_told_to_end_and_gives_the_screen_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    with ScriptedServer() as server:
        serve(server, Snapshot(nodes=(node("a"), node("b"))))
        command = [sys.executable, "-c", BERTH, "top", "--interval", "100ms"]
        command += ["--kubeconfig", server.kubeconfig(tmp_path)]
        with on_terminal(command, environment=os.environ) as running:
            running.read_until("2 nodes, 2 empty")
            running.process.send_signal(number)
            running.read_until("\x1b[?1049l")
            assert running.process.wait(120) == 0


def test_on_a_terminal_keys_scroll_and_q_ends_it(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        serve(server, Snapshot(nodes=tuple(node(f"n-{number:02}") for number in range(40))))
        command = [sys.executable, "-c", BERTH, "top", "--interval", "1h", "--kubeconfig", server.kubeconfig(tmp_path)]
        with on_terminal(command, environment=os.environ, columns=80, lines=24) as running:
            assert "n-39" not in running.read_until("of 40; arrows")
            running.type("\x1b[F")
            running.read_until("n-39")
            running.type("g")
            running.read_until("n-00")
            running.type("q")
            running.read_until("\x1b[?1049l")
            assert running.process.wait(120) == 0
