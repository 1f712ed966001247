"""Admission reviews: gate a pod for a Reservation, or allow it.

The first half limits what a caller may cost; the second half finds the slot.
"""

import asyncio
import base64
import math
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from berth_core import (
    HANDOVER_GATE,
    PROBE_LABEL,
    RESERVATION_LABEL,
    RESERVEABLE_ANNOTATION,
    VERSION_ANNOTATION,
    InputError,
    Pod,
    Reservation,
    as_reserveable,
    takes_word_of_group,
)
from berth_core.decoding import Decoder
from berth_operator.reservation.fitting import may_own
from berth_operator.reservation.pod_state import holds_our_gate
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.slot_matching import SlotFinder, has_name_of
from berth_service.listening import listen

# --- webhook limits --------------------------------------------------------------------------------------------------
# Limits on connections, bodies, slow callers and the time of searches.

LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024

_MOST_CONNECTIONS: Final = 256
"""The API server keeps a few open; each costs some 50 KiB."""
_MOST_BODY_BYTES: Final = 8 * LARGEST_BODY_BYTES
"""Of all bodies being read; a pod's review has 5 to 20 KiB."""
_REVIEW_SECONDS: Final = 0.05
_BURST_SECONDS: Final = 0.2
_SHARE: Final = 0.1
_HANDSHAKE_SECONDS: Final = 5.0
_BODY_SECONDS: Final = 5.0
_BACKLOG: Final = 512

IDLE_SECONDS: Final = 120.0
"""Longer than the 90 s after which the API server closes an idle connection itself: of two ends that close one, the
server's would meet a call that was just sent, which then fails."""
_FIRST_REQUEST_SECONDS: Final = IDLE_SECONDS
"""No less: the API server also keeps connections that it opened and has not needed yet."""
_GONE_SECONDS: Final = 10.0
"""How long a connection that ended without a request is remembered, at most."""
LINGERING_SECONDS: Final = 2.0


class BodyRefusedError(Exception):
    """A refused body, with the status of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class BodyReader:
    """Reads as many bodies at once as the reserved memory allows."""

    def __init__(self) -> None:
        self._reading_bytes = 0

    async def read(self, request: web.Request) -> bytes:
        """Return the body of a request.

        Raises `BodyRefusedError` if it is too long, too slow, or one too many.
        """
        body_bytes = LARGEST_BODY_BYTES if request.content_length is None else request.content_length
        if body_bytes > LARGEST_BODY_BYTES:
            raise BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes")
        if self._reading_bytes + body_bytes > _MOST_BODY_BYTES:
            raise BodyRefusedError(503, "too many bodies at once")
        self._reading_bytes += body_bytes
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await request.read()
        except TimeoutError:
            raise BodyRefusedError(408, f"a body may take {_BODY_SECONDS:g} s") from None
        except web.HTTPRequestEntityTooLarge:
            raise BodyRefusedError(413, f"a body may have {LARGEST_BODY_BYTES} bytes") from None
        finally:
            self._reading_bytes -= body_bytes


class SearchBudget:
    """Gives each namespace its own processor time for searches.

    A namespace may search for a fifth of a second at once and for a tenth of the time in the long run; one review for a
    twentieth of a second, which is enough for a thousand ordinary templates. On a busy machine that lasts several times
    as long, and all reviews wait meanwhile. Not thread-safe.
    """

    def __init__(self, busy: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.monotonic) -> None:
        """`busy` returns this thread's processor seconds.

        So a busy machine costs no namespace anything.
        """
        self._busy = busy
        self._now = now
        self._spent: dict[str, tuple[float, float]] = {}
        """Namespace to the seconds that count against it, and their time."""

    def begin(self, namespace: str) -> Callable[[], bool]:
        """Return a function that reports whether a search's time is over.

        The search begins now.
        """
        ends = self._busy() + min(_REVIEW_SECONDS, _BURST_SECONDS - self._counted(namespace))
        return lambda: self._busy() >= ends

    def spend(self, namespace: str, seconds: float) -> None:
        """Count the seconds of a search against its namespace."""
        self._spent[namespace] = (self._counted(namespace) + seconds, self._now())

    def busy_seconds(self) -> float:
        return self._busy()

    def _counted(self, namespace: str) -> float:
        """Return the seconds that count against a namespace now."""
        seconds, counted_at = self._spent.pop(namespace, (0.0, 0.0))
        seconds_left = max(0.0, seconds - _SHARE * (self._now() - counted_at))
        if seconds_left:
            self._spent[namespace] = (seconds, counted_at)
        return seconds_left


class _Refusal(asyncio.Protocol):
    """Aborts a connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        transport.abort()


class ConnectionLimit:
    """Creates the protocol of each connection; ends surplus and silent ones.

    Of too many, the oldest that has asked nothing yet makes room for the next.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._silent: set[RequestHandler] = set()

    async def listen(self, host: str, port: int, context: ssl.SSLContext) -> asyncio.Server:
        """Listen; raises OSError."""
        return await asyncio.get_running_loop().create_server(
            self._new_connection,
            sock=listen(host, port, backlog=_BACKLOG),
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_HANDSHAKE_SECONDS,
        )

    def has_asked(self, request: web.Request) -> None:
        """Remember that a connection has sent a whole request's head."""
        self._silent.discard(request.protocol)

    def _new_connection(self) -> asyncio.Protocol:
        connections = self._server.connections  # in the order in which they were opened
        if len(connections) >= _MOST_CONNECTIONS:
            oldest = next((connection for connection in connections if connection in self._silent), None)
            if oldest is None:
                return _Refusal()
            if oldest.transport is not None:
                oldest.transport.abort()  # a caller that does not answer would keep its place
            self._end_if_silent(oldest)
        handler = self._server()
        self._silent.add(handler)
        loop = asyncio.get_running_loop()
        loop.call_later(_HANDSHAKE_SECONDS + _GONE_SECONDS, self._forget_if_gone, handler)
        return handler

    def _forget_if_gone(self, handler: RequestHandler) -> None:
        """Forget a connection that has ended, or that was never made."""
        if handler not in self._server.connections:
            self._silent.discard(handler)
        elif handler in self._silent:
            loop = asyncio.get_running_loop()
            loop.call_later(_FIRST_REQUEST_SECONDS, self._end_if_silent, handler)

    def _end_if_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            handler.force_close()


_PROMISE_SECONDS: Final = 3.0
"""How long a gated pod counts against the free slots before the cache has it."""
_MOST_READ: Final = 16
"""Maximum Reservations fetched for one unsure answer, oldest first, as for slots."""


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as the API server has found out."""

    username: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The used part of a request.

    The pod is decoded later, so that an odd one gets an answer.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool = False
    object: msgspec.Raw = msgspec.Raw(b"null")


class AdmissionReview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An AdmissionReview as the API server sends it."""

    api_version: str
    kind: str
    request: AdmissionRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a review.

    `reservation` is the uid of the Reservation that the pod was gated for.
    """

    body: dict[str, Any]
    reservation: str = ""
    pod: str = ""
    """Namespace and name of the pod, for the log."""
    is_out_of_time: bool = False
    """Whether the search ended before every Reservation was compared."""
    own_verdict: str = ""
    """The verdict of a capability's answer."""
    unsure: tuple[Reservation, ...] = ()
    """Reservations to fetch before the pod is allowed without a slot."""
    asks_group: Pod | None = None
    """The pod whose group has to be read first: it may say that the pod may take a slot."""

    @property
    def is_final(self) -> bool:
        return not self.unsure and self.asks_group is None

    @property
    def verdict(self) -> str:
        """Return the result of the review for the metric."""
        if self.reservation:
            return "gated"
        if self.own_verdict:
            return self.own_verdict
        return "out of time" if self.is_out_of_time else "let be"


@dataclass(frozen=True, slots=True)
class _Promise:
    """A gated pod that is not cached yet.

    `since` is when it was gated, in monotonic seconds.
    """

    since: float
    pod: Pod


Review = Callable[[AdmissionReview], Awaitable[Answer]]
"""Answers the reviews of a path."""

_REVIEW_LEVELS: Final = 2
"""How much deeper an object is nested in a review."""
_DECODER: Final = Decoder(AdmissionReview, outer_levels=_REVIEW_LEVELS)
_POD_DECODER: Final = Decoder(Pod)


def read_review(raw: bytes) -> AdmissionReview:
    """Decode a review; raises InputError for anything else."""
    try:
        review = _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        raise InputError("body", str(error), "an AdmissionReview") from error
    if review.kind != "AdmissionReview" or review.api_version != "admission.k8s.io/v1":
        raise InputError("kind", f"{review.api_version} {review.kind}", "admission.k8s.io/v1 AdmissionReview")
    return review


class Groups(Protocol):
    """Says of pod groups whether their pods may take slots of windows."""

    def say(self, pod: Pod) -> bool | None:
        """Return whether the pod's group says so; None if it has to be read first."""

    def read(self, pod: Pod) -> None:
        """Read the group of a pod."""


class Admission:
    """Answers reviews from the cache; thread-safe."""

    def __init__(
        self,
        cache: Cache,
        search_time: SearchBudget | None = None,
        *,
        on_not_gated: Callable[[Pod], None] = lambda _: None,
        refetch: Callable[[Reservation], None] | None = None,
        groups: Groups | None = None,
    ) -> None:
        """`on_not_gated` gets ungated pods that a Reservation may be for.

        `refetch` updates a Reservation from the API server; without it the cache decides.
        """
        self._cache = cache
        self._on_not_gated = on_not_gated
        self._refetch = refetch
        self._groups = groups
        self._lock = threading.Lock()
        self._promises: dict[str, list[_Promise]] = {}
        self._promised = 0
        """Number of promises so far; a search counts only if none was made meanwhile."""
        self._pruned = -math.inf
        self._slots = SlotFinder(cache, self._promised_pods)
        self._search_time = search_time or SearchBudget()
        cache.on_new_owner(self._keep_promise)

    def answer(self, review: AdmissionReview, *, is_last: bool = False) -> Answer:
        """Return the answer, which always allows the pod.

        It is patched if the pod must wait for its slot. An answer that is not final is followed by `refetch_unsure` and
        another call, with `is_last` if it was `unsure`.
        """
        request = review.request
        pod = read_pod(request)
        if pod is None or request.operation != "CREATE" or pod.spec.node_name:
            return allow(request.uid)
        probed = pod.metadata.labels.get(PROBE_LABEL)
        if probed:
            is_known = self._knows(probed, pod.metadata.annotations.get(VERSION_ANNOTATION, ""))
            return _gate(request.uid, pod, probed) if is_known else allow(request.uid)
        if holds_our_gate(pod) or RESERVATION_LABEL in pod.metadata.labels:
            return allow(request.uid)
        by_group = False
        if self._groups is not None and self._may_own_by_group(pod):
            group_answer = self._groups.say(pod)
            if group_answer is None and not is_last:
                return Answer(_response(request.uid), pod=name_of(pod), asks_group=pod)
            by_group = bool(group_answer)
        is_last = is_last or self._refetch is None
        return self._gate_if_owner(request, pod, is_last=is_last, by_group=by_group)

    def _may_own_by_group(self, pod: Pod) -> bool:
        """Return whether the word of its group would make a pod an owner of a live Reservation."""
        if not takes_word_of_group(pod):
            return False
        allowed = as_reserveable(pod)
        return any(
            may_own(reservation, allowed) and not may_own(reservation, pod)
            for reservation in self._cache.candidates(allowed)
        )

    def refetch_unsure(self, answer: Answer) -> None:
        """Read what an answer that is not final asks for; raises the API server's error."""
        if answer.asks_group is not None and self._groups is not None:
            self._groups.read(answer.asks_group)
        for reservation in answer.unsure[:_MOST_READ]:
            if self._refetch is not None:
                self._refetch(reservation)

    def _knows(self, uid: str, version: str) -> bool:
        """Return whether the cache has this version, and it is live."""
        reservation = self._cache.reservation(uid)
        return reservation is not None and reservation.is_live and self._cache.knows_reservation(uid, version)

    def _gate_if_owner(self, request: AdmissionRequest, pod: Pod, *, is_last: bool, by_group: bool) -> Answer:
        """Search within the namespace's budget, and promise the slot found."""
        pod = as_reserveable(pod) if by_group else pod
        busy_before, is_over = self._search_time.busy_seconds(), self._search_time.begin(pod.metadata.namespace)
        try:
            while True:
                promised_before = self._promised
                reservation = self._slots.find(pod, is_over=is_over)
                if reservation is None:
                    unsure = () if is_last else tuple(self._slots.unsure(pod, is_over=is_over))
                    if not (request.dry_run or unsure):
                        self._on_not_gated(pod)
                    return _allow_without_slot(request.uid, pod, is_out_of_time=is_over(), unsure=unsure)
                with self._lock:
                    if request.dry_run:
                        break
                    if promised_before == self._promised:
                        self._promise(reservation.metadata.uid, pod)
                        break
        finally:
            self._search_time.spend(pod.metadata.namespace, self._search_time.busy_seconds() - busy_before)
        return _gate(request.uid, pod, reservation.metadata.uid, by_group=by_group)

    def _promised_pods(self, uid: str) -> list[Pod]:
        """Return a Reservation's gated pods that are not cached yet."""
        with self._lock:
            return [promise.pod for promise in self._fresh_promises(uid)]

    def _promise(self, uid: str, pod: Pod) -> None:
        """Record that a pod was gated; prune old promises occasionally."""
        self._promised += 1
        now = time.monotonic()
        if now - self._pruned > _PROMISE_SECONDS:
            self._pruned = now
            for promised_uid in list(self._promises):
                self._fresh_promises(promised_uid)
        other_promises = [
            promise for promise in self._promises.get(uid, ()) if not has_name_of(promise.pod.metadata, pod)
        ]
        self._promises[uid] = [*other_promises, _Promise(now, pod)]

    def _fresh_promises(self, uid: str) -> list[_Promise]:
        """Return the promises that still count, and forget the others."""
        oldest = time.monotonic() - _PROMISE_SECONDS
        fresh_promises = [promise for promise in self._promises.pop(uid, ()) if promise.since > oldest]
        if fresh_promises:
            self._promises[uid] = fresh_promises
        return fresh_promises

    def _keep_promise(self, pod: Pod) -> None:
        """Drop the promise of a pod that the cache has now."""
        with self._lock:
            promises = self._promises.get(pod.metadata.labels[RESERVATION_LABEL], [])
            kept_promise = next((promise for promise in promises if _may_be(promise.pod, pod)), None)
            if kept_promise is not None:
                promises.remove(kept_promise)


def _may_be(promised: Pod, created: Pod) -> bool:
    """Return whether a created pod may be the promised one.

    A promised pod without a name is compared by what its name was made of.
    """
    if promised.metadata.name:
        return promised.metadata.name == created.metadata.name
    return promised.metadata.generate_name == created.metadata.generate_name


def read_pod(request: AdmissionRequest) -> Pod | None:
    """Return the pod with the namespace of the request.

    None if it is no pod.
    """
    try:
        pod = _POD_DECODER.decode(request.object)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=request.namespace))


def allow(uid: str) -> Answer:
    """Return the answer that allows a pod as it is."""
    return Answer(_response(uid))


def _allow_without_slot(uid: str, pod: Pod, *, is_out_of_time: bool, unsure: tuple[Reservation, ...]) -> Answer:
    """Return the answer for a pod without a slot."""
    return Answer(_response(uid), pod=name_of(pod), is_out_of_time=is_out_of_time, unsure=unsure)


def name_of(pod: Pod) -> str:
    """Return a pod's namespace and name, or its generateName."""
    return f"{pod.metadata.namespace}/{pod.metadata.name or pod.metadata.generate_name}"


_LABEL_PATH: Final = "/metadata/labels/" + RESERVATION_LABEL.replace("/", "~1")
_RESERVEABLE_PATH: Final = "/metadata/annotations/" + RESERVEABLE_ANNOTATION.replace("/", "~1")


def _gate(uid: str, pod: Pod, reservation_uid: str, *, by_group: bool = False) -> Answer:
    """Return the answer that adds only our gate and label, and what the pod's group says of it."""
    operations: list[dict[str, Any]] = []
    if pod.metadata.labels:
        operations.append({"op": "add", "path": _LABEL_PATH, "value": reservation_uid})
    else:
        operations.append({"op": "add", "path": "/metadata/labels", "value": {RESERVATION_LABEL: reservation_uid}})
    if by_group:  # such a pod has annotations: one names its group
        operations.append({"op": "add", "path": _RESERVEABLE_PATH, "value": "true"})
    operations.append(adding_gate(pod, HANDOVER_GATE))
    return Answer(patched(uid, operations), reservation_uid, name_of(pod))


def adding_gate(pod: Pod, name: str) -> dict[str, Any]:
    if pod.spec.scheduling_gates:
        return {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": name}}
    return {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": name}]}


def patched(uid: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
    body = _response(uid)
    body["response"] |= {
        "patchType": "JSONPatch",
        "patch": base64.b64encode(msgspec.json.encode(operations)).decode(),
    }
    return body


def _response(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": True},
    }
