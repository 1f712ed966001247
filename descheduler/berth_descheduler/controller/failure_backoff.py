"""When failed plans and policies are tried again, and when no longer.

Kept in memory: a restart tries everything anew.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from berth_core import RetryableError
from berth_kube import ForbiddenError, UnauthorizedError

_FIRST_PAUSE: Final = timedelta(seconds=2)

_LONGEST_PAUSE: Final = timedelta(minutes=5)

_LONGEST_DOUBLING: Final = 10
_REMEMBERED: Final = timedelta(hours=1)
"""How long after its next try was due a failure is forgotten."""

_MOST_PERMANENT: Final = 5
"""After this many permanent errors in a row, even different ones, the work is given up."""


@dataclass(frozen=True, slots=True)
class _Failure:
    error: str
    again_at: datetime
    times: int = 1
    permanent: int = 0
    """Permanent errors in a row."""


@dataclass(slots=True)
class FailureBackoff:
    """What failed, by the uid of its plan or policy.

    The others go on meanwhile.
    """

    _known: dict[str, _Failure] = field(default_factory=dict)

    def note(self, uid: str, error: Exception, now: datetime) -> bool:
        """Record a failure and return whether a retry would repeat it."""
        self._known = {key: one for key, one in self._known.items() if one.again_at > now - _REMEMBERED}
        before, text = self._known.get(uid), f"{type(error).__name__}: {error}"
        times = 1 if before is None else before.times + 1
        # 401 and 403 are about the program's rights, which an administrator may mend, not about the plan.
        passing = isinstance(error, RetryableError | ForbiddenError | UnauthorizedError)
        permanent = 0 if passing else 1 + (before.permanent if before else 0)
        pause = min(_FIRST_PAUSE * 2 ** min(times - 1, _LONGEST_DOUBLING), _LONGEST_PAUSE)
        self._known[uid] = _Failure(text, now + pause, times, permanent)
        same = before is not None and before.permanent > 0 and before.error == text
        return permanent > 0 and (same or permanent >= _MOST_PERMANENT)

    def forget(self, uid: str) -> None:
        """Forget the failures of a plan or policy whose work went on."""
        self._known.pop(uid, None)

    def waiting(self, now: datetime) -> dict[str, datetime]:
        """Return when each plan or policy in back-off is retried.

        The keys are uids.
        """
        return {uid: one.again_at for uid, one in self._known.items() if one.again_at > now}
