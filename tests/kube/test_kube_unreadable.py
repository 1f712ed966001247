"""One object that no decoder can read is one stand-in, by every call and for every type that callers ask for."""

# ruff: noqa: ANN401 - the types that callers ask for are anything

import asyncio
import json
import threading
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from berth_core import Node, Pod
from berth_core.clock import SystemClock
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.object_lists import kind_of
from berth_core.policies import DeschedulerPolicy
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, ReservationPhase, ReservationReason
from berth_core.snapshot import Snapshot
from berth_descheduler.api.reads import read_plans, read_policies
from berth_descheduler.controller.status_controller import StatusController
from berth_descheduler.controller.store import PolicyStore, ServiceContext, WakeUp
from berth_descheduler.picture import Picture
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.parsing import PolicyError, RunDefaults
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_descheduler.report.stored_plan_documents import PlanHead
from berth_descheduler.snapshots import dump_cluster, read_live_snapshot
from berth_kube.client import KubeClient
from berth_kube.errors import UnexpectedObjectError
from berth_kube.resources import (
    CONTROLLER_REVISIONS,
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    HORIZONTAL_POD_AUTOSCALERS,
    JOBS,
    MIGRATION_PLANS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESERVATIONS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLCANO_JOBS,
    VOLUME_ATTACHMENTS,
    Resource,
)
from berth_kube.watch_items import Bookmark, Changed, Listed
from berth_operator.reservation.act.resync import list_reservations
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.informers import apply_event
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.runtime.kopf_runtime import ReadableAnswer
from builders import DEEP, as_api, nested_json, node, pod, reservation
from scripted_server import Answer, ScriptedServer, Stream

META = {"uid": "u-deep", "resourceVersion": "5", "generation": 3, "labels": {"team": "a"}, "managedFields": [DEEP]}
PROFILE = {"name": "p", "pluginConfig": [{"name": "Defragmentation", "args": {"oddity": DEEP}}]}


def named(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {**body, "metadata": {**body.get("metadata", {}), **META, "name": name, "uid": f"u-{name}"}}


def place(template: object) -> dict[str, Any]:
    body = as_api(reservation("r"), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    body["spec"]["tasks"][0]["template"] = template
    return body | {"status": {"state": {"phase": "Available"}}}


DEEP_PLACE = place({"spec": {"containers": [], "oddity": DEEP}})
DEEP_PLAN = {"spec": {"policy": "p", "mode": "Auto", "objective": {"args": {"oddity": DEEP}}}}
DEEP_POLICY = {"spec": {"profiles": [PROFILE], "trigger": {"interval": "1h"}}}
DEEP_POD = as_api(pod("p", node="node-a")) | {"oddity": DEEP}
DEEP_NODE = as_api(node("n"), kind="Node") | {"oddity": DEEP}

KINDS: dict[str, tuple[Resource, Any, dict[str, Any]]] = {
    "Reservations without a type": (RESERVATIONS, dict, DEEP_PLACE),
    "MigrationPlans": (MIGRATION_PLANS, MigrationPlan, DEEP_PLAN),
    "heads of MigrationPlans": (MIGRATION_PLANS, PlanHead, DEEP_PLAN),
    "DeschedulerPolicies": (DESCHEDULER_POLICIES, DeschedulerPolicy, DEEP_POLICY),
    "Pods": (PODS, Pod, DEEP_POD),
    "Pods without a type": (PODS, dict, DEEP_POD),
    "Nodes": (NODES, Node, DEEP_NODE),
    "the parts of Nodes that guards need": (NODES, GuardableNode, DEEP_NODE),
}
DEPTHS = {"as deep as a decoder takes": 700, "deeper": 1_100, "as deep as the API server takes": 9_900}

READING_NO_VALUES = {Pod, Node, GuardableNode, PlanHead}
"""Types without a field that holds values of any type."""

by_kind = pytest.mark.parametrize(("resource", "type_", "body"), KINDS.values(), ids=KINDS)
by_depth = pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)


def raw_page(*items: dict[str, Any], levels: int = 1_100) -> Answer:
    return Answer(nested_json({"metadata": {"resourceVersion": "10"}, "items": items}, levels=levels))


def raw_line(body: dict[str, Any], levels: int = 1_100, *, type_: str = "MODIFIED") -> bytes:
    return nested_json({"type": type_, "object": body}, levels=levels) + b"\n"


def head(one: Any) -> dict[str, Any]:
    if isinstance(one, dict):
        return {key: one["metadata"].get(key) for key in ("name", "uid", "resourceVersion", "labels", "unreadable")}
    meta = one.metadata
    said = {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": meta.labels}
    return {"name": meta.name, **said, "unreadable": meta.unreadable or None}


def is_stand_in(one: Any, name: str) -> bool:
    found = head(one)
    why = found.pop("unreadable") or ""
    known = {"name": name, "uid": f"u-{name}", "resourceVersion": "5", "labels": {"team": "a"}}
    return found == known and why.endswith("nested more than 100 levels deep")


@by_depth
@by_kind
def test_a_list_has_a_stand_in_for_it_and_the_others_as_they_are(
    resource: Resource, type_: Any, body: dict[str, Any], levels: int, client: KubeClient, server: ScriptedServer
) -> None:
    good = json.loads(nested_json(named(body, "good"), levels=1))
    server.on("GET", resource.path(), raw_page(good, named(body, "deep"), good, levels=levels))
    before, deep, after = client.list(resource, type=type_).items
    if type_ in READING_NO_VALUES and levels < 1_000:
        assert head(deep) == head(before) | {"name": "deep", "uid": "u-deep"}  # what is not read may be deep
    else:
        assert is_stand_in(deep, "deep")
    assert not head(before)["unreadable"]
    assert before == after


@by_kind
def test_a_watch_goes_on_after_it(
    resource: Resource, type_: Any, body: dict[str, Any], client: KubeClient, server: ScriptedServer
) -> None:
    good = json.loads(nested_json(named(body, "good"), levels=1))
    server.on("GET", resource.path(), raw_page(named(body, "deep")))
    server.on("WATCH", resource.path(), Stream([raw_line(named(body, "deep")), raw_line(good)]))
    stop = threading.Event()
    seen = []
    for item in client.watch(resource, type=type_, stop=stop):
        match item:
            case Listed((listed,)):
                seen.append(listed)
            case Changed(changed):
                seen.append(changed)
            case Bookmark():
                continue
        if len(seen) == 3:
            stop.set()
    assert [is_stand_in(one, "deep") for one in seen] == [True, True, False]


@by_kind
def test_a_single_one_comes_as_a_stand_in_or_an_error_that_is_not_repeated(
    resource: Resource, type_: Any, body: dict[str, Any], client: KubeClient, server: ScriptedServer
) -> None:
    namespace = "default" if resource.namespaced else None
    path = resource.path("deep", namespace=namespace)
    server.on("GET", path, Answer(nested_json(named(body, "deep"))))
    if type_ in READING_NO_VALUES:
        assert not head(client.get(resource, "deep", namespace=namespace, type=type_))["unreadable"]
    elif type_ is dict:
        assert is_stand_in(client.get(resource, "deep", namespace=namespace), "deep")
    else:
        with pytest.raises(UnexpectedObjectError, match=r"nested more than 100 levels deep$"):
            client.get(resource, "deep", namespace=namespace, type=type_)
    assert len(server.requests("GET", path)) == 1


UNMANAGED: dict[str, tuple[Resource, Any, dict[str, Any]]] = {
    "Pods": (PODS, Pod, as_api(pod("p", node="node-a"))),
    "Pods without a type": (PODS, dict, as_api(pod("p", node="node-a"))),
    "Nodes": (NODES, Node, as_api(node("n"), kind="Node")),
    "Reservations without a type": (RESERVATIONS, dict, place({"spec": {"containers": []}})),
    "MigrationPlans": (MIGRATION_PLANS, MigrationPlan, {"spec": {"policy": "p", "mode": "Auto"}}),
    "DeschedulerPolicies": (DESCHEDULER_POLICIES, DeschedulerPolicy, {"spec": {"profiles": [{"name": "p"}]}}),
}


@by_depth
@pytest.mark.parametrize(("resource", "type_", "body"), UNMANAGED.values(), ids=UNMANAGED)
def test_managed_fields_say_nothing_however_deep_they_are(
    resource: Resource, type_: Any, body: dict[str, Any], levels: int, client: KubeClient, server: ScriptedServer
) -> None:
    """Whoever may create an object may write any into it, and the API server keeps them."""
    deep, namespace = named(body, "deep"), "default" if resource.namespaced else None
    server.on("GET", resource.path(), raw_page(deep, levels=levels))
    server.on("WATCH", resource.path(), Stream([raw_line(deep, levels)]))
    server.on("GET", resource.path("deep", namespace=namespace), Answer(nested_json(deep, levels=levels)))
    stop, watched = threading.Event(), []
    for item in client.watch(resource, type=type_, stop=stop):
        match item:
            case Listed((listed,)):
                watched.append(listed)
            case Changed(changed):
                watched.append(changed)
                stop.set()
            case Bookmark():
                continue
    got = client.get(resource, "deep", namespace=namespace, type=type_)
    for read_object in (*client.list(resource, type=type_).items, *watched, got):
        assert not head(read_object)["unreadable"]
        assert head(read_object)["uid"] == "u-deep"


# --- the programs


class Cluster:
    """An API server with one object that cannot be read among others."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        others = (PDBS, PVCS, PVS, STORAGE_CLASSES, CSI_NODES, VOLUME_ATTACHMENTS, PRIORITY_CLASSES, NAMESPACES)
        makers = (
            REPLICA_SETS,
            STATEFUL_SETS,
            JOBS,
            DEPLOYMENTS,
            DAEMON_SETS,
            REPLICATION_CONTROLLERS,
            CONTROLLER_REVISIONS,
        )
        for empty in (*others, *makers, SERVICES, HORIZONTAL_POD_AUTOSCALERS, RESOURCE_QUOTAS, RESERVATIONS):
            server.on("GET", empty.path(), raw_page())
        self.put(NODES, as_api(node("node-a"), kind="Node"), as_api(node("node-b"), kind="Node"))
        self.put(PODS, as_api(pod("q", node="node-b")))

    def put(self, resource: Resource, *items: dict[str, Any]) -> None:
        self.server.on("GET", resource.path(), raw_page(*items))
        self.server.on("WATCH", resource.path(), Stream())


@pytest.fixture
def cluster(server: ScriptedServer) -> Cluster:
    return Cluster(server)


@by_depth
@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "listed"])
def test_the_operator_takes_in_through_kopf_one_that_is_invalid_beside_the_others(
    server: ScriptedServer, levels: int, *, is_watched: bool
) -> None:
    good = named(place({"spec": {"containers": [{"name": "main"}]}}), "good")
    good["metadata"].pop("managedFields")
    bodies = (named(DEEP_PLACE, "deep"), good)
    server.on("GET", RESERVATIONS.path(), raw_page(*bodies, levels=levels))
    server.on("WATCH", RESERVATIONS.path(), Stream(tuple(raw_line(body, levels) for body in bodies)))
    cache = Cache(lambda _: None)
    for body in asyncio.run(read_as_kopf(server.url + RESERVATIONS.path(), is_watched=is_watched)):
        apply_event(cache, None, body)
    verdict, known = cache.observe("u-deep"), cache.observe("u-good")
    assert verdict is not None
    assert verdict.verdict is not None
    assert verdict.verdict.reason is ReservationReason.INVALID
    assert verdict.verdict.message == ("spec.tasks[0].template.spec.oddity.… is nested more than 100 levels deep")
    assert verdict.reservation.phase is ReservationPhase.AVAILABLE
    assert known is not None
    assert known.verdict is None


@by_depth
@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "listed"])
def test_kopf_reads_a_reservation_with_deep_managed_fields_as_any_other(
    server: ScriptedServer, levels: int, *, is_watched: bool
) -> None:
    bodies = [named(place({"spec": {"containers": [{"name": "main"}]}}), name) for name in ("deep", "deeper")]
    server.on("GET", RESERVATIONS.path(), raw_page(*bodies, levels=levels))
    server.on("WATCH", RESERVATIONS.path(), Stream(tuple(raw_line(body, levels) for body in bodies)))
    bodies = asyncio.run(read_as_kopf(server.url + RESERVATIONS.path(), is_watched=is_watched))
    assert [(body["metadata"]["name"], "unreadable" in body["metadata"]) for body in bodies] == [
        ("deep", False),
        ("deeper", False),
    ]


async def read_as_kopf(url: str, *, is_watched: bool) -> list[dict[str, Any]]:
    """Return the Reservations of a list or of a watch as kopf reads them: with Python's own decoder."""
    query = {"watch": "true"} if is_watched else {}
    found: list[dict[str, Any]] = []
    async with (
        aiohttp.ClientSession(response_class=ReadableAnswer) as session,
        session.get(url, params=query) as answer,
    ):
        if not is_watched:
            page = await answer.json()
            assert (page["kind"], page["metadata"]["resourceVersion"]) == ("ReservationList", "10")
            return list(page["items"])
        async for chunk in answer.content.iter_chunked(100):
            found += [json.loads(line)["object"] for line in chunk.split(b"\n") if line]
            if len(found) == 2:
                break
    return found


def test_the_sweep_of_the_operator_takes_it_in(cluster: Cluster, client: KubeClient, server: ScriptedServer) -> None:
    cluster.put(RESERVATIONS, named(DEEP_PLACE, "deep"))
    path = RESERVATIONS.path("deep", namespace="default")
    server.on("GET", path, Answer(nested_json(named(DEEP_PLACE, "deep"))))
    cache = Cache(lambda _: None)
    list_reservations(client, cache)
    (found,) = cache.reservations()
    assert found.metadata.unreadable


def test_its_status_can_be_written(client: KubeClient, server: ScriptedServer) -> None:
    path = RESERVATIONS.path("deep", namespace="default", subresource="status")
    server.on("PATCH", path, Answer(nested_json(named(DEEP_PLACE, "deep"))))
    patch = [{"op": "add", "path": "/status", "value": {}}]
    stored = client.json_patch(RESERVATIONS, "deep", patch, namespace="default", subresource="status")
    assert read_reservation(stored).metadata.unreadable
    assert len(server.requests("PATCH", path)) == 1


def test_a_volcano_job_that_cannot_be_read_is_as_one_that_is_not_there(cluster: Cluster, client: KubeClient) -> None:
    deep = named({"more": DEEP, "spec": {"policies": 5}}, "deep")
    cluster.put(VOLCANO_JOBS, deep, {"metadata": {"name": "good"}})
    assert [one.metadata.name for one in read_live_snapshot(client).volcano_jobs] == ["good"]


OF_WRONG_TYPES: dict[Resource, dict[str, Any]] = {
    NODES: {"spec": 7},
    PODS: {"spec": 7},
    PDBS: {"spec": 7},
    PVCS: {"spec": 7},
    PVS: {"spec": 7},
    STORAGE_CLASSES: {"provisioner": 7},
    CSI_NODES: {"spec": {"drivers": 7}},
    VOLUME_ATTACHMENTS: {"spec": 7},
    PRIORITY_CLASSES: {"value": "high"},
    NAMESPACES: {"metadata": {"name": "odd", "labels": 7}},
    REPLICA_SETS: {"spec": 7},
    STATEFUL_SETS: {"spec": 7},
    JOBS: {"spec": 7},
    RESERVATIONS: {"spec": 7},
    VOLCANO_JOBS: {"spec": 7},
}


@pytest.mark.parametrize("resource", OF_WRONG_TYPES, ids=lambda one: one.kind)
@pytest.mark.parametrize("is_named", [True, False], ids=["with a name", "without metadata"])
def test_one_object_of_any_kind_does_not_end_the_reading_of_the_others(
    cluster: Cluster, client: KubeClient, resource: Resource, *, is_named: bool
) -> None:
    head = {"metadata": {"name": "odd", "namespace": "default", "uid": "u-odd"}} if is_named else {"metadata": 7}
    beside = [as_api(node("node-b"), kind="Node")] if resource is NODES else []
    cluster.put(resource, *beside, {**head, **OF_WRONG_TYPES[resource]} if is_named else {**head, "spec": 7})
    snapshot = read_live_snapshot(client)
    (odd,) = snapshot.all_unreadable()
    assert kind_of(odd)[1] == resource.kind
    assert odd.metadata.name == ("odd" if is_named else "")
    assert "node-b" in {one.metadata.name for one in snapshot.nodes}


def test_a_snapshot_of_the_cluster_and_its_file_name_it(cluster: Cluster, client: KubeClient) -> None:
    cluster.put(RESERVATIONS, named(DEEP_PLACE, "deep"))
    odd_pod = named(as_api(pod("p", node="node-a")), "p")
    odd_pod["spec"]["nodeSelector"] = {"disk": DEEP}
    cluster.put(PODS, odd_pod, as_api(pod("q", node="node-b")))
    live, stored = read_live_snapshot(client), Snapshot.from_json(dump_cluster(client))
    for snapshot in (live, stored):
        assert [bool(one.metadata.unreadable) for one in snapshot.pods] == [True, False]
        assert snapshot.pods[0].spec.node_name == "node-a"
        assert snapshot.pods[0].metadata.unreadable.endswith("nested more than 100 levels deep")
        assert [one.metadata.unreadable[:5] for one in snapshot.reservations] == ["spec."]


def test_a_snapshot_has_pods_with_deep_managed_fields_as_all_others(cluster: Cluster, client: KubeClient) -> None:
    odd_pods = [named(as_api(pod(f"p{index}", node="node-a")), f"p{index}") for index in range(12)]
    cluster.put(PODS, *odd_pods, as_api(pod("q", node="node-b")))
    cluster.put(NODES, named(as_api(node("node-a"), kind="Node"), "node-a"), as_api(node("node-b"), kind="Node"))
    live, stored = read_live_snapshot(client), Snapshot.from_json(dump_cluster(client))
    for snapshot in (live, stored):
        assert (len(snapshot.pods), len(snapshot.nodes)) == (13, 2)
        assert [one.metadata.unreadable for one in snapshot.all_unreadable()] == []


def test_the_service_ends_a_plan_and_refuses_a_policy_of_which_it_can_read_the_names_only(
    cluster: Cluster, client: KubeClient, server: ScriptedServer
) -> None:
    cluster.put(MIGRATION_PLANS, named(DEEP_PLAN, "deep-plan"))
    cluster.put(DESCHEDULER_POLICIES, named(DEEP_POLICY, "deep-policy"))
    plan_path = MIGRATION_PLANS.path("deep-plan", subresource="status")
    policy_path = DESCHEDULER_POLICIES.path("deep-policy", subresource="status")
    server.on("PATCH", plan_path, Answer(nested_json(named(DEEP_PLAN, "deep-plan"))))
    server.on("PATCH", policy_path, Answer(nested_json(named(DEEP_POLICY, "deep-policy"))))
    office = ServiceContext(client, SystemClock(), RunDefaults(), installed_plugins(), None, Picture(client, ""))
    bells = WakeUp()
    with PolicyStore(office, bells) as book:
        assert book.wait(lambda: False)
        (policy,), (plan,) = book.known().values(), book.plans()
        assert isinstance(policy.run, PolicyError)
        assert plan.phase is PlanPhase.FAILED
        StatusController(office, book, PolicyMetrics(CollectorRegistry(), SystemClock()), bells.event()).pass_once()
    (of_plan,), (of_policy,) = server.requests("PATCH", plan_path), server.requests("PATCH", policy_path)
    ended = of_plan.json["status"]
    assert ended["phase"] == "Failed"
    assert ended["message"] == "invalid: spec.objective.args.oddity.a.a.… is nested more than 100 levels deep"
    (valid,) = [one for one in of_policy.json["status"]["conditions"] if one["type"] == "Valid"]
    assert valid["status"] == "False"
    assert valid["message"].startswith(
        "DeschedulerPolicy deep-policy is unreadable (spec.profiles[0].pluginConfig[0].args."
    )


def test_lists_for_people_and_programs_show_it(cluster: Cluster, client: KubeClient) -> None:
    cluster.put(MIGRATION_PLANS, named(DEEP_PLAN, "deep-plan"))
    cluster.put(DESCHEDULER_POLICIES, named(DEEP_POLICY, "deep-policy"))
    (plan,) = read_plans(client, policy=None, phase=None, limit=5).items
    (policy,) = read_policies(client).items
    assert (plan.name, plan.phase, policy.name) == ("deep-plan", PlanPhase.FAILED, "deep-policy")
