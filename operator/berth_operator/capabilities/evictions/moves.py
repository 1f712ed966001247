"""Evictions by others of pods that ask for a replacement first: the answers, and the surge moves behind them.

An eviction of such a pod is answered 429 until another pod serves in its place. A thread lets the pod go meanwhile, as
a surge move does, so that its ReplicaSet makes another; then the asker's next try passes. If no try comes the thread
evicts the pod itself. What is not replaced by the deadline passes as it was, and is given back if it stays.

Who asked for what is kept in memory: after a restart the askers ask again. A pod that was let go says so itself, and
until when, so that all replicas keep one deadline and the acting one gives it back.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
    EVICTIONS_LABEL,
    EVICTIONS_SURGE,
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
    controller_reference,
    find_replica_set,
    hash_of,
    is_out,
    is_ready,
    may_surge_later,
    record_event,
    relabel,
    released_pods,
    take_back,
    wanted_replicas,
    why_not_surge,
)
from berth_operator import telemetry
from berth_operator.admission.reviews import AdmissionRequest, Answer, allow
from berth_operator.capabilities.evictions import logs, metrics
from berth_operator.capabilities.evictions.manifests import build_eviction_webhooks
from berth_operator.capabilities.evictions.settings import EvictionSettings
from berth_operator.settings import OperatorSettings

_READ_SECONDS: Final = 1.0
_JUDGE_SECONDS: Final = 1.6
_PATIENCE_SECONDS: Final = 0.8
"""How long a first answer waits for what is found out of the pod; all together stay below `WEBHOOK_SECONDS`."""
_POLL_SECONDS: Final = 0.05
_RETRY_SECONDS: Final = 2
_PASS_SECONDS: Final = 0.2
_IDLE_PASS_SECONDS: Final = 1.0
_REGISTER_SECONDS: Final = 30.0
_ABSENT_SECONDS: Final = 10.0
"""An asker that has not come back for so long may not come at all: then Berth evicts the replaced pod itself."""
_SETTLE_SECONDS: Final = 10.0
"""How long a Deployment may be seen in change, which it also is for a moment after each pod that was let go."""
_LEFT_SECONDS: Final = 15.0
"""How long after the deadline a pod that is still there is given back."""
_FORGET_SECONDS: Final = 600.0
"""How long no eviction may have come before a deadline begins anew; so no one can hold a pod by changing it."""
_REASK_SECONDS: Final = 60.0
_MAX_WISHES: Final = 10_000
_MAX_OUT: Final = 200
_MAX_OUT_PER_NAMESPACE: Final = 100
_READERS: Final = 8
_LONGEST_WARNING: Final = 240
_COMPONENT: Final = "berth-operator"

_LOG = structlog.get_logger(__name__)


class Progress(Enum):
    """How far the move of a pod has come."""

    NEW = auto()
    OUT = auto()
    """Its ReplicaSet has let it go."""
    PASSES = auto()
    """It cannot surge: evictions of it pass."""


@dataclass(slots=True)
class Wish:
    """An eviction that was asked for; times are of the monotonic clock."""

    namespace: str
    name: str
    asked_by: str
    since: float
    asked: float
    uid: str = ""
    progress: Progress = Progress.NEW
    reason: str = "it is being looked at"
    """What it waits for, or why it passes."""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def is_out(self) -> bool:
        return self.progress is Progress.OUT


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at a pod says of its eviction."""

    passes: bool
    reason: str = ""
    """What the asker is told."""
    result: str = "passed"
    """The word for the metric, "" to count nothing."""


_NOT_OURS: Final = Verdict(passes=True, result="")
_REPLACED: Final = Verdict(passes=True, result="replaced")


class EvictionMoves:
    """Answers evictions, and sees each move through; thread-safe."""

    def __init__(self, client: KubeClient, settings: OperatorSettings, clock: Clock) -> None:
        self._client = client.apart(_READERS + 1)
        self._hurried = self._client.within(_READ_SECONDS)
        self._settings = settings
        self._own = settings.of(EvictionSettings)
        self._clock = clock
        self._eligibility = SurgeEligibility(self._client, clock)
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="evictions")
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._wishes: dict[tuple[str, str], Wish] = {}
        self._registered: tuple[Mapping[str, Any], float] | None = None

    # --- the answers ------------------------------------------------------------------------------------------------

    async def answer(self, request: AdmissionRequest, *, by_namespace: bool) -> Answer:
        """Return the answer to an eviction; its namespace asks for replacements, or its pod has to say so."""
        if request.operation != "CREATE" or request.dry_run:
            return allow(request.uid)
        wish = self._note(request)
        if wish is None:
            return _answered(request, Verdict(passes=True, reason="too many evictions wait"))
        verdict = await self._judge_in_time(wish, by_namespace=by_namespace)
        for _ in range(round(_PATIENCE_SECONDS / _POLL_SECONDS)):
            if verdict.passes or wish.progress is not Progress.NEW:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if not verdict.passes and wish.progress is Progress.PASSES:
            verdict = Verdict(passes=True, reason=wish.reason)
        return _answered(request, verdict, until=self._deadline_of(wish))

    async def _judge_in_time(self, wish: Wish, *, by_namespace: bool) -> Verdict:
        if (late_verdict := self._why_late(wish)) is not None:
            return late_verdict
        judge = partial(self._judge, wish, by_namespace=by_namespace)
        try:
            async with asyncio.timeout(_JUDGE_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._pool, judge)
        except NotFoundError:
            self._forget(wish)
            return _NOT_OURS
        except (BerthError, TimeoutError) as error:
            if by_namespace or wish.uid:
                return Verdict(passes=False, reason=f"the API server did not say more of it in time: {error}")
            return Verdict(passes=True, reason="whether it asks for a replacement could not be read")

    def _note(self, request: AdmissionRequest) -> Wish | None:
        """Return the wish that the request repeats or begins, None if there are too many."""
        now = self._clock.monotonic()
        with self._lock:
            wish = self._wishes.get((request.namespace, request.name))
            if wish is None:
                if len(self._wishes) >= _MAX_WISHES:
                    return None
                wish = Wish(request.namespace, request.name, request.user_info.username, since=now, asked=now)
                self._wishes[wish.key] = wish
            wish.asked = now
        return wish

    def _forget(self, wish: Wish) -> None:
        with self._lock:
            if self._wishes.get(wish.key) is wish:
                del self._wishes[wish.key]

    def _why_late(self, wish: Wish) -> Verdict | None:
        """Return the verdict on a wish whose deadline is over."""
        seconds = self._own.deadline_seconds
        if self._clock.monotonic() - wish.since < seconds:
            return None
        return Verdict(passes=True, reason=f"no other pod was available within {seconds:g} s: {wish.reason}")

    def _deadline_of(self, wish: Wish) -> datetime:
        seconds_left = wish.since + self._own.deadline_seconds - self._clock.monotonic()
        return self._clock.now() + timedelta(seconds=max(0.0, seconds_left))

    def _judge(self, wish: Wish, *, by_namespace: bool) -> Verdict:
        """Look at the pod, and have the thread take its move up; raises `BerthError`."""
        raw_pod = self._hurried.get(PODS, wish.name, namespace=wish.namespace)
        if not _asks(raw_pod, by_namespace=by_namespace):
            self._forget(wish)
            return _NOT_OURS
        with self._lock:
            if wish.uid != raw_pod["metadata"]["uid"]:
                if wish.uid:  # another pod has the name by now
                    wish.since, wish.progress = wish.asked, Progress.NEW
                wish.uid = raw_pod["metadata"]["uid"]
            if is_out(raw_pod):
                wish.progress, wish.reason = Progress.OUT, "its replacement is not available yet"
                self._share_deadline(wish, raw_pod)
            elif wish.progress is Progress.OUT:
                wish.progress, wish.reason = Progress.NEW, "it was given back to its ReplicaSet"
        self._wake.set()
        if wish.progress is Progress.OUT and self._is_replaced(self._hurried, raw_pod):
            return _REPLACED
        return Verdict(passes=False, reason=wish.reason)

    def _share_deadline(self, wish: Wish, raw_pod: Mapping[str, Any]) -> None:
        """Take over the deadline that another replica, or an earlier process, has noted on the pod; never a later one.

        Whoever writes the note by hand can so only have the pod evicted earlier.
        """
        until = Note.read(raw_pod["metadata"].get("annotations") or {}).until
        with suppress(InputError):
            seconds_left = (parse_timestamp(until) - self._clock.now()).total_seconds() - _LEFT_SECONDS
            began_at = self._clock.monotonic() + seconds_left - self._own.deadline_seconds
            wish.since = min(wish.since, began_at)

    def _is_replaced(self, client: KubeClient, raw_pod: Mapping[str, Any]) -> bool:
        """Return whether enough others serve for this pod to go; raises `BerthError`."""
        metadata = raw_pod["metadata"]
        replica_set_name = Note.read(metadata.get("annotations") or {}).replica_set
        replica_set = find_replica_set(client, metadata["namespace"], replica_set_name) if replica_set_name else None
        if replica_set is None or not hash_of(replica_set):
            return True
        labels = replica_set["spec"]["selector"]["matchLabels"]
        requirements = [f"{key}={value}" for key, value in labels.items() if key != TEMPLATE_HASH_LABEL]
        requirements.append(f"{TEMPLATE_HASH_LABEL} in ({hash_of(replica_set)},{RELEASED_HASH})")
        siblings = client.list(PODS, namespace=metadata["namespace"], label_selector=",".join(requirements)).items
        return may_go(raw_pod, replica_set, siblings, self._clock.now())

    # --- the moves --------------------------------------------------------------------------------------------------

    def run(
        self, stop: threading.Event, *, client_config: Callable[[], Mapping[str, Any]], leads: Callable[[], bool]
    ) -> None:
        """See the moves through until stopped, and keep the webhook registered while this replica acts."""
        swept = float("-inf")
        self.note_requests()
        while not stop.is_set():
            self._wake.wait(_PASS_SECONDS if self._wishes else _IDLE_PASS_SECONDS)
            self._wake.clear()
            try:
                self.pass_once()
                if leads():
                    self.register(client_config())
                    if self._clock.monotonic() - swept >= self._settings.sweep_seconds:
                        swept = self._clock.monotonic()
                        self.give_back_left()
            except Exception as error:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.warning(
                    telemetry.ACTION_FAILED,
                    **{telemetry.KEY_ACTION: "see evictions through", telemetry.KEY_ERROR: str(error)},
                )
                stop.wait(_IDLE_PASS_SECONDS)
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
        """Write the webhooks into the configuration that the chart makes; without it nothing is asked."""
        now = self._clock.monotonic()
        if self._registered is not None:
            written_config, registered_at = self._registered
            if written_config == client_config and now - registered_at < _REGISTER_SECONDS:
                return
        own_namespace, exempt_namespaces = self._settings.placeholders.namespace, self._own.exempt
        body = {"webhooks": build_eviction_webhooks(client_config, own_namespace, exempt_namespaces)}
        self._registered = client_config, now
        try:
            self._client.merge_patch(VALIDATING_WEBHOOKS, EVICTION_WEBHOOK_CONFIGURATION, body)
        except NotFoundError as error:
            fields = {telemetry.KEY_ACTION: "register the webhook of evictions", telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.ACTION_FAILED, **fields)

    def pass_once(self) -> None:
        """Take up the next step of each move."""
        with self._lock:
            wishes = sorted(self._wishes.values(), key=lambda pending: pending.since)
        out_by_namespace = Counter(pending.namespace for pending in wishes if pending.is_out)
        for wish in wishes:
            try:
                self._advance(wish, out_by_namespace)
            except NotFoundError:
                self._forget(wish)
            except ConflictError:
                continue  # it is looked at anew
            except (PermanentError, InputError) as error:
                self._let_pass(wish, str(error))
            except BerthError as error:
                wish.reason = str(error)

    def _advance(self, wish: Wish, out: Counter[str]) -> None:
        """Take up the next step of a move; `out` counts the pods that are let go, by namespace."""
        now = self._clock.monotonic()
        late_seconds, idle_seconds = now - wish.since - self._own.deadline_seconds, now - wish.asked
        if not wish.uid or wish.progress is Progress.PASSES or (wish.progress is Progress.NEW and late_seconds >= 0):
            if idle_seconds > (_FORGET_SECONDS if late_seconds >= 0 else _REASK_SECONDS):
                self._forget(wish)
        elif wish.progress is Progress.OUT:
            if late_seconds >= _LEFT_SECONDS:
                self._give_back(wish)
            elif idle_seconds >= _ABSENT_SECONDS:
                self._finish(wish)
        elif idle_seconds < _ABSENT_SECONDS:
            out_in_namespace = out[wish.namespace]
            if out.total() >= _MAX_OUT or out_in_namespace >= _MAX_OUT_PER_NAMESPACE:
                wish.reason = f"{out.total()} other pods are moved first"
                return
            self._let_go(wish, waits=out_in_namespace > 0 or now - wish.since < _SETTLE_SECONDS)
            out[wish.namespace] += wish.is_out

    def _let_go(self, wish: Wish, *, waits: bool) -> None:
        """Have the ReplicaSet let the pod go, or find out why not; raises `BerthError`."""
        raw_pod = self._client.get(PODS, wish.name, namespace=wish.namespace)
        if raw_pod["metadata"]["uid"] != wish.uid or raw_pod["metadata"].get("deletionTimestamp"):
            self._forget(wish)
            return
        if is_out(raw_pod):
            wish.progress = Progress.OUT
            return
        around = self._eligibility.look(raw_pod)
        if reason := why_not_surge(raw_pod, around):
            wish.reason = reason
            if not (waits and may_surge_later(reason)):
                self._let_pass(wish, reason)
            return
        until = format_timestamp(self._deadline_of(wish) + timedelta(seconds=_LEFT_SECONDS))
        note = Note(source=raw_pod["spec"].get("nodeName") or "", until=until, requester=wish.asked_by)
        relabel(self._client, raw_pod, build_release(raw_pod, around, note))
        self._eligibility.note_release(wish.namespace)
        wish.progress, wish.reason = Progress.OUT, "its replacement is not available yet"
        self._report(wish, "LetGoForEviction", f"{wish.asked_by} evicts it; it serves until a replacement does")

    def _let_pass(self, wish: Wish, reason: str) -> None:
        wish.reason, wish.progress = reason, Progress.PASSES

    def _finish(self, wish: Wish) -> None:
        """Evict a replaced pod whose asker has not come back; raises `BerthError`."""
        raw_pod = self._client.get(PODS, wish.name, namespace=wish.namespace)
        metadata = raw_pod["metadata"]
        if metadata["uid"] != wish.uid or metadata.get("deletionTimestamp"):
            self._forget(wish)
        elif not is_out(raw_pod):
            wish.progress = Progress.NEW
        elif self._is_replaced(self._client, raw_pod):
            asked_before = wish.asked
            self._client.evict(wish.namespace, wish.name, uid=wish.uid, resource_version=metadata["resourceVersion"])
            wish.asked = asked_before  # its own call came by the webhook
            metrics.EVICTIONS.labels(result="finished").inc()
            self._report(wish, "EvictedForRequester", f"{wish.asked_by} asked for it, and a replacement is available")

    def _give_back(self, wish: Wish) -> None:
        """Give a pod back that is still there after its deadline; raises `BerthError`."""
        raw_pod = self._client.get(PODS, wish.name, namespace=wish.namespace)
        metadata = raw_pod["metadata"]
        note = Note.read(metadata.get("annotations") or {})
        self._let_pass(wish, wish.reason)
        if metadata["uid"] == wish.uid and not note.plan:
            take_back(self._client, wish.namespace, wish.name, uid=wish.uid, replica_set=note.replica_set)
            metrics.EVICTIONS.labels(result="given back").inc()
            self._report(wish, "GivenBack", f"no eviction of it ended in time: {wish.reason}")

    def give_back_left(self) -> None:
        """Give back what another replica or an earlier process let go and left."""
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

    def _report(self, wish: Wish, reason: str, message: str) -> None:
        pod = ObjectReference(api_version="v1", kind="Pod", namespace=wish.namespace, name=wish.name, uid=wish.uid)
        record_event(self._client, regarding=pod, reason=reason, message=message, reporting_component=_COMPONENT)


# --- what decides ----------------------------------------------------------------------------------------------------


def _asks(raw_pod: Mapping[str, Any], *, by_namespace: bool) -> bool:
    """Return whether a pod that runs asks for a replacement before its eviction."""
    metadata = raw_pod["metadata"]
    label = (metadata.get("labels") or {}).get(EVICTIONS_LABEL)
    is_wanted = label == EVICTIONS_SURGE if label else by_namespace
    has_ended = (raw_pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return is_wanted and not (metadata.get("deletionTimestamp") or has_ended) and bool(raw_pod["spec"].get("nodeName"))


def may_go(
    raw_pod: Mapping[str, Any],
    replica_set: Mapping[str, Any],
    raw_pods: Iterable[dict[str, Any]],
    now: datetime,
) -> bool:
    """Return whether a pod that was let go may be evicted, by the pods of its ReplicaSet and those that it let go.

    Of several the first by name go first, so that all replicas of the operator choose the same.
    """
    if not is_ready(raw_pod):
        return True
    meta, spec = replica_set["metadata"], replica_set["spec"]
    ready_pods = [pod for pod in raw_pods if not pod["metadata"].get("deletionTimestamp") and is_ready(pod)]
    seconds = float(spec.get("minReadySeconds") or 0)
    available = sum(
        _is_of(pod, meta["uid"]) and _is_available(pod, seconds, now) for pod in ready_pods if not is_out(pod)
    )
    names_out = sorted(
        pod["metadata"]["name"]
        for pod in ready_pods
        if is_out(pod) and Note.read(pod["metadata"].get("annotations") or {}).replica_set == meta["name"]
    )
    spare = available + len(names_out) - wanted_replicas(replica_set)
    return raw_pod["metadata"]["name"] in names_out[: max(0, spare)]


def _is_of(raw_pod: dict[str, Any], uid: str) -> bool:
    owner = controller_reference(raw_pod)
    return owner is not None and owner.uid == uid


def _is_available(raw_pod: Mapping[str, Any], seconds: float, now: datetime) -> bool:
    """Return whether a Ready pod has been so for the seconds that its ReplicaSet asks."""
    if not seconds:
        return True
    conditions = raw_pod["status"]["conditions"]
    ready_since = next(
        (condition.get("lastTransitionTime") or "" for condition in conditions if condition["type"] == "Ready"), ""
    )
    try:
        return (now - parse_timestamp(ready_since)).total_seconds() >= seconds
    except InputError:
        return False


def _answered(request: AdmissionRequest, verdict: Verdict, *, until: datetime | None = None) -> Answer:
    """Return the answer that a verdict makes, and count it."""
    pod = f"{request.namespace}/{request.name}"
    if not verdict.passes:
        metrics.EVICTIONS.labels(result="waits").inc()
        latest = f", at {format_timestamp(until)} at the latest" if until else ""
        message = (
            f"Berth moves pod {pod} without a gap: {verdict.reason}. "
            f"Try again: the eviction passes once another pod is available{latest}."
        )
        status = {
            "status": "Failure",
            "code": 429,
            "reason": "TooManyRequests",
            "message": message,
            "details": {"retryAfterSeconds": _RETRY_SECONDS},
        }
        return _answer(request, pod, {"allowed": False, "status": status})
    if verdict.result:
        metrics.EVICTIONS.labels(result=verdict.result).inc()
    if not verdict.reason:
        return _answer(request, pod, {"allowed": True})
    warning = f"Berth lets the eviction of pod {pod} pass without a replacement: {verdict.reason}"
    return _answer(request, pod, {"allowed": True, "warnings": [warning[:_LONGEST_WARNING]]})


def _answer(request: AdmissionRequest, pod: str, response: Mapping[str, Any]) -> Answer:
    body = allow(request.uid).body
    return Answer({**body, "response": {**body["response"], **response}}, pod=pod)
