"""Clusters with readings of the metrics API, and settings of policies that heed them."""

from collections.abc import Mapping
from typing import Any

from berth_core import Node, Pod
from berth_core.object_lists import RawObject
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.hot_nodes.plugin import HotNodes
from berth_descheduler.capabilities.hot_nodes.readings import NODE_METRICS, POD_METRICS
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.planner import PlannerSettings
from builders import NOON, NOON_TEXT, node, owner, pod
from planner_settings import with_plugins, with_settings


def node_reading(name: str, cpu: str = "1", memory: str = "1Gi", **fields: Any) -> RawObject:  # noqa: ANN401 - fields of the object
    usage = {"cpu": cpu, "memory": memory}
    return {"metadata": {"name": name}, "timestamp": NOON_TEXT, "window": "15s", "usage": usage, **fields}


def pod_reading(name: str, *cpus: str, memory: str = "0", **fields: Any) -> RawObject:  # noqa: ANN401
    """A reading of a pod that has a container for each amount of cpu."""
    containers = [{"name": f"c{number}", "usage": {"cpu": cpu, "memory": memory}} for number, cpu in enumerate(cpus)]
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "timestamp": NOON_TEXT, "window": "15s", "containers": containers, **fields}


def measured(
    nodes: tuple[Node, ...],
    pods: tuple[Pod, ...],
    of_nodes: tuple[RawObject, ...] | None,
    of_pods: tuple[RawObject, ...] | None = (),
) -> Snapshot:
    """A cluster with readings; None where the API has none to list."""
    beside: dict[str, tuple[RawObject, ...]] = {}
    if of_nodes is not None:
        beside[NODE_METRICS.name] = of_nodes
    if of_pods is not None:
        beside[POD_METRICS.name] = of_pods
    return Snapshot(nodes=nodes, pods=pods, beside=beside)


def heeding(settings: PlannerSettings, **target_usage: Any) -> PlannerSettings:  # noqa: ANN401 - numbers or their text
    """The settings, at noon, with `HotNodes` among the filters."""
    args: Mapping[str, Any] = {"targetUsage": target_usage} if target_usage else {}
    enabled = (*settings.plugins.filters, Enabled("HotNodes", HotNodes.parse(args)))
    return with_settings(with_plugins(settings, filters=enabled), now=NOON)


def ten(*names: str) -> tuple[Node, ...]:
    return tuple(node(name, cpu="10", memory="100Gi") for name in names)


def placed(name: str, on: str, cpu: str = "1", **fields: Any) -> Pod:  # noqa: ANN401
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name), **fields)
