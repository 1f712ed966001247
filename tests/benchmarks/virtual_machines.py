"""A generated placement of virtual machines of VMR-L's size and kind: 1,176 hosts, 4,546 machines (EuroSys 2025).

VMR-L itself (`bytedance/DRL-based-VM-Rescheduling`, the larger base snapshot) is not among the public data here. Its
hosts have 88 cores and 360 GiB, its machines four GiB for each core, and about a third of its hosts hold one machine
that fills them. Machines come one by one, each to the fullest of some random hosts that has room, and then some leave.
"""

from collections import Counter
from random import Random
from typing import Final

from berth_core import Container, OwnerReference, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements
from berth_core.snapshot import Snapshot
from berth_core.workloads import Workload, WorkloadSpec
from builders import meta, node

HOSTS: Final = 1_176
MACHINES: Final = 4_546
HOST_CORES: Final = 88
HOST_GIB: Final = 360
GIB_PER_CORE: Final = 4

_CORES: Final = ((2, 8), (4, 17), (8, 27), (16, 25), (32, 12), (64, 4), (84, 1), (88, 8))
"""Cores of a machine, and how many of a hundred machines have them, by excerpts of VMR-L's file."""

_LEAST_HALVED: Final = 8  # cores
_HALVED: Final = 0.25
"""The share of the machines of so many cores that have half of them on each half of a host."""

_SAMPLED_HOSTS: Final = 6
_LEAVING: Final = 0.03
"""The share of the machines that leave after all came."""


def virtual_machines(seed: int, *, hosts: int = HOSTS, machines: int = MACHINES) -> Snapshot:
    """Return a generated placement of machines as pods on hosts as nodes, each size with an owner of its own."""
    chance = Random(f"virtual machines {seed}")  # noqa: S311 - an instance is no secret
    free = [[HOST_CORES // 2] * 2 for _ in range(hosts)]
    sizes, weights = zip(*_CORES, strict=True)
    placed: list[tuple[int, int]] = []
    for cores in chance.choices(sizes, weights, k=round(machines / (1 - _LEAVING))):
        host = _host_for(cores, free, chance)
        if host is not None:
            placed.append((cores, host))
    chance.shuffle(placed)
    kept = sorted(placed[:machines], key=lambda machine: machine[1])
    nodes = tuple(
        node(f"pm-{index:04d}", cpu=str(HOST_CORES), memory=f"{HOST_GIB}Gi", pods="110") for index in range(hosts)
    )
    pods = tuple(_machine(number, cores, host) for number, (cores, host) in enumerate(kept))
    replicas = Counter(cores for cores, _ in kept)
    return Snapshot(nodes=nodes, pods=pods, workloads=tuple(_owner(cores, replicas[cores]) for cores in sizes))


def _host_for(cores: int, free: list[list[int]], chance: Random) -> int | None:
    """Take cores for a machine on the fullest of some random hosts with room, or of all, and return the host.

    A machine has its cores on one half of its host if they fit on one, else the same number on both; a share of the
    larger ones has them on both anyway. Returns None where no host has room.
    """
    is_halved = cores > HOST_CORES // 2 or (cores >= _LEAST_HALVED and chance.random() < _HALVED)
    for hosts in (chance.sample(range(len(free)), _SAMPLED_HOSTS), range(len(free))):
        if is_halved:
            roomy = [(sum(free[host]), host, (0, 1)) for host in hosts if min(free[host]) >= cores // 2]
        else:
            roomy = [
                (free[host][half], host, (half,)) for host in hosts for half in (0, 1) if free[host][half] >= cores
            ]
        if roomy:
            _, taken, halves = min(roomy)
            for half in halves:
                free[taken][half] -= cores // len(halves)
            return taken
    return None


def _owner(cores: int, replicas: int) -> Workload:
    name = f"vm-{cores}"
    return Workload(
        api_version="apps/v1",
        kind="ReplicaSet",
        metadata=meta(name, namespace="vms", uid=f"uid-{name}"),
        spec=WorkloadSpec(replicas=replicas),
    )


def _machine(number: int, cores: int, host: int) -> Pod:
    owner, name = f"vm-{cores}", f"vm-{number:04d}"
    requests = {"cpu": str(cores), "memory": f"{cores * GIB_PER_CORE}Gi"}
    reference = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name=owner, uid=f"uid-{owner}", controller=True
    )
    return Pod(
        metadata=meta(name, namespace="vms", uid=f"uid-{name}", labels={"app": owner}, owners=(reference,)),
        spec=PodSpec(
            node_name=f"pm-{host:04d}",
            scheduler_name="default-scheduler",
            containers=(Container(name="vm", image="pause", resources=ResourceRequirements(requests=requests)),),
            priority=0,
        ),
        status=PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),)),
    )
