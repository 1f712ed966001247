"""What pods say of where they may run: affinity, tolerations, spread."""

from typing import Final

from berth_core.objects.metadata import ApiStruct, LabelSelector, LabelSelectorRequirement


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """Requirements on a node's labels and `metadata.name`, ANDed; an empty term matches nothing."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    """Terms that are ORed; no terms match no node."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True, kw_only=True):
    """A node preference with its weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """The nodes that a pod requires or prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """The pods that labels and namespaces select, and the topology within which they count."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """A pod preference with its weight."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ApiStruct, frozen=True, kw_only=True):
    """The pods that a pod requires or prefers to be near; also used for anti-affinity."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True, kw_only=True):
    """A pod's affinities to nodes and pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """Taints that a pod tolerates; `operator` "" is Equal, and Exists without a key tolerates all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """How evenly the pods of a selector must spread over a topology."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


SPREAD_HARD: Final = "DoNotSchedule"
"""`whenUnsatisfiable` of a constraint that schedulers may not break."""
