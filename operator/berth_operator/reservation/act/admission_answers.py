"""What the API server says of a pod that it does not create: its words, and whether they are about the pod's spec.

Whatever refuses a placeholder in Berth's own namespace (a LimitRange, a quota, Pod Security, a policy, a webhook) can
change at any time and is no fault of the Reservation, whose owner cannot even see it.
"""

from typing import Final

from berth_core import BerthError, RetryableError
from berth_kube import KubeError, UnauthorizedError, without_pod_name
from berth_operator.reservation.act.priority_classes import UnfitPriorityClassError

_OF_ADMISSION: Final = ("admission webhook", "failed calling webhook", "denied request", "denied the request")
_OF_A_NEW_CLASS: Final = "no PriorityClass with name"
"""Said of a class that was made a moment ago: API servers hear of it later."""


def is_by_admission(error: KubeError) -> bool:
    """Return whether a policy or a webhook refuses a pod, with whatever status it chose."""
    return any(words in error.message for words in _OF_ADMISSION)


def why_refused(error: BerthError) -> str:
    """Return why no placeholder is created, "" where that says nothing of what is asked for."""
    match error:
        case UnfitPriorityClassError():
            return str(error)
        case UnauthorizedError():
            return ""
        case KubeError() if _OF_A_NEW_CLASS in error.message:
            return ""
        case KubeError() if is_by_admission(error) or not isinstance(error, RetryableError):
            return without_pod_name(error.message)
        case _:
            return ""
