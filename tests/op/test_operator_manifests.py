"""What the operator creates is what it says: a placeholder is as heavy as the pod, and as harmless as can be."""

import tracemalloc
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import (
    Affinity,
    Container,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodTemplate,
    ResourceRequirements,
    Toleration,
)
from berth_core.labels import (
    HANDOVER_TAINT,
    PLACEHOLDER_LABEL,
    PROBE_LABEL,
    PROBE_REGISTRATION_LABEL,
    RESERVATION_LABEL,
)
from berth_core.names import DEFAULT_NAMESPACE, priority_class_name
from berth_core.pod_requests import effective_requests
from berth_core.reservations import ReservationPhase, ReservationTask
from berth_core.selectors import matches_node_affinity
from berth_operator.reservation.decide import decide
from berth_operator.reservation.manifests import (
    build_placeholder,
    build_priority_class,
    build_probe,
    build_validation_pod,
    build_webhook_configuration,
    placeholder_priority,
)
from berth_operator.reservation.validation import refuse
from berth_operator.settings import OperatorSettings, PlaceholderSettings
from builders import NOON, container, meta, node, pod_spec, sidecar, task
from handover_builders import PLACE_UID, observe, place

SETTINGS = PlaceholderSettings()


def build(of: ReservationTask, *, priority: int = 0, deadline_seconds: int | None = None) -> dict[str, Any]:
    return build_placeholder(
        place(tasks=[of]), of, 0, priority=priority, deadline_seconds=deadline_seconds, settings=SETTINGS
    )


def required(*terms: NodeSelectorTerm) -> Affinity:
    return Affinity(
        node_affinity=NodeAffinity(
            required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=terms)
        )
    )


def zone(name: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=(LabelSelectorRequirement(key="zone", operator="In", values=(name,)),))


# --- weight

HEAVY = {
    "one container": task(cpu="500m", memory="1Gi"),
    "init containers and sidecars": task(
        containers=[container(cpu="1", memory="1Gi")],
        init_containers=[container("init", cpu="3", memory="64Mi"), sidecar(cpu="250m", memory="128Mi")],
    ),
    "overhead": task(cpu="1", memory="1Gi", overhead={"cpu": "250m", "memory": "120Mi"}),
    "an extended resource": task(cpu="1", memory="1Gi", requests={"nvidia.com/gpu": "2"}),
    "huge pages": task(cpu="1", memory="1Gi", requests={"hugepages-2Mi": "64Mi"}),
    "limits alone": task(
        containers=[Container(name="main", resources=ResourceRequirements(limits={"cpu": "2", "nvidia.com/gpu": "1"}))]
    ),
    "nothing": task(cpu=None, memory=None),
}


@pytest.mark.parametrize("of", HEAVY.values(), ids=HEAVY.keys())
def test_a_placeholder_asks_for_what_the_pod_asks_for(of: ReservationTask) -> None:
    built = msgspec.convert(build(of), Pod)
    assert effective_requests(built.spec) == effective_requests(of.template.spec)


def test_a_placeholder_asks_for_the_limits_of_a_container_without_requests() -> None:
    resources = build(HEAVY["limits alone"])["spec"]["containers"][0]["resources"]
    amounts = {"cpu": "2", "memory": "0", "nvidia.com/gpu": "1"}
    assert resources == {"requests": amounts, "limits": amounts}


def test_what_cannot_be_overcommitted_is_also_the_limit() -> None:
    resources = build(HEAVY["an extended resource"])["spec"]["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == "2"


# --- place


@dataclass(frozen=True, kw_only=True)
class Pinning:
    terms: tuple[NodeSelectorTerm, ...] = ()
    nodes: tuple[str, ...] = ()
    want: set[str]


PINNINGS = {
    "anywhere": Pinning(want={"a-1", "a-2", "b-1"}),
    "on one node": Pinning(nodes=("a-1",), want={"a-1"}),
    "on one of two nodes": Pinning(nodes=("a-1", "b-1"), want={"a-1", "b-1"}),
    "in a zone": Pinning(terms=(zone("a"),), want={"a-1", "a-2"}),
    "in either of two zones": Pinning(terms=(zone("a"), zone("b")), want={"a-1", "a-2", "b-1"}),
    "in a zone and on some nodes": Pinning(terms=(zone("a"),), nodes=("a-2", "b-1"), want={"a-2"}),
    "in either zone and on some nodes": Pinning(
        terms=(zone("a"), zone("b")), nodes=("a-2", "b-1"), want={"a-2", "b-1"}
    ),
    "on a node of no allowed zone": Pinning(terms=(zone("a"),), nodes=("b-1",), want=set()),
    "an empty term allows no node, also not the one that is named": Pinning(
        terms=(NodeSelectorTerm(),), nodes=("a-1",), want=set()
    ),
    "an empty term beside a zone": Pinning(terms=(NodeSelectorTerm(), zone("a")), nodes=("a-1", "b-1"), want={"a-1"}),
}
CLUSTER = [node("a-1", labels={"zone": "a"}), node("a-2", labels={"zone": "a"}), node("b-1", labels={"zone": "b"})]


@pytest.mark.parametrize("case", PINNINGS.values(), ids=PINNINGS.keys())
def test_a_placeholder_may_be_where_the_pod_and_the_reservation_allow(case: Pinning) -> None:
    affinity = required(*case.terms) if case.terms else None
    built = msgspec.convert(build(task(nodes=case.nodes, affinity=affinity)), Pod)
    assert {one.metadata.name for one in CLUSTER if matches_node_affinity(built.spec, one)} == case.want


def test_a_pin_names_one_node_each_as_the_api_server_demands() -> None:
    terms = build(task(nodes=["a-1", "b-1"]))["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["a-1"], ["b-1"]]


# --- what would be too large


def names(count: int, length: int = 10) -> list[str]:
    return [f"node-{number:0{length - 5}d}" for number in range(count)]


def terms_of(count: int, *, values: int = 1) -> Affinity:
    expression = LabelSelectorRequirement(key="zone", operator="In", values=tuple(map(str, range(values))))
    return required(*(NodeSelectorTerm(match_expressions=(expression,)) for _ in range(count)))


TOO_LARGE = {
    "as many names as may be, tied to as many terms": (
        task(nodes=names(1_000), affinity=terms_of(1_000)),
        "has 1000 names and the template 1000 nodeSelectorTerms, 1000000 terms for each placeholder; expected at most",
    ),
    "one name too many for its terms": (
        task(nodes=names(101), affinity=terms_of(10)),
        "has 101 names and the template 10 nodeSelectorTerms, 1010 terms for each placeholder; expected at most 1000",
    ),
    "a long term tied to several nodes": (
        task(nodes=names(20), affinity=terms_of(1, values=10_000)),
        "make 1384284 bytes of each placeholder; expected at most 524288: write fewer of them",
    ),
    "a long term in very many placeholders": (
        task(affinity=terms_of(1, values=10_000), replicas=1_000),
        "and reservationNodeNames each; expected at most 33554432 bytes together",
    ),
    "tolerations without end": (
        task(tolerations=[Toleration(key=f"key-{number:020d}") for number in range(20_000)]),
        "bytes of each placeholder; expected at most 524288: write fewer of them",
    ),
}


@pytest.mark.parametrize(("of", "want"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_placeholder_that_would_be_too_large_is_refused_before_it_is_built(of: ReservationTask, want: str) -> None:
    seen = observe(place(tasks=[of]))
    tracemalloc.start()
    try:
        decision = decide(seen, NOON, OperatorSettings())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == (ReservationPhase.FAILED, "Invalid")
    assert decision.status.state.message.startswith("spec.tasks[0]")
    assert want in decision.status.state.message
    assert decision.actions == ()
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("of", "want"),
    [
        (task(nodes=names(1_000, 60)), 1_000),
        (task(nodes=names(100), affinity=terms_of(10)), 1_000),
        (task(affinity=terms_of(2_000)), 2_000),
    ],
    ids=["a thousand names", "ten terms and a hundred names", "terms alone"],
)
def test_what_is_large_but_not_too_large_is_built(of: ReservationTask, want: int) -> None:
    assert refuse(place(tasks=[of])) is None
    affinity = build(of)["spec"]["affinity"]["nodeAffinity"]
    assert len(affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) == want


@pytest.mark.parametrize("name", ["Node-A", "node/1", "a" * 254, "node a", ""])
def test_a_name_that_no_node_can_have_is_refused_with_its_field(name: str) -> None:
    decision = decide(observe(place(tasks=[task(nodes=("node-a", name))])), NOON, OperatorSettings())
    assert decision.status.state is not None
    assert (decision.status.state.phase, decision.status.state.reason) == (ReservationPhase.FAILED, "Invalid")
    assert f'spec.tasks[0].reservationNodeNames[1] is "{name}"' in decision.status.state.message


def test_a_placeholder_selects_and_tolerates_as_the_pod_does_but_not_the_guard() -> None:
    gpu = Toleration(key="gpu", operator="Exists", effect="NoSchedule")
    guard = Toleration(key=HANDOVER_TAINT, operator="Exists")
    spec = build(task(node_selector={"disk": "ssd"}, tolerations=[gpu, guard]))["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


SCHEDULERS = {
    "the default": ("", "", "default-scheduler"),
    "the Reservation's": ("", "volcano", "volcano"),
    "the template's": ("kueue", "volcano", "kueue"),
}


@pytest.mark.parametrize(("own", "shared", "want"), SCHEDULERS.values(), ids=SCHEDULERS.keys())
def test_the_scheduler_of_the_pod_places_its_placeholder(own: str, shared: str, want: str) -> None:
    of = task(scheduler_name=own)
    reservation = place(tasks=[of], scheduler_name=shared)
    built = build_placeholder(reservation, of, 0, priority=0, deadline_seconds=None, settings=SETTINGS)
    assert built["spec"]["schedulerName"] == want


# --- harmlessness


def test_a_placeholder_is_restricted_and_knows_nothing() -> None:
    spec = build(task(service_account_name="admin", host_network=True))["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert not {"serviceAccountName", "hostNetwork", "volumes", "initContainers"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (only,) = spec["containers"]
    assert only["securityContext"]["allowPrivilegeEscalation"] is False
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"command", "args", "env", "envFrom", "ports", "volumeMounts"} & only.keys()


def test_no_service_controller_or_budget_of_the_owner_selects_a_placeholder() -> None:
    template = PodTemplate(metadata=meta("", labels={"app": "web"}), spec=pod_spec())
    built = build(task(template=template))["metadata"]
    assert built["labels"].keys() == {PLACEHOLDER_LABEL, RESERVATION_LABEL, "app.kubernetes.io/managed-by"}
    assert built["namespace"] == DEFAULT_NAMESPACE
    assert "ownerReferences" not in built


@pytest.mark.parametrize(("seconds", "want"), [(600, 600), (1, 1), (0, 1), (-30, 1)])
def test_the_kubelet_ends_a_placeholder_after_its_deadline(seconds: int, want: int) -> None:
    assert build(task(), deadline_seconds=seconds)["spec"]["activeDeadlineSeconds"] == want


def test_a_placeholder_without_a_deadline_stays() -> None:
    assert "activeDeadlineSeconds" not in build(task())["spec"]
    assert build(task())["spec"]["terminationGracePeriodSeconds"] == 1


@given(
    name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True),
    of=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    index=st.integers(0, 999),
)
def test_a_placeholder_always_has_a_valid_name_of_its_own(name: str, of: str, index: int) -> None:
    one = task(of, replicas=1000)
    reservation = place(tasks=[one], name=name)
    names = {
        build_placeholder(reservation, one, at, priority=0, deadline_seconds=None, settings=SETTINGS)["metadata"][
            "name"
        ]
        for at in (index, index + 1)
    }
    assert len(names) == 2
    assert all(len(found) <= 63 and not found.startswith("-") for found in names)


# --- priority


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_placeholder_has_the_priority_of_its_owner_as_far_as_a_user_may_go_and_preempts_nothing(value: int) -> None:
    mine = placeholder_priority(value)
    built = build_priority_class(mine)
    assert mine == min(value, 1_000_000_000)
    assert built["value"] == mine
    assert built["preemptionPolicy"] == "Never"
    assert built["globalDefault"] is False


def test_priority_classes_of_both_signs_have_valid_names_of_their_own() -> None:
    names = [priority_class_name(value) for value in (-10, 0, 10)]
    assert names == ["berth-placeholder-minus-10", "berth-placeholder-0", "berth-placeholder-10"]
    assert build(task(), priority=-10)["spec"]["priorityClassName"] == names[0]


# --- dry runs


def test_a_probe_carries_the_reservation_and_no_request() -> None:
    built = build_probe(place(), "digest", SETTINGS)
    assert built["metadata"]["labels"][PROBE_LABEL] == PLACE_UID
    assert built["metadata"]["labels"][PROBE_REGISTRATION_LABEL] == "digest"
    assert "resources" not in built["spec"]["containers"][0]
    assert built["metadata"]["namespace"] == DEFAULT_NAMESPACE


def test_a_template_is_validated_as_it_stands_but_for_what_only_its_own_namespace_knows() -> None:
    raw = {
        "metadata": {"labels": {"app": "web", PROBE_LABEL: "x"}, "annotations": {"team": "shop"}},
        "spec": {
            "containers": [{"name": "app", "image": "app", "somethingNew": True}],
            "serviceAccountName": "web",
            "priorityClassName": "high",
            "priority": 7,
            "nodeName": "node-a",
            "imagePullSecrets": [{"name": "pull"}],
            "automountServiceAccountToken": True,
        },
    }
    built = build_validation_pod(PLACE_UID, "web", raw, SETTINGS)
    assert built["metadata"]["labels"] == {"app": "web"}
    assert built["metadata"]["annotations"] == {"team": "shop"}
    assert built["spec"] == {
        "containers": [{"name": "app", "image": "app", "somethingNew": True}],
        "automountServiceAccountToken": False,
    }


def test_what_no_pod_has_is_put_to_the_api_server_wherever_it_is_in_a_template() -> None:
    metadata = {"label": {"app": "web"}, "name": "web", "creationTimestamp": None, "ownerReferences": [{"uid": "u"}]}
    built = build_validation_pod(
        PLACE_UID, "web", {"metdata": {"a": "b"}, "metadata": metadata, "kind": "Job"}, SETTINGS
    )
    assert built["metdata"] == {"a": "b"}
    assert built["metadata"]["label"] == {"app": "web"}
    assert built["kind"] == "Pod"
    assert set(built["metadata"]) == {"label", "name", "namespace", "labels", "annotations"}
    assert built["metadata"]["name"] != "web"


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"metadata": None, "spec": {}}])
def test_an_empty_template_makes_an_empty_pod(raw: dict[str, Any]) -> None:
    assert build_validation_pod(PLACE_UID, "web", raw, SETTINGS)["spec"] == {"automountServiceAccountToken": False}


# --- webhook


def test_the_webhook_covers_the_given_namespaces_and_is_never_in_the_way() -> None:
    built = build_webhook_configuration(
        client_config={"url": "https://127.0.0.1:1/handover"},
        namespaces=["shop", "media", "shop"],
        own_namespace="berth-system",
        timeout_seconds=2,
    )
    handover, probe = built["webhooks"]
    assert handover["namespaceSelector"]["matchExpressions"][0]["values"] == ["media", "shop"]
    assert probe["namespaceSelector"]["matchExpressions"][0]["values"] == ["berth-system"]
    unseen = [(one["key"], one["operator"]) for one in handover["objectSelector"]["matchExpressions"]]
    assert unseen == [(PLACEHOLDER_LABEL, "DoesNotExist"), (PROBE_LABEL, "DoesNotExist")]
    probed, in_use = probe["objectSelector"]["matchExpressions"]
    assert probed == {"key": PROBE_LABEL, "operator": "Exists"}
    assert (in_use["key"], in_use["operator"], in_use["values"][1:]) == (PROBE_REGISTRATION_LABEL, "In", ["any"])
    for one in (handover, probe):
        assert one["failurePolicy"] == "Ignore"
        assert one["timeoutSeconds"] == 2
        assert one["sideEffects"] == "None"
        assert one["rules"][0]["operations"] == ["CREATE"]
        assert one["rules"][0]["resources"] == ["pods"]


def test_a_probe_can_tell_by_which_namespaces_and_address_the_webhook_is_registered() -> None:
    def digest(namespaces: list[str], port: int = 1) -> str:
        built = build_webhook_configuration(
            client_config={"url": f"https://127.0.0.1:{port}/handover"},
            namespaces=namespaces,
            own_namespace="berth-system",
            timeout_seconds=2,
        )
        value: str = built["webhooks"][1]["objectSelector"]["matchExpressions"][1]["values"][0]
        return value

    assert digest(["shop", "media"]) == digest(["media", "shop"])
    assert len({digest(["shop"]), digest(["shop", "media"]), digest(["shop"], port=2)}) == 3
    assert len(digest(["shop"])) <= 63
