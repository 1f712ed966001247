"""Finds names and selectors of a policy that match nothing in the cluster.

None of them is an error: a policy outlives namespaces, nodes, pods and classes. An excluded name that does not exist is
harmless; where no included name exists, nothing is moved.
"""

from collections.abc import Collection, Iterator
from typing import Final

from berth_core import (
    LabelSelector,
    PriorityClass,
    Snapshot,
    SnapshotKind,
    StorageClass,
    first_few,
    format_selector,
    matches_labels,
)
from berth_descheduler.planner import EvictableNamespaces, PlannerSettings, known_namespaces, unreadable_of
from berth_descheduler.planner.goal import UnknownName
from berth_descheduler.plugins import DefaultEvictor, DefaultEvictorArgs, Defragmentation

_NAMED: Final = 5
_NONE: Final = "0"
_NO_NAMESPACE: Final = "and the cluster has no such namespace"
_NO_PRIORITY_CLASS: Final = "and the cluster has no such PriorityClass"
_UNREADABLE_PRIORITY_CLASS: Final = "and this PriorityClass cannot be read"
_NO_RESOURCE: Final = "and no node has such a resource"
_NO_STORAGE_CLASS: Final = "and the cluster has no such StorageClass"


def find_unknown_names(snapshot: Snapshot, settings: PlannerSettings) -> Iterator[UnknownName]:
    """Yield the fields of a policy that match nothing, in whole or in part."""
    yield from _unknown_namespaces("evictableNamespaces", settings.scope.evictable_namespaces, snapshot)
    yield from _unselected_nodes("nodeSelector", settings.scope.node_selector, snapshot)
    yield from _unknown_resources(settings, snapshot)
    balance = settings.plugins.balance.plugin
    if isinstance(balance, Defragmentation):
        yield from balance.args.goal.unknown_names(balance.args, snapshot)
    for plugin, namespaces in _namespaces_of_plugins(settings):
        yield from _unknown_namespaces(f"{plugin}.namespaces", namespaces, snapshot)
    for enabled in settings.plugins.filters:
        if isinstance(enabled.plugin, DefaultEvictor):
            yield from _unknown_to_evictor(enabled.plugin.args, snapshot)


def _namespaces_of_plugins(settings: PlannerSettings) -> Iterator[tuple[str, EvictableNamespaces]]:
    """Yield the argument `namespaces` of each plugin that has one."""
    enabled = (settings.plugins.balance, *settings.plugins.deschedule)
    for plugin_name, plugin in {use.name: use.plugin for use in enabled}.items():
        namespaces = getattr(plugin, "namespaces", None)
        if isinstance(namespaces, EvictableNamespaces):
            yield plugin_name, namespaces


def _unknown_namespaces(field: str, namespaces: EvictableNamespaces, snapshot: Snapshot) -> Iterator[UnknownName]:
    namespaces_known = known_namespaces(snapshot)
    for part, names in (("include", namespaces.include), ("exclude", namespaces.exclude)):
        if unknown := sorted(names - namespaces_known):
            is_all = part == "include" and len(unknown) == len(names)
            consequence = "; no pod may be moved" if is_all else ""
            yield _named(f"{field}.{part}", unknown, _NO_NAMESPACE, consequence, selects_nothing=is_all)


def _unselected_nodes(field: str, selector: LabelSelector | None, snapshot: Snapshot) -> Iterator[UnknownName]:
    if selector is not None and not any(matches_labels(selector, node.metadata.labels) for node in snapshot.nodes):
        text = f"{field} {format_selector(selector)} selects no node of the cluster: nothing can be moved."
        yield UnknownName(field, text, selects_nothing=True)


def _unknown_resources(settings: PlannerSettings, snapshot: Snapshot) -> Iterator[UnknownName]:
    """Yield the resources that no node has."""
    known_resources = _resources(snapshot)
    for field, resource in settings.named_resources.items() if known_resources else ():
        if resource not in known_resources:
            yield _named(field, [resource], _NO_RESOURCE, selects_nothing=True)


def _resources(snapshot: Snapshot) -> frozenset[str]:
    """Return the resources of which a node has more than nothing; an unreadable amount counts."""
    amounts = (resource_amount for node in snapshot.nodes for resource_amount in node.status.allocatable.items())
    return frozenset(resource for resource, amount in amounts if str(amount).strip() != _NONE)


def _unknown_to_evictor(args: DefaultEvictorArgs, snapshot: Snapshot) -> Iterator[UnknownName]:
    plugin = "DefaultEvictor"
    yield from _unknown_namespaces(f"{plugin}.namespaces", args.namespaces, snapshot)
    yield from _unselected_nodes(f"{plugin}.nodeSelector", args.node_selector, snapshot)
    labels = args.namespace_label_selector
    if labels is not None and not any(
        matches_labels(labels, namespace.metadata.labels) for namespace in snapshot.namespaces
    ):
        text = f"{plugin}.namespaceLabelSelector selects no namespace of the cluster: no pod may be moved."
        yield UnknownName(f"{plugin}.namespaceLabelSelector", text, selects_nothing=True)
    if args.label_selector is not None and not any(
        matches_labels(args.label_selector, pod.metadata.labels) for pod in snapshot.pods
    ):
        text = f"{plugin}.labelSelector selects no pod of the cluster: no pod may be moved."
        yield UnknownName(f"{plugin}.labelSelector", text, selects_nothing=True)
    classes = {priority_class.metadata.name for priority_class in snapshot.priority_classes}
    if (
        args.priority_threshold is not None
        and (class_name := args.priority_threshold.name)
        and class_name not in classes
    ):
        consequence = "; no pod is known to be below it, and none may be moved"
        is_unreadable = unreadable_of(snapshot, PriorityClass, class_name)
        why_unknown = _UNREADABLE_PRIORITY_CLASS if is_unreadable else _NO_PRIORITY_CLASS
        yield _named(f"{plugin}.priorityThreshold", [class_name], why_unknown, consequence, selects_nothing=True)
    if SnapshotKind.STORAGE_CLASSES not in (*snapshot.missing, *snapshot.unread):
        storage = {storage_class.metadata.name for storage_class in snapshot.storage_classes}
        unread = sorted(args.protected_storage_classes - storage)
        if unknown := [name for name in unread if not unreadable_of(snapshot, StorageClass, name)]:
            yield _named(f"{plugin}.protectedStorageClasses", unknown, _NO_STORAGE_CLASS)


def _named(
    field: str, names: Collection[str], problem: str, consequence: str = "", *, selects_nothing: bool = False
) -> UnknownName:
    text = f"{field} names {first_few(list(names), _NAMED)}, {problem}"
    return UnknownName(field, f"{text}{consequence}.", selects_nothing)
