"""Owns disturbing what goes between a client and the API server: a proxy, and what it does to which call.

It does not own disturbing the components themselves: a `Sandbox` kills, suspends and restarts them.
"""

from berth_sandbox.faults.plans import Hold, HoldPlan, NoFaults, SeededFaults
from berth_sandbox.faults.proxy import FaultProxy
from berth_sandbox.faults.vocabulary import Call, Fault, FaultKind, FaultPlan

__all__ = [
    "Call",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "FaultProxy",
    "Hold",
    "HoldPlan",
    "NoFaults",
    "SeededFaults",
]
