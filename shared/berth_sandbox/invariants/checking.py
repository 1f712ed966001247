"""Owns putting the invariants together: all of them, and those that a person is told of.

It does not own any single one of them.
"""

from datetime import datetime

from berth_kube.client import KubeClient
from berth_sandbox.invariants.leftovers import things_left_behind
from berth_sandbox.invariants.services import absent_services
from berth_sandbox.invariants.state import ClusterState, read_state
from berth_sandbox.invariants.statuses import untrue_statuses
from berth_sandbox.invariants.violations import Invariant, Violation
from berth_sandbox.invariants.workloads import overbooked_nodes, pending_pods, short_workloads


def check(client: KubeClient, *, now: datetime) -> tuple[Violation, ...]:
    """Return what is not as it must be in a live cluster, in a fixed order; empty means all is well.

    The kinds are read one after the other, so a cluster in motion may show what was never true at any one time:
    only what stays for its bound (`keep_watch`) is a breach.
    """
    return find_violations(read_state(client), now=now)


def find_violations(state: ClusterState, *, now: datetime) -> tuple[Violation, ...]:
    """Return what is not as it must be, in a fixed order."""
    return tuple(
        sorted(
            {
                *things_left_behind(state, now),
                *untrue_statuses(state, now),
                *short_workloads(state),
                *pending_pods(state),
                *overbooked_nodes(state),
            }
        )
    )


def find_troubles(state: ClusterState, *, now: datetime) -> tuple[Violation, ...]:
    """Return what a person is told: the invariants, and whether Berth's services do their work.

    A pod that merely waits for a place is no trouble of Berth's.
    """
    found = {v for v in find_violations(state, now=now) if v.invariant is not Invariant.POD_PENDING}
    return tuple(sorted(found | set(absent_services(state, now))))
