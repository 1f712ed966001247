"""Rules read kinds of objects that Berth knows nothing of, where they are served, and note what they made of them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from rich.console import Console

from berth_core import ObjectMeta
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, Objective
from berth_core.object_lists import ObjectKind
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import ClusterView, PodFilter
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner import Plan, plan
from berth_descheduler.plugins.registry import PluginRegistry, default_plugins
from berth_descheduler.report.documents import describe_plan
from berth_descheduler.report.html import render_page
from berth_descheduler.report.page import Occasion
from berth_descheduler.report.plan_page import plan_page
from berth_descheduler.report.stored_plans import render_stored_plan
from berth_descheduler.report.tables import render_plan
from berth_descheduler.snapshots import dump_cluster, read_live_snapshot, read_snapshot_file, write_snapshot_file
from berth_kube.client import connect
from builders import NOON, node, owner, pod
from descheduler.cluster_script import serve
from planner.clusters import consolidating
from planner_settings import planner_settings, with_plugins
from scripted_server import Reply, ScriptedServer, page, refusal

WEATHER = ObjectKind("weather.example.com", "v1", "weathers", "Weather")
PATH = "/apis/weather.example.com/v1/weathers"
RAIN = {"metadata": {"name": "a"}, "rain": {"millimetres": 3}}
CLUSTER = Snapshot(
    nodes=(node("a", cpu="8"), node("b", cpu="8")),
    pods=tuple(pod(name, node=name, cpu="1", memory=None, controller=owner(name=name)) for name in "ab"),
)


@dataclass(frozen=True)
class WeatherRule(Rule):
    """Notes where it rains."""

    view: ClusterView | None = None

    def on(self, view: ClusterView, run_began: datetime | None) -> "WeatherRule":
        del run_began
        return WeatherRule(view)

    def notes(self) -> Iterator[str]:
        weathers = self.view.objects(WEATHER) if self.view is not None else None
        if weathers is None:
            yield "The weather is not known: weather.example.com is not served."
        for weather in weathers or ():
            yield f"It rains on {weather['metadata']['name']}: {weather['rain']['millimetres']} mm."


@dataclass(frozen=True)
class Umbrella:
    """A filter plugin that hands the rule over and says what it reads."""

    reads: ClassVar[tuple[ObjectKind, ...]] = (WEATHER,)
    rules: ClassVar[tuple[Rule, ...]] = (WeatherRule(),)

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "Umbrella":
        del args
        return cls()

    def filter(self, view: ClusterView) -> PodFilter:
        del view
        return lambda _: ()


HOW = with_plugins(consolidating(), filters=(*default_plugins().filters, Enabled("Umbrella", Umbrella())))


# --- what is read ---


def test_the_plugins_of_a_policy_say_what_they_read() -> None:
    assert HOW.plugins.reads == (WEATHER,)
    assert planner_settings().plugins.reads == ()


def test_what_installed_plugins_read_is_known_but_of_those_that_cannot_be_loaded() -> None:
    class Broken:
        @property
        def name(self) -> str:
            return "Broken"

        group, value, dist = "berth.plugins", "nowhere:Broken", None

        def load(self) -> object:
            raise ImportError("no such module")

    registry = PluginRegistry.discover({"Umbrella": Umbrella}, [Broken()])  # type: ignore[list-item]

    assert registry.reads() == (WEATHER,)


def live(folder: Path, reply: Reply | None) -> Snapshot:
    with ScriptedServer() as server:
        serve(server, CLUSTER)
        if reply is not None:
            server.on("GET", PATH, reply)
        with connect(kubeconfig=server.kubeconfig(folder)) as client:
            return read_live_snapshot(client, beside=[WEATHER])


def test_what_a_plugin_reads_comes_with_the_snapshot_as_the_server_has_it(tmp_path: Path) -> None:
    read = live(tmp_path, page(RAIN))

    assert read.beside == {WEATHER.name: ({"apiVersion": "weather.example.com/v1", "kind": "Weather", **RAIN},)}
    assert live(tmp_path, page()).beside == {WEATHER.name: ()}


@pytest.mark.parametrize(
    "reply",
    [
        None,
        refusal(403, "Forbidden", "no right"),
        refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    ],
    ids=["not served", "forbidden", "server away"],
)
def test_a_kind_that_cannot_be_listed_stops_nothing(tmp_path: Path, reply: Reply | None) -> None:
    assert live(tmp_path, reply).beside == {}


def test_a_snapshot_file_keeps_what_plugins_read(tmp_path: Path) -> None:
    name = str(tmp_path / "cluster.json")
    with ScriptedServer() as server:
        serve(server, CLUSTER).on("GET", PATH, page(RAIN))
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            write_snapshot_file(name, dump_cluster(client, [WEATHER]))
            seen = read_live_snapshot(client, beside=[WEATHER])
            assert "beside" not in json.loads(dump_cluster(client))

    of_file = read_snapshot_file(name)
    assert of_file == seen
    assert Snapshot.from_json(seen.to_json()) == seen
    assert of_file.read_at is not None
    assert ClusterView.of(of_file, NOON).read_at == of_file.read_at == Snapshot.from_json(of_file.to_json()).read_at
    assert ClusterView.of(seen, NOON).read_at == NOON


def test_a_file_that_says_of_a_kind_that_there_is_none_says_that_it_was_served() -> None:
    known = Snapshot(beside={WEATHER.name: ()})

    assert Snapshot.from_json(known.to_json()).beside == known.beside
    assert b"beside" not in Snapshot().to_json()


# --- what is noted ---


def made(*weathers: Mapping[str, Any], is_served: bool = True) -> Plan:
    beside = {WEATHER.name: weathers} if is_served else {}
    return plan(Snapshot(nodes=CLUSTER.nodes, pods=CLUSTER.pods, beside=beside), HOW)


def test_a_rule_gets_what_it_reads_and_notes_it_in_the_plan() -> None:
    assert made(RAIN).notes == ("It rains on a: 3 mm.",)
    assert made().notes == ()
    assert made(is_served=False).notes == ("The weather is not known: weather.example.com is not served.",)


def text_of(renderable: Any) -> str:  # noqa: ANN401 - what rich renders
    console = Console(width=160)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_notes_stand_in_tables_documents_pages_and_stored_plans() -> None:
    plan, note = made(RAIN), "It rains on a: 3 mm."
    stored = MigrationPlan(
        metadata=ObjectMeta(name="p"),
        spec=MigrationPlanSpec(objective=Objective(plugin="", strategy="Consolidate"), predicted=plan.predicted),
    )

    assert note in text_of(render_plan(plan))
    assert note in render_page(plan_page(plan, Occasion(NOON, "a file")))
    assert msgspec.to_builtins(describe_plan(plan), str_keys=True)["predicted"]["notes"] == (note,)
    assert note in text_of(render_stored_plan(stored, NOON))
    assert "notes" not in msgspec.to_builtins(describe_plan(made()), str_keys=True)["predicted"]


def test_notes_are_as_many_and_as_long_as_a_plan_can_hold() -> None:
    long = {"metadata": {"name": "b " * 900}, "rain": {"millimetres": 1}}
    notes = made(long, *({"metadata": {"name": f"n{n}"}, "rain": {"millimetres": n}} for n in range(80))).notes

    assert len(notes) == 64
    assert len(notes[0]) <= 1000


def test_notes_of_a_rule_that_fails_are_none() -> None:
    assert made({"metadata": {}}).notes == ()
