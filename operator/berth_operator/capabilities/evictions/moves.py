"""Evictions by others of pods that ask for a replacement first: the verdicts, and the surge moves behind them.

An eviction of such a pod is answered 429 until another pod serves in its place. Meanwhile a thread lets the pod go, as
a surge move does, so that its ReplicaSet makes another; then the requester's next try passes. If no try comes, the
thread evicts the pod itself. A pod that is not replaced by the deadline is evicted without, and given back to its
ReplicaSet if it is still there.

Pending evictions are kept in memory, since after a restart the requesters ask again. A pod that was let go carries a
note of that and of its deadline, so that all replicas keep the same one, and the acting replica can give the pod back.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Any, Final

import structlog

from berth_core import (
    EVICTION_WEBHOOK_CONFIGURATION,
    RELEASED_HASH,
    TEMPLATE_HASH_LABEL,
    BerthError,
    Clock,
    InputError,
    ObjectReference,
    PermanentError,
    format_timestamp,
    parse_timestamp,
)
from berth_kube import (
    EVICTION_REQUESTS,
    PODS,
    VALIDATING_WEBHOOKS,
    ConflictError,
    KubeClient,
    Note,
    NotFoundError,
    SurgeEligibility,
    build_release,
    find_replica_set,
    hash_of,
    is_out,
    may_surge_later,
    record_event,
    relabel,
    released_pods,
    take_back,
    why_not_surge,
)
from berth_operator import telemetry
from berth_operator.admission.reviews import AdmissionRequest, Answer, allow
from berth_operator.capabilities.evictions import logs, metrics
from berth_operator.capabilities.evictions.answers import NOT_OURS, REPLACED, EvictionVerdict, answer_verdict
from berth_operator.capabilities.evictions.manifests import build_eviction_webhooks
from berth_operator.capabilities.evictions.replacements import asks_for_replacement, may_go
from berth_operator.capabilities.evictions.settings import EvictionSettings
from berth_operator.settings import OperatorSettings

_READ_SECONDS: Final = 1.0
_JUDGE_SECONDS: Final = 1.6
_PATIENCE_SECONDS: Final = 0.8
"""How long a first answer waits for the thread to take up the move, which often shows that the pod cannot surge. With
`_JUDGE_SECONDS` this stays below `WEBHOOK_SECONDS`."""
_POLL_SECONDS: Final = 0.05
_PASS_SECONDS: Final = 0.2
_IDLE_PASS_SECONDS: Final = 1.0
_REGISTER_SECONDS: Final = 30.0
_ABSENT_SECONDS: Final = 10.0
"""A requester that has not come back for so long may not come at all, so Berth evicts the replaced pod itself. `kubectl
drain` comes back every 5 s."""
_SETTLE_SECONDS: Final = 10.0
"""How long a Deployment may look as if it were rolling out, as it does for a moment after each pod that was let go."""
_LEFT_SECONDS: Final = 15.0
"""How long after the deadline a pod that is still there is given back."""
_FORGET_SECONDS: Final = 600.0
"""How long after its deadline a pending eviction is kept if no request repeats it. Until it is forgotten, no new
deadline begins, or changing a pod now and then would keep it for ever."""
_REASK_SECONDS: Final = 60.0
"""The same for one whose deadline is still ahead."""
_MAX_PENDING: Final = 10_000
_MAX_OUT: Final = 200
_MAX_OUT_PER_NAMESPACE: Final = 100
_READERS: Final = 8
_COMPONENT: Final = "berth-operator"

_LOG = structlog.get_logger(__name__)


class MoveProgress(Enum):
    """How far the move of a pod has come."""

    NEW = auto()
    OUT = auto()
    """Its ReplicaSet has let it go."""
    PASSES = auto()
    """It cannot surge, so evictions of it pass."""


@dataclass(slots=True)
class PendingEviction:
    """An eviction that was asked for and has not passed; times are of the monotonic clock."""

    namespace: str
    name: str
    requester: str
    since: float
    """When it was first asked for, or earlier if the note on the pod has an earlier deadline."""
    last_asked: float
    uid: str = ""
    """Uid of the pod, "" until it was read."""
    progress: MoveProgress = MoveProgress.NEW
    reason: str = "it is being looked at"
    """What the eviction waits for, or why it passes, as messages say it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def is_out(self) -> bool:
        return self.progress is MoveProgress.OUT


class EvictionMoves:
    """Judges evictions, and carries out the surge move behind each; thread-safe."""

    def __init__(self, client: KubeClient, settings: OperatorSettings, clock: Clock) -> None:
        self._client = client.apart(_READERS + 1)  # connections of its own: an answer must not queue behind the workers
        self._hurried = self._client.within(_READ_SECONDS)
        self._settings = settings
        self._own = settings.of(EvictionSettings)
        self._clock = clock
        self._eligibility = SurgeEligibility(self._client, clock)
        # Answers read the API synchronously; in the event loop one slow read would delay every review.
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="evictions")
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._pending: dict[tuple[str, str], PendingEviction] = {}
        self._registered: tuple[Mapping[str, Any], float] | None = None

    async def answer(self, request: AdmissionRequest, *, by_namespace: bool) -> Answer:
        """Return the answer to an eviction.

        With `by_namespace` the namespace asks for replacements of all its pods, otherwise the pod itself has to.
        """
        # A dry run must change nothing, and the webhook says so (`NoneOnDryRun`): drains ask with it first.
        if request.operation != "CREATE" or request.dry_run:
            return allow(request.uid)
        pending = self._note(request)
        if pending is None:
            return answer_verdict(request, EvictionVerdict(passes=True, reason="too many evictions wait"))
        verdict = await self._judge_in_time(pending, by_namespace=by_namespace)
        for _ in range(round(_PATIENCE_SECONDS / _POLL_SECONDS)):
            if verdict.passes or pending.progress is not MoveProgress.NEW:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if not verdict.passes and pending.progress is MoveProgress.PASSES:
            verdict = EvictionVerdict(passes=True, reason=pending.reason)
        return answer_verdict(request, verdict, until=self._deadline_of(pending))

    async def _judge_in_time(self, pending: PendingEviction, *, by_namespace: bool) -> EvictionVerdict:
        # Before any read: a slow API server must not keep a pod beyond its deadline.
        if (late_verdict := self._late_verdict(pending)) is not None:
            return late_verdict
        judge = partial(self._judge, pending, by_namespace=by_namespace)
        try:
            async with asyncio.timeout(_JUDGE_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, judge)
        except NotFoundError:
            self._forget(pending)
            return NOT_OURS
        except (BerthError, TimeoutError) as error:
            # Here a pod is known to ask for a replacement: it is kept, as the requester tries again. A pod of which
            # that is not known passes, or a slow API server would block every drain of the cluster.
            if by_namespace or pending.uid:
                return EvictionVerdict(passes=False, reason=f"the API server did not answer in time: {error}")
            return EvictionVerdict(passes=True, reason="whether it asks for a replacement could not be read")

    def _note(self, request: AdmissionRequest) -> PendingEviction | None:
        """Return the pending eviction that the request repeats or begins, None if there are too many."""
        now = self._clock.monotonic()
        with self._lock:
            pending = self._pending.get((request.namespace, request.name))
            if pending is None:
                # Whoever may evict may name pods that do not exist, as many as they like: beyond the limit evictions
                # pass as without Berth.
                if len(self._pending) >= _MAX_PENDING:
                    return None
                pending = PendingEviction(
                    request.namespace, request.name, request.user_info.username, since=now, last_asked=now
                )
                self._pending[pending.key] = pending
            pending.last_asked = now
        return pending

    def _forget(self, pending: PendingEviction) -> None:
        with self._lock:
            if self._pending.get(pending.key) is pending:
                del self._pending[pending.key]

    def _late_verdict(self, pending: PendingEviction) -> EvictionVerdict | None:
        """Return the verdict on an eviction whose deadline has passed, None before that."""
        seconds = self._own.deadline_seconds
        if self._clock.monotonic() - pending.since < seconds:
            return None
        return EvictionVerdict(passes=True, reason=f"no other pod was available within {seconds:g} s: {pending.reason}")

    def _deadline_of(self, pending: PendingEviction) -> datetime:
        seconds_left = pending.since + self._own.deadline_seconds - self._clock.monotonic()
        return self._clock.now() + timedelta(seconds=max(0.0, seconds_left))

    def _judge(self, pending: PendingEviction, *, by_namespace: bool) -> EvictionVerdict:
        """Return the verdict by the pod as it is now, and wake the thread that moves it; raises `BerthError`."""
        raw_pod = self._hurried.get(PODS, pending.name, namespace=pending.namespace)
        if not asks_for_replacement(raw_pod, by_namespace=by_namespace):
            self._forget(pending)
            return NOT_OURS
        with self._lock:
            if pending.uid != raw_pod["metadata"]["uid"]:
                if pending.uid:  # another pod has the name by now
                    pending.since, pending.progress = pending.last_asked, MoveProgress.NEW
                pending.uid = raw_pod["metadata"]["uid"]
            if is_out(raw_pod):
                pending.progress, pending.reason = MoveProgress.OUT, "its replacement is not available yet"
                self._share_deadline(pending, raw_pod)
            elif pending.progress is MoveProgress.OUT:
                pending.progress, pending.reason = MoveProgress.NEW, "it was given back to its ReplicaSet"
        self._wake.set()
        if pending.progress is MoveProgress.OUT and self._is_replaced(self._hurried, raw_pod):
            return REPLACED
        return EvictionVerdict(passes=False, reason=pending.reason)

    def _share_deadline(self, pending: PendingEviction, raw_pod: Mapping[str, Any]) -> None:
        """Take over the deadline that another replica or an earlier process has noted on the pod, if it is earlier.

        Whoever may write the note can thus only have the pod evicted earlier, never keep it.
        """
        until = Note.read(raw_pod["metadata"].get("annotations") or {}).until
        with suppress(InputError):
            seconds_left = (parse_timestamp(until) - self._clock.now()).total_seconds() - _LEFT_SECONDS
            began_at = self._clock.monotonic() + seconds_left - self._own.deadline_seconds
            pending.since = min(pending.since, began_at)

    def _is_replaced(self, client: KubeClient, raw_pod: Mapping[str, Any]) -> bool:
        """Return whether enough other pods serve for this one to go; raises `BerthError`."""
        metadata = raw_pod["metadata"]
        replica_set_name = Note.read(metadata.get("annotations") or {}).replica_set
        replica_set = find_replica_set(client, metadata["namespace"], replica_set_name) if replica_set_name else None
        # Nothing makes another pod, so there is nothing to wait for.
        if replica_set is None or not hash_of(replica_set):
            return True
        # The ReplicaSet counts only its own pods; the released ones still serve, and are seen by the second value of
        # the hash label alone.
        labels = replica_set["spec"]["selector"]["matchLabels"]
        requirements = [f"{key}={value}" for key, value in labels.items() if key != TEMPLATE_HASH_LABEL]
        requirements.append(f"{TEMPLATE_HASH_LABEL} in ({hash_of(replica_set)},{RELEASED_HASH})")
        siblings = client.list(PODS, namespace=metadata["namespace"], label_selector=",".join(requirements)).items
        return may_go(raw_pod, replica_set, siblings, self._clock.now())

    def run(
        self, stop: threading.Event, *, client_config: Callable[[], Mapping[str, Any]], leads: Callable[[], bool]
    ) -> None:
        """Carry the moves out until stopped, and keep the webhook registered while this replica leads."""
        swept_at = float("-inf")
        self.note_requests()
        while not stop.is_set():
            self._wake.wait(_PASS_SECONDS if self._pending else _IDLE_PASS_SECONDS)
            self._wake.clear()
            try:
                self.pass_once()
                if leads():
                    self.register(client_config())
                    if self._clock.monotonic() - swept_at >= self._settings.sweep_seconds:
                        swept_at = self._clock.monotonic()
                        self.give_back_left()
            except Exception as error:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.warning(
                    telemetry.ACTION_FAILED,
                    **{telemetry.KEY_ACTION: "see evictions through", telemetry.KEY_ERROR: str(error)},
                )
                stop.wait(_IDLE_PASS_SECONDS)
        # A read that hangs must not keep the process past its grace period.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def note_requests(self) -> None:
        """Log why `EvictionRequest`s are left alone, by what the API server serves."""
        why = "this API server does not serve lifecycle.k8s.io/v1alpha1"
        try:
            if self._hurried.serves(EVICTION_REQUESTS):
                why = "lifecycle.k8s.io/v1alpha1 is served, but no controller of Kubernetes acts on it yet"
        except BerthError as error:
            why = f"whether this API server serves lifecycle.k8s.io/v1alpha1 is not known: {error}"
        _LOG.info(logs.REQUESTS_SKIPPED, **{telemetry.KEY_REASON: why})

    def register(self, client_config: Mapping[str, Any]) -> None:
        """Write the webhooks into the configuration that the chart makes, now and then, should others change it.

        The chart makes it and not the operator, whose rights cover this one object by its name.
        """
        now = self._clock.monotonic()
        if self._registered is not None:
            written_config, registered_at = self._registered
            if written_config == client_config and now - registered_at < _REGISTER_SECONDS:
                return
        own_namespace, exempt_namespaces = self._settings.placeholders.namespace, self._own.exempt
        body = {"webhooks": build_eviction_webhooks(client_config, own_namespace, exempt_namespaces)}
        self._registered = client_config, now
        try:
            # The webhooks are a list, which a merge patch replaces as a whole (RFC 7386).
            self._client.merge_patch(VALIDATING_WEBHOOKS, EVICTION_WEBHOOK_CONFIGURATION, body)
        except NotFoundError as error:
            fields = {telemetry.KEY_ACTION: "register the webhook of evictions", telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.ACTION_FAILED, **fields)

    def pass_once(self) -> None:
        """Take the next step of each move, those that have waited longest first."""
        with self._lock:
            evictions = sorted(self._pending.values(), key=lambda pending: pending.since)
        # Each pod that is let go costs the cluster one pod more until its replacement is there, so the number is
        # bounded.
        out_by_namespace = Counter(pending.namespace for pending in evictions if pending.is_out)
        for pending in evictions:
            try:
                self._advance(pending, out_by_namespace)
            except NotFoundError:
                self._forget(pending)
            except ConflictError:
                continue  # the next pass reads it again
            except (PermanentError, InputError) as error:
                self._let_pass(pending, str(error))
            except BerthError as error:
                pending.reason = str(error)

    def _advance(self, pending: PendingEviction, out: Counter[str]) -> None:
        """Take the next step of a move; `out` counts the pods that are let go, by namespace."""
        now = self._clock.monotonic()
        late_seconds, idle_seconds = now - pending.since - self._own.deadline_seconds, now - pending.last_asked
        if (
            not pending.uid
            or pending.progress is MoveProgress.PASSES
            or (pending.progress is MoveProgress.NEW and late_seconds >= 0)
        ):
            if idle_seconds > (_FORGET_SECONDS if late_seconds >= 0 else _REASK_SECONDS):
                self._forget(pending)
        elif pending.progress is MoveProgress.OUT:
            if late_seconds >= _LEFT_SECONDS:
                self._give_back(pending)
            elif idle_seconds >= _ABSENT_SECONDS:
                self._finish(pending)
        # No request for a while: a pod is not let go for a drain that was given up.
        elif idle_seconds < _ABSENT_SECONDS:
            out_in_namespace = out[pending.namespace]
            if out.total() >= _MAX_OUT or out_in_namespace >= _MAX_OUT_PER_NAMESPACE:
                pending.reason = f"{out.total()} other pods are moved first"
                return
            self._let_go(pending, waits=out_in_namespace > 0 or now - pending.since < _SETTLE_SECONDS)
            out[pending.namespace] += pending.is_out

    def _let_go(self, pending: PendingEviction, *, waits: bool) -> None:
        """Have the ReplicaSet let the pod go, or have its evictions pass if it cannot surge; raises `BerthError`.

        With `waits`, a reason that may be over in a moment leaves the eviction pending.
        """
        raw_pod = self._client.get(PODS, pending.name, namespace=pending.namespace)
        if raw_pod["metadata"]["uid"] != pending.uid or raw_pod["metadata"].get("deletionTimestamp"):
            self._forget(pending)
            return
        if is_out(raw_pod):
            pending.progress = MoveProgress.OUT
            return
        around = self._eligibility.look(raw_pod)
        if reason := why_not_surge(raw_pod, around):
            pending.reason = reason
            if not (waits and may_surge_later(reason)):
                self._let_pass(pending, reason)
            return
        until = format_timestamp(self._deadline_of(pending) + timedelta(seconds=_LEFT_SECONDS))
        note = Note(source=raw_pod["spec"].get("nodeName") or "", until=until, requester=pending.requester)
        relabel(self._client, raw_pod, build_release(raw_pod, around, note))
        self._eligibility.note_release(pending.namespace)
        pending.progress, pending.reason = MoveProgress.OUT, "its replacement is not available yet"
        self._report(pending, "LetGoForEviction", f"{pending.requester} evicts it; it serves until a replacement does")

    def _let_pass(self, pending: PendingEviction, reason: str) -> None:
        pending.reason, pending.progress = reason, MoveProgress.PASSES

    def _finish(self, pending: PendingEviction) -> None:
        """Evict a replaced pod whose requester has not come back; raises `BerthError`."""
        raw_pod = self._client.get(PODS, pending.name, namespace=pending.namespace)
        metadata = raw_pod["metadata"]
        if metadata["uid"] != pending.uid or metadata.get("deletionTimestamp"):
            self._forget(pending)
        elif not is_out(raw_pod):
            pending.progress = MoveProgress.NEW
        elif self._is_replaced(self._client, raw_pod):
            asked_before = pending.last_asked
            # By the Eviction API, so that disruption budgets still count; the resourceVersion makes it fail if the pod
            # has been given back meanwhile.
            self._client.evict(
                pending.namespace, pending.name, uid=pending.uid, resource_version=metadata["resourceVersion"]
            )
            pending.last_asked = asked_before  # this call went through the webhook, too, and is no request of others
            metrics.EVICTIONS.labels(result="finished").inc()
            self._report(
                pending, "EvictedForRequester", f"{pending.requester} asked for it, and a replacement is available"
            )

    def _give_back(self, pending: PendingEviction) -> None:
        """Give back a pod that is still there after its deadline; raises `BerthError`."""
        raw_pod = self._client.get(PODS, pending.name, namespace=pending.namespace)
        metadata = raw_pod["metadata"]
        note = Note.read(metadata.get("annotations") or {})
        self._let_pass(pending, pending.reason)
        if metadata["uid"] == pending.uid and not note.plan:
            take_back(self._client, pending.namespace, pending.name, uid=pending.uid, replica_set=note.replica_set)
            metrics.EVICTIONS.labels(result="given back").inc()
            self._report(pending, "GivenBack", f"no eviction of it ended in time: {pending.reason}")

    def give_back_left(self) -> None:
        """Give back the pods that another replica or an earlier process let go, and whose deadline is over."""
        for raw_pod in tuple(released_pods(self._client, (), self._clock.now())):
            metadata = raw_pod["metadata"]
            note = Note.read(metadata.get("annotations") or {})
            if note.until and not note.plan:
                take_back(
                    self._client,
                    metadata["namespace"],
                    metadata["name"],
                    uid=metadata["uid"],
                    replica_set=note.replica_set,
                )
                metrics.EVICTIONS.labels(result="given back").inc()

    def _report(self, pending: PendingEviction, reason: str, message: str) -> None:
        pod = ObjectReference(
            api_version="v1", kind="Pod", namespace=pending.namespace, name=pending.name, uid=pending.uid
        )
        record_event(self._client, regarding=pod, reason=reason, message=message, reporting_component=_COMPONENT)
