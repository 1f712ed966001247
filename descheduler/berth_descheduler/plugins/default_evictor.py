"""The plugin `DefaultEvictor`: which movable pods a policy allows to move.

As upstream, the annotation `descheduler.alpha.kubernetes.io/evict` on a pod overrides what is asked of single pods. It
does not override the scope (nodes, namespaces), the rules of `evictability` or other plugins.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_core import InputError, LabelSelector, OwnerReference, Pod, PriorityClass, matches_labels, parse_timestamp
from berth_descheduler.framework import ClusterView, PodFilter, Refusal, RefusalReason
from berth_descheduler.framework.enabled_plugins import PluginSet
from berth_descheduler.planner import (
    EVICT_ANNOTATION,
    NO_EVICTION_ANNOTATION,
    DisruptionBudgets,
    EvictableNamespaces,
    OwnersOfOwners,
    unreadable_of,
)
from berth_descheduler.planner.autoscalers.pods import is_declared_safe
from berth_descheduler.plugins.default_evictor_args import DefaultEvictorArgs, NoEvictionPolicy, Protection

EVICTOR_NAME: Final = "DefaultEvictor"

_Check = Callable[[Pod], Iterable[Refusal]]


@dataclass(frozen=True, slots=True)
class DefaultEvictor:
    """Keeps pods by the arguments of a policy, when a plan is made and right before an eviction."""

    args: DefaultEvictorArgs = field(default_factory=DefaultEvictorArgs)

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "DefaultEvictor":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        return cls(DefaultEvictorArgs.parse(args))

    def filter(self, view: ClusterView) -> PodFilter:
        """Return the filter that gives every reason against moving a pod."""
        return self._filter(view, (_owner_check(self.args, view),))

    def pre_eviction_filter(self, view: ClusterView) -> PodFilter:
        """Return the checks of `filter` whose answers may have changed since the plan was made."""
        # A pod's labels, annotations and age change, and its namespace's labels; its owners do not.
        return self._filter(view, ())

    def _filter(self, view: ClusterView, lasting_checks: tuple[_Check, ...]) -> PodFilter:
        scope = tuple(_scope_checks(self.args, view))
        all_checks = (*scope, *_single_checks(self.args, view), *lasting_checks)

        def objections(pod: Pod) -> list[Refusal]:
            """Return every reason to keep a pod; one with the annotation is checked for the scope alone."""
            # As upstream, a pod may override checks of itself by the annotation; it cannot widen the policy's scope.
            checks = scope if EVICT_ANNOTATION in pod.metadata.annotations else all_checks
            return [refusal for check in checks for refusal in check(pod)]

        return objections


def label_selectors(plugins: PluginSet) -> tuple[LabelSelector, ...]:
    """Return the selectors, all of which a movable pod has to satisfy."""
    evictors = (
        enabled_plugin.plugin for enabled_plugin in plugins.filters if isinstance(enabled_plugin.plugin, DefaultEvictor)
    )
    return tuple(evictor.args.label_selector for evictor in evictors if evictor.args.label_selector is not None)


def _scope_checks(args: DefaultEvictorArgs, view: ClusterView) -> Iterator[_Check]:
    """Yield the checks of a pod's node and namespace, only those that an argument needs."""
    if args.node_selector is not None:
        yield _node_check(args, view)
    if args.namespaces != EvictableNamespaces():
        yield _name_check(args)
    if args.namespace_label_selector is not None:
        yield _namespace_check(args, view)


def _single_checks(args: DefaultEvictorArgs, view: ClusterView) -> Iterator[_Check]:
    """Yield what is asked of the pod itself."""
    if args.no_eviction_policy is NoEvictionPolicy.MANDATORY:
        yield _wish_refusals
    if args.label_selector is not None:
        yield _label_check(args)
    if args.priority_threshold is not None:
        yield _priority_check(args, view)
    if args.min_replicas > 1:
        yield _replicas_check(args, view)
    if args.min_pod_age is not None:
        yield _age_check(args, view)
    if Protection.LOCAL_STORAGE in args.protections:
        yield _local_storage_refusals
    if Protection.CLAIM in args.protections:
        yield _claim_check(args, view)
    if Protection.WITHOUT_BUDGET in args.protections:
        yield _budget_check(view)


def _node_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    nodes = view.snapshot.nodes
    selected = frozenset(
        node.metadata.name for node in nodes if matches_labels(args.node_selector, node.metadata.labels)
    )

    def check(pod: Pod) -> Iterator[Refusal]:
        if pod.spec.node_name not in selected:
            yield Refusal(RefusalReason.NODE_NOT_SELECTED, f"the nodeSelector does not select {pod.spec.node_name}")

    return check


def _name_check(args: DefaultEvictorArgs) -> _Check:
    def check(pod: Pod) -> Iterator[Refusal]:
        namespace = pod.metadata.namespace
        if not args.namespaces.allows(namespace):
            text = f"pods of the namespace {namespace} may not be moved"
            yield Refusal(RefusalReason.NAMESPACE_NOT_EVICTABLE, text)

    return check


def _namespace_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    selector = args.namespace_label_selector
    namespaces = view.snapshot.namespaces
    selected = frozenset(
        namespace.metadata.name for namespace in namespaces if matches_labels(selector, namespace.metadata.labels)
    )

    def check(pod: Pod) -> Iterator[Refusal]:
        namespace = pod.metadata.namespace
        if namespace not in selected:
            text = f"the namespaceLabelSelector does not select {namespace}"
            yield Refusal(RefusalReason.NAMESPACE_NOT_SELECTED, text)

    return check


def _wish_refusals(pod: Pod) -> Iterator[Refusal]:
    if NO_EVICTION_ANNOTATION in pod.metadata.annotations:
        yield Refusal(RefusalReason.WANTS_NO_EVICTION, f"it has the annotation {NO_EVICTION_ANNOTATION}")


def _label_check(args: DefaultEvictorArgs) -> _Check:
    def check(pod: Pod) -> Iterator[Refusal]:
        if not matches_labels(args.label_selector, pod.metadata.labels):
            yield Refusal(RefusalReason.LABELS_NOT_SELECTED, "the labelSelector does not select it")

    return check


def _priority_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    least_priority = _least_priority(args, view)
    if least_priority is None:
        unknown = _without_least_priority(args, view)
        return lambda _: iter((unknown,))

    def check(pod: Pod) -> Iterator[Refusal]:
        priority = pod.spec.priority
        # As upstream, the threshold itself is not evictable (`IsPodEvictableBasedOnPriority`).
        if priority is not None and priority >= least_priority:
            text = f"its priority {priority} is not below the priorityThreshold, which is {least_priority}"
            yield Refusal(RefusalReason.PRIORITY_TOO_HIGH, text)

    return check


def _least_priority(args: DefaultEvictorArgs, view: ClusterView) -> int | None:
    """Return the least priority of the pods that stay; None if that is the value of a class that is not known."""
    threshold = args.priority_threshold
    if threshold is None or threshold.value is not None:
        return 0 if threshold is None or threshold.value is None else threshold.value
    priority_by_class = {
        priority_class.metadata.name: priority_class.value for priority_class in view.snapshot.priority_classes
    }
    return priority_by_class.get(threshold.name)


def _without_least_priority(args: DefaultEvictorArgs, view: ClusterView) -> Refusal:
    """Return why every pod stays where the value of the named class is not known."""
    name = args.priority_threshold.name if args.priority_threshold else ""
    if why_unreadable := unreadable_of(view.snapshot, PriorityClass, name):
        return Refusal(RefusalReason.UNREADABLE_OBJECT, f"priorityThreshold is not known, as {why_unreadable}")
    text = f"the PriorityClass {name} of priorityThreshold does not exist, so no pod is known to be below it"
    return Refusal(RefusalReason.PRIORITY_TOO_HIGH, text)


def _replicas_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    # Upstream counts every pod of the owner, also those that have ended (`evictionConstraintsForMinReplicas`). They
    # are no replicas that could take over from the evicted one.
    live = (pod for pod in view.snapshot.pods if not pod.is_terminal and not pod.is_terminating)
    sizes = Counter(_owner_key(pod, pod.controller) for pod in live)

    def check(pod: Pod) -> Iterator[Refusal]:
        owner = pod.controller
        size = sizes[_owner_key(pod, owner)]
        if owner is not None and size < args.min_replicas:
            text = (
                f"its {owner.kind} {owner.name} has {size} pods, fewer than minReplicas, which is {args.min_replicas}"
            )
            yield Refusal(RefusalReason.TOO_FEW_REPLICAS, text)

    return check


def _owner_key(pod: Pod, owner: OwnerReference | None) -> tuple[str, str, str]:
    return (pod.metadata.namespace, owner.kind, owner.uid or owner.name) if owner else ("", "", "")


def _owner_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    owners_of_owners = OwnersOfOwners(view.snapshot, args.harmless_owners)

    def check(pod: Pod) -> Iterator[Refusal]:
        if (refusal := owners_of_owners.refusal(pod)) is not None:
            yield refusal

    return check


def _age_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    def check(pod: Pod) -> Iterator[Refusal]:
        if not _is_old(pod, args, view):
            started = pod.status.start_time
            started_text = f"it was started at {started}" if started else "it is not known when it was started"
            yield Refusal(RefusalReason.TOO_YOUNG, f"{started_text}, and minPodAge is {args.age_in_words}")

    return check


def _is_old(pod: Pod, args: DefaultEvictorArgs, view: ClusterView) -> bool:
    """Return whether a pod is at least as old as asked, False where its age is not known."""
    # The age counts from `status.startTime`, as upstream (`evictionConstraintsForMinPodAge`): a pod may have waited for
    # long.
    if pod.status.start_time is None or view.now is None or args.min_pod_age is None:
        return False
    try:
        return view.now - parse_timestamp(pod.status.start_time) >= args.min_pod_age
    except InputError:
        return False


def _local_storage_refusals(pod: Pod) -> tuple[Refusal, ...]:
    for volume in pod.spec.volumes:
        is_local = volume.empty_dir is not None or volume.host_path is not None
        if is_local and not is_declared_safe(pod, volume):
            return (Refusal(RefusalReason.LOCAL_STORAGE, f"volume {volume.name} would be lost with the pod"),)
    return ()


def _claim_check(args: DefaultEvictorArgs, view: ClusterView) -> _Check:
    protected = args.protected_storage_classes
    claims = view.snapshot.persistent_volume_claims if protected else ()
    classes = {(claim.metadata.namespace, claim.metadata.name): claim.spec.storage_class_name for claim in claims}

    def check(pod: Pod) -> Iterator[Refusal]:
        for volume in pod.spec.volumes:
            if (claim := volume.persistent_volume_claim) is None:
                continue
            storage_class = classes.get((pod.metadata.namespace, claim.claim_name), "")
            if not protected or not storage_class or storage_class in protected:
                class_text = f" of the class {storage_class or '(not known)'}" if protected else ""
                text = f"it has the claim {claim.claim_name}{class_text}"
                yield Refusal(RefusalReason.PERSISTENT_STORAGE, text)
                return

    return check


def _budget_check(view: ClusterView) -> _Check:
    budgets = DisruptionBudgets(view.snapshot.disruption_budgets, view.snapshot.pods)

    def check(pod: Pod) -> Iterator[Refusal]:
        if not budgets.covering(pod):
            yield Refusal(RefusalReason.WITHOUT_BUDGET, "no disruption budget covers it")

    return check
