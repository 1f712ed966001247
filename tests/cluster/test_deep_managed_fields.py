"""Pods with managed fields as deep as the API server takes them, which whoever may create a pod may write."""

import msgspec
import pytest

from berth_core import Pod
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube.errors import Call
from berth_kube.resources import NAMESPACES, PODS
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace, pod_template

pytestmark = pytest.mark.cluster

NAMESPACE = "deep-managed-fields"
LEVELS = 1_500


def deep_pod(name: str) -> bytes:
    template = pod_template({"app": "deep"}, cpu="1m")
    body = {"apiVersion": "v1", "kind": "Pod", **template}
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"}
    fields = {**entry, "fieldsType": "FieldsV1", "fieldsV1": "DEEP"}
    body["metadata"] = {**template["metadata"], "name": name, "managedFields": [fields]}
    # The API server takes such a path of fields as one that exists, whatever the pod has.
    return msgspec.json.encode(body).replace(b'"DEEP"', b'{"f:a":' * LEVELS + b"{}" + b"}" * LEVELS)


def test_a_dozen_of_them_are_planned_with_as_any_other(sandbox: Sandbox) -> None:
    with sandbox.connect() as client:
        make_namespace(client, NAMESPACE)
        try:
            for index in range(12):
                call = Call("create", f"a deep pod in {NAMESPACE}")
                body = deep_pod(f"deep-{index}")
                client.send(Request(call, "POST", PODS.path(namespace=NAMESPACE), (), body), Repeatable.UNLESS_ACTED)
            raw = client.send(Request(Call("list", "pods"), "GET", PODS.path(namespace=NAMESPACE)), Repeatable.ALWAYS)
            assert raw.count(b'{"f:a":') >= 12 * LEVELS, "the API server keeps them"
            snapshot = read_live_snapshot(client)
            assert sum(pod.metadata.namespace == NAMESPACE for pod in snapshot.pods) == 12
            assert [unreadable.metadata.unreadable for unreadable in snapshot.all_unreadable()] == []
            assert client.get(PODS, "deep-0", namespace=NAMESPACE, type=Pod).metadata.labels == {"app": "deep"}
        finally:
            client.delete(NAMESPACES, NAMESPACE)
