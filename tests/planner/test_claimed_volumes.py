"""Pods stay with volumes that are attached to one node at a time and shared, and with those that are part of a node."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from berth_core import NodeSelector, NodeSelectorTerm, Pod
from berth_core.snapshot import Snapshot
from berth_core.storage import PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import plan
from berth_descheduler.planner.claimed_volumes import ClaimedVolumes
from builders import claim, node, owner, pod, volume
from planner.clusters import HOSTNAME, ZONE, claimed, consolidating, expression

BOUND = claim(volume="pv-a", phase="Bound")
ONCE = ("ReadWriteOnce",)


def user(name: str, **rest: Any) -> Pod:  # noqa: ANN401 - as the case says
    return pod(name, **{"node": "a", "controller": owner(name=name), "volumes": [claimed()], **rest})


def claim_of(*modes: str) -> PersistentVolumeClaim:
    return msgspec.structs.replace(BOUND, spec=msgspec.structs.replace(BOUND.spec, access_modes=modes))


def volume_of(*modes: str, affinity: VolumeNodeAffinity | None = None, **sources: Any) -> PersistentVolume:  # noqa: ANN401 - as the case says
    made = volume(node_affinity=affinity)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, access_modes=modes, **sources))


def on(*terms: NodeSelectorTerm) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def hosts(*names: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=(expression(HOSTNAME, "In", *names),))


@dataclass(frozen=True)
class Case:
    """The other pods, the claim and the volume of a pod, and why it stays."""

    want: Reason | None
    others: tuple[Pod, ...] = ()
    claim: PersistentVolumeClaim = claim_of(*ONCE)  # noqa: RUF009 - it is frozen
    volume: PersistentVolume = volume_of(*ONCE)  # noqa: RUF009 - the same


DAEMON = owner("DaemonSet", "logs")
FOLDER: dict[str, Any] = {"host_path": {"path": "/data"}}
DISK: dict[str, Any] = {"local": {"path": "/data"}}
TABLE = {
    "nothing else uses the claim": Case(None),
    "another pod on the node uses it": Case(Reason.SHARED_VOLUME, (user("other"),)),
    "two others use it": Case(Reason.SHARED_VOLUME, (user("other"), user("third"))),
    "a pod of a DaemonSet uses it": Case(Reason.SHARED_VOLUME, (user("other", controller=DAEMON),)),
    "a pod on another node uses it": Case(Reason.SHARED_VOLUME, (user("other", node="b"),)),
    "a pod that waits for a node uses it": Case(Reason.SHARED_VOLUME, (user("other", node=""),)),
    "a pod that is ending still uses it": Case(Reason.SHARED_VOLUME, (user("other", deleted="2026-11-28T12:00:00Z"),)),
    "a pod that has ended uses it no more": Case(None, (user("other", phase="Succeeded"),)),
    "a pod that has failed uses it no more": Case(None, (user("other", phase="Failed"),)),
    "a pod of another namespace uses a namesake": Case(None, (user("other", namespace="shop"),)),
    "another claim is used": Case(None, (user("other", volumes=[claimed("logs")]),)),
    "many may use it": Case(
        None, (user("other"),), claim_of("ReadWriteMany"), volume_of("ReadWriteMany", "ReadWriteOnce")
    ),
    "many may read it": Case(None, (user("other"),), claim_of("ReadOnlyMany"), volume_of("ReadOnlyMany")),
    "only the claim has modes": Case(Reason.SHARED_VOLUME, (user("other"),), claim_of(*ONCE), volume_of()),
    "only the claim has modes, of many": Case(None, (user("other"),), claim_of("ReadWriteMany"), volume_of()),
    "the volume may be attached to many nodes": Case(
        None, (user("other"),), claim_of(*ONCE), volume_of("ReadWriteOnce", "ReadWriteMany")
    ),
    "a folder of the node": Case(Reason.LOCAL_STORAGE, volume=volume_of(*ONCE, **FOLDER)),
    "a folder of the node that many may use": Case(
        Reason.LOCAL_STORAGE, claim=claim_of("ReadWriteMany"), volume=volume_of("ReadWriteMany", **FOLDER)
    ),
    "a disk of the node": Case(Reason.LOCAL_STORAGE, volume=volume_of(*ONCE, **DISK)),
    "a disk of the node that asks for none": Case(
        Reason.LOCAL_STORAGE, volume=volume_of(*ONCE, affinity=VolumeNodeAffinity(), **DISK)
    ),
    "a disk of the node that names a zone": Case(
        Reason.LOCAL_STORAGE,
        volume=volume_of(
            *ONCE, affinity=on(NodeSelectorTerm(match_expressions=(expression(ZONE, "In", "z"),))), **DISK
        ),
    ),
    "a disk of the node that names two": Case(
        Reason.LOCAL_STORAGE, volume=volume_of(*ONCE, affinity=on(hosts("a", "b")), **DISK)
    ),
    "a disk of the node that names it": Case(None, volume=volume_of(*ONCE, affinity=on(hosts("a")), **DISK)),
    "a disk of the node that names it by its name": Case(
        None,
        volume=volume_of(
            *ONCE, affinity=on(NodeSelectorTerm(match_fields=(expression("metadata.name", "In", "a"),))), **FOLDER
        ),
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_volumes_keep_pods(case: Case) -> None:
    snapshot = Snapshot(
        nodes=(node("a"), node("b")),
        pods=(user("p"), *case.others),
        persistent_volume_claims=(case.claim,),
        persistent_volumes=(case.volume,),
    )
    asked = next(one for one in snapshot.pods if one.metadata.name == "p")

    assert [refusal.reason for refusal in ClaimedVolumes(snapshot).refusals(asked)] == (
        [case.want] if case.want else []
    )


def test_all_users_stay_and_the_refusal_names_claim_and_other_user() -> None:
    snapshot = Snapshot(
        nodes=(node("a"), node("b")),
        pods=(user("p"), user("q")),
        persistent_volume_claims=(claim_of(*ONCE),),
        persistent_volumes=(volume_of(*ONCE),),
    )
    made = plan(snapshot, consolidating())

    assert made.moves == ()
    assert {refused.name: (refused.message, refused.blocking_pod) for refused in made.refused if refused.namespace} == {
        "p": ("its claim data is attached to one node at a time, and default/q uses it, too", "default/q"),
        "q": ("its claim data is attached to one node at a time, and default/p uses it, too", "default/p"),
    }


def test_a_set_keeps_its_pod_with_a_folder_of_the_node_whatever_the_policy_allows() -> None:
    snapshot = Snapshot(
        nodes=(node("a"), node("b")),
        pods=(user("db-0", controller=owner("StatefulSet", "db")),),
        persistent_volume_claims=(claim_of(*ONCE),),
        persistent_volumes=(volume_of(*ONCE, **FOLDER),),
    )
    made = plan(snapshot, consolidating())

    assert [(refused.name, refused.reason) for refused in made.refused if refused.namespace] == [
        ("db-0", Reason.LOCAL_STORAGE)
    ]
