"""Has the API server make a pod's replacement by dry run, in the name of an account that may do nothing else.

The account is impersonated: the right to do so names this one account, and no token is handed out that could be kept.
Before each run its bounds are read; without them, or without the right, the trial is left out, which is reported once.
A pod whose trial gives no answer is evicted all the same: only a refusal or a difference keeps it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec
import structlog

from berth_core import Clock, InputError, MoveReason, PermanentError, RetryableError, api_group
from berth_core.object_lists import RawObject
from berth_descheduler import telemetry
from berth_descheduler.migration.replacement_trial.bounds import trial_user, why_not_bounded
from berth_descheduler.migration.replacement_trial.comparison import find_differences, find_excess
from berth_descheduler.migration.replacement_trial.manifest import build_replacement, old_revision, template_of_revision
from berth_descheduler.migration.replacement_trial.refusals import Denial, FullQuota, Unknown, read_error
from berth_descheduler.migration.validation.live_owners import MAKERS
from berth_kube import (
    CONTROLLER_REVISIONS,
    PODS,
    RESERVATIONS,
    STATEFUL_SETS,
    KubeClient,
    KubeError,
    ListSource,
    controller_reference,
    is_missing_right,
)

_LOG = structlog.get_logger(__name__)

_MISFITS: Final = (LookupError, TypeError, AttributeError, ValueError, InputError, msgspec.ValidationError)
"""What is raised where a raw object has values that its kind does not have."""

_CONNECTIONS: Final = 8
_EARLY_SECONDS: Final = 10.0
"""How long the first trial of a pod may take: it uses up time in which the place has to be held."""
_ACCEPTED_SECONDS: Final = 30.0
"""How long an accepted trial counts while a budget holds up the eviction."""


@dataclass(frozen=True, slots=True)
class TrialRefusal:
    """Why a pod stays: what would come in its stead does not run in its place."""

    reason: MoveReason
    message: str


class _UnknownReplacementError(Exception):
    """It is not known what the controller makes next."""


class ReplacementTrial:
    """Tries the replacements of one plan's pods; thread-safe.

    It calls `say_left_out` once with the reason if none is tried.
    """

    def __init__(self, client: KubeClient, clock: Clock, namespace: str, say_left_out: Callable[[str], None]) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._say_left_out = say_left_out
        self._lock = threading.Lock()
        self._as_account: KubeClient | None = None
        self._is_left_out = False
        self._accepted: dict[str, float] = {}
        """When (monotonic seconds) the replacement of a pod, by its UID, was accepted."""
        self._noted: set[str] = set()
        """UIDs of pods about which the log says that their replacement could not be tried."""

    def close(self) -> None:
        """Close the connections of the account."""
        with self._lock:
            if self._as_account is not None:
                self._as_account.close()
                self._as_account = None

    def before_reservation(self, raw_pod: RawObject, template: RawObject, scheduler_name: str) -> TrialRefusal | None:
        """Return why no place is asked for, None if one may be: nothing has been evicted for this pod's sake yet.

        What could not be asked now is asked again before the eviction.
        """
        try:
            account = self._account()
            early = account.within(_EARLY_SECONDS) if account else None
            return self._try(early, self._client, raw_pod, template, scheduler_name)
        except RetryableError:
            return None

    def before_eviction(self, raw_pod: RawObject, reads: ListSource, *, reservation: str) -> TrialRefusal | None:
        """Return why the pod is not evicted into the place that a Reservation holds.

        `reads` gives the pod's controller as the other rules see it. Raises `RetryableError` where the API server does
        not answer.
        """
        uid, now = raw_pod["metadata"]["uid"], self._clock.monotonic()
        accepted_at = self._accepted.get(uid)
        if accepted_at is not None and now - accepted_at < _ACCEPTED_SECONDS:
            return None
        account = self._account()
        if account is None:
            return None
        try:
            held = self._client.get(RESERVATIONS, reservation, namespace=raw_pod["metadata"]["namespace"])
            spec = held["spec"]
            template, scheduler_name = spec["tasks"][0]["template"], spec.get("schedulerName") or ""
        except (PermanentError, *_MISFITS) as error:
            self._note_unknown(raw_pod, f"its Reservation cannot be read: {error}")
            return None
        refusal = self._try(account, reads, raw_pod, template, scheduler_name)
        if refusal is None:
            # A budget may refuse an eviction for minutes, and each try would have all webhooks of the cluster called
            # again.
            self._accepted[uid] = now
        return refusal

    def _try(
        self,
        account: KubeClient | None,
        reads: ListSource,
        raw_pod: RawObject,
        template: RawObject,
        scheduler_name: str,
    ) -> TrialRefusal | None:
        if account is None:
            return None
        try:
            replacement = self._build(raw_pod, reads)
            return self._ask(account, raw_pod, replacement, template, scheduler_name)
        except _UnknownReplacementError as error:
            self._note_unknown(raw_pod, str(error))
        except _MISFITS as error:
            self._note_unknown(raw_pod, f"its replacement cannot be read: {error}")
        return None

    def _ask(
        self,
        account: KubeClient,
        raw_pod: RawObject,
        replacement: dict[str, Any],
        template: RawObject,
        scheduler_name: str,
    ) -> TrialRefusal | None:
        namespace = raw_pod["metadata"]["namespace"]
        try:
            # A dry run passes admission, quotas and validation, and ends before etcd. With a webhook whose sideEffects
            # are neither None nor NoneOnDryRun, the API server refuses it (`NewDryRunUnsupportedErr`).
            stored = account.create(PODS, replacement, namespace=namespace, dry_run=True)
        except PermanentError as error:
            return self._judge(error, raw_pod, replacement, template)
        return _differing(find_differences(stored, template, raw_pod, scheduler_name=scheduler_name))

    def _judge(
        self, error: PermanentError, raw_pod: RawObject, replacement: RawObject, template: RawObject
    ) -> TrialRefusal | None:
        answer = read_error(error, raw_pod) if isinstance(error, KubeError) else Unknown(str(error))
        match answer:
            case Denial(message):
                return TrialRefusal(
                    MoveReason.REPLACEMENT_REFUSED, f"the API server would refuse the pod made in its stead: {message}"
                )
            case FullQuota():
                # The quota was asked after all other admission but refused, so there is no stored pod to compare: the
                # one that was sent has to do.
                return _differing(find_excess(replacement, template))
            case Unknown(message) if isinstance(error, KubeError) and is_missing_right(error):
                self._leave_out(message)
            case Unknown(message):
                self._note_unknown(raw_pod, message)
            case _:
                assert_never(answer)
        return None

    def _build(self, raw_pod: RawObject, reads: ListSource) -> dict[str, Any]:
        """Return the pod that the controller would make; raises `_UnknownReplacementError` where that is not known."""
        owner = controller_reference(raw_pod)
        if owner is None:
            raise _UnknownReplacementError("no controller makes it again")
        resource = MAKERS.get((api_group(owner.api_version), owner.kind))
        if resource is None:
            raise _UnknownReplacementError(f"how a {owner.kind} of {owner.api_version} makes pods is not known")
        try:
            raw_owner = reads.get(resource, owner.name, namespace=owner.namespace)
            # Made again under its name it may have another template, and the pod goes with the owner that was.
            if raw_owner["metadata"]["uid"] != owner.uid:
                raise _UnknownReplacementError(f"another {owner.kind} has the name {owner.name} by now")
            raw_owner |= {"apiVersion": resource.api_version, "kind": resource.kind}
            template, revision = self._template(raw_owner, raw_pod, reads)
        except PermanentError as error:
            raise _UnknownReplacementError(str(error)) from error
        return build_replacement(raw_owner, template, raw_pod, revision)

    def _template(self, owner: RawObject, raw_pod: RawObject, reads: ListSource) -> tuple[RawObject, str]:
        """Return the template in use, and for a StatefulSet the name of its revision."""
        template: RawObject = owner["spec"]["template"]
        if owner["kind"] != STATEFUL_SETS.kind:
            return template, ""
        if revision := old_revision(owner, raw_pod):
            kept = reads.get(CONTROLLER_REVISIONS, revision, namespace=owner["metadata"]["namespace"])
            return template_of_revision(kept), revision
        return template, str((owner.get("status") or {}).get("updateRevision") or "")

    def _account(self) -> KubeClient | None:
        """Return a client that acts as the account, None where the trial is left out.

        Raises `RetryableError` where the account's bounds could not be read.
        """
        with self._lock:
            if self._is_left_out:
                return None
            if self._as_account is None:
                reason = why_not_bounded(self._client, self._namespace) or self._impersonate()
                if reason:
                    self._is_left_out = True
                    self._say_left_out(reason)
                    return None
            return self._as_account

    def _impersonate(self) -> str:
        """Connect as the account; return why that cannot be done, such as credentials that are gone."""
        try:
            self._as_account = self._client.impersonating(trial_user(self._namespace), _CONNECTIONS)
        except (PermanentError, InputError) as error:
            return str(error)
        return ""

    def _leave_out(self, reason: str) -> None:
        """Leave the trial out of the rest of the run, and say so once."""
        with self._lock:
            if not self._is_left_out:
                self._is_left_out = True
                self._say_left_out(reason)

    def _note_unknown(self, raw_pod: RawObject, reason: str) -> None:
        """Log why the trial says nothing about a pod, once per pod."""
        metadata = raw_pod["metadata"]
        with self._lock:
            is_noted = metadata["uid"] in self._noted
            self._noted.add(metadata["uid"])
        if is_noted:
            return
        pod = f"{metadata['namespace']}/{metadata['name']}"
        _LOG.warning(telemetry.NOT_TRIED, **{telemetry.KEY_POD: pod, telemetry.KEY_REASON: reason})


def _differing(differences: tuple[str, ...]) -> TrialRefusal | None:
    if not differences:
        return None
    message = f"the pod made in its stead could not take the place that is held: {', '.join(differences)}"
    return TrialRefusal(MoveReason.REPLACEMENT_DIFFERS, message)
