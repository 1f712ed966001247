"""Admission reviews of new pods: a pod for which a slot is held gets the gate of hand-overs, others stay as they are.

Every answer allows its pod. Between an answer and the watch event of the pod that it gated, a promise counts the pod
against the free slots; otherwise the pods of a Deployment, which are created within milliseconds, would all be gated
for the same slot.
"""

import base64
import math
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

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
from berth_operator.admission.request_limits import SearchBudget
from berth_operator.reservation.fitting import may_own
from berth_operator.reservation.pod_state import holds_our_gate
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.slot_matching import SlotFinder, has_name_of

_PROMISE_SECONDS: Final = 3.0
"""How long a gated pod counts against the free slots before the cache has it."""
_MAX_READS: Final = 16
"""Maximum number of Reservations that are read for one unsure answer, the oldest first, as slots are given."""


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The user whom the API server has authenticated."""

    username: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a request that is used; the object is decoded later, so that an unreadable one is answered, too."""

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
    """The answer to a review."""

    body: dict[str, Any]
    """The AdmissionReview to send."""
    reservation: str = ""
    """Uid of the Reservation that the pod was gated for; "" if it was not."""
    pod: str = ""
    """Namespace and name of the pod, for the log."""
    is_out_of_time: bool = False
    """Whether the search ended before every Reservation was compared."""
    own_verdict: str = ""
    """The verdict for the metric in the answer of a capability."""
    unsure: tuple[Reservation, ...] = ()
    """Reservations to read from the API server before the pod is allowed without a slot."""
    asks_group: Pod | None = None
    """The pod whose group has to be read first, since it may allow the pod to take a slot."""

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
    """A gated pod that is not cached yet."""

    since: float
    """When it was gated, in monotonic seconds."""
    pod: Pod


Review = Callable[[AdmissionReview], Awaitable[Answer]]
"""Answers the reviews of a path."""

_REVIEW_LEVELS: Final = 2
"""How many levels deeper an object is nested in a review than by itself."""
_DECODER: Final = Decoder(AdmissionReview, outer_levels=_REVIEW_LEVELS)
_POD_DECODER: Final = Decoder(Pod)


def read_review(raw: bytes) -> AdmissionReview:
    """Decode a review; raises InputError for anything else."""
    try:
        review = _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        raise InputError("body", str(error), "an AdmissionReview") from error
    # The registration asks for v1 alone (`admissionReviewVersions`), so no API server sends another.
    if review.kind != "AdmissionReview" or review.api_version != "admission.k8s.io/v1":
        raise InputError("kind", f"{review.api_version} {review.kind}", "admission.k8s.io/v1 AdmissionReview")
    return review


class Groups(Protocol):
    """Knows whether pod groups allow their pods to take slots of windows."""

    def say(self, pod: Pod) -> bool | None:
        """Return whether the pod's group allows it; None if the group has to be read first."""

    def read(self, pod: Pod) -> None:
        """Read the group of a pod from the API server; raises `BerthError`."""


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
        """`on_not_gated` gets the pods that were allowed without a slot.

        `refetch` reads a Reservation from the API server into the cache; without it the cache alone decides.
        """
        self._cache = cache
        self._on_not_gated = on_not_gated
        self._refetch = refetch
        self._groups = groups
        self._lock = threading.Lock()
        self._promises: dict[str, list[_Promise]] = {}
        self._promised = 0
        """Number of promises so far. A slot that a search has found is free only if none was made meanwhile."""
        self._pruned = -math.inf
        self._slots = SlotFinder(cache, self._promised_pods)
        self._search_time = search_time or SearchBudget()
        cache.on_new_owner(self._keep_promise)

    def answer(self, review: AdmissionReview, *, is_last: bool = False) -> Answer:
        """Return the answer, which patches a pod that has to wait for its slot.

        After an answer that is not final the caller calls `refetch_unsure` and asks again, with `is_last` if it was
        unsure of Reservations.
        """
        request = review.request
        pod = read_pod(request)
        # A pod that is created with a node passes no scheduler, so a gate could not hold it back; the API server
        # refuses both together (`ValidatePodCreate`).
        if pod is None or request.operation != "CREATE" or pod.spec.node_name:
            return allow(request.uid)
        probed_uid = pod.metadata.labels.get(PROBE_LABEL)
        if probed_uid:
            # The operator's dry run: it proves that this replica knows the Reservation, and would gate its owners.
            is_known = self._knows(probed_uid, pod.metadata.annotations.get(VERSION_ANNOTATION, ""))
            return _gate(request.uid, pod, probed_uid) if is_known else allow(request.uid)
        # A pod that was copied from one in a hand-over, or that another webhook has sent through twice.
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
        """Return whether a live Reservation is for this pod only if its group allows that, so the group matters."""
        if not takes_word_of_group(pod):
            return False
        allowed = as_reserveable(pod)
        return any(
            may_own(reservation, allowed) and not may_own(reservation, pod)
            for reservation in self._cache.candidates(allowed)
        )

    def refetch_unsure(self, answer: Answer) -> None:
        """Read what an answer that is not final asks for; raises `BerthError`."""
        if answer.asks_group is not None and self._groups is not None:
            self._groups.read(answer.asks_group)
        for reservation in answer.unsure[:_MAX_READS]:
            if self._refetch is not None:
                self._refetch(reservation)

    def _knows(self, uid: str, version: str) -> bool:
        """Return whether the cache has this version of a Reservation, or a later one, and it is live."""
        reservation = self._cache.reservation(uid)
        return reservation is not None and reservation.is_live and self._cache.knows_reservation(uid, version)

    def _gate_if_owner(self, request: AdmissionRequest, pod: Pod, *, is_last: bool, by_group: bool) -> Answer:
        """Search within the namespace's budget, and promise the slot.

        The search runs without the lock, since it may take long, and is repeated if a slot was promised meanwhile.
        """
        pod = as_reserveable(pod) if by_group else pod
        busy_before, is_over = self._search_time.busy_seconds(), self._search_time.begin(pod.metadata.namespace)
        try:
            while True:
                promised_before = self._promised
                reservation = self._slots.find(pod, is_over=is_over)
                if reservation is None:
                    unsure = () if is_last else tuple(self._slots.unsure(pod, is_over=is_over))
                    # A pod that is created by dry run is never stored, so nothing will ever be found of it.
                    if not (request.dry_run or unsure):
                        self._on_not_gated(pod)
                    return _allow_without_slot(request.uid, pod, is_out_of_time=is_over(), unsure=unsure)
                with self._lock:
                    if request.dry_run:
                        break
                    # Optimistic concurrency: the search ran without the lock.
                    if promised_before == self._promised:
                        self._promise(reservation.metadata.uid, pod)
                        break
        finally:
            self._search_time.spend(pod.metadata.namespace, self._search_time.busy_seconds() - busy_before)
        return _gate(request.uid, pod, reservation.metadata.uid, by_group=by_group)

    def _promised_pods(self, uid: str) -> list[Pod]:
        """Return the pods that were gated for a Reservation and are not cached yet."""
        with self._lock:
            return [promise.pod for promise in self._fresh_promises(uid)]

    def _promise(self, uid: str, pod: Pod) -> None:
        """Record that a pod was gated, and now and then drop the old promises of all Reservations."""
        self._promised += 1
        now = time.monotonic()
        if now - self._pruned > _PROMISE_SECONDS:
            # At most once in a promise's life: a Deployment's burst would otherwise look through all of them for each
            # of its pods.
            self._pruned = now
            for promised_uid in list(self._promises):
                self._fresh_promises(promised_uid)
        # A pod of the same name, as a StatefulSet creates it again, takes the place of the one before.
        other_promises = [
            promise for promise in self._promises.get(uid, ()) if not has_name_of(promise.pod.metadata, pod)
        ]
        self._promises[uid] = [*other_promises, _Promise(now, pod)]

    def _fresh_promises(self, uid: str) -> list[_Promise]:
        """Return the promises that still count, and drop the others."""
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
    """Return whether a created pod may be the promised one, by its generateName where it had no name yet.

    The API server fills in a generated name only after admission.
    """
    if promised.metadata.name:
        return promised.metadata.name == created.metadata.name
    return promised.metadata.generate_name == created.metadata.generate_name


def read_pod(request: AdmissionRequest) -> Pod | None:
    """Return the pod of a request with its namespace, None if the object is not readable as a pod."""
    try:
        # What cannot be read here may still be a valid pod of a newer Kubernetes, so it is let through without a slot.
        pod = _POD_DECODER.decode(request.object)
    except msgspec.DecodeError:
        return None
    # The object under review may have no namespace yet; the request always has it.
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=request.namespace))


def allow(uid: str) -> Answer:
    """Return the answer that allows what is asked for, as it is."""
    return Answer(_response(uid))


def _allow_without_slot(uid: str, pod: Pod, *, is_out_of_time: bool, unsure: tuple[Reservation, ...]) -> Answer:
    return Answer(_response(uid), pod=name_of(pod), is_out_of_time=is_out_of_time, unsure=unsure)


def name_of(pod: Pod) -> str:
    """Return a pod's namespace and name, or its generateName."""
    return f"{pod.metadata.namespace}/{pod.metadata.name or pod.metadata.generate_name}"


_LABEL_PATH: Final = "/metadata/labels/" + RESERVATION_LABEL.replace("/", "~1")
_RESERVEABLE_PATH: Final = "/metadata/annotations/" + RESERVEABLE_ANNOTATION.replace("/", "~1")


def _gate(uid: str, pod: Pod, reservation_uid: str, *, by_group: bool = False) -> Answer:
    """Return the answer that adds our gate and label, with `by_group` the permission of the group, and nothing else."""
    operations: list[dict[str, Any]] = []
    if pod.metadata.labels:
        operations.append({"op": "add", "path": _LABEL_PATH, "value": reservation_uid})
    else:
        operations.append({"op": "add", "path": "/metadata/labels", "value": {RESERVATION_LABEL: reservation_uid}})
    if by_group:  # there are annotations then, since one of them names the group
        operations.append({"op": "add", "path": _RESERVEABLE_PATH, "value": "true"})
    operations.append(adding_gate(pod, HANDOVER_GATE))
    return Answer(patched(uid, operations), reservation_uid, name_of(pod))


def adding_gate(pod: Pod, name: str) -> dict[str, Any]:
    if pod.spec.scheduling_gates:
        # `-` appends (RFC 6902); a list that is absent has to be created as a whole.
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
