"""The order of an uninstallation, what it waits for, and what it leaves alone, on an API server in memory."""

from typing import Any

from api_server_in_memory import ApiServerInMemory
from berth_core import FENCE_LABEL, PLACEHOLDER_LABEL, SystemClock
from berth_core.names import DEFAULT_NAMESPACE
from berth_descheduler.uninstall import Removal, Settings
from berth_kube.resources import (
    LEASES,
    MIGRATION_PLANS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    QUEUES,
    RESERVATIONS,
    Resource,
)

SETTINGS = Settings(namespace=DEFAULT_NAMESPACE, release="berth", keep_crds=False, timeout_seconds=0.1)


def put(server: ApiServerInMemory, resource: Resource, name: str, namespace: str = "", **fields: Any) -> None:  # noqa: ANN401
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    server.put(resource, {"metadata": metadata, **fields})


def uninstall(server: ApiServerInMemory, lines: list[str] | None = None) -> None:
    report = (lines if lines is not None else []).append
    Removal(server.as_client(), SystemClock(), SETTINGS, report).carry_out()


def deletions(server: ApiServerInMemory) -> list[str]:
    return [call.plural for call in server.calls if call.verb == "delete"]


def test_queues_and_plans_end_before_the_reservations_that_they_make() -> None:
    server = ApiServerInMemory()
    put(server, RESERVATIONS, "held", "shop")
    put(server, MIGRATION_PLANS, "plan")
    put(server, QUEUES, "team")
    put(server, NAMESPACES, DEFAULT_NAMESPACE)
    uninstall(server)
    assert deletions(server) == ["queues", "migrationplans", "reservations", "namespaces"]


def test_it_waits_for_an_operator_that_is_there_to_take_its_webhook_back() -> None:
    server = ApiServerInMemory(now=lambda: "2100-01-01T00:00:00Z")
    put(server, MUTATING_WEBHOOKS, "berth-queues")
    put(server, QUEUES, "team")
    renewal = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": SystemClock().now().isoformat()}
    put(server, LEASES, "berth-operator", DEFAULT_NAMESPACE, spec=renewal)
    looks = []

    def take_back(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("list", "mutatingwebhookconfigurations"):
            looks.append(verb)
        if len(looks) == 2:
            server.objects["mutatingwebhookconfigurations"].clear()

    server.before = take_back
    lines: list[str] = []
    uninstall(server, lines)
    assert "mutatingwebhookconfigurations" not in deletions(server)
    assert not [line for line in lines if line.startswith("not within")]


def test_an_object_that_a_finalizer_keeps_is_let_go_after_a_while() -> None:
    server = ApiServerInMemory()
    put(server, RESERVATIONS, "held", "shop", metadata={"finalizers": ["example.com/gone"]})
    lines: list[str] = []
    uninstall(server, lines)
    assert "taking the finalizers off reservations shop/held" in lines


def test_a_namespace_that_others_use_stays_with_their_pods() -> None:
    server = ApiServerInMemory()
    put(server, NAMESPACES, DEFAULT_NAMESPACE)
    put(server, PODS, "of-others", DEFAULT_NAMESPACE, spec={})
    put(server, PODS, "held", DEFAULT_NAMESPACE, spec={}, metadata={"labels": {PLACEHOLDER_LABEL: "true"}})
    lines: list[str] = []
    uninstall(server, lines)
    assert [raw["metadata"]["name"] for raw in server.raw(PODS)] == ["of-others"]
    assert [raw["metadata"]["name"] for raw in server.raw(NAMESPACES)] == [DEFAULT_NAMESPACE]
    assert f"the namespace {DEFAULT_NAMESPACE} stays: the pod of-others there is not Berth's" in lines


def test_a_pod_elsewhere_that_has_the_label_of_a_fence_loses_only_the_label() -> None:
    server = ApiServerInMemory()
    put(server, PODS, "web", "shop", spec={}, metadata={"labels": {FENCE_LABEL: "true", "app": "web"}})
    uninstall(server)
    (pod,) = server.raw(PODS)
    assert pod["metadata"]["labels"] == {"app": "web"}
