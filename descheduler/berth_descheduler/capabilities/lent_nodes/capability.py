"""Registers lent nodes with the descheduler: their plugin, rule, own policies and findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from berth_core import LENT_NODES, DeschedulerPolicy
from berth_descheduler.capabilities.lent_nodes.jobs import why_not_evicted
from berth_descheduler.capabilities.lent_nodes.own_runs import zone_policies
from berth_descheduler.capabilities.lent_nodes.plugin import ARGUMENTS, LentNodes, evicts_for_room
from berth_descheduler.capabilities.lent_nodes.rule import LentNodesRule
from berth_descheduler.capability import Advice, Capability, EvictedPod, OwnPolicy
from berth_descheduler.framework.enabled_plugins import PluginSet
from berth_descheduler.framework.interfaces import PluginType
from berth_descheduler.framework.rules import Rule
from berth_descheduler.goals.make_room.goal import MakeRoomGoal

if TYPE_CHECKING:
    from berth_kube import KubeClient
    from berth_sandbox.invariants import ClusterState, Invariant, Violation


class LentNodesCapability(Capability):
    """Lent nodes, which are those of RevocableZones."""

    name: ClassVar[str] = LENT_NODES
    plugin: ClassVar[PluginType] = LentNodes
    goal: ClassVar[MakeRoomGoal] = LentNodes.goal
    arguments: ClassVar[Mapping[str, str]] = ARGUMENTS
    may_not_wait: ClassVar[bool] = True

    def rules(self, plugins: PluginSet) -> tuple[Rule, ...]:
        return (LentNodesRule(plugins.balance.name == LENT_NODES, evicts_for_room(plugins)),)

    def why_not_evicted(self, evicted: EvictedPod) -> str:
        return why_not_evicted(
            evicted.pod,
            evicted.neighbours,
            evicted.own,
            evicted.own_namespace,
            evicted.now,
            for_room=evicts_for_room(evicted.plugins),
        )

    def own_policies(self, client: KubeClient, of_people: Sequence[DeschedulerPolicy]) -> Iterator[OwnPolicy]:
        return zone_policies(client, of_people)

    def findings(
        self, client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
    ) -> Iterator[Violation]:
        from berth_descheduler.capabilities.lent_nodes.findings import find_zone_troubles  # noqa: PLC0415 - for doctor only

        return find_zone_troubles(client, state, policies)

    def advice(self) -> Mapping[Invariant, Advice]:
        from berth_descheduler.capabilities.lent_nodes.findings import ADVICE  # noqa: PLC0415 - for doctor only

        return ADVICE
