"""How many volumes can be attached to a node, with a case on either side of each limit."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass
from typing import Any

import pytest

from berth_core import ObjectMeta, Pod, Volume
from berth_core.snapshot import Snapshot
from berth_core.storage import PersistentVolume, PersistentVolumeSpec
from berth_descheduler.framework.refusals import RefusalReason as Reason
from builders import attachment, claim, csi_node, node, pod, volume
from planner.clusters import claimed, refusal_of


@dataclass(frozen=True)
class Case:
    """May the pod `mover`, which mounts a volume of the driver ebs, go from node `here` to node `there`?"""

    want: Reason | None
    others: tuple[Pod, ...]
    more: dict[str, Any]


def other(**rest: Any) -> Pod:
    return pod("other", node="there", **rest)


def attached(want: Reason | None, *others: Pod, **more: Any) -> Case:
    storage = {
        "persistent_volume_claims": (claim("data", volume="pv-a"), claim("more", volume="pv-b")),
        "persistent_volumes": (volume("pv-a", driver="ebs"), volume("pv-b", driver="ebs")),
    }
    return Case(want, others, {**storage, **more})


ATTACHMENTS = {
    "a node without a limit attaches all": attached(None, other(volumes=(claimed("more"),))),
    "a limit that is just kept": attached(
        None, other(volumes=(claimed("more"),)), csi_nodes=(csi_node("there", ebs=2),)
    ),
    "a limit that would be passed": attached(
        Reason.INSUFFICIENT_RESOURCES, other(volumes=(claimed("more"),)), csi_nodes=(csi_node("there", ebs=1),)
    ),
    "a limit of another node": attached(
        None, other(volumes=(claimed("more"),)), csi_nodes=(csi_node("here", ebs=1), csi_node("there", ebs=None))
    ),
    "a limit of another driver": attached(
        None, other(volumes=(claimed("more"),)), csi_nodes=(csi_node("there", efs=1),)
    ),
    "what is attached though no pod mounts it counts": attached(
        Reason.INSUFFICIENT_RESOURCES,
        csi_nodes=(csi_node("there", ebs=1),),
        volume_attachments=(attachment("pv-b", "there"),),
    ),
    "what a pod mounts is not counted as attached again": attached(
        None,
        other(volumes=(claimed("more"),)),
        csi_nodes=(csi_node("there", ebs=2),),
        volume_attachments=(attachment("pv-b", "there"), attachment("pv-a", "here")),
    ),
    "an ephemeral volume counts by the claim that is made for it": attached(
        Reason.INSUFFICIENT_RESOURCES,
        pod("more", node="there", volumes=(Volume(name="scratch", ephemeral={}),)),
        csi_nodes=(csi_node("there", ebs=1),),
        persistent_volume_claims=(claim("data", volume="pv-a"), claim("more-scratch", volume="pv-b")),
    ),
    "a disk of an old kind counts for the driver that attaches it today": attached(
        Reason.INSUFFICIENT_RESOURCES,
        csi_nodes=(csi_node("there", **{"ebs.csi.aws.com": 0}),),
        persistent_volumes=(
            PersistentVolume(
                metadata=ObjectMeta(name="pv-a"), spec=PersistentVolumeSpec(aws_elastic_block_store={"volumeID": "v"})
            ),
        ),
    ),
}


@pytest.mark.parametrize("case", ATTACHMENTS.values(), ids=ATTACHMENTS.keys())
def test_a_node_takes_as_many_volumes_as_can_be_attached_to_it(case: Case) -> None:
    mover = pod("mover", node="here", volumes=(claimed(),))
    snapshot = Snapshot(nodes=(node("here"), node("there")), pods=(mover, *case.others), **case.more)
    assert refusal_of(snapshot, "mover", "there") is case.want
