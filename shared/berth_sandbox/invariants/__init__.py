"""Owns the check of what must be true of a cluster whenever Berth is at rest, for tests and for `berth doctor`.

It does not own mending: the operator and the descheduler do that in every pass.
"""

from berth_sandbox.invariants.checking import check, find_troubles, find_violations
from berth_sandbox.invariants.state import ClusterState, NamedObject, read_state
from berth_sandbox.invariants.vigil import Vigil, keep_watch
from berth_sandbox.invariants.violations import BOUND_SECONDS, Invariant, Violation

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
