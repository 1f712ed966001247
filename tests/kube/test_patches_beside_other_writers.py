"""No patch of ours takes anything from another writer of the same object, whenever that comes in between."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from api_server_in_memory import ApiServerInMemory
from berth_core.labels import HANDOVER_TAINT
from berth_kube.client import KubeClient
from berth_kube.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from berth_operator.capabilities.queues import manifests
from berth_operator.reservation import pod_patches
from berth_sandbox.sandbox import Sandbox
from contended_nodes import labels_for_all
from foreign_patches import FOREIGN_PATCHES, NODE, WITHIN, BesideAnotherWriter, ForeignPatch, lost, senders
from waiting import eventually

CASES = pytest.mark.parametrize("case", FOREIGN_PATCHES.values(), ids=FOREIGN_PATCHES.keys())


def require_nothing_lost(client: KubeClient, case: ForeignPatch, namespace: str | None) -> None:
    """Carry out a patch while another writer comes in between, and fail if either's work is not there."""
    name = case.before()["metadata"]["name"]
    beside = BesideAnotherWriter(client, case.resource)
    case.act(beside, client.get(case.resource, name, namespace=namespace))  # type: ignore[arg-type] - as a client
    after = client.get(case.resource, name, namespace=namespace)
    assert beside.interruptions, "the patch was sent"
    assert lost(after, beside.interruptions) == []
    assert case.done(after), after


@CASES
def test_in_memory_nothing_of_another_writer_is_lost_when(case: ForeignPatch) -> None:
    api = ApiServerInMemory()
    body: dict[str, Any] = case.before()
    namespace = "default" if case.resource is PODS else None
    body["metadata"] |= {"uid": f"uid-{body['metadata']['name']}", **({"namespace": namespace} if namespace else {})}
    api.put(case.resource, body | {"status": {}})
    require_nothing_lost(api.as_client(), case, namespace)


def test_the_table_has_every_patch_that_the_programs_send() -> None:
    known = {case.site for case in FOREIGN_PATCHES.values()} | WITHIN
    sent = set(senders())
    assert sorted(sent - known) == []
    assert sorted(known - sent) == []


def test_the_table_has_every_patch_of_a_pod_that_the_operator_builds() -> None:
    built = {name for module in (pod_patches, manifests) for name in vars(module) if name.startswith("build_")}
    assert {case.builder for case in FOREIGN_PATCHES.values()} - {""} == built


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Iterator[KubeClient]:
    with sandbox.connect() as connected, labels_for_all(connected):  # it plays Berth's programs, and others
        yield connected


@pytest.fixture(scope="module")
def namespace(client: KubeClient) -> Iterator[str]:
    name = f"writers-{uuid4().hex[:8]}"
    client.create(NAMESPACES, {"metadata": {"name": name}})
    accounts = lambda: client.list(SERVICE_ACCOUNTS, namespace=name).items  # noqa: E731
    eventually("pods may be created", accounts, seconds=120)
    yield name
    client.delete(NAMESPACES, name)


@pytest.mark.cluster
@CASES
def test_on_a_real_api_server_nothing_of_another_writer_is_lost_when(
    client: KubeClient, namespace: str, case: ForeignPatch
) -> None:
    body = case.before()
    within = namespace if case.resource is PODS else None
    client.create(case.resource, body, namespace=within)
    try:
        require_nothing_lost(client, case, within)
    finally:
        client.delete(case.resource, body["metadata"]["name"], namespace=within, grace_seconds=0)


def test_a_taint_of_ours_that_is_there_already_stands_once() -> None:
    case = FOREIGN_PATCHES["a node is guarded"]
    api = ApiServerInMemory()
    api.put(NODES, case.before() | {"status": {}})
    for _ in range(2):
        case.act(api.as_client(), {})
    taints = api.get(NODES, NODE)["spec"]["taints"]
    assert [taint["key"] for taint in taints] == [HANDOVER_TAINT]
