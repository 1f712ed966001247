"""The implicit policies by which RevocableZones empty their nodes without a DeschedulerPolicy.

A policy that enables `LentNodes` under `deschedule` replaces them for the zones that it names, or for all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from berth_core import (
    LENT_NODES,
    DeschedulerPolicy,
    DeschedulerPolicySpec,
    FreedTaint,
    InputError,
    Limits,
    ObjectMeta,
    ObjectReference,
    Profile,
    RevocableZone,
    RunMode,
    Trigger,
    ZoneState,
    format_duration,
    read_evict_period,
)
from berth_core.policies import FreedNodes, PluginConfig, Plugins, PluginSet
from berth_descheduler.capability import OwnPolicy
from berth_kube import REVOCABLE_ZONES, KubeClient, NotFoundError

ZONES_ARGUMENT: Final = "zones"
_PREFIX: Final = "revocablezone-"
_MOST_MOVES: Final = 50
_SHORTEST_PERIOD: Final = timedelta(seconds=10)
"""The shortest interval between runs, as for any policy."""


def zone_policies(client: KubeClient, of_people: Sequence[DeschedulerPolicy]) -> Iterator[OwnPolicy]:
    """Yield the implicit policy of each zone that no policy in `of_people` takes over; none without the CRD."""
    with suppress(NotFoundError):
        for zone in (RevocableZone.read(body) for body in client.list(REVOCABLE_ZONES).items):
            if not any(takes_over(policy, zone.metadata.name) for policy in of_people):
                # The zone's own condition says what is wrong with it; others are emptied all the same.
                with suppress(InputError):
                    yield OwnPolicy(zone_policy(zone), _reference(zone))


def takes_over(policy: DeschedulerPolicy, zone: str) -> bool:
    """Return whether a policy is responsible for emptying a zone, even if it is suspended or only plans.

    Only this part of the policy is read: a mistake elsewhere must not let the zone evict what the policy protects.
    """
    return any(
        LENT_NODES in profile.plugins.deschedule.enabled and _names(profile, zone) for profile in policy.spec.profiles
    )


def zone_policy(zone: RevocableZone) -> DeschedulerPolicy:
    """Return the implicit policy of a zone, suspended while no pod must leave.

    Raises `InputError` for an invalid eviction period.
    """
    name = zone.metadata.name
    args: Mapping[str, Any] = {ZONES_ARGUMENT: [name]}
    profile = Profile(
        name="default",
        plugin_config=(PluginConfig(name=LENT_NODES, args=dict(args)),),
        plugins=Plugins(deschedule=PluginSet(enabled=(LENT_NODES,))),
    )
    period = max(read_evict_period(zone.spec), _SHORTEST_PERIOD)
    return DeschedulerPolicy(
        metadata=ObjectMeta(
            name=policy_name(name),
            # The service keeps failures and the last scheduled time by the policy's uid, and this policy has no object.
            uid=zone.metadata.uid,
            generation=zone.metadata.generation,
            creation_timestamp=zone.metadata.creation_timestamp,
        ),
        spec=DeschedulerPolicySpec(
            trigger=Trigger(interval=format_duration(period)),
            suspend=not _pods_must_leave_now(zone),
            mode=RunMode.AUTO,
            profiles=(profile,),
            # No cool-down: a pod that was moved to the node an hour ago has to leave in time like all others.
            limits=Limits(max_moves=_MOST_MOVES, pod_cool_down="0s"),
            # The node is not free but given back: its fence keeps pods off, and an autoscaler must not remove it.
            freed_nodes=FreedNodes(taint=FreedTaint.NONE),
        ),
    )


def policy_name(zone: str) -> str:
    """Return the name under which the plans of a zone's own runs are kept."""
    return f"{_PREFIX}{zone}"


def _pods_must_leave_now(zone: RevocableZone) -> bool:
    """Return whether pods must leave now; an invalid zone closes its nodes but evicts nothing."""
    closed = {ZoneState.EMPTYING.value, ZoneState.CLOSED.value, ZoneState.SUSPENDED.value}
    return bool(zone.status.pods) and zone.status.state in closed and not zone.metadata.deletion_timestamp


def _names(profile: Profile, zone: str) -> bool:
    zones = [
        config.args[ZONES_ARGUMENT]
        for config in profile.plugin_config
        if config.name == LENT_NODES and config.args.get(ZONES_ARGUMENT)
    ]
    return not zones or any(isinstance(names, list) and zone in names for names in zones)


def _reference(zone: RevocableZone) -> ObjectReference:
    return ObjectReference.of(REVOCABLE_ZONES.api_version, REVOCABLE_ZONES.kind, zone.metadata)
