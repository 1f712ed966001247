"""A small cluster as on a first day: twenty nodes, and one namespace with all 76 pods."""

from berth_core import Pod
from berth_core.snapshot import Snapshot
from builders import namespace, node, owner, pod

NAMESPACE = "shop"


def small_cluster() -> Snapshot:
    """Twenty nodes of eight cpu, four of them with three pods of one cpu, and the others with four."""
    names = [f"n{index:02}" for index in range(20)]
    pods = tuple(_web(f"{on}-{n}", on) for index, on in enumerate(names) for n in range(3 if index < 4 else 4))
    nodes = tuple(node(name, cpu="8") for name in names)
    return Snapshot(nodes=nodes, pods=pods, namespaces=(namespace(NAMESPACE),))


def _web(name: str, on: str) -> Pod:
    return pod(name, node=on, cpu="1", memory=None, namespace=NAMESPACE, controller=owner(name=name))
