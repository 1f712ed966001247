"""A new Reservation is put to the admission of its own namespace, and held to the operator's bounds on nodes."""
# ruff: noqa: ANN401 - fields of API objects are anything

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from account_calls import changed
from api_server_in_memory import error
from berth_core import Toleration
from berth_core.labels import HANDOVER_GATE, PROBE_LABEL, RESERVATION_LABEL
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, Reservation, ReservationReason
from berth_core.selectors import matches_node_affinity
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, RefusedError
from berth_operator.quota.limits import LimitSettings
from berth_operator.reservation.actions import CreatePlaceholder, Validate
from berth_operator.reservation.manifests import build_admission_pod
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.settings import OperatorSettings
from builders import as_api, node, task
from handover_builders import PLACE_UID, place
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

NAME = "probe"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def in_namespace(act: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what a dry run answers that does something only in the Reservation's own namespace."""
    return lambda body: act(body) if body["metadata"]["namespace"] == "default" else body


def refusing(kind: type[KubeError], message: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def refuse(body: dict[str, Any]) -> dict[str, Any]:
        raise error(kind, message.replace(NAME, body["metadata"]["name"]))

    return in_namespace(refuse)


def judged(harness: OperatorHarness, reservation: Reservation | None = None) -> Verdict | None:
    """Return the verdict on a Reservation that is new."""
    reservation = reservation or place()
    harness.know(of=reservation)
    harness.perform(Validate(), of=reservation)
    seen = harness.cache.observe(reservation.metadata.uid)
    assert seen is not None
    assert seen.validated
    return seen.verdict


REFUSALS: dict[str, tuple[type[KubeError], str, str]] = {
    "a policy": (
        InvalidObjectError,
        f'pods "{NAME}" is forbidden: ValidatingAdmissionPolicy "p" denied request: not here',
        'ValidatingAdmissionPolicy "p" denied request: not here',
    ),
    "a webhook": (ForbiddenError, 'admission webhook "w" denied the request: no', 'admission webhook "w" denied the'),
    "a webhook that says otherwise": (RefusedError, 'admission webhook "w" denied the request: no', "denied"),
    "a webhook that knows no dry runs": (RefusedError, 'admission webhook "w" does not support dry run', "dry run"),
}


@pytest.mark.parametrize(("kind", "message", "want"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_admission_refuses_is_invalid_with_its_words(
    harness: OperatorHarness, kind: type[KubeError], message: str, want: str
) -> None:
    harness.api.on_dry_run = refusing(kind, message)
    verdict = judged(harness)
    assert verdict is not None
    assert verdict.reason is ReservationReason.INVALID
    assert verdict.message.startswith("task web: admission in namespace default refuses such a pod: ")
    assert want in verdict.message
    assert NAME not in verdict.message


@pytest.mark.parametrize(
    "words",
    ["exceeded quota: few, requested: pods=1", "[maximum cpu usage per Container is 1, but limit is 2]"],
)
def test_what_quotas_and_limit_ranges_refuse_is_forbidden(harness: OperatorHarness, words: str) -> None:
    harness.api.on_dry_run = refusing(ForbiddenError, f'pods "{NAME}" is forbidden: {words}')
    assert judged(harness) == Verdict(ReservationReason.FORBIDDEN, f"task web: {words}")
    harness.api.on_dry_run = lambda body: body
    assert judged(harness, place(uid="uid-after", name="after")) is None, "nothing of the one before is counted"


@pytest.mark.parametrize(
    "words",
    ['User "x" cannot create resource "pods" in API group ""', "error looking up service account default/default"],
)
def test_what_says_nothing_of_the_template_is_asked_again(harness: OperatorHarness, words: str) -> None:
    harness.api.on_dry_run = refusing(ForbiddenError, words)
    harness.know(of=place())
    with pytest.raises(ForbiddenError):
        harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert not seen.validated


def selecting(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["nodeSelector"] = {"team": "a"}
    return body


def rescheduling(body: dict[str, Any]) -> dict[str, Any]:
    body["spec"]["schedulerName"] = "theirs"
    return body


CHANGES = {
    "the nodes": (selecting, "nodeSelector {'team': 'a'}"),
    "the scheduler": (rescheduling, "schedulerName theirs"),
}


@pytest.mark.parametrize(("change", "want"), CHANGES.values(), ids=CHANGES.keys())
def test_a_template_that_admission_would_send_elsewhere_is_invalid(
    harness: OperatorHarness, change: Any, want: str
) -> None:
    harness.api.on_dry_run = in_namespace(change)
    verdict = judged(harness)
    assert verdict is not None
    assert verdict.reason is ReservationReason.INVALID
    assert want in verdict.message


def asked(harness: OperatorHarness) -> list[str]:
    """Return the namespaces that dry runs are made in from now on."""
    namespaces: list[str] = []

    def note(body: dict[str, Any]) -> dict[str, Any]:
        namespaces.append(body["metadata"]["namespace"])
        return body

    harness.api.on_dry_run = note
    return namespaces


def written(number: int, *changes: tuple[str, Any], **metadata: Any) -> Reservation:
    """Return a Reservation as the watch reports a new one, with some fields of its template changed."""
    made = place(uid=f"uid-{number}", name=f"place-{number}")
    body = as_api(made, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    del body["status"]
    container = {"name": "main", "image": "a", "command": ["run"], "env": [{"name": "A", "value": "1"}]}
    container["resources"] = {"requests": {"cpu": "1"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    for path, value in changes:
        template = changed(template, path, value)
    body["spec"]["tasks"] = [{"name": "web", "replicas": 1, "template": template}]
    body["metadata"] |= metadata
    return read_reservation(body)


def test_equal_templates_are_asked_for_again_after_half_a_minute_as_policies_change(harness: OperatorHarness) -> None:
    namespaces = asked(harness)
    assert judged(harness, written(0)) is None
    assert judged(harness, written(1)) is None
    assert namespaces == ["berth-system", "default"]
    harness.clock.advance(31)
    assert judged(harness, written(2)) is None
    assert namespaces == ["berth-system", "default", "default"]


SAME_SHAPE: dict[str, tuple[str, Any]] = {
    "another image": ("spec.containers.0.image", "registry.example/b:2"),
    "another command": ("spec.containers.0.command", ["walk"]),
    "another value of a variable": ("spec.containers.0.env.0.value", "2"),
    "another value of a label": ("metadata.labels.app", "db"),
}


@pytest.mark.parametrize("change", SAME_SHAPE.values(), ids=SAME_SHAPE)
def test_what_makes_no_pod_invalid_and_no_placeholder_copies_costs_no_call(
    harness: OperatorHarness, change: tuple[str, Any]
) -> None:
    assert judged(harness, written(0)) is None
    harness.api.calls.clear()
    assert judged(harness, written(1, change)) is None
    assert harness.api.calls == []


OTHER_SHAPE: dict[str, tuple[str, Any]] = {
    "another request": ("spec.containers.0.resources.requests.cpu", "2"),
    "a request of another resource": ("spec.containers.0.resources.requests", {"gpu": "1"}),
    "a toleration": ("spec.tolerations", [{"key": "gpu", "operator": "Exists"}]),
    "a selector of nodes": ("spec.nodeSelector", {"disk": "ssd"}),
    "an unknown field": ("spec.containers.0.resource", {}),
    "another label": ("metadata.labels.tier", "a"),
    "a label's value that no pod may have": ("metadata.labels.app", "of mine"),
    "an image that is blank": ("spec.containers.0.image", " "),
    "no image": ("spec.containers", [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]),
    "a command that is no list": ("spec.containers.0.command", "run"),
    "a variable of another name": ("spec.containers.0.env.0.name", "="),
    "an annotation": ("metadata.annotations", {"a": "b"}),
    "a volume": ("spec.volumes", [{"name": "v", "emptyDir": {}}]),
}


@pytest.mark.parametrize("change", OTHER_SHAPE.values(), ids=OTHER_SHAPE)
def test_a_template_of_another_shape_is_asked_for(harness: OperatorHarness, change: tuple[str, Any]) -> None:
    assert judged(harness, written(0)) is None
    namespaces = asked(harness)
    judged(harness, written(1, change))
    assert namespaces == ["berth-system", "default"]


def test_one_that_is_new_is_validated_without_reading_it_again(harness: OperatorHarness) -> None:
    assert judged(harness, written(0)) is None
    assert [call.split()[0] for call in harness.api.calls] == ["dry-run", "dry-run"]


def test_templates_that_a_user_notes_on_a_reservation_do_not_stand_for_its_own(harness: OperatorHarness) -> None:
    assert judged(harness, written(0)) is None
    namespaces = asked(harness)
    forged = {"berth.volcano.sh/templates": '[{"spec": {"containers": []}}]', "berth.volcano.sh/templates-digest": "a"}
    judged(harness, written(1, ("spec.nodeSelector", {"disk": "ssd"}), annotations=forged))
    assert namespaces == ["berth-system", "default"]


def test_without_dry_runs_only_our_own_namespace_is_asked(harness: OperatorHarness) -> None:
    limits = LimitSettings(dry_runs=False, tolerations={"default": frozenset({"gpu"})})
    harness.settings = replace(OperatorSettings(), limits=limits)
    harness.executor = harness.executor_that(lambda: True)
    namespaces = asked(harness)
    assert judged(harness, tolerating(Toleration(key="gpu"))) is None
    assert namespaces == ["berth-system"]
    verdict = judged(harness, tolerating(Toleration(key="control"), name="other", uid="uid-other"))
    assert verdict == Verdict(
        ReservationReason.INVALID,
        "task web: it tolerates the taint control, which its namespace is not allowed to (--namespace-tolerations)",
    )


def tolerating(*tolerations: Toleration, **spec: Any) -> Reservation:
    return place(tasks=[task("web", tolerations=list(tolerations))], **spec)


def test_admission_is_asked_about_the_pod_without_what_a_placeholder_has_not() -> None:
    raw = {
        "metadata": {"labels": {"app": "web", PROBE_LABEL: "x", RESERVATION_LABEL: "y"}, "annotations": {"a": "b"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"disk": "ssd"},
            "priorityClassName": "high",
            "priority": 7,
            "hostNetwork": True,
            "serviceAccountName": "admin",
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
            "initContainers": [{"name": "first", "image": "x", "volumeMounts": [{"name": "root", "mountPath": "/"}]}],
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "resources": {"requests": {"cpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                    "securityContext": {"privileged": True},
                }
            ],
        },
    }
    reservation = place()
    body = build_admission_pod(reservation, reservation.spec.tasks[0], raw)
    assert body["metadata"]["namespace"] == "default"
    assert body["metadata"]["labels"] == {"app": "web"}
    assert body["metadata"]["annotations"] == {"a": "b"}
    spec = body["spec"]
    kept = ("tolerations", "nodeSelector", "priorityClassName")
    assert {key: spec[key] for key in kept} == {key: raw["spec"][key] for key in kept}
    assert not spec.keys() & {"hostNetwork", "serviceAccountName", "volumes", "priority"}
    assert [set(one) for one in spec["initContainers"]] == [{"name", "image", "securityContext"}]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert "ports" not in spec["containers"][0]
    assert "privileged" not in spec["containers"][0]["securityContext"]


# --- the control plane


def put_nodes(harness: OperatorHarness, *nodes: Any) -> None:
    for one in nodes:
        harness.cache.put_node(msgspec.convert(msgspec.to_builtins(one), GuardableNode))


LABELLED = {"metadata": {"name": "labelled", "labels": {CONTROL_PLANE: ""}}}
TAINTED = {
    "metadata": {"name": "tainted", "resourceVersion": "1"},
    "spec": {"taints": [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]},
}


def held_at(harness: OperatorHarness, names: Sequence[str] = ()) -> set[str]:
    """Return on which of three nodes a placeholder may be, whatever it tolerates."""
    reservation = place(tasks=[task("web", nodes=list(names))])
    harness.know(of=reservation)
    harness.perform(CreatePlaceholder(reservation.spec.tasks[0], 0), of=reservation)
    (held,) = harness.cache.placeholders()
    nodes = [node("labelled", labels={CONTROL_PLANE: ""}), node("tainted"), node("worker")]
    return {one.metadata.name for one in nodes if matches_node_affinity(held.spec, one)}


def test_no_placeholder_goes_to_the_control_plane_unless_that_is_allowed(harness: OperatorHarness) -> None:
    put_nodes(harness, LABELLED, TAINTED)
    assert held_at(harness) == {"worker"}


def test_a_pinned_placeholder_does_not_either(harness: OperatorHarness) -> None:
    put_nodes(harness, LABELLED, TAINTED)
    assert held_at(harness, ["labelled", "tainted", "worker"]) == {"worker"}


def test_placeholders_may_be_allowed_on_the_control_plane(harness: OperatorHarness) -> None:
    harness.settings = replace(OperatorSettings(), limits=LimitSettings(control_plane_nodes=True))
    harness.executor = harness.executor_that(lambda: True)
    put_nodes(harness, LABELLED, TAINTED)
    assert held_at(harness) == {"labelled", "tainted", "worker"}
    assert judged(harness, place(tasks=[task("web", nodes=["labelled"])], name="pinned", uid="uid-pinned")) is None


def test_a_reservation_of_control_plane_nodes_alone_is_invalid_at_once(harness: OperatorHarness) -> None:
    put_nodes(harness, LABELLED, TAINTED)
    pinned = place(tasks=[task("web", nodes=["tainted", "labelled"])])
    assert judged(harness, pinned) == Verdict(
        ReservationReason.INVALID,
        "task web: labelled, tainted: no place is held on control-plane nodes (--control-plane-nodes)",
    )
    also = place(tasks=[task("web", nodes=["tainted", "worker"])], name="also", uid="uid-also")
    assert judged(harness, also) is None


def test_a_node_that_is_of_the_control_plane_no_more_is_like_any_other(harness: OperatorHarness) -> None:
    put_nodes(harness, TAINTED)
    put_nodes(harness, {"metadata": {"name": "tainted", "resourceVersion": "2"}})
    assert harness.cache.control_plane_nodes() == frozenset()


def test_our_own_gate_on_the_pod_that_is_asked_about_is_nothing(harness: OperatorHarness) -> None:
    def gated(body: dict[str, Any]) -> dict[str, Any]:
        body["spec"]["schedulingGates"] = [{"name": HANDOVER_GATE}]
        return body

    harness.api.on_dry_run = in_namespace(gated)
    assert judged(harness) is None
