"""Metrics by policy, and what the last planning found."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from berth_core import Clock, DeschedulerPolicyStatus, read_timestamp
from berth_descheduler.metrics import (
    LEADER,
    POLICIES,
    POLICY_LAST_RUN,
    POLICY_NEXT_RUN,
    POLICY_RUNNING,
    POLICY_RUNS,
    CycleMetrics,
)
from berth_descheduler.planner import Plan


class PolicyMetrics(CycleMetrics):
    """Counts runs by policy beside what every cycle counts."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        super().__init__(registry, clock)
        self.proposed_plan: Plan | None = None
        """The plan of the current run; None before it has planned."""

        self.busy = False
        self._leader = Gauge(LEADER, "1 on the replica that serves the policies.", registry=registry)
        self._policies = Gauge(POLICIES, "Policies by whether they can be run.", ["valid"], registry=registry)
        self._runs = Counter(POLICY_RUNS, "Runs by policy and verdict.", ["policy", "verdict"], registry=registry)
        self._running = Gauge(POLICY_RUNNING, "1 while a run of the policy is made.", ["policy"], registry=registry)
        self._run_last = Gauge(POLICY_LAST_RUN, "When the last run began, in unix time.", ["policy"], registry=registry)
        self._run_next = Gauge(
            POLICY_NEXT_RUN, "When the next run is due, unix seconds.", ["policy"], registry=registry
        )
        self._named: set[str] = set()

    def planned(self, plan: Plan) -> None:
        """Remember the plan of the current run."""
        super().planned(plan)
        self.proposed_plan = plan

    @contextmanager
    def running(self, policy: str) -> Iterator[None]:
        """Show that a run is made."""
        self.proposed_plan = None
        self.busy = True
        self._running.labels(policy=policy).set(1)
        try:
            yield
        finally:
            self.busy = False
            self._running.labels(policy=policy).set(0)

    def run_ended(self, policy: str, verdict: str) -> None:
        """Count a run."""
        self._runs.labels(policy=policy, verdict=verdict).inc()

    def lead(self, *, leading: bool) -> None:
        """Show whether this replica serves the policies; only the leader shows their metrics."""
        self._leader.set(int(leading))
        if not leading:
            self.show({}, invalid=0)

    def show(self, policies: Mapping[str, DeschedulerPolicyStatus], *, invalid: int) -> None:
        """Show the policies by name and status, and how many are invalid."""
        self._policies.labels(valid="true").set(len(policies) - invalid)
        self._policies.labels(valid="false").set(invalid)
        for removed_policy in self._named - policies.keys():
            for gauge in (self._run_last, self._run_next, self._running):
                with suppress(KeyError):
                    gauge.remove(removed_policy)
        self._named = set(policies)
        for policy_name, status in policies.items():
            if (last_run := read_timestamp(status.last_run_time)) is not None:
                self._run_last.labels(policy=policy_name).set(last_run.timestamp())
            if (next_run := read_timestamp(status.next_run_time)) is not None:
                self._run_next.labels(policy=policy_name).set(next_run.timestamp())
