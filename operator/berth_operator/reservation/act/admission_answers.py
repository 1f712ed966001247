"""Why the API server did not create a pod, and whether its admission is the reason.

Whatever refuses a placeholder in Berth's own namespace (a LimitRange, a quota, Pod Security, a policy, a webhook) can
change at any time and is no fault of the Reservation, whose owner cannot even see it.
"""

from typing import Final

from berth_core import BerthError, RetryableError
from berth_kube import KubeError, UnauthorizedError, without_pod_name
from berth_operator.reservation.act.priority_classes import UnfitPriorityClassError
from berth_operator.reservation.act.slow_admission import SlowAdmissionError

_ADMISSION_PHRASES: Final = ("admission webhook", "failed calling webhook", "denied request", "denied the request")
_UNKNOWN_CLASS_PHRASE: Final = "no PriorityClass with name"
"""Also the answer for a class that was created a moment ago: the admission of each API server has a cache of its own
(kubernetes/kubernetes#59679)."""


def is_by_admission(error: KubeError) -> bool:
    """Return whether a policy or a webhook refuses a pod, with whatever status it chose."""
    return any(phrase in error.message for phrase in _ADMISSION_PHRASES)


def why_refused(error: BerthError) -> str:
    """Return why no placeholder is created, "" for an error that says nothing about the placeholder."""
    match error:
        case UnfitPriorityClassError() | SlowAdmissionError():
            return str(error)
        case UnauthorizedError():
            return ""
        case KubeError() if _UNKNOWN_CLASS_PHRASE in error.message:
            return ""
        case KubeError() if is_by_admission(error) or not isinstance(error, RetryableError):
            return without_pod_name(error.message)
        case _:
            return ""
