"""Images and configuration files of real nodes, as containerd and a kubelet read them."""

import hashlib
import io
import json
import tarfile
import tomllib
from pathlib import Path

from berth_core import PLACEHOLDER_IMAGE
from berth_sandbox.real_nodes.configuration import (
    MachineSize,
    RealNodeShape,
    build_containerd_config,
    build_kubelet_config,
    build_pod_network,
)
from berth_sandbox.real_nodes.images import APP_IMAGE, IMAGES, PAUSE_IMAGE, build_archive
from berth_sandbox.real_nodes.namespaces import node_address, pod_network

GIB = 1 << 30


def kubelet_config(machine: MachineSize, number: int = 2) -> dict[str, object]:
    return build_kubelet_config(
        number,
        cgroup="/own/real-2",
        authority=Path("/sandbox/pki/ca.crt"),
        resolver=Path("/sandbox/nodes/real-2/resolv.conf"),
        shape=RealNodeShape(cpu="2", memory="2Gi"),
        machine=machine,
    )


def unpack(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_an_archive_has_one_image_under_every_name() -> None:
    contents = unpack(build_archive(b"program", ("one:1", "two:1"), "arm64"))
    (image,) = json.loads(contents["manifest.json"])
    config = json.loads(contents[image["Config"]])
    assert image["RepoTags"] == ["one:1", "two:1"]
    assert image["Config"] == hashlib.sha256(contents[image["Config"]]).hexdigest() + ".json"
    assert config["architecture"] == "arm64"
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(contents["layer.tar"]).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/app"]
    assert config["config"]["User"] == "65535:65535", "a number, by which a kubelet sees that it is not root"
    assert unpack(contents["layer.tar"]) == {"app": b"program"}
    with tarfile.open(fileobj=io.BytesIO(contents["layer.tar"])) as layer:
        assert layer.getmember("app").mode == 0o755


def test_a_node_has_the_images_of_pods_of_placeholders_and_of_pauses() -> None:
    assert set(IMAGES) == {APP_IMAGE, PAUSE_IMAGE, PLACEHOLDER_IMAGE}


def test_a_kubelet_keeps_what_its_node_is_smaller_than_the_machine() -> None:
    config = kubelet_config(MachineSize(cpu_millis=8000, memory_bytes=16 * GIB))
    assert config["systemReserved"] == {"cpu": "6000m", "memory": str(14 * GIB - (100 << 20))}


def test_a_node_is_no_larger_than_the_machine() -> None:
    config = kubelet_config(MachineSize(cpu_millis=1000, memory_bytes=GIB))
    assert config["systemReserved"] == {"cpu": "0m", "memory": "0"}


def test_a_kubelet_changes_nothing_of_the_machine() -> None:
    config = kubelet_config(MachineSize(cpu_millis=8000, memory_bytes=16 * GIB))
    assert config["cgroupRoot"] == "/own/real-2"
    assert config["address"] == node_address(2)
    assert config["protectKernelDefaults"] is True, "it reads the kernel's settings and sets none"
    assert config["makeIPTablesUtilChains"] is False
    assert config["healthzPort"] == 0
    assert str(config["volumePluginDir"]).startswith("/var/lib/"), "a folder that each node has for itself"


def test_nodes_and_their_pods_have_addresses_of_their_own() -> None:
    assert len({node_address(number) for number in range(1, 101)}) == 100
    assert len({pod_network(number) for number in range(1, 101)}) == 100
    (plugin,) = build_pod_network(7)["plugins"]
    assert (plugin["bridge"], plugin["ipam"]["ranges"]) == ("pods-7", [[{"subnet": "198.18.7.0/24"}]])


def test_containerd_keeps_everything_in_folders_that_each_node_has_for_itself() -> None:
    text = build_containerd_config(plugins="/usr/lib/cni", networks=Path("/sandbox/networks"), snapshotter="native")
    config = tomllib.loads(text)
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert (config["root"], config["state"]) == ("/var/lib/containerd", "/run/containerd")
    assert config["grpc"]["address"] == "/run/containerd/containerd.sock"
    assert (cri["sandbox_image"], cri["containerd"]["snapshotter"]) == (PAUSE_IMAGE, "native")
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/sandbox/networks"}
    assert cri["restrict_oom_score_adj"] is True
