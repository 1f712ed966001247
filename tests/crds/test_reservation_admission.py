"""What the API server says to a Reservation, before Berth sees it."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest
import yaml
from kubernetes.client import V1Container, V1PodSpec

from conventions.pages import blocks
from conventions.tracked import ROOT
from plain_api import PlainApi
from waiting import eventually

pytestmark = pytest.mark.cluster

RESERVATIONS: Final = "apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"

TWO_TASKS: Final = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Reservation
metadata: {name: complex-reservation, namespace: default}
spec:
  schedulerName: volcano
  queue: default
  minAvailable: 3
  ttl: 600s
  owners:
    - labelSelector: {matchLabels: {volcano.sh/reservation-job: job-multi}}
  tasks:
    - name: nginx
      replicas: 2
      template: {spec: {restartPolicy: Never, containers: [{name: nginx, image: "nginx:latest", command: ["sleep", "300"], resources: {requests: {cpu: 500m, memory: 500Mi}}}]}}
    - name: busybox
      replicas: 1
      template: {spec: {restartPolicy: Never, containers: [{name: busybox, image: "busybox:latest", command: ["sleep", "300"], resources: {requests: {cpu: 250m, memory: 256Mi}}}]}}
"""  # noqa: E501 - as people write it

ABSENT: Final = object()
READ_OF_TEMPLATES: Final = {
    "hostNetwork",
    "nodeName",
    "nodeSelector",
    "overhead",
    "priority",
    "priorityClassName",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "topologySpreadConstraints",
}
"""Fields whose types the schema has, or a rule looks at."""

Step = str | int
Change = tuple[tuple[Step, ...], Any]
Store = Callable[[str, dict[str, Any]], str]

TEMPLATE: Final[tuple[Step, ...]] = ("tasks", 0, "template")
POD: Final[tuple[Step, ...]] = (*TEMPLATE, "spec")
CONTAINER: Final[tuple[Step, ...]] = (*POD, "containers", 0)
OWNER: Final[tuple[Step, ...]] = ("owners", 0)
TYPO: Final[Change] = ((*POD, "nodeSelektor"), {})
EXPRESSION: Final = {"key": "job", "operator": "In", "values": ["a"]}


def good(*changes: Change) -> dict[str, Any]:
    """Return the two-task Reservation with parts of its spec replaced or taken out."""
    body: dict[str, Any] = yaml.safe_load(TWO_TASKS)
    for path, value in changes:
        parent: Any = body["spec"]
        for step in path[:-1]:
            parent = parent[step]
        if value is ABSENT:
            del parent[path[-1]]
        else:
            parent[path[-1]] = deepcopy(value)
    return body


def test_the_two_task_reservation_applies_as_it_stands(api: PlainApi) -> None:
    answer = api.create(RESERVATIONS, yaml.safe_load(TWO_TASKS))
    try:
        assert not answer.refused, answer.message
        assert answer.body["spec"] == yaml.safe_load(TWO_TASKS)["spec"]
    finally:
        api.delete(f"{RESERVATIONS}/complex-reservation")


def test_the_reservations_of_the_pages_are_admitted_as_they_stand(api: PlainApi) -> None:
    shown = [text for text in blocks("yaml") if re.search(r"^kind: Reservation$", text, re.MULTILINE)]
    assert (ROOT / "operator" / "docs" / "waiting.yaml").read_text(encoding="utf-8") in shown
    assert len(shown) > 1
    for text in shown:
        body = yaml.safe_load(text)
        metadata = {**body["metadata"], "namespace": "default"}
        answer = api.create(RESERVATIONS, {**body, "metadata": metadata}, dry_run=True, strict=True)
        assert not answer.refused, (metadata["name"], answer.message)
        assert answer.body["spec"].items() >= body["spec"].items()


GOOD: Final[dict[str, list[Change]]] = {
    "no owners yet": [(("owners",), ABSENT)],
    "an empty list of owners": [(("owners",), [])],
    "without minAvailable, queue, scheduler and ttl": [
        (("minAvailable",), ABSENT),
        (("queue",), ABSENT),
        (("schedulerName",), ABSENT),
        (("ttl",), ABSENT),
    ],
    "without replicas, which are 1": [(("tasks", 1, "replicas"), ABSENT)],
    "with a time instead of a duration": [(("ttl",), ABSENT), (("expires",), "2030-01-01T12:00:00Z")],
    "for ever": [(("ttl",), "0s")],
    "with a duration of several units": [(("ttl",), "1h30m10.5s")],
    "with a duration that starts with a point": [(("ttl",), ".5h")],
    "with a duration in microseconds": [(("ttl",), "90000000µs")],
    "with a duration of zero without a unit": [(("ttl",), "0")],
    "with minAvailable below the replicas": [(("minAvailable",), 1)],
    "with 1000 replicas": [(("tasks", 0, "replicas"), 999)],
    "with an owner by uid": [(OWNER, {"object": {"uid": "6c5a"}})],
    "with an owner by name": [(OWNER, {"object": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4f"}})],
    "with an owner by object and labels": [
        (OWNER, {"object": {"uid": "6c5a"}, "labelSelector": {"matchExpressions": [EXPRESSION]}})
    ],
    "with a Deployment as owner": [
        (OWNER, {"object": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "6c5a"}})
    ],
    "with named nodes": [(("tasks", 0, "reservationNodeNames"), ["node-1", "node-2"])],
    "with a request that is a number": [((*CONTAINER, "resources"), {"requests": {"cpu": 2}})],
}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_a_reservation_is_admitted(api: PlainApi, changes: list[Change]) -> None:
    answer = api.create(RESERVATIONS, good(*changes), dry_run=True)
    assert not answer.refused, answer.message


BAD: Final[dict[str, tuple[list[Change], str]]] = {
    "no spec.tasks": ([(("tasks",), ABSENT)], "spec.tasks: Required value"),
    "an empty list of tasks": (
        [(("tasks",), []), (("minAvailable",), ABSENT)],
        "a Reservation needs at least one task: without one there is nothing to hold",
    ),
    "two tasks of the same name": (
        [(("tasks", 1, "name"), "nginx")],
        "the names of the tasks must differ: two tasks have the same name",
    ),
    "a task without a name": ([(("tasks", 1, "name"), ABSENT)], "spec.tasks[1].name: Required value"),
    "a task with an empty name": ([(("tasks", 1, "name"), "")], "a task's name must be a DNS label"),
    "a task with a name in capitals": ([(("tasks", 1, "name"), "BusyBox")], "a task's name must be a DNS label"),
    "a task with a name that ends in a dash": (
        [(("tasks", 1, "name"), "busybox-")],
        "a task's name must be a DNS label",
    ),
    "a task with a long name": ([(("tasks", 1, "name"), "b" * 64)], "spec.tasks[1].name: Too long"),
    "minAvailable above the replicas": (
        [(("minAvailable",), 4)],
        "minAvailable must not be above the sum of the tasks' replicas: it could never be reached",
    ),
    "minAvailable of zero": (
        [(("minAvailable",), 0)],
        "minAvailable must be at least 1: leave it out to wait for every",
    ),
    "no replicas": ([(("tasks", 0, "replicas"), 0)], "replicas must be at least 1: leave the task out"),
    "negative replicas": ([(("tasks", 0, "replicas"), -2)], "replicas must be at least 1: leave the task out"),
    "replicas without end": ([(("tasks", 0, "replicas"), 1001)], "replicas must not be above 1000"),
    "replicas without end over the tasks": (
        [(("tasks", 0, "replicas"), 1000)],
        "the tasks must not have more than 1000 replicas together",
    ),
    "a duration and a time": (
        [(("expires",), "2030-01-01T12:00:00Z")],
        "ttl and expires exclude each other: give the duration or the time, not both",
    ),
    "a duration in words": ([(("ttl",), "ten minutes")], "ttl must be a Go duration"),
    "a duration without a unit": ([(("ttl",), "600")], "ttl must be a Go duration"),
    "a duration in days": ([(("ttl",), "2d")], "ttl must be a Go duration"),
    "an empty duration": ([(("ttl",), "")], "ttl must be a Go duration"),
    "a duration with a space": ([(("ttl",), "1h 30m")], "ttl must be a Go duration"),
    "a negative duration": ([(("ttl",), "-600s")], "ttl must not be negative"),
    "a duration beyond all bounds": ([(("ttl",), "99999999h")], "ttl is longer than can be kept"),
    "a time in words": (
        [(("ttl",), ABSENT), (("expires",), "tomorrow")],
        "spec.expires in body must be of type date-time",
    ),
    "a time without a zone": (
        [(("ttl",), ABSENT), (("expires",), "2030-01-01T12:00:00")],
        "spec.expires in body must be of type date-time",
    ),
    "a Deployment by its uid alone": (
        [(OWNER, {"object": {"kind": "Deployment", "uid": "6c5a"}})],
        "a Deployment needs a name: no pod shows the uid of its Deployment",
    ),
    "an owner that says nothing": ([(OWNER, {})], "an owner needs an object, a labelSelector or annotations"),
    "an owner with no annotations": (
        [(OWNER, {"annotations": {}})],
        "spec.owners[0].annotations in body should have at least 1 properties",
    ),
    "an owner with an empty object": ([(OWNER, {"object": {}})], "an owner's object needs a uid, or a kind and a name"),
    "an owner with a name and no kind": (
        [(OWNER, {"object": {"name": "a"}})],
        "an owner's object needs a uid, or a kind",
    ),
    "an owner that is everybody": ([(OWNER, {"labelSelector": {}})], "an owner's labelSelector must not be empty"),
    "an owner with no labels": (
        [(OWNER, {"labelSelector": {"matchLabels": {}, "matchExpressions": []}})],
        "an owner's labelSelector must not be empty",
    ),
    "an unknown operator": (
        [(OWNER, {"labelSelector": {"matchExpressions": [{**EXPRESSION, "operator": "Near"}]}})],
        'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
    ),
    "In without values": (
        [(OWNER, {"labelSelector": {"matchExpressions": [{"key": "job", "operator": "In"}]}})],
        "values must be given for the operators In and NotIn, and for these only",
    ),
    "Exists with values": (
        [(OWNER, {"labelSelector": {"matchExpressions": [{**EXPRESSION, "operator": "Exists"}]}})],
        "values must be given for the operators In and NotIn, and for these only",
    ),
    "no template": ([(TEMPLATE, ABSENT)], "spec.tasks[0].template: Required value"),
    "a template without a spec": ([(POD, ABSENT)], "spec.tasks[0].template.spec: Required value"),
    "a template without containers": (
        [((*POD, "containers"), ABSENT)],
        "spec.tasks[0].template.spec.containers: Required value",
    ),
    "a template with an empty list of containers": (
        [((*POD, "containers"), [])],
        "spec.tasks[0].template.spec.containers in body should have at least 1 items",
    ),
    "a container without a name": (
        [((*CONTAINER, "name"), ABSENT)],
        "spec.tasks[0].template.spec.containers[0].name: Required value",
    ),
    "a container with an empty name": (
        [((*CONTAINER, "name"), "")],
        "spec.tasks[0].template.spec.containers[0].name in body should be at least 1 chars long",
    ),
    "a request that is no quantity": (
        [((*CONTAINER, "resources", "requests", "cpu"), "plenty")],
        "spec.tasks[0].template.spec.containers[0].resources.requests.cpu in body should match",
    ),
    "a request that is a list": (
        [((*CONTAINER, "resources", "requests", "cpu"), [1])],
        "spec.tasks[0].template.spec.containers[0].resources.requests.cpu: Invalid value",
    ),
    "requests of the whole pod that are no map": (
        [((*POD, "resources"), {"requests": "1"})],
        "spec.tasks[0].template.spec.resources.requests in body must be of type object",
    ),
    "a selector of nodes that is a list": (
        [((*POD, "nodeSelector"), ["disk"])],
        "spec.tasks[0].template.spec.nodeSelector in body must be of type object",
    ),
    "a priority that is no number": (
        [((*POD, "priority"), "high")],
        "spec.tasks[0].template.spec.priority in body must be of type integer",
    ),
    "an empty name of a node": (
        [(("tasks", 0, "reservationNodeNames"), [""])],
        "spec.tasks[0].reservationNodeNames[0] in body should be at least 1 chars long",
    ),
}


@pytest.mark.parametrize(("changes", "want_message"), BAD.values(), ids=BAD)
def test_a_reservation_is_refused_in_clear_words(api: PlainApi, changes: list[Change], want_message: str) -> None:
    answer = api.create(RESERVATIONS, good(*changes), dry_run=True)
    assert answer.code == 422
    assert want_message in answer.message


UNKNOWN: Final[dict[str, Change]] = {
    "spec.owner": (("owner",), []),
    "spec.tasks[0].replica": (("tasks", 0, "replica"), 2),
    "spec.tasks[0].template.metdata": ((*TEMPLATE, "metdata"), {}),
    "spec.tasks[0].template.metadata": ((*TEMPLATE, "metadata"), {"label": {"app": "web"}}),
    "spec.tasks[0].template.spec.containers[0].resources.request": (
        (*CONTAINER, "resources", "request"),
        {"cpu": "8"},
    ),
    "spec.tasks[0].template.spec.resources.request": ((*POD, "resources"), {"request": {"cpu": "8"}}),
    "spec.owners[0].labelSelektor": ((*OWNER, "labelSelektor"), {"matchLabels": {"app": "web"}}),
}


@pytest.mark.parametrize(("name", "change"), UNKNOWN.items(), ids=UNKNOWN)
def test_an_unknown_field_is_refused_by_its_name_as_kubectl_asks(api: PlainApi, name: str, change: Change) -> None:
    answer = api.create(RESERVATIONS, good(change), dry_run=True, strict=True)
    assert answer.code == 400
    assert f'unknown field "{name}' in answer.message


OF_NO_POD: Final[dict[str, tuple[Change, str]]] = {
    "a field of the pod": (((*POD, "nodeSelektor"), {"disk": "ssd"}), "the fields of a pod, and not nodeSelektor:"),
    "a field of a container": (((*CONTAINER, "resource"), {}), "a pod's container, and not resource:"),
    "a field of an init container": (
        ((*POD, "initContainers"), [{"name": "first", "imagePulPolicy": "Always"}]),
        "a pod's container, and not imagePulPolicy:",
    ),
    "a field in a later task": (
        (("tasks", 1, "template", "spec", "toleration"), []),
        "the fields of a pod, and not toleration:",
    ),
}


@pytest.mark.parametrize(("change", "want"), OF_NO_POD.values(), ids=OF_NO_POD)
def test_a_field_that_no_pod_has_is_refused_by_its_name_whatever_the_client_asks(
    api: PlainApi, change: Change, want: str
) -> None:
    def is_refused() -> bool:
        answer = api.create(RESERVATIONS, good(change), dry_run=True)
        return answer.code == 422 and want in answer.message

    eventually("the policy refuses the field", is_refused)


def test_every_field_of_a_pod_may_stand_in_a_template(api: PlainApi) -> None:
    """As the schema checks few values, each can be empty."""
    eventually("the policies have effect", lambda: api.create(RESERVATIONS, good(TYPO), dry_run=True).refused)
    read_by_us = {"containers", "initContainers", "resources", "name", *READ_OF_TEMPLATES}
    pod_fields = {name: {} for name in V1PodSpec.attribute_map.values() if name not in read_by_us}
    fields = {name: {} for name in V1Container.attribute_map.values() if name not in read_by_us}
    body = good()
    pod = body["spec"]["tasks"][0]["template"]["spec"]
    pod |= pod_fields | {"initContainers": [{"name": "first", **fields}]}
    pod["containers"][0] |= fields
    answer = api.create(RESERVATIONS, body, dry_run=True)
    assert (answer.refused, answer.message) == (False, "")


def test_a_template_of_the_most_fields_is_judged_within_what_a_policy_may_cost(api: PlainApi) -> None:
    eventually("the policies have effect", lambda: api.create(RESERVATIONS, good(TYPO), dry_run=True).refused)
    fields = {
        name: {} for name in V1Container.attribute_map.values() if name not in {"name", "resources", "restartPolicy"}
    }
    containers = [{"name": f"c{number}", **fields} for number in range(32)]
    template = {"spec": {"containers": containers}}
    tasks = [{"name": f"t{number}", "template": template, "requestsNothing": True} for number in range(64)]
    answer = api.create(RESERVATIONS, good((("tasks",), tasks), (("minAvailable",), 1)), dry_run=True)
    assert (answer.refused, answer.message) == (False, "")


def test_an_end_that_is_over_is_a_warning(api: PlainApi) -> None:
    def warnings(expires: str) -> str:
        answer = api.create(RESERVATIONS, good((("ttl",), ABSENT), (("expires",), expires)), dry_run=True)
        assert not answer.refused, answer.message
        return answer.warnings

    eventually("the policy has effect", lambda: warnings("2001-01-01T00:00:00Z"))
    assert "spec.expires is in the past" in warnings("2001-01-01T00:00:00Z")
    assert "spec.expires is in the past" in warnings("2001-01-01T00:00:00.5+02:00")
    assert warnings("2999-01-01T00:00:00Z") == ""


def test_the_types_of_what_a_container_requests_are_published_for_kubectl_explain(api: PlainApi) -> None:
    published = api.get("openapi/v3/apis/batch.volcano.sh/v1alpha1").body["components"]["schemas"]
    (kind,) = [one for name, one in published.items() if name.endswith(".Reservation")]
    pod = kind["properties"]["spec"]["properties"]["tasks"]["items"]["properties"]["template"]["properties"]["spec"]
    resources = pod["properties"]["containers"]["items"]["properties"]["resources"]
    assert {name: field["type"] for name, field in resources["properties"].items()} == {
        "requests": "object",
        "limits": "object",
        "claims": "array",
    }
    for name in ("requests", "limits"):
        assert resources["properties"][name]["additionalProperties"]["x-kubernetes-int-or-string"] is True


REMOVED: Final = None
"""What a merge patch says of a field that is to go."""

ALLOWED: Final[dict[str, dict[str, Any]]] = {
    "a longer duration": {"ttl": "1200s"},
    "a time instead of the duration": {"ttl": REMOVED, "expires": "2030-01-01T12:00:00Z"},
    "no end at all": {"ttl": REMOVED},
    "a lower minAvailable": {"minAvailable": 2},
}


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_what_may_be_changed_of_a_reservation(api: PlainApi, stored: Store, change: dict[str, Any]) -> None:
    answer = api.merge_patch(stored(RESERVATIONS, good()), {"spec": change})
    assert not answer.refused, answer.message


def test_a_reservation_without_an_end_may_get_one(api: PlainApi, stored: Store) -> None:
    path = stored(RESERVATIONS, good((("ttl",), ABSENT)))
    answer = api.merge_patch(path, {"spec": {"ttl": "600s"}})
    assert not answer.refused, answer.message


def test_a_reservation_that_wants_all_slots_may_want_fewer(api: PlainApi, stored: Store) -> None:
    path = stored(RESERVATIONS, good((("minAvailable",), ABSENT)))
    assert not api.merge_patch(path, {"spec": {"minAvailable": 2}}).refused
    assert api.merge_patch(path, {"spec": {"minAvailable": REMOVED}}, dry_run=True).code == 422


def test_labels_of_a_reservation_may_be_changed(api: PlainApi, stored: Store) -> None:
    answer = api.merge_patch(stored(RESERVATIONS, good()), {"metadata": {"labels": {"team": "a"}}})
    assert not answer.refused, answer.message


IMMUTABLE: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "another scheduler": ({"schedulerName": "other"}, "schedulerName is immutable"),
    "no scheduler": ({"schedulerName": REMOVED}, "schedulerName is immutable"),
    "another queue": ({"queue": "other"}, "queue is immutable"),
    "no queue": ({"queue": REMOVED}, "queue is immutable"),
    "a higher minAvailable": ({"minAvailable": 3}, "minAvailable may only be lowered"),
    "no minAvailable": ({"minAvailable": REMOVED}, "minAvailable may only be lowered"),
    "another owner": ({"owners": [{"object": {"uid": "a"}}]}, "owners are immutable once there are any"),
    "no owners": ({"owners": REMOVED}, "owners are immutable once there are any"),
    "other tasks": ({"tasks": good()["spec"]["tasks"][:1], "minAvailable": 3}, "tasks are immutable"),
}


@pytest.mark.parametrize(("change", "want_message"), IMMUTABLE.values(), ids=IMMUTABLE)
def test_what_is_reserved_cannot_be_changed(
    api: PlainApi, stored: Store, change: dict[str, Any], want_message: str
) -> None:
    known = good((("minAvailable",), 2))
    answer = api.merge_patch(stored(RESERVATIONS, known), {"spec": change}, dry_run=True)
    assert answer.code == 422
    assert f"{want_message}: delete the Reservation and create another" in answer.message


POINTER: Final = "/spec/tasks/0/template/spec"

TEMPLATE_CHANGES: Final[dict[str, dict[str, Any]]] = {
    "a larger request": {
        "op": "replace",
        "path": f"{POINTER}/containers/0/resources/requests/cpu",
        "value": "2",
    },
    "a request of another name": {
        "op": "move",
        "from": f"{POINTER}/containers/0/resources/requests/cpu",
        "path": f"{POINTER}/containers/0/resources/requests/example.com~1cpu",
    },
    "requests that become ports": {
        "op": "move",
        "from": f"{POINTER}/containers/0/resources",
        "path": f"{POINTER}/containers/0/ports",
    },
    "a selector that becomes tolerations": {
        "op": "move",
        "from": f"{POINTER}/nodeSelector",
        "path": f"{POINTER}/tolerations",
    },
    "an affinity that becomes an anti-affinity": {
        "op": "move",
        "from": f"{POINTER}/affinity/podAffinity",
        "path": f"{POINTER}/affinity/podAntiAffinity",
    },
    "another label of the pod": {
        "op": "move",
        "from": "/spec/tasks/0/template/metadata/labels/app",
        "path": "/spec/tasks/0/template/metadata/labels/tier",
    },
}


@pytest.mark.parametrize("operation", TEMPLATE_CHANGES.values(), ids=TEMPLATE_CHANGES)
def test_what_scheduling_sees_of_a_template_cannot_be_changed(
    api: PlainApi, stored: Store, operation: dict[str, Any]
) -> None:
    path = stored(
        RESERVATIONS,
        good(
            ((*POD, "nodeSelector"), {"disk": "ssd"}),
            ((*POD, "affinity"), {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}),
            ((*TEMPLATE, "metadata"), {"labels": {"app": "web"}}),
        ),
    )
    answer = api.json_patch(path, operation, dry_run=True)
    assert answer.code == 422
    assert "tasks are immutable" in answer.message


def test_a_template_is_kept_as_it_was_given(api: PlainApi, stored: Store) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "securityContext": {"runAsNonRoot": True}, "env": [{"name": "A"}]}
            ],
            "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            "dnsConfig": {"deep": [{"er": 1}]},
        },
    }
    path = stored(RESERVATIONS, good((TEMPLATE, template)))
    assert api.get(path).body["spec"]["tasks"][0]["template"] == template
