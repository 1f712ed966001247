import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from berth_core import Pod
from berth_core.reservations import ObjectReference
from berth_kube import Changed, KubeClient, Listed, Removed, connect
from berth_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
    UntrustedServerError,
)
from berth_kube.events import record_event
from berth_kube.leases import LeaseHolder
from berth_kube.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, PDBS, PODS, SECRETS, SERVICE_ACCOUNTS
from berth_sandbox.sandbox import Sandbox
from scripted_server import write_kubeconfig
from waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def admin(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeClient]:
    # A certificate authority of the environment must not replace the kubeconfig's.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "/no/such/file")
    with connect(kubeconfig=str(sandbox.kubeconfig), user_agent="berth-kube-test/1") as client:
        yield client


@pytest.fixture
def namespace(admin: KubeClient) -> Iterator[str]:
    name = f"kube-{uuid4().hex[:8]}"
    admin.create(NAMESPACES, {"metadata": {"name": name}})
    accounts = lambda: admin.list(SERVICE_ACCOUNTS, namespace=name).items  # noqa: E731
    eventually("pods may be created", accounts, seconds=120)
    yield name
    admin.delete(NAMESPACES, name)


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def create_running_pod(admin: KubeClient, namespace: str, name: str) -> Pod:
    """Return a pod that no kubelet minds and whose status says that it runs."""
    spec = {
        "nodeName": "no-such-node",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "pause"}],
    }
    metadata = {"name": name, "namespace": namespace, "labels": {"app": "web"}}
    admin.create(PODS, {"metadata": metadata, "spec": spec})
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    return admin.merge_patch(PODS, name, status, namespace=namespace, subresource="status", type=Pod)


# --- reading and writing --------------------------------------------------------------------------------------------


def test_pages_hold_what_was_created(admin: KubeClient, namespace: str) -> None:
    names = [f"map-{number:02d}" for number in range(7)]
    for name in names:
        admin.create(CONFIG_MAPS, config_map(namespace, name))
    listing = admin.list(
        CONFIG_MAPS, namespace=namespace, field_selector="metadata.name!=kube-root-ca.crt", page_size=3
    )
    assert [item["metadata"]["name"] for item in listing.items] == names
    assert int(listing.resource_version) > 0


def test_a_name_can_be_taken_once(admin: KubeClient, namespace: str) -> None:
    admin.create(CONFIG_MAPS, config_map(namespace, "one"))
    with pytest.raises(AlreadyExistsError, match=f'cannot create configmaps {namespace}/one: .*"one" already exists'):
        admin.create(CONFIG_MAPS, config_map(namespace, "one"))


def test_a_dry_run_creates_nothing(admin: KubeClient, namespace: str) -> None:
    made = admin.create(CONFIG_MAPS, config_map(namespace, "one"), dry_run=True)
    assert made["metadata"]["uid"]
    with pytest.raises(NotFoundError):
        admin.get(CONFIG_MAPS, "one", namespace=namespace)


def test_an_object_that_the_server_refuses_names_the_field(admin: KubeClient, namespace: str) -> None:
    pod = {"metadata": {"name": "p", "namespace": namespace}, "spec": {"containers": []}}
    with pytest.raises(InvalidObjectError, match=r"spec\.containers: Required value"):
        admin.create(PODS, pod)


def test_patches_change_what_they_name(admin: KubeClient, namespace: str) -> None:
    admin.create(CONFIG_MAPS, config_map(namespace, "one", a="1", b="2"))
    admin.merge_patch(CONFIG_MAPS, "one", {"data": {"a": None, "c": "3"}}, namespace=namespace)
    operations = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "replace", "path": "/data/b", "value": "4"}]
    assert admin.json_patch(CONFIG_MAPS, "one", operations, namespace=namespace)["data"] == {"b": "4", "c": "3"}
    with pytest.raises(InvalidObjectError):
        admin.json_patch(CONFIG_MAPS, "one", operations, namespace=namespace)


def test_a_resource_version_is_a_precondition(admin: KubeClient, namespace: str) -> None:
    old = admin.create(CONFIG_MAPS, config_map(namespace, "one"))["metadata"]["resourceVersion"]
    admin.merge_patch(CONFIG_MAPS, "one", {"data": {"a": "1"}}, namespace=namespace)
    body = {"metadata": {"resourceVersion": old}, "data": {"a": "2"}}
    with pytest.raises(ConflictError):
        admin.merge_patch(CONFIG_MAPS, "one", body, namespace=namespace)
    with pytest.raises(ConflictError):
        admin.delete(CONFIG_MAPS, "one", namespace=namespace, resource_version=old)


def test_only_the_object_that_was_meant_is_deleted(admin: KubeClient, namespace: str) -> None:
    uid = admin.create(CONFIG_MAPS, config_map(namespace, "one"))["metadata"]["uid"]
    with pytest.raises(ConflictError, match="UID in the precondition"):
        admin.delete(CONFIG_MAPS, "one", namespace=namespace, uid="another")
    admin.delete(CONFIG_MAPS, "one", namespace=namespace, uid=uid)
    with pytest.raises(NotFoundError):
        admin.delete(CONFIG_MAPS, "one", namespace=namespace, uid=uid)


def test_only_the_object_that_was_meant_is_patched(admin: KubeClient, namespace: str) -> None:
    uid = admin.create(CONFIG_MAPS, config_map(namespace, "one", a="1"))["metadata"]["uid"]
    create_running_pod(admin, namespace, "web-0")
    with pytest.raises(ConflictError, match=r"metadata\.uid"):
        admin.merge_patch(CONFIG_MAPS, "one", {"metadata": {"uid": "another"}, "data": {"a": "2"}}, namespace=namespace)
    labels = {"metadata": {"uid": "another", "labels": {"app": "other"}}}
    with pytest.raises(ConflictError, match=r"metadata\.uid"):
        admin.merge_patch(PODS, "web-0", labels, namespace=namespace)
    reason = {"metadata": {"uid": "another"}, "status": {"reason": "Other"}}
    with pytest.raises(ConflictError, match=r"metadata\.uid"):
        admin.merge_patch(PODS, "web-0", reason, namespace=namespace, subresource="status")
    assert admin.get(CONFIG_MAPS, "one", namespace=namespace)["data"] == {"a": "1"}
    pod = admin.get(PODS, "web-0", namespace=namespace, type=Pod)
    assert (pod.metadata.labels, pod.status.reason) == ({"app": "web"}, "")
    admin.merge_patch(CONFIG_MAPS, "one", {"metadata": {"uid": uid}, "data": {"a": "3"}}, namespace=namespace)
    assert admin.get(CONFIG_MAPS, "one", namespace=namespace)["data"] == {"a": "3"}


# --- evictions ------------------------------------------------------------------------------------------------------


def test_only_the_pod_that_was_meant_is_evicted(admin: KubeClient, namespace: str) -> None:
    pod = create_running_pod(admin, namespace, "web-0")
    with pytest.raises(ConflictError):
        admin.evict(namespace, "web-0", uid="another")
    admin.evict(namespace, "web-0", uid=pod.metadata.uid, dry_run=True)
    assert admin.get(PODS, "web-0", namespace=namespace, type=Pod).metadata.deletion_timestamp is None
    admin.evict(namespace, "web-0", uid=pod.metadata.uid, grace_seconds=0)
    with pytest.raises(NotFoundError):
        admin.evict(namespace, "web-0", uid=pod.metadata.uid)


def test_an_eviction_that_a_disruption_budget_forbids_is_told_from_other_429s(
    admin: KubeClient, namespace: str
) -> None:
    pod = create_running_pod(admin, namespace, "web-0")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    admin.create(PDBS, {"metadata": {"name": "web", "namespace": namespace}, "spec": spec})
    with pytest.raises(EvictionBlockedError) as caught:
        admin.evict(namespace, "web-0", uid=pod.metadata.uid)
    assert caught.value.status_code == 429
    assert admin.get(PODS, "web-0", namespace=namespace, type=Pod).metadata.deletion_timestamp is None


# --- rights and trust -----------------------------------------------------------------------------------------------


def test_a_missing_right_is_told_in_the_servers_words(sandbox: Sandbox) -> None:
    path = sandbox.service_account_kubeconfig("berth-descheduler")
    with connect(kubeconfig=str(path)) as client, pytest.raises(ForbiddenError) as caught:
        client.list(SECRETS)
    assert 'User "system:serviceaccount:berth-system:berth-descheduler" cannot list resource "secrets"' in str(
        caught.value
    )


def test_a_server_with_a_certificate_of_an_unknown_authority_is_not_trusted(admin: KubeClient, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, admin.server_url)
    with connect(kubeconfig=path) as client, pytest.raises(UntrustedServerError, match="certificate"):
        client.list(PODS)


# --- watches --------------------------------------------------------------------------------------------------------


def test_a_watch_sees_what_happens_and_ends_when_told(admin: KubeClient, namespace: str) -> None:
    admin.create(CONFIG_MAPS, config_map(namespace, "one"))
    stop = threading.Event()
    items = admin.watch(CONFIG_MAPS, namespace=namespace, field_selector="metadata.name!=kube-root-ca.crt", stop=stop)
    listed = next(items)
    assert isinstance(listed, Listed)
    assert [item["metadata"]["name"] for item in listed.items] == ["one"]
    admin.create(CONFIG_MAPS, config_map(namespace, "two"))
    admin.merge_patch(CONFIG_MAPS, "two", {"data": {"a": "1"}}, namespace=namespace)
    admin.delete(CONFIG_MAPS, "one", namespace=namespace)
    seen = list(itertools.islice(items, 3))
    assert [(type(item), getattr(item, "added", None)) for item in seen] == [
        (Changed, True),
        (Changed, False),
        (Removed, None),
    ]
    started = time.monotonic()
    stop.set()
    assert list(items) == []
    assert time.monotonic() - started < 45  # the server would say nothing for a minute


# --- leases and events ----------------------------------------------------------------------------------------------


def test_a_lease_goes_from_one_holder_to_the_next(admin: KubeClient, namespace: str) -> None:
    one, two = (LeaseHolder(admin, namespace, "berth", name, duration_seconds=6) for name in ("one", "two"))
    assert one.acquire(0)
    assert not two.acquire(7)
    assert one.held()
    one.release()
    assert two.acquire(3)  # sooner than it would expire
    assert two.held()
    two.release()


def test_a_lease_whose_holder_died_is_taken_after_its_duration(admin: KubeClient, namespace: str) -> None:
    dead = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
    metadata = {"name": "berth", "namespace": namespace}
    admin.create(LEASES, {"metadata": metadata, "spec": dead})
    two = LeaseHolder(admin, namespace, "berth", "two", duration_seconds=2)
    assert not two.acquire(0)
    assert two.acquire(60)
    two.release()


def test_an_event_stands_beside_its_object(admin: KubeClient, namespace: str) -> None:
    made = admin.create(CONFIG_MAPS, config_map(namespace, "one"))["metadata"]
    about = ObjectReference(api_version="v1", kind="ConfigMap", namespace=namespace, name="one", uid=made["uid"])
    for _ in range(2):
        assert record_event(admin, regarding=about, reason="Tested", message="twice", reporting_component="berth-test")
    (event,) = admin.list(EVENTS, namespace=namespace, field_selector=f"involvedObject.uid={made['uid']}").items
    assert (event["reason"], event["count"], event["source"]["component"]) == ("Tested", 2, "berth-test")


def test_an_event_about_a_clusters_object_is_accepted(admin: KubeClient, namespace: str) -> None:
    about = ObjectReference(api_version="v1", kind="Namespace", name=namespace, uid=uuid4().hex)
    assert record_event(admin, regarding=about, reason="Tested", message="once", reporting_component="berth-test")
