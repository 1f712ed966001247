"""The check of what must be true of a cluster whenever Berth is at rest, for tests and for `berth doctor`."""

from berth_sandbox.invariants.checks import Vigil, check, find_troubles, find_violations, keep_watch
from berth_sandbox.invariants.state import BOUND_SECONDS, ClusterState, Invariant, NamedObject, Violation, read_state

__all__ = [
    "BOUND_SECONDS",
    "ClusterState",
    "Invariant",
    "NamedObject",
    "Vigil",
    "Violation",
    "check",
    "find_troubles",
    "find_violations",
    "keep_watch",
    "read_state",
]
