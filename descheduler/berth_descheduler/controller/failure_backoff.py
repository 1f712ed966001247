"""When failed plans and policies are tried again, and when no longer.

This is kept in memory, so a restart tries everything anew.
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
"""A failure is forgotten this long after its next try was due."""

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
    """What failed, by the uid of its plan or policy; the others go on meanwhile."""

    _known: dict[str, _Failure] = field(default_factory=dict)

    def note(self, uid: str, error: Exception, now: datetime) -> bool:
        """Record a failure and return whether a retry would repeat it."""
        # Plans come and go all the time, and nothing reports to this memory that one is gone.
        self._known = {key: failure for key, failure in self._known.items() if failure.again_at > now - _REMEMBERED}
        failure_before, text = self._known.get(uid), f"{type(error).__name__}: {error}"
        times = 1 if failure_before is None else failure_before.times + 1
        # 401 and 403 are about the program's rights, which an administrator may mend, not about the plan.
        may_pass = isinstance(error, RetryableError | ForbiddenError | UnauthorizedError)
        permanent_failures = 0 if may_pass else 1 + (failure_before.permanent if failure_before else 0)
        pause = min(_FIRST_PAUSE * 2 ** min(times - 1, _LONGEST_DOUBLING), _LONGEST_PAUSE)
        self._known[uid] = _Failure(text, now + pause, times, permanent_failures)
        # The same permanent error twice is enough; one that changes from try to try may be on its way to a success.
        is_repeated = failure_before is not None and failure_before.permanent > 0 and failure_before.error == text
        return permanent_failures > 0 and (is_repeated or permanent_failures >= _MOST_PERMANENT)

    def forget(self, uid: str) -> None:
        """Forget the failures of a plan or policy whose work went on."""
        self._known.pop(uid, None)

    def waiting(self, now: datetime) -> dict[str, datetime]:
        """Return, by uid, when each plan or policy in back-off is tried again."""
        return {uid: failure.again_at for uid, failure in self._known.items() if failure.again_at > now}
