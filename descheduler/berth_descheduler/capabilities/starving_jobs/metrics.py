"""The metric of jobs that starve."""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from berth_descheduler.capability import PlanMetrics
from berth_descheduler.planner import Plan

STARVING: Final = "berth_starving_jobs"


class StarvingMetrics(PlanMetrics):
    """Exports how many jobs starved in the last plan, by outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._starving = Gauge(
            STARVING, "Jobs that starved at the last look, by what is done.", ["outcome"], registry=registry
        )

    def planned(self, plan: Plan) -> None:
        if plan.job_outcomes:
            self._starving.clear()
        for outcome, job_count in plan.job_outcomes.items():
            self._starving.labels(outcome=outcome).set(job_count)
