"""Finds what keeps nodes from being lent and emptied in time, for `berth doctor`.

A RevocableZone reports its own times, fences and pods in its conditions. This module adds what the zone cannot know: a
label that names no zone, a policy that does not empty its zone, and DaemonSets that taints keep off lent nodes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from berth_core import (
    DRAINING_TAINT,
    HANDOVER_TAINT,
    REVOCABLE_ZONE_LABEL,
    ROOM_TAINT,
    DeschedulerPolicy,
    InputError,
    Node,
    ObjectMeta,
    PodSpec,
    RevocableZone,
    RunMode,
    Taint,
    Toleration,
    ZoneCondition,
    ZoneReason,
    ZoneState,
    count,
    first_few,
    matches_node_affinity,
    parse_duration,
    untolerated_taint,
)
from berth_descheduler.capabilities.lent_nodes.own_runs import policy_name, takes_over
from berth_descheduler.capability import OPERATOR_LOG, Advice
from berth_kube import DAEMON_SETS, DESCHEDULER_POLICIES, REVOCABLE_ZONES, Access, KubeClient, NotFoundError
from berth_sandbox.invariants import ClusterState, Invariant, Violation

_NODES_NAMED: Final = 3
_BY_CONDITION: Final = (
    (ZoneCondition.FENCED, ZoneReason.NO_NODES, Invariant.ZONE_WITHOUT_NODES),
    (ZoneCondition.SCHEDULED, ZoneReason.INVALID, Invariant.ZONE_INVALID),
    (ZoneCondition.FENCED, ZoneReason.WITHOUT_FENCE, Invariant.ZONE_UNFENCED),
    (ZoneCondition.EMPTY_IN_TIME, ZoneReason.TOO_LATE, Invariant.ZONE_LATE),
    (ZoneCondition.EMPTY_IN_TIME, ZoneReason.LEFT_OVER, Invariant.ZONE_LATE),
)
_OF_PLANS: Final = {DRAINING_TAINT, HANDOVER_TAINT, ROOM_TAINT}
"""Taints that Berth sets only for a while, so that they keep no DaemonSet off for good."""

# The list of `AddOrUpdateDaemonPodTolerations` in kubernetes, pkg/controller/daemon/util/daemonset_util.go. It adds
# network-unavailable for hostNetwork pods only; that taint goes by itself once the network is up.
_NODE_CONDITIONS: Final = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure")
_ALWAYS_TOLERATED: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{condition_name}", operator="Exists")
    for condition_name in (*_NODE_CONDITIONS, "unschedulable", "network-unavailable")
)
"""The tolerations that the DaemonSet controller adds to its pods."""


class _Template(msgspec.Struct, frozen=True):
    spec: PodSpec = PodSpec()


class _DaemonSetSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()


class _DaemonSet(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _DaemonSetSpec = _DaemonSetSpec()


def find_zone_troubles(
    client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
) -> Iterator[Violation]:
    """Yield what keeps nodes from being lent and given back at the times of their zones."""
    try:
        zones = [RevocableZone.read(body) for body in client.list(REVOCABLE_ZONES).items]
    except NotFoundError:
        return
    lent = [node for node in state.nodes if REVOCABLE_ZONE_LABEL in node.metadata.labels]
    yield from _unknown_zones(zones, lent)
    for zone in zones:
        yield from _reported_by_zone(zone)
    for zone in filter(_must_be_emptied, zones):
        taking_over = [policy for policy in policies if takes_over(policy, zone.metadata.name)]
        if taking_over and not any(_empties(policy, zone) for policy in taking_over):
            text = f"{count(zone.status.nodes, 'node')} with {count(zone.status.pods, 'pod')} that have to leave"
            text += f", one of each job every {zone.spec.evict_period}"
            yield Violation(Invariant.ZONE_NOT_EMPTIED, f"revocablezone {zone.metadata.name}", text)
        own_name = policy_name(zone.metadata.name)
        if not taking_over and any(policy.metadata.name == own_name for policy in policies):
            text = f"the policy {own_name} has the name of the zone's own runs, and does not empty it"
            yield Violation(Invariant.ZONE_NOT_EMPTIED, f"revocablezone {zone.metadata.name}", text)
    if zones and lent:
        yield from _daemons_kept_off(client.list(DAEMON_SETS, type=_DaemonSet).items, lent)


def _unknown_zones(zones: Iterable[RevocableZone], lent: Iterable[Node]) -> Iterator[Violation]:
    names = {zone.metadata.name for zone in zones}
    for node in lent:
        label = node.metadata.labels[REVOCABLE_ZONE_LABEL]
        if label not in names:
            yield Violation(Invariant.ZONE_UNKNOWN, f"node {node.metadata.name}", f"its label names {label!r}")


def _reported_by_zone(zone: RevocableZone) -> Iterator[Violation]:
    """Yield the problems that a zone's own conditions report; a suspended zone needs no nodes."""
    for condition_type, reason, invariant in _BY_CONDITION:
        condition = zone.condition(condition_type)
        is_off = zone.status.state == ZoneState.SUSPENDED and invariant is Invariant.ZONE_WITHOUT_NODES
        if condition is not None and condition.reason == reason and not is_off:
            yield Violation(invariant, f"revocablezone {zone.metadata.name}", condition.message)


def _must_be_emptied(zone: RevocableZone) -> bool:
    """Return whether a zone will close while pods are on its nodes."""
    never_closes = zone.status.state == ZoneState.OPEN and zone.status.closes_at is None
    return bool(zone.status.nodes and zone.status.pods) and not never_closes


def _empties(policy: DeschedulerPolicy, zone: RevocableZone) -> bool:
    """Return whether a policy moves pods off a zone's nodes without a person, as often as the zone needs."""
    trigger = policy.spec.trigger
    if policy.spec.mode is not RunMode.AUTO or policy.spec.suspend:
        return False
    try:
        return bool(trigger.cron) or parse_duration(trigger.interval) <= parse_duration(zone.spec.evict_period)
    except InputError:
        return False


def _daemons_kept_off(daemon_sets: Iterable[_DaemonSet], lent: Iterable[Node]) -> Iterator[Violation]:
    """Yield the DaemonSets that select lent nodes and do not tolerate their taints."""
    for daemon_set in daemon_sets:
        template = daemon_set.spec.template.spec
        tolerations = (*template.tolerations, *_ALWAYS_TOLERATED)
        kept_off: defaultdict[str, list[str]] = defaultdict(list)
        for node in lent:
            taint = untolerated_taint(
                tolerations, [node_taint for node_taint in node.spec.taints if node_taint.key not in _OF_PLANS]
            )
            if taint is not None and matches_node_affinity(template, node):
                kept_off[_in_words(taint)].append(node.metadata.name)
        if kept_off:
            taints_of_nodes = (
                f"{taint} of {first_few(nodes, _NODES_NAMED)}" for taint, nodes in sorted(kept_off.items())
            )
            target = f"daemonset {daemon_set.metadata.namespace}/{daemon_set.metadata.name}"
            yield Violation(Invariant.DAEMON_KEPT_OFF, target, f"it does not tolerate {', nor '.join(taints_of_nodes)}")


def _in_words(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


_ZONES: Final = Access("list", REVOCABLE_ZONES)

ADVICE: Final[Mapping[Invariant, Advice]] = {
    Invariant.ZONE_INVALID: Advice(
        what="A RevocableZone cannot open.",
        why="Its nodes stay closed to all pods but those of DaemonSets.",
        to_do="Mend the field that is named:",
        command="kubectl edit revocablezone {name}",
        rights=(_ZONES,),
    ),
    Invariant.ZONE_UNKNOWN: Advice(
        what="A node's label names a RevocableZone that does not exist.",
        why="While there is any zone, only pods of DaemonSets may come. Nothing empties the node, or moves pods there.",
        to_do="Make the zone, or mend or take off the label:",
        command="kubectl label node {name} volcano.sh/revocable-zone-",
        rights=(_ZONES,),
    ),
    Invariant.ZONE_WITHOUT_NODES: Advice(
        what="No node has the label of a RevocableZone.",
        why="It lends nothing.",
        to_do="Label its nodes:",
        command="kubectl label node NODE volcano.sh/revocable-zone={name}",
        rights=(_ZONES,),
    ),
    Invariant.ZONE_UNFENCED: Advice(
        what="Nodes of a RevocableZone lack the fence that they should have.",
        why="Pods may come to them that should not, or preemptable pods may be kept off.",
        to_do="A node without a spare pod slot gets none; else the operator's log says why:",
        command=OPERATOR_LOG,
        rights=(_ZONES,),
    ),
    Invariant.ZONE_NOT_EMPTIED: Advice(
        what="The policy that empties a RevocableZone is not in mode Auto, is suspended, or runs too seldom.",
        why="Pods are still on the nodes when these are given back.",
        to_do="Run it in mode Auto once in each evictPeriod, or remove LentNodes (or rename it, if it is called"
        " revocablezone-NAME), so that the zone empties itself:",
        command="kubectl describe revocablezone {name}",
        rights=(_ZONES, Access("list", DESCHEDULER_POLICIES)),
    ),
    Invariant.ZONE_LATE: Advice(
        what="The nodes of a RevocableZone are not empty at the end of its window, or will not be.",
        why="Whoever gets the nodes next finds pods there.",
        to_do="A budget (jdb or disruption) may keep pods; let more leave at once, or earlier (evictBefore):",
        command="kubectl describe revocablezone {name}",
        rights=(_ZONES,),
    ),
    Invariant.DAEMON_KEPT_OFF: Advice(
        what="A DaemonSet selects lent nodes and does not tolerate their taints.",
        why="Its pods are missing there: logs, metrics or the network of pods on lent nodes may be, too.",
        to_do="Let it tolerate the taint, or select other nodes:",
        command="kubectl -n {namespace} edit daemonset {name}",
        rights=(_ZONES, Access("list", DAEMON_SETS)),
    ),
}
