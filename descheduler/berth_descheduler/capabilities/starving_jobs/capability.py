"""What the descheduler asks of its part in jobs that starve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from berth_core import STARVING_JOBS, DeschedulerPolicy, InputError, Objective
from berth_descheduler.capabilities.starving_jobs.plugin import (
    ARGUMENTS,
    StarvingJobs,
    StarvingJobsArgs,
    StarvingJobsGoal,
)
from berth_descheduler.capability import Advice, Capability, Leading, Work
from berth_descheduler.framework.interfaces import PluginType

if TYPE_CHECKING:
    from berth_kube import KubeClient
    from berth_sandbox.invariants import ClusterState, Invariant, Violation


class StarvingJobsCapability(Capability):
    """Nodes that are kept for jobs which have waited for too long."""

    name: ClassVar[str] = STARVING_JOBS
    plugin: ClassVar[PluginType] = StarvingJobs
    goal: ClassVar[StarvingJobsGoal] = StarvingJobs.goal
    arguments: ClassVar[Mapping[str, str]] = ARGUMENTS

    def most_fenced_nodes(self, objective: Objective, nodes: int) -> int:
        """Return how many nodes may be fenced; an objective that no policy could have made fences nothing."""
        try:
            return StarvingJobsArgs.parse(objective.args).most_fenced(nodes)
        except InputError:
            return 0

    def work(self, leading: Leading) -> Work:
        from berth_descheduler.capabilities.starving_jobs.kept_nodes import KeptNodesSweep  # noqa: PLC0415 - for the service only

        return KeptNodesSweep(leading)

    def findings(
        self, client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
    ) -> Iterator[Violation]:
        from berth_descheduler.capabilities.starving_jobs.findings import find_starving_troubles  # noqa: PLC0415 - for doctor only

        return find_starving_troubles(client, state, policies)

    def advice(self) -> Mapping[Invariant, Advice]:
        from berth_descheduler.capabilities.starving_jobs.findings import ADVICE  # noqa: PLC0415 - for doctor only

        return ADVICE
