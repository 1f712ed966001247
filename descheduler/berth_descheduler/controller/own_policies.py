"""The policies that capabilities run by themselves, for objects of their own kinds.

No DeschedulerPolicy stands for them in the cluster, so what became of their runs is kept in memory and recorded as
events on those objects. After a restart each is due at once.
"""

import threading
from collections.abc import Iterable
from typing import Any, Final

import structlog
from msgspec.structs import replace

from berth_core import BerthError, Clock, DeschedulerPolicy
from berth_descheduler import telemetry
from berth_descheduler.capability import OwnPolicy
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_kube import KubeClient

_LOG = structlog.get_logger(__name__)
_LOOK_SECONDS: Final = 10.0
"""Between two looks at the objects of capabilities, while there are any."""
_EMPTY_SECONDS: Final = 60.0


class OwnPolicies:
    """The present policies of capabilities, and when each was last scheduled, for all threads."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._policies: dict[str, OwnPolicy] = {}
        self._scheduled: dict[str, str] = {}
        """By uid the last time that counted."""
        self._looked_at: float | None = None
        self._is_read = False
        self._last_error = ""

    @property
    def is_read(self) -> bool:
        """Return whether a look has worked once; before that a policy that is not known may be one of these."""
        return self._is_read

    def look(self, of_people: Iterable[DeschedulerPolicy]) -> None:
        """Ask the capabilities, if it is time; what cannot be read is as it was, and the log says why once.

        A policy of people goes before one of the same name.
        """
        now = self._clock.monotonic()
        pause = _LOOK_SECONDS if self._policies or self._last_error or not self._is_read else _EMPTY_SECONDS
        if self._looked_at is not None and now - self._looked_at < pause:
            return
        self._looked_at = now
        policies = tuple(of_people)
        taken = {policy.metadata.name for policy in policies}
        try:
            own = [
                policy for capability in EVERY_CAPABILITY for policy in capability.own_policies(self._client, policies)
            ]
        except BerthError as error:
            # Once for each error: the look is repeated every ten seconds, and a missing right would fill the log.
            if str(error) != self._last_error:
                _LOG.warning(telemetry.OWN_POLICIES_UNREAD, **{telemetry.KEY_ERROR: str(error)})
            self._last_error = str(error)
            return
        self._last_error = ""
        with self._lock:
            self._policies = {policy.name: policy for policy in own if policy.name not in taken}
            uids = {policy.policy.metadata.uid for policy in own}
            self._scheduled = {uid: time for uid, time in self._scheduled.items() if uid in uids}
            self._is_read = True

    def all(self) -> tuple[DeschedulerPolicy, ...]:
        """Return the policies, each with the time at which it was last scheduled."""
        with self._lock:
            return tuple(self._dated(own.policy) for own in self._policies.values())

    def of_uid(self, uid: str) -> OwnPolicy | None:
        """Return the policy of a uid, None where it is not a capability's own; people may have one of the same name."""
        with self._lock:
            own = next((own for own in self._policies.values() if own.policy.metadata.uid == uid), None)
            return None if own is None else OwnPolicy(self._dated(own.policy), own.regarding)

    def note(self, policy: DeschedulerPolicy, patch: dict[str, Any]) -> None:
        """Keep of a patch of a policy's status what decides when it runs next."""
        scheduled = patch["status"].get("lastScheduledTime")
        if scheduled is not None:
            with self._lock:
                self._scheduled[policy.metadata.uid] = scheduled

    def _dated(self, policy: DeschedulerPolicy) -> DeschedulerPolicy:
        scheduled = self._scheduled.get(policy.metadata.uid)
        return replace(policy, status=replace(policy.status, last_scheduled_time=scheduled))
