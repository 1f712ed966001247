"""`berth snapshot` writes what `berth plan` reads."""

import gzip
import json
from pathlib import Path

import pytest

from berth_core.gated_queues import LocalQueue
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.cli.main import run
from berth_descheduler.snapshots import read_live_snapshot, read_snapshot_file
from berth_kube.client import connect
from builders import (
    attachment,
    claim,
    csi_node,
    disruption_budget,
    gated_queue,
    meta,
    namespace,
    node,
    owner,
    pod,
    pod_group,
    pod_group_workload,
    priority_class,
    queue,
    reservation,
    volcano_job,
    volcano_pod_group,
    volume,
    workload,
)
from descheduler.cluster_script import serve
from scripted_server import ScriptedServer, refusal

EVERYTHING = Snapshot(
    nodes=(node("b"), node("a")),
    pods=(
        pod("web-1", node="a"),
        pod("web-0", node="b"),
        pod("set-0", node="a", controller=owner("StatefulSet", "set")),
    ),
    workloads=(workload(replicas=2), workload("StatefulSet", "set"), workload("Job", "job")),
    disruption_budgets=(disruption_budget(),),
    persistent_volume_claims=(claim("data", volume="pv-a"),),
    persistent_volumes=(volume("pv-a"),),
    csi_nodes=(csi_node("a", ebs=3),),
    volume_attachments=(attachment("pv-a", "a"),),
    priority_classes=(priority_class("high", 1000),),
    namespaces=(namespace(),),
    reservations=(reservation(),),
    volcano_jobs=(volcano_job(),),
    pod_groups=(pod_group(min_count=2), volcano_pod_group()),
    pod_group_workloads=(pod_group_workload(worker=2),),
    queue_objects=(queue(guarantee={"cpu": "4"}),),
    gated_queues=(gated_queue(guarantee={"cpu": "20%"}),),
    local_queues=(LocalQueue(metadata=meta("batch", namespace="kueue")),),
)


def dump(folder: Path, output: str, cluster: Snapshot = EVERYTHING) -> None:
    with ScriptedServer() as server:
        kubeconfig = serve(server, cluster).kubeconfig(folder)
        assert run(["snapshot", "--kubeconfig", kubeconfig, "--file", output]) == 0


def test_what_is_written_reads_back_as_the_cluster_was(tmp_path: Path) -> None:
    dump(tmp_path, str(tmp_path / "snapshot.json"))

    assert read_snapshot_file(str(tmp_path / "snapshot.json")) == EVERYTHING


def test_the_live_cluster_reads_as_its_file_does(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        kubeconfig = serve(server, EVERYTHING).kubeconfig(tmp_path)
        with connect(kubeconfig=kubeconfig) as client:
            assert read_live_snapshot(client) == EVERYTHING


def test_a_name_that_ends_in_gz_asks_for_compression(tmp_path: Path) -> None:
    dump(tmp_path, str(tmp_path / "snapshot.json.gz"))

    document = json.loads(gzip.decompress((tmp_path / "snapshot.json.gz").read_bytes()))
    assert document["kind"] == "List"


def test_the_same_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.gz", "two.gz"):
        dump(tmp_path, str(tmp_path / name))

    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_standard_output_is_the_default(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    dump(tmp_path, "-")

    document = json.loads(capfdbinary.readouterr().out)
    assert {item["kind"] for item in document["items"]} >= {"Node", "Pod", "ReplicaSet", "Reservation", "Namespace"}
    assert not any("managedFields" in item["metadata"] for item in document["items"])


def test_what_the_cluster_has_none_of_is_not_missing(tmp_path: Path) -> None:
    bare = Snapshot(nodes=(node("a"),), pods=(pod(node="a"),))
    dump(tmp_path, str(tmp_path / "snapshot.json"), bare)

    document = json.loads((tmp_path / "snapshot.json").read_bytes())
    assert document["kinds"] == [kind.value for kind in SnapshotKind]
    assert read_snapshot_file(str(tmp_path / "snapshot.json")).missing == ()


def test_queues_that_may_not_be_listed_are_left_out_and_the_file_does_not_say_that_there_are_none(
    tmp_path: Path,
) -> None:
    name = str(tmp_path / "snapshot.json")
    with ScriptedServer() as server:
        serve(server, EVERYTHING)
        for path in ("berth.volcano.sh/v1alpha1/queues", "kueue.x-k8s.io/v1beta2/localqueues"):
            server.on("GET", f"/apis/{path}", refusal(403, "Forbidden", "forbidden"))
        assert run(["snapshot", "--kubeconfig", server.kubeconfig(tmp_path), "--file", name]) == 0

    assert read_snapshot_file(name).unread == (SnapshotKind.QUEUES,)
    assert read_snapshot_file(name).queue_objects


def test_a_cluster_without_reservations_has_none(tmp_path: Path) -> None:
    bare = Snapshot(nodes=(node("a"),), pods=(pod(node="a"),))
    dump(tmp_path, str(tmp_path / "snapshot.json"), bare)

    assert read_snapshot_file(str(tmp_path / "snapshot.json")) == bare


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        kubeconfig = serve(server, EVERYTHING).kubeconfig(tmp_path)
        assert run(["snapshot", "--kubeconfig", kubeconfig, "--file", "/nowhere/x.json"]) == 2

    assert "expected a file that can be written (No such file or directory)" in capsys.readouterr().err
