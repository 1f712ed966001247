"""What `berth doctor` looks for and says, for the command and the HTTP interface."""

from berth_descheduler.doctor.advice import ADVICE
from berth_descheduler.doctor.documents import Finding, FindingList, WatchedFinding, describe_finding, describe_findings
from berth_descheduler.doctor.look import find_all_troubles
from berth_descheduler.doctor.rights import NEEDED_RIGHTS, Look, look_as_far_as_allowed, rights_asked_for, rights_to

__all__ = [
    "ADVICE",
    "NEEDED_RIGHTS",
    "Finding",
    "FindingList",
    "Look",
    "WatchedFinding",
    "describe_finding",
    "describe_findings",
    "find_all_troubles",
    "look_as_far_as_allowed",
    "rights_asked_for",
    "rights_to",
]
