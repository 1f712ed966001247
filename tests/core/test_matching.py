from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import (
    Affinity,
    Container,
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    PodTemplate,
    Toleration,
    TopologySpreadConstraint,
    matching,
)
from berth_core.canonical_terms import canonical_affinity
from berth_core.errors import InputError
from berth_core.labels import HANDOVER_TAINT, ROOM_TAINT
from berth_core.matching import owner_matches, template_differences, template_matches
from berth_core.reservations import ObjectReference, ReservationOwner
from builders import bare_pod, container, label_owner, object_owner, owner, pod, pod_spec, sidecar

WEB = pod("web-abc", labels={"app": "web", "tier": "front"}, uid="pod-uid", controller=owner("ReplicaSet", "web"))
NEW = msgspec.structs.replace(WEB, metadata=msgspec.structs.replace(WEB.metadata, name="", uid=""))


ROLLED = pod("", labels={"pod-template-hash": "7d4f"}, controller=owner("ReplicaSet", "shop-7d4f"))


@dataclass(frozen=True)
class Owning:
    owner: ReservationOwner
    want: bool
    pod: Pod = WEB


OWNERS = {
    "the controller by uid": Owning(object_owner(uid="uid-replicaset-web"), want=True),
    "the pod by uid": Owning(object_owner("Pod", "web-abc", uid="pod-uid"), want=True),
    "a uid counts more than the names": Owning(object_owner("Job", "other", uid="uid-replicaset-web"), want=True),
    "another uid, though the names fit": Owning(object_owner(uid="uid-of-an-earlier-one"), want=False),
    "the controller by kind and name": Owning(object_owner("ReplicaSet", "web"), want=True),
    "the pod by kind and name": Owning(object_owner("Pod", "web-abc"), want=True),
    "the Deployment behind the ReplicaSet": Owning(object_owner("Deployment", "shop"), want=True, pod=ROLLED),
    "a Deployment whose uid is given too, which no pod shows": Owning(
        object_owner("Deployment", "shop", uid="uid-deployment-shop"), want=True, pod=ROLLED
    ),
    "another Deployment": Owning(object_owner("Deployment", "shop-7d4f"), want=False, pod=ROLLED),
    "a Deployment of another api group": Owning(
        object_owner("Deployment", "shop", api_version="example.com/v1"), want=False, pod=ROLLED
    ),
    "a ReplicaSet that no Deployment made": Owning(object_owner("Deployment", "web"), want=False),
    "a Job that is named like a ReplicaSet": Owning(
        object_owner("Deployment", "shop"),
        want=False,
        pod=pod("a", labels={"pod-template-hash": "7d4f"}, controller=owner("Job", "shop-7d4f")),
    ),
    "another kind": Owning(object_owner("StatefulSet", "web"), want=False),
    "another name": Owning(object_owner("ReplicaSet", "db"), want=False),
    "the namespace fits": Owning(object_owner(namespace="default"), want=True),
    "another namespace": Owning(object_owner(namespace="other"), want=False),
    "the api group fits, whatever the version": Owning(object_owner(api_version="apps/v1beta2"), want=True),
    "another api group": Owning(object_owner(api_version="batch/v1"), want=False),
    "the core group fits": Owning(object_owner("Pod", "web-abc", api_version="v1"), want=True),
    "a kind alone is nobody": Owning(ReservationOwner(object=ObjectReference(kind="ReplicaSet")), want=False),
    "a name alone is nobody": Owning(ReservationOwner(object=ObjectReference(name="web")), want=False),
    "an empty object is nobody": Owning(ReservationOwner(object=ObjectReference()), want=False),
    "nothing said is nobody": Owning(ReservationOwner(), want=False),
    "a label": Owning(label_owner(app="web"), want=True),
    "another label": Owning(label_owner(app="db"), want=False),
    "all labels must match": Owning(label_owner(app="web", tier="back"), want=False),
    "an empty selector is everybody": Owning(ReservationOwner(label_selector=LabelSelector()), want=True),
    "object and labels": Owning(
        ReservationOwner(
            object=ObjectReference(kind="ReplicaSet", name="web"),
            label_selector=LabelSelector(match_labels={"app": "web"}),
        ),
        want=True,
    ),
    "object but not labels": Owning(
        ReservationOwner(
            object=ObjectReference(kind="ReplicaSet", name="web"),
            label_selector=LabelSelector(match_labels={"app": "db"}),
        ),
        want=True,
    ),
    "labels but not object": Owning(
        ReservationOwner(
            object=ObjectReference(kind="ReplicaSet", name="db"),
            label_selector=LabelSelector(match_labels={"app": "web"}),
        ),
        want=True,
    ),
    "neither object nor labels": Owning(
        ReservationOwner(
            object=ObjectReference(kind="ReplicaSet", name="db"),
            label_selector=LabelSelector(match_labels={"app": "db"}),
        ),
        want=False,
    ),
    "a pod that has no name and no uid yet, by its controller": Owning(object_owner(), want=True, pod=NEW),
    "a pod that has no uid yet is not everybody's": Owning(object_owner("Pod", "", uid="x"), want=False, pod=NEW),
    "a pod that nothing makes again has no controller": Owning(object_owner(), want=False, pod=bare_pod("web")),
    "an owner that is no controller does not count": Owning(
        object_owner(),
        want=False,
        pod=msgspec.structs.replace(
            WEB,
            metadata=msgspec.structs.replace(
                WEB.metadata, owner_references=(msgspec.structs.replace(owner("ReplicaSet", "web"), controller=False),)
            ),
        ),
    ),
}


@pytest.mark.parametrize("case", OWNERS.values(), ids=OWNERS.keys())
def test_who_may_take_a_slot(case: Owning) -> None:
    assert owner_matches(case.owner, case.pod) is case.want


def on_ssd() -> Affinity:
    term = NodeSelectorTerm(match_expressions=(LabelSelectorRequirement(key="disk", operator="In", values=("ssd",)),))
    required = NodeSelector(node_selector_terms=(term,))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))


def even(*expressions: LabelSelectorRequirement, **rest: Any) -> TopologySpreadConstraint:  # noqa: ANN401 - any field
    selector = LabelSelector(match_labels={"app": "web"}, match_expressions=expressions)
    defaults = {"topology_key": "zone", "when_unsatisfiable": "DoNotSchedule", "label_selector": selector}
    return TopologySpreadConstraint(**{**defaults, **rest})


@dataclass(frozen=True)
class Fit:
    template: dict[str, Any] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    scheduler_name: str = ""
    want: tuple[str, ...] = ()


GPU = Toleration(key="gpu", operator="Exists")
DEFAULTS = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute", toleration_seconds=300)
    for key in ("not-ready", "unreachable")
)
FITS = {
    "the same": Fit(),
    "the default scheduler is the default": Fit({"scheduler_name": ""}, {"scheduler_name": "default-scheduler"}),
    "the template's scheduler": Fit({"scheduler_name": "volcano"}, {"scheduler_name": "volcano"}),
    "the Reservation's scheduler": Fit({"scheduler_name": ""}, {"scheduler_name": "volcano"}, scheduler_name="volcano"),
    "the template's scheduler before the Reservation's": Fit(
        {"scheduler_name": "volcano"}, {"scheduler_name": "volcano"}, scheduler_name="other"
    ),
    "another scheduler": Fit(
        {"scheduler_name": "volcano"}, want=("schedulerName is 'default-scheduler', not 'volcano'",)
    ),
    "another nodeSelector": Fit(
        {"node_selector": {"disk": "ssd"}},
        {"node_selector": {"disk": "hdd"}},
        want=("nodeSelector is {'disk': 'hdd'}, not {'disk': 'ssd'}",),
    ),
    "a nodeSelector that the template lacks": Fit(
        pod={"node_selector": {"disk": "ssd"}}, want=("nodeSelector is {'disk': 'ssd'}, not {}",)
    ),
    "a part of the template's nodeSelector": Fit(
        {"node_selector": {"disk": "ssd", "zone": "a"}}, {"node_selector": {"disk": "ssd"}}
    ),
    "the same nodeSelector": Fit({"node_selector": {"disk": "ssd"}}, {"node_selector": {"disk": "ssd"}}),
    "another priority class": Fit(pod={"priority_class_name": "high"}, want=("priorityClassName is 'high', not ''",)),
    "priorities as numbers do not count": Fit({"priority": None}, {"priority": 100}),
    "another affinity": Fit({"affinity": on_ssd()}, want=("affinity is not the template's",)),
    "the same affinity": Fit({"affinity": on_ssd()}, {"affinity": on_ssd()}),
    "an empty affinity": Fit({"affinity": Affinity()}),
    "another toleration": Fit(pod={"tolerations": (GPU,)}, want=("tolerations are not the template's",)),
    "a toleration is missing": Fit({"tolerations": (GPU,)}, want=("tolerations are not the template's",)),
    "the tolerations that every pod gets": Fit({"tolerations": (GPU,)}, {"tolerations": (*DEFAULTS, GPU)}),
    "our own toleration": Fit(
        pod={"tolerations": (Toleration(key=HANDOVER_TAINT, operator="Exists", effect="NoSchedule"),)}
    ),
    "the toleration of a plan's nodes": Fit(
        pod={"tolerations": (Toleration(key=ROOM_TAINT, operator="Equal", value="plan-x", effect="NoSchedule"),)}
    ),
    "less is asked for": Fit({"cpu": "2", "memory": "2Gi"}, {"cpu": "1", "memory": "1Gi"}),
    "nothing is asked for": Fit({"cpu": "2"}, {"cpu": None, "memory": None}),
    "more is asked for": Fit(
        {"cpu": "1"},
        {"cpu": "1500m", "requests": {"nvidia.com/gpu": "1"}},
        want=("cpu requested is 1500m, above 1", "nvidia.com/gpu requested is 1, above 0"),
    ),
    "a sidecar counts": Fit(
        {"cpu": "1"},
        {"cpu": "1", "init_containers": (sidecar(cpu="1m"),)},
        want=("cpu requested is 1001m, above 1",),
    ),
    "devices by resource claims": Fit(
        {"resource_claims": ({"name": "gpu"},)},
        {"resource_claims": ({"name": "gpu"},)},
        want=("resourceClaims ask for devices, which no placeholder holds",),
    ),
    "the template's spread": Fit({"spread": (even(),)}, {"spread": (even(min_domains=1),)}),
    "a spread that the API server has spelt out": Fit(
        {"spread": (even(match_label_keys=("pod-template-hash",)),)},
        {
            "spread": (
                even(
                    LabelSelectorRequirement(key="pod-template-hash", operator="In", values=("7d4f",)),
                    match_label_keys=("pod-template-hash",),
                ),
            )
        },
    ),
    "less spread than the template": Fit({"spread": (even(),)}),
    "a spread that is only preferred": Fit(pod={"spread": (even(when_unsatisfiable="ScheduleAnyway"),)}),
    "a spread that the template lacks": Fit(
        pod={"spread": (even(),)}, want=("topologySpreadConstraints are not the template's",)
    ),
    "a stricter spread than the template's": Fit(
        {"spread": (even(max_skew=2),)},
        {"spread": (even(),)},
        want=("topologySpreadConstraints are not the template's",),
    ),
    "several differences": Fit(
        {"scheduler_name": "volcano", "cpu": "1"},
        {"cpu": "2"},
        want=("schedulerName is 'default-scheduler', not 'volcano'", "cpu requested is 2, above 1"),
    ),
}


@pytest.mark.parametrize("case", FITS.values(), ids=FITS.keys())
def test_what_looks_the_same_to_the_scheduler_fits(case: Fit) -> None:
    template, asking = PodTemplate(spec=pod_spec(**case.template)), pod(**case.pod)
    assert template_differences(template, asking, scheduler_name=case.scheduler_name) == case.want
    assert template_matches(template, asking, scheduler_name=case.scheduler_name) is (not case.want)


def test_images_labels_and_the_number_of_containers_do_not_count() -> None:
    template = PodTemplate(
        metadata=ObjectMeta(labels={"version": "1"}), spec=pod_spec(containers=[container(cpu="2", image="app:1")])
    )
    rolled_out = pod(
        labels={"version": "2"},
        containers=[container("a", cpu="1", image="app:2"), container("b", cpu="1", image="new:1")],
    )
    assert template_matches(template, rolled_out, scheduler_name="")


def test_a_bad_quantity_in_a_template_is_an_error_of_the_input() -> None:
    template = PodTemplate(spec=pod_spec(containers=(Container(name="x"), container("app", cpu="much"))))
    with pytest.raises(InputError, match=r"spec\.containers\[app\]\.resources\.requests\.cpu is 'much'"):
        template_matches(template, pod(), scheduler_name="")


# --- the form that is compared


def test_a_spec_is_brought_into_its_form_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Affinity | None] = []

    def watched(affinity: Affinity | None) -> Hashable:
        seen.append(affinity)
        return canonical_affinity(affinity)

    monkeypatch.setattr(matching, "canonical_affinity", watched)
    templates = [PodTemplate(spec=pod_spec(affinity=Affinity())) for _ in range(10)]
    pods = [pod(f"p-{number}") for number in range(5)]
    for template in templates:
        for one in pods:
            assert template_matches(template, one, scheduler_name="")
            assert template_differences(template, one, scheduler_name="") == ()
    assert len(seen) == 15


NOWHERE = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector()))
SCHEDULERS, CLASSES = st.sampled_from(["", "default-scheduler", "volcano"]), st.sampled_from(["", "high"])
AFFINITIES = st.sampled_from(
    [
        None,
        Affinity(),
        Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector())),
    ]
)
SPECS = st.builds(
    pod_spec,
    scheduler_name=SCHEDULERS,
    priority_class_name=CLASSES,
    node_selector=st.dictionaries(st.sampled_from(["disk", "zone"]), st.sampled_from(["a", "b"])),
    affinity=AFFINITIES,
    tolerations=st.lists(st.builds(Toleration, key=st.sampled_from(["a", "b"])), max_size=2),
    cpu=st.sampled_from(["1", "2"]),
    memory=st.sampled_from(["1Gi", None]),
)


@given(held=SPECS, asked=SPECS, scheduler=SCHEDULERS)
def test_a_template_matches_where_nothing_differs(held: PodSpec, asked: PodSpec, scheduler: str) -> None:
    one = msgspec.structs.replace(pod(), spec=asked)
    matches = template_matches(PodTemplate(spec=held), one, scheduler_name=scheduler)
    assert matches == (not template_differences(PodTemplate(spec=held), one, scheduler_name=scheduler))
