"""Registers starving jobs with the descheduler: their plugin, events, metrics, sweep and findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from berth_core import STARVING_JOBS, Clock, DeschedulerPolicy, InputError, Objective, Snapshot
from berth_descheduler.capabilities.starving_jobs.plugin import (
    ARGUMENTS,
    StarvingJobs,
    StarvingJobsArgs,
    StarvingJobsGoal,
)
from berth_descheduler.capability import Advice, Capability, Leading, PlanMetrics, Work
from berth_descheduler.framework.interfaces import PluginType
from berth_descheduler.planner import Plan

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from berth_kube import KubeClient
    from berth_sandbox.invariants import ClusterState, Invariant, Violation


class StarvingJobsCapability(Capability):
    """Starving jobs, for which nodes are kept once they have waited for too long."""

    name: ClassVar[str] = STARVING_JOBS
    plugin: ClassVar[PluginType] = StarvingJobs
    goal: ClassVar[StarvingJobsGoal] = StarvingJobs.goal
    arguments: ClassVar[Mapping[str, str]] = ARGUMENTS

    def most_fenced_nodes(self, objective: Objective, nodes: int) -> int:
        """Return how many nodes may be fenced; 0 for arguments that no policy could have."""
        try:
            return StarvingJobsArgs.parse(objective.args).most_fenced(nodes)
        except InputError:
            return 0

    def announce(self, client: KubeClient, clock: Clock, plan: Plan, snapshot: Snapshot) -> None:
        from berth_descheduler.capabilities.starving_jobs.events import announce_starving  # noqa: PLC0415 - with an API server only

        announce_starving(client, clock, plan, snapshot)

    def work(self, leading: Leading) -> Work:
        from berth_descheduler.capabilities.starving_jobs.kept_nodes import KeptNodesSweep  # noqa: PLC0415 - for the service only

        return KeptNodesSweep(leading)

    def plan_metrics(self, registry: CollectorRegistry) -> PlanMetrics:
        from berth_descheduler.capabilities.starving_jobs.metrics import StarvingMetrics  # noqa: PLC0415 - for the service only

        return StarvingMetrics(registry)

    def findings(
        self, client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
    ) -> Iterator[Violation]:
        from berth_descheduler.capabilities.starving_jobs.findings import find_starving_troubles  # noqa: PLC0415 - for doctor only

        return find_starving_troubles(client, state, policies)

    def advice(self) -> Mapping[Invariant, Advice]:
        from berth_descheduler.capabilities.starving_jobs.findings import ADVICE  # noqa: PLC0415 - for doctor only

        return ADVICE
