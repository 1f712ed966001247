"""Invariants of a cluster while Berth is at rest, for tests and `berth doctor`."""

from berth_sandbox.invariants.checks import check, find_troubles, find_violations
from berth_sandbox.invariants.monitor import InvariantMonitor, monitor_invariants
from berth_sandbox.invariants.state import ClusterState, NamedObject, read_state
from berth_sandbox.invariants.violations import BOUND_SECONDS, Invariant, Violation

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
