"""The configuration files of a real node: of its kubelet, its containerd and its pods' network."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth_core import parse_quantity
from berth_sandbox.real_nodes.images import PAUSE_IMAGE
from berth_sandbox.real_nodes.namespaces import node_address, pod_network

REAL_NODE_LABEL: Final = "berth.volcano.sh/sandbox-node"
REAL_NODE_LABEL_VALUE: Final = "real"

# The kubelet's default (`KubeletPort` in pkg/cluster/ports).
KUBELET_PORT: Final = 10250
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"

_EVICTION_MEMORY: Final = "100Mi"
_MEMORY_FILE: Final = Path("/proc/meminfo")
_KIBIBYTE: Final = 1024
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RealNodeShape:
    """What pods may ask for on a real node, as far as the machine has it."""

    cpu: str = "2"
    memory: str = "2Gi"
    pods: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSize:
    """Processors and memory of this machine, all of which each kubelet finds."""

    cpu_millis: int
    memory_bytes: int

    @classmethod
    def read(cls) -> "MachineSize":
        lines = _MEMORY_FILE.read_text(encoding="ascii").splitlines()
        total = next(line.split()[1] for line in lines if line.startswith("MemTotal:"))
        return cls(cpu_millis=(os.cpu_count() or 1) * _MILLI, memory_bytes=int(total) * _KIBIBYTE)


def build_kubelet_config(
    number: int, *, cgroup: str, authority: Path, resolver: Path, shape: RealNodeShape, machine: MachineSize
) -> dict[str, Any]:
    """Return the KubeletConfiguration of a node, counted from 1.

    The kubelet sets nothing on the machine. It reserves everything beyond the node's shape, because it finds the whole
    machine.
    """
    kept_cpu = machine.cpu_millis - parse_quantity(shape.cpu).milli()
    kept_memory = machine.memory_bytes - parse_quantity(shape.memory).value() - parse_quantity(_EVICTION_MEMORY).value()
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # True by default from Kubernetes 1.35 on (KEP-5573), but test machines still have version 1.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "address": node_address(number),
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            # Only the API server calls these kubelets, and by certificate: TokenReviews and SubjectAccessReviews would
            # be for nothing.
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        # The kubelet would not start on a machine with swap, which is the machine's affair.
        "failSwapOn": False,
        # Otherwise it keeps chains such as KUBE-FIREWALL in iptables, which drop packets.
        "makeIPTablesUtilChains": False,
        # Check sysctls and write none: they are the whole machine's.
        "protectKernelDefaults": True,
        # The default of -999 takes a right that root in a container may lack.
        "oomScoreAdj": 0,
        "systemReserved": {"cpu": f"{max(0, kept_cpu)}m", "memory": str(max(0, kept_memory))},
        "evictionHard": {
            "memory.available": _EVICTION_MEMORY,
            # At the default of 10 % the kubelet evicts pods from a machine whose disk is just rather full.
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        # 100 switches the collection off: there is no registry from which an image would come back.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": shape.pods,
        # An empty file: pods would inherit the machine's name servers, which they cannot reach from their network.
        "resolvConf": str(resolver),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "serializeImagePulls": False,
    }


def build_pod_network(number: int) -> dict[str, Any]:
    """Return the CNI configuration of a node: a bridge, from which pods reach those of other nodes by address."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": pod_network(number)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": f"pods-{number}",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": ipam,
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def build_containerd_config(*, plugins: str, networks: Path, snapshotter: str) -> str:
    """Return the configuration of containerd.

    It may not lower the OOM score of its containers, a right that root in a container may lack.
    """
    unused = ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.devmapper", "snapshotter.v1.aufs")
    disabled = ", ".join(f'"io.containerd.{name}"' for name in (*unused, "internal.v1.opt"))
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [{disabled}]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{networks}"
"""
