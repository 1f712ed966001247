"""`nodePrice.configMap`: what instance types cost stands in a ConfigMap of the cluster."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth_core import Node
from berth_core.errors import InputError
from berth_core.object_lists import ObjectKind, RawObject
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.prices.node_prices import NodePrices
from berth_descheduler.capabilities.prices.price_map import PRICE_MAP
from berth_descheduler.cli.main import run
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.snapshots import dump_cluster, read_live_snapshot, read_snapshot_file, write_snapshot_file
from berth_kube.client import connect
from builders import node, owner, pod
from descheduler.cluster_script import serve
from planner.clusters import consolidating
from scripted_server import Reply, ScriptedServer, answer, refusal

TYPE, CAPACITY = "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
PATH = "/api/v1/namespaces/berth-system/configmaps/berth-node-prices"
TITLE = "ConfigMap berth-system/berth-node-prices"
UNKNOWN = f"nodePrice: {TITLE} does not exist or could not be read, so it says no price."

Captured = pytest.CaptureFixture[str]


def priced(data: Mapping[str, str] | None, namespace: str = "berth-system") -> RawObject:
    metadata = {"name": "berth-node-prices", "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return body if data is None else {**body, "data": data}


def typed(name: str, instance_type: str, capacity: str = "", **annotations: str) -> Node:
    made = node(name, cpu="8")
    labels = {**made.metadata.labels, TYPE: instance_type, **({CAPACITY: capacity} if capacity else {})}
    metadata = msgspec.structs.replace(made.metadata, labels=labels, annotations=annotations)
    return msgspec.structs.replace(made, metadata=metadata)


NODES = (typed("dear", "m5.large"), typed("cheap", "m5.large", "spot"), typed("odd", "c7.huge"))
CLUSTER = Snapshot(
    nodes=NODES,
    pods=tuple(
        pod(f"on-{one.metadata.name}", node=one.metadata.name, cpu="4", memory=None, controller=owner(name=f"{index}"))
        for index, one in enumerate(NODES)
    ),
)
PRICES = {"m5.large": "0.096", "m5.large.spot": "0.035"}


def settings(**prices: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the argument
    return consolidating(nodePrice={"configMap": True, **prices})


def with_prices(*config_maps: RawObject) -> Snapshot:
    return replace(CLUSTER, beside={PRICE_MAP.name: config_maps})


def planned(data: Mapping[str, str] | None, **prices: Any) -> Plan:  # noqa: ANN401 - fields of the argument
    return plan(with_prices(priced(data)), settings(**prices))


def known_prices(made: Plan) -> Mapping[str, int]:
    assert made.weights is not None
    return made.weights.of_node


# --- what nodes cost ---


def test_nodes_cost_what_the_config_map_says_of_their_type_as_they_are_bought() -> None:
    made = planned(PRICES)

    assert known_prices(made) == {"dear": 96_000, "cheap": 35_000}
    assert made.freed_nodes == ("dear",)
    assert made.notes == (f"nodePrice: {TITLE} says no price of nodes of the type c7.huge.",)


@pytest.mark.parametrize(
    ("prices", "want"),
    [
        pytest.param({"instanceTypes": {"m5.large": 2}}, {"dear": 2_000_000, "cheap": 2_000_000}, id="the argument's"),
        pytest.param(
            {"instanceTypes": {"m5.large/spot": 2}}, {"dear": 96_000, "cheap": 2_000_000}, id="for one way to buy"
        ),
        pytest.param({"default": 3}, {"dear": 96_000, "cheap": 35_000, "odd": 3_000_000}, id="the default comes last"),
    ],
)
def test_what_the_policy_says_itself_counts_before_the_config_map_and_the_default_after(
    prices: dict[str, Any], want: dict[str, int]
) -> None:
    assert known_prices(planned(PRICES, **prices)) == want


def test_a_node_that_says_its_own_price_needs_none_by_its_type() -> None:
    rule = NodePrices.parse({"annotation": "example.com/price", "configMap": True})
    nodes = (typed("own", "c7.huge", **{"example.com/price": "7"}), *NODES[:2])
    made = plan(
        replace(with_prices(priced(PRICES)), nodes=nodes, pods=CLUSTER.pods[:2]),
        consolidating(nodePrice=rule.to_mapping()),
    )

    assert known_prices(made) == {"own": 7_000_000, "dear": 96_000, "cheap": 35_000}
    assert made.notes == ()


@pytest.mark.parametrize("snapshot", [CLUSTER, with_prices(), with_prices(priced(PRICES, namespace="team-a"))])
def test_a_config_map_that_is_not_there_or_is_of_others_prices_nothing_and_the_plan_says_so(snapshot: Snapshot) -> None:
    made = plan(snapshot, settings(default=1))

    assert made.notes == (UNKNOWN,)
    assert set(known_prices(made).values()) == {1_000_000}


@pytest.mark.parametrize("data", [None, {}])
def test_an_empty_config_map_is_known_and_lacks_every_type(data: Mapping[str, str] | None) -> None:
    made = planned(data)

    assert made.notes == (f"nodePrice: {TITLE} says no price of nodes of the type c7.huge, m5.large.",)
    assert not known_prices(made)


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ({"m5.large": "0,096"}, f"{TITLE}: data.m5.large is '0,096'; expected an amount from 0 to a million"),
        ({"m5.large.spot": "$0.035"}, f"{TITLE}: data.m5.large.spot is '$0.035'; expected an amount"),
        ({"unused": ""}, f"{TITLE}: data.unused is ''; expected an amount"),
        ({"m5.large": "-1"}, f"{TITLE}: data.m5.large is '-1'; expected an amount"),
        ({"m5.large": "0.1\n0.2"}, f"{TITLE}: data.m5.large is '0.1\\n0.2'; expected an amount"),
        ({".spot": "1"}, f"{TITLE}: the key is '.spot'; expected an instance type"),
    ],
)
def test_a_wrong_entry_is_named_with_the_config_map_and_what_would_be_right(data: dict[str, str], want: str) -> None:
    with pytest.raises(InputError) as raised:
        planned({**PRICES, **data})

    assert str(raised.value).startswith(want)


def test_a_plan_under_way_asks_for_no_price_so_that_a_wrong_entry_does_not_stop_it() -> None:
    made = planned(PRICES)

    wrong = with_prices(priced({"m5.large": "cheap"}))

    assert made.moves
    assert not revalidate(wrong, made.moves, settings(), emptied=made.freed_nodes)


# --- how it is asked for ---


@pytest.mark.parametrize("value", ["true", "berth-node-prices", 1, None, {}])
def test_there_is_one_config_map_so_that_it_is_asked_for_by_true(value: object) -> None:
    with pytest.raises(InputError, match="expected true: the ConfigMap is berth-node-prices in Berth's own namespace"):
        NodePrices.parse({"configMap": value})


def test_what_is_written_of_the_argument_is_what_is_read() -> None:
    given = NodePrices.parse({"configMap": True, "default": 1})

    assert NodePrices.parse(given.to_mapping()) == given
    assert given.to_mapping() == {"configMap": True, "default": "1"}


def test_only_policies_that_ask_for_it_read_the_config_map_and_a_snapshot_file_has_it_for_all() -> None:
    assert settings().plugins.reads == (PRICE_MAP,)
    assert consolidating(nodePrice={"default": 1}).plugins.reads == ()
    assert PRICE_MAP in installed_plugins().reads()


# --- live clusters and files ---


def config_map_reply(data: Mapping[str, str]) -> Reply:
    return answer({**priced(data), "metadata": {**priced(data)["metadata"], "managedFields": [{}]}})


def test_a_file_gives_the_plan_that_the_cluster_gives(tmp_path: Path) -> None:
    name = str(tmp_path / "cluster.json")
    with ScriptedServer() as server:
        serve(server, CLUSTER).on("GET", PATH, config_map_reply(PRICES))
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            write_snapshot_file(name, dump_cluster(client, [PRICE_MAP], "berth-system"))
            live = read_live_snapshot(client, "berth-system", [PRICE_MAP])

    assert read_snapshot_file(name) == live
    assert live.beside == {PRICE_MAP.name: (priced(PRICES),)}
    assert plan(live, settings()) == plan(read_snapshot_file(name), settings()) == planned(PRICES)


@pytest.mark.parametrize("reply", [None, refusal(403, "Forbidden", "no right")], ids=["none there", "forbidden"])
def test_a_config_map_that_cannot_be_read_stops_nothing(tmp_path: Path, reply: Reply | None) -> None:
    with ScriptedServer() as server:
        serve(server, CLUSTER)
        if reply is not None:
            server.on("GET", PATH, reply)
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            assert read_live_snapshot(client, "berth-system", [PRICE_MAP]).beside == {}
            assert "beside" not in json.loads(dump_cluster(client, [PRICE_MAP], "berth-system"))


def test_an_object_that_is_read_by_name_and_with_all_of_its_kind_is_in_a_file_once() -> None:
    every = ObjectKind("", "v1", "configmaps", "ConfigMap", is_namespaced=True)
    other = {**priced({}), "metadata": {"name": "other", "namespace": "berth-system"}}
    both = replace(CLUSTER, beside={every.name: (priced(PRICES), other), PRICE_MAP.name: (priced(PRICES),)})

    assert Snapshot.from_json(both.to_json()).beside == both.beside
    assert both.to_json().count(b'"ConfigMap"') == 1 + 2


def test_commands_read_the_config_map_of_the_namespace_that_they_name(tmp_path: Path, capsys: Captured) -> None:
    name = str(tmp_path / "cluster.json")
    asked = ["--strategy", "consolidate", "--node-price", "configMap=true", "--namespace", "infra", "--output", "json"]
    with ScriptedServer() as server:
        reply = answer(priced(PRICES, namespace="infra"))
        serve(server, CLUSTER).on("GET", PATH.replace("berth-system", "infra"), reply)
        kubeconfig = server.kubeconfig(tmp_path)
        assert run(["plan", "--kubeconfig", kubeconfig, *asked]) == 0
        live = json.loads(capsys.readouterr().out)
        assert run(["snapshot", "--kubeconfig", kubeconfig, "--namespace", "infra", "--file", name]) == 0

    assert run(["plan", "--snapshot", name, *asked]) == 0
    assert json.loads(capsys.readouterr().out) == live
    assert live["unpricedNodes"] == ["odd"]
    assert live["predicted"]["freedPricePerHour"] == "0.096"


def test_a_wrong_entry_is_one_line_on_the_command_line(tmp_path: Path, capsys: Captured) -> None:
    name = tmp_path / "cluster.json"
    name.write_bytes(with_prices(priced({"m5.large": "cheap"})).to_json())

    assert run(["plan", "--snapshot", str(name), "--strategy", "consolidate", "--node-price", "configMap=true"]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"berth: {TITLE}: data.m5.large is 'cheap'; expected an amount from 0")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("value", ["configMap=false", "configMap=my-prices"])
def test_the_option_takes_nothing_but_true(capsys: Captured, value: str) -> None:
    assert run(["plan", "--strategy", "consolidate", "--node-price", value]) == 2

    assert "expected true: the ConfigMap is berth-node-prices" in capsys.readouterr().err
