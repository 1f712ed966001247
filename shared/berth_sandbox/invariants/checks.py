"""All invariants as one check of a cluster."""

from datetime import datetime

from berth_kube import KubeClient
from berth_sandbox.invariants.leftovers import find_leftovers
from berth_sandbox.invariants.reservations import untrue_statuses
from berth_sandbox.invariants.services import absent_services
from berth_sandbox.invariants.state import ClusterState, read_state
from berth_sandbox.invariants.violations import Invariant, Violation
from berth_sandbox.invariants.workloads import overbooked_nodes, pending_pods, short_workloads


def check(client: KubeClient, *, now: datetime) -> tuple[Violation, ...]:
    """Return the violations in a live cluster, in a fixed order.

    The kinds are read one after the other, so a changing cluster may show a state that never existed: only a violation
    that lasts for its bound (`monitor_invariants`) is a breach.
    """
    return find_violations(read_state(client), now=now)


def find_violations(state: ClusterState, *, now: datetime) -> tuple[Violation, ...]:
    """Return the violations in a fixed order."""
    return tuple(
        sorted(
            {
                *find_leftovers(state, now),
                *untrue_statuses(state, now),
                *short_workloads(state),
                *pending_pods(state),
                *overbooked_nodes(state),
            }
        )
    )


def find_troubles(state: ClusterState, *, now: datetime) -> tuple[Violation, ...]:
    """Return the findings for users: broken invariants, and services of Berth that do not work.

    A pod that merely waits for a place is not Berth's trouble.
    """
    violations = {
        violation for violation in find_violations(state, now=now) if violation.invariant is not Invariant.POD_PENDING
    }
    return tuple(sorted(violations | set(absent_services(state, now))))
