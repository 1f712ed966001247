"""Marks of autoscalers on pods are read as the cluster autoscaler and Karpenter define them."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from berth_core import OwnerReference, Pod, Volume
from berth_core.clock import format_timestamp
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import plan
from berth_descheduler.planner.autoscalers.marks import (
    DAEMONSET_POD,
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    POD_MARKS,
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
)
from berth_descheduler.planner.autoscalers.pods import is_declared_safe, wish_refusals
from builders import NOON, bare_pod, node, pod
from planner.clusters import consolidating

TEN_MINUTES_AGO = format_timestamp(NOON - timedelta(minutes=10))


def started(moment: str | None = TEN_MINUTES_AGO, **fields: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    made = pod(node="node-a", **fields)
    return with_fields(made, status=with_fields(made.status, start_time=moment))


@dataclass(frozen=True)
class Wish:
    """Annotations, and why a pod that was started ten minutes ago stays."""

    annotations: dict[str, str]
    want: tuple[Reason, ...]
    started: str | None = TEN_MINUTES_AGO


WISHES = {
    "safe-to-evict false": Wish({SAFE_TO_EVICT: "false"}, (Reason.NOT_SAFE_TO_EVICT,)),
    "safe-to-evict true": Wish({SAFE_TO_EVICT: "true"}, ()),
    "safe-to-evict of another spelling": Wish({SAFE_TO_EVICT: "False"}, ()),
    "do-not-disrupt true": Wish({DO_NOT_DISRUPT: "true"}, (Reason.DO_NOT_DISRUPT,)),
    "do-not-disrupt true, not started": Wish({DO_NOT_DISRUPT: "true"}, (Reason.DO_NOT_DISRUPT,), started=None),
    "do-not-disrupt false": Wish({DO_NOT_DISRUPT: "false"}, ()),
    "do-not-disrupt empty": Wish({DO_NOT_DISRUPT: ""}, ()),
    "five minutes more": Wish({DO_NOT_DISRUPT: "15m"}, (Reason.DO_NOT_DISRUPT,)),
    "a second more": Wish({DO_NOT_DISRUPT: "10m1s"}, (Reason.DO_NOT_DISRUPT,)),
    "over in this instant": Wish({DO_NOT_DISRUPT: "10m"}, ()),
    "over for long": Wish({DO_NOT_DISRUPT: "90s"}, ()),
    "units together": Wish({DO_NOT_DISRUPT: "1h30m"}, (Reason.DO_NOT_DISRUPT,)),
    "the longest duration": Wish({DO_NOT_DISRUPT: "2562047h"}, (Reason.DO_NOT_DISRUPT,)),
    "a start that is not known": Wish({DO_NOT_DISRUPT: "5m"}, (Reason.DO_NOT_DISRUPT,), started=None),
    "a start that is no time": Wish({DO_NOT_DISRUPT: "5m"}, (Reason.DO_NOT_DISRUPT,), started="yesterday"),
    "no time at all": Wish({DO_NOT_DISRUPT: "0s"}, ()),
    "less than no time": Wish({DO_NOT_DISRUPT: "-15m"}, ()),
    "no duration": Wish({DO_NOT_DISRUPT: "15 minutes"}, ()),
    "days, which Go does not know": Wish({DO_NOT_DISRUPT: "1d"}, ()),
    "do-not-evict true": Wish({DO_NOT_EVICT: "true"}, (Reason.DO_NOT_DISRUPT,)),
    "do-not-evict never had a duration": Wish({DO_NOT_EVICT: "15m"}, ()),
    "both autoscalers": Wish(
        {SAFE_TO_EVICT: "false", DO_NOT_DISRUPT: "true"}, (Reason.NOT_SAFE_TO_EVICT, Reason.DO_NOT_DISRUPT)
    ),
}


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES)
def test_a_pod_stays_for_as_long_as_an_autoscaler_would_leave_it(wish: Wish) -> None:
    refusals = wish_refusals(started(wish.started, annotations=wish.annotations), NOON)

    assert tuple(refusal.reason for refusal in refusals) == wish.want


def test_without_a_clock_protection_for_a_while_lasts() -> None:
    asked = started(annotations={DO_NOT_DISRUPT: "1s"})

    assert [refusal.reason for refusal in wish_refusals(asked, None)] == [Reason.DO_NOT_DISRUPT]


@dataclass(frozen=True)
class Local:
    """A volume, annotations, and whether these declare it safe."""

    want: bool
    annotations: dict[str, str]
    source: dict[str, Any] = field(default_factory=lambda: {"empty_dir": {}})


LOCALS = {
    "not declared": Local(want=False, annotations={}),
    "named": Local(want=True, annotations={SAFE_LOCAL_VOLUMES: "data"}),
    "named among others": Local(want=True, annotations={SAFE_LOCAL_VOLUMES: "tmp,data,cache"}),
    "others are named": Local(want=False, annotations={SAFE_LOCAL_VOLUMES: "tmp,database"}),
    "a space is part of a name": Local(want=False, annotations={SAFE_LOCAL_VOLUMES: "tmp, data"}),
    "none is named": Local(want=False, annotations={SAFE_LOCAL_VOLUMES: ""}),
    "a directory of the node": Local(
        want=True, annotations={SAFE_LOCAL_VOLUMES: "data"}, source={"host_path": {"path": "/data"}}
    ),
    "memory needs no name": Local(
        want=True, annotations={SAFE_LOCAL_VOLUMES: "tmp"}, source={"empty_dir": {"medium": "Memory"}}
    ),
    "memory without a word": Local(want=False, annotations={}, source={"empty_dir": {"medium": "Memory"}}),
    "the whole pod is safe": Local(want=True, annotations={SAFE_TO_EVICT: "true"}),
    "the whole pod is not": Local(want=False, annotations={SAFE_TO_EVICT: "false"}),
}


@pytest.mark.parametrize("case", LOCALS.values(), ids=LOCALS)
def test_local_volumes_that_are_declared_safe_keep_no_pod(case: Local) -> None:
    volume = Volume(name="data", **case.source)

    assert is_declared_safe(started(annotations=case.annotations, volumes=(volume,)), volume) is case.want


def two_nodes(*pods: Pod) -> Snapshot:
    """Some pods on `low`, and room for them on `high`, which is well used."""
    base = bare_pod("base", node="high", cpu="6", memory=None)
    return Snapshot(nodes=tuple(node(name, cpu="8") for name in ("low", "high")), pods=(*pods, base))


@pytest.mark.parametrize(("names", "want"), [("a,b", ["small"]), ("a", [])])
def test_a_pod_moves_if_all_its_local_volumes_are_declared_safe(names: str, want: list[str]) -> None:
    volumes = tuple(Volume(name=name, empty_dir={}) for name in ("a", "b"))
    small = pod("small", node="low", cpu="1", memory=None, volumes=volumes, annotations={SAFE_LOCAL_VOLUMES: names})

    assert [move.pod for move in plan(two_nodes(small), consolidating()).moves] == want


def test_a_plan_asks_for_protection_by_its_own_time() -> None:
    protected = started(annotations={DO_NOT_DISRUPT: "15m"}, cpu="1", memory=None)
    lonely = with_fields(protected, spec=with_fields(protected.spec, node_name="low"))
    how = consolidating()

    assert not plan(two_nodes(lonely), how.at(NOON)).moves
    assert plan(two_nodes(lonely), how.at(NOON + timedelta(minutes=5))).moves


def test_a_pod_that_is_declared_to_be_a_daemons_neither_moves_nor_keeps_its_node() -> None:
    foreign = OwnerReference(api_version="apps.kruise.io/v1alpha1", kind="AdvancedDaemonSet", name="a", controller=True)
    daemon = pod("agent", node="low", cpu="1", memory=None, controller=foreign, annotations={DAEMONSET_POD: "true"})
    small = pod("small", node="low", cpu="1", memory=None)

    made = plan(two_nodes(daemon, small), consolidating())

    assert [move.pod for move in made.moves] == ["small"]
    assert made.freed_nodes == ("low",)
    assert not daemon.belongs_to_node, "a pod's own word opens no gate of a queue"
    undeclared = with_fields(daemon, metadata=with_fields(daemon.metadata, annotations={DAEMONSET_POD: "false"}))
    assert not plan(two_nodes(undeclared, small), consolidating()).moves


def test_each_mark_on_pods_has_a_case() -> None:
    marks_tried = {key for wish in WISHES.values() for key in wish.annotations}
    marks_tried |= {key for case in LOCALS.values() for key in case.annotations}

    assert {mark.key for mark in POD_MARKS} == marks_tried | {DAEMONSET_POD}
