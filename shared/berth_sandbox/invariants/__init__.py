"""Invariants of a cluster while Berth is at rest, for tests and `berth doctor`."""

from berth_sandbox.invariants.checks import InvariantMonitor, check, find_troubles, find_violations, monitor_invariants
from berth_sandbox.invariants.state import BOUND_SECONDS, ClusterState, Invariant, NamedObject, Violation, read_state

__all__ = [
    "BOUND_SECONDS",
    "ClusterState",
    "Invariant",
    "InvariantMonitor",
    "NamedObject",
    "Violation",
    "check",
    "find_troubles",
    "find_violations",
    "monitor_invariants",
    "read_state",
]
