"""Plans and policies whose work failed: when each is tried again, and when no longer.

It is kept in memory alone: after a restart everything is tried anew.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from berth_core.errors import RetryableError
from berth_kube.errors import ForbiddenError, UnauthorizedError

_FIRST_PAUSE: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(minutes=5)
_LONGEST_DOUBLING: Final = 10
_REMEMBERED: Final = timedelta(hours=1)
"""How long after its next try was due a failure is forgotten."""
_MOST_PERMANENT: Final = 5
"""After this many permanent errors in a row, even different ones, the work is given up."""


@dataclass(frozen=True, slots=True)
class _Setback:
    error: str
    again_at: datetime
    times: int = 1
    permanent: int = 0
    """Permanent errors in a row."""


@dataclass(slots=True)
class Setbacks:
    """What failed, by the uid of its plan or policy; the others go on meanwhile."""

    _known: dict[str, _Setback] = field(default_factory=dict)

    def note(self, uid: str, error: Exception, now: datetime) -> bool:
        """Take note of a failure; return whether trying again would bring the same."""
        self._known = {key: one for key, one in self._known.items() if one.again_at > now - _REMEMBERED}
        before, text = self._known.get(uid), f"{type(error).__name__}: {error}"
        times = 1 if before is None else before.times + 1
        # 401 and 403 are about the program's rights, which an administrator may mend, not about the plan.
        passing = isinstance(error, RetryableError | ForbiddenError | UnauthorizedError)
        permanent = 0 if passing else 1 + (before.permanent if before else 0)
        pause = min(_FIRST_PAUSE * 2 ** min(times - 1, _LONGEST_DOUBLING), _LONGEST_PAUSE)
        self._known[uid] = _Setback(text, now + pause, times, permanent)
        same = before is not None and before.permanent > 0 and before.error == text
        return permanent > 0 and (same or permanent >= _MOST_PERMANENT)

    def forget(self, uid: str) -> None:
        """Drop what is known of a plan or policy, because its work went on."""
        self._known.pop(uid, None)

    def waiting(self, now: datetime) -> dict[str, datetime]:
        """Return what is not tried now, by uid, and when each is tried again."""
        return {uid: one.again_at for uid, one in self._known.items() if one.again_at > now}
