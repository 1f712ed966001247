"""The verdict on a new Reservation: whether rules and the API server accept it, and whether quotas allow the amount."""

import hashlib
import re
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth_core import InputError, Pod, Reservation, ReservationReason, ReservationTask, RetryableError
from berth_kube import (
    PODS,
    RESERVATIONS,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
    RefusedError,
    without_pod_name,
)
from berth_operator.quota.limits import why_not_tolerable
from berth_operator.reservation.act.admission_answers import is_by_admission
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.manifests import Body, build_admission_pod, build_validation_pod
from berth_operator.reservation.node_choice import NodeChoice
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.rules import Postponement
from berth_operator.reservation.store.reservation_reading import templates_as_written
from berth_operator.reservation.validation import refuse_requests

_REMEMBERED: Final = 10_000
_UNKNOWN_FIELD: Final = re.compile(r'unknown field "([^"]*)"')
_ASKED_SECONDS: Final = 30.0
"""How long an answer of a namespace's admission counts for equal templates."""
_AMOUNT_PHRASES: Final = (
    "exceeded quota",
    "failed quota",
    "insufficient quota",
    " usage per ",
    "limit to request ratio",
)
"""Messages of quotas and limit ranges, which are checked with other Reservations' amounts."""
_UNRELATED_PHRASES: Final = ('cannot create resource "pods"', "error looking up service account")
"""Refusals that are not about the template: a missing right, or no default account yet."""


class Validator:
    """Validates templates by dry runs, one for each shape, then by the namespace's quota."""

    def __init__(self, context: Context, priorities: PriorityClasses, quotas: QuotaAdmission) -> None:
        self._client = context.client
        self._cache = context.cache
        self._settings = context.settings
        self._clock = context.clock
        self._rules = context.rules
        self._priorities = priorities
        self._quotas = quotas
        self._lock = threading.Lock()
        self._accepted: dict[tuple[str, ...], float] = {}
        """Accepted shapes, oldest first, and when (monotonic seconds)."""

    def judge(self, reservation: Reservation) -> Verdict | None:
        """Return why a Reservation is impossible, or count it; raises `RetryableError` while a rule cannot decide."""
        certain = (
            self._why_against_rules(reservation)
            or self._why_unknown_class(reservation)
            or self._why_beyond_limits(reservation)
        )
        verdict = certain or self._why_refused(reservation)
        if verdict is None or verdict.reason is not ReservationReason.INVALID:
            verdict = refuse_requests(reservation) or verdict
        if verdict is not None and verdict.reason is ReservationReason.INVALID:
            return verdict
        forbidden = self._why_forbidden(reservation)
        if verdict is not None and forbidden is None:
            self.forget(reservation.metadata.uid)
        return forbidden or verdict

    def forget(self, uid: str) -> None:
        """Stop counting a Reservation."""
        self._quotas.forget(uid)

    def _why_against_rules(self, reservation: Reservation) -> Verdict | None:
        """Return why a rule refuses a Reservation; raises `RetryableError` while a rule cannot decide."""
        verdict = self._rules.judge(reservation, self._clock.now())
        if not isinstance(verdict, Postponement):
            return verdict
        uid = reservation.metadata.uid
        choice = self._cache.choices().get(uid)
        if choice is None or choice.reason != verdict.reason:
            # Not again: each choice that is recorded has the Reservation reconciled at once.
            message = f"{verdict.message}; {verdict.outlook}"
            self._cache.put_choice(uid, NodeChoice(reason=verdict.reason, message=message))
        raise RetryableError(verdict.message)

    def _why_unknown_class(self, reservation: Reservation) -> Verdict | None:
        for task in reservation.spec.tasks:
            try:
                self._priorities.of(task.template.spec)
            except NotFoundError:
                class_name = task.template.spec.priority_class_name
                return _invalid(task, f'no PriorityClass is named "{class_name}"')
        return None

    def _why_beyond_limits(self, reservation: Reservation) -> Verdict | None:
        """Return the operator's node or toleration limit that a template breaks."""
        limits = self._settings.limits
        reserved = frozenset() if limits.control_plane_nodes else self._cache.control_plane_nodes()
        for task in reservation.spec.tasks:
            names = set(task.node_names)
            if names and names <= reserved:
                names_text = ", ".join(sorted(names))
                return _invalid(task, f"{names_text}: no place is held on control-plane nodes (--control-plane-nodes)")
            tolerations = () if limits.dry_runs else task.template.spec.tolerations
            refusal = why_not_tolerable(tolerations, limits.tolerable(reservation.metadata.namespace))
            if refusal:
                return _invalid(task, refusal)
        return None

    # --- what the API server says

    def _why_refused(self, reservation: Reservation) -> Verdict | None:
        """Return the API server's refusal of a template in either namespace."""
        name, namespace = reservation.metadata.name, reservation.metadata.namespace
        templates = templates_as_written(reservation)
        if not templates:
            raw = self._client.get(RESERVATIONS, name, namespace=namespace)
            templates = [task.get("template") or {} for task in raw["spec"]["tasks"] or ()]
        shape = _digest_of_shape(templates)
        as_pod = (shape,)
        in_namespace = (shape, namespace, reservation.spec.scheduler_name)
        questions: list[tuple[tuple[str, ...], Callable[..., Verdict | None]]] = []
        if not self._was_accepted(as_pod):
            questions.append((as_pod, self._why_malformed))
        if self._settings.limits.dry_runs and not self._was_accepted(in_namespace, _ASKED_SECONDS):
            questions.append((in_namespace, self._why_not_admitted))
        for key, ask in questions:
            for template, task in zip(templates, reservation.spec.tasks, strict=True):
                verdict = ask(reservation, task, template)
                if verdict is not None:
                    return verdict
            self._remember(key)
        return None

    def _was_accepted(self, key: tuple[str, ...], within_seconds: float | None = None) -> bool:
        with self._lock:
            accepted_at = self._accepted.get(key)
        if accepted_at is None:
            return False
        return within_seconds is None or self._clock.monotonic() - accepted_at < within_seconds

    def _remember(self, key: tuple[str, ...]) -> None:
        with self._lock:
            self._accepted.pop(key, None)
            self._accepted[key] = self._clock.monotonic()
            while len(self._accepted) > _REMEMBERED:
                del self._accepted[next(iter(self._accepted))]

    def _why_malformed(
        self, reservation: Reservation, task: ReservationTask, raw_template: dict[str, Any]
    ) -> Verdict | None:
        """Return why a template is not a valid pod."""
        settings = self._settings.placeholders
        body = build_validation_pod(reservation.metadata.uid, task.name, raw_template, settings)
        try:
            self._client.create(PODS, body, namespace=settings.namespace, dry_run=True, strict=True)
        except (InvalidObjectError, RefusedError) as error:
            if is_by_admission(error):
                return None
            words = without_pod_name(error.message)
            return _invalid(task, _explain_unknown_fields(words) or words)
        except ForbiddenError:
            return None  # our own namespace may be stricter than the owner's
        return None

    def _why_not_admitted(
        self, reservation: Reservation, task: ReservationTask, raw_template: dict[str, Any]
    ) -> Verdict | None:
        """Return why admission in the Reservation's namespace refuses a task's pods."""
        namespace = reservation.metadata.namespace
        body = build_admission_pod(reservation, task, raw_template)
        try:
            pod = self._client.create(PODS, body, namespace=namespace, dry_run=True, type=Pod)
        except ForbiddenError as error:
            if any(phrase in error.message for phrase in _UNRELATED_PHRASES):
                raise
            if any(phrase in error.message for phrase in _AMOUNT_PHRASES):
                return Verdict(ReservationReason.FORBIDDEN, f"task {task.name}: {without_pod_name(error.message)}")
            return _refused_there(task, namespace, without_pod_name(error.message))
        except (InvalidObjectError, RefusedError) as error:
            return _refused_there(task, namespace, without_pod_name(error.message))
        return _why_changed(task, namespace, body, pod)

    def _why_forbidden(self, reservation: Reservation) -> Verdict | None:
        """Count the Reservation, or return the limit or quota that forbids it."""
        try:
            refusal = self._quotas.admit(reservation)
        except InputError as error:
            return Verdict(ReservationReason.INVALID, str(error))
        return Verdict(ReservationReason.FORBIDDEN, refusal) if refusal else None


_FREE_TEXTS: Final = frozenset(
    ("spec", containers, *field_path)
    for containers in ("containers", "initContainers")
    for field_path in (("image",), ("command",), ("args",), ("env", "value"))
)
"""Paths of a template at which any text makes a valid pod."""
_ANY_TEXT: Final = {"": None}
_LABEL: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _digest_of_shape(templates: list[dict[str, Any]]) -> str:
    """Return a digest shared by all templates that differ only in images, commands, variables and label values."""
    # A placeholder copies none of these: what one template was allowed to hold, all of its shape may.
    shapes = [_shape(template) for template in templates]
    return hashlib.sha256(msgspec.json.encode(shapes, order="deterministic")).hexdigest()[:32]


def _shape(node: Any, path: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 - part of a template
    """Return part of a template without the texts that make no pod invalid."""
    if isinstance(node, dict):
        return {key: _shape(value, (*path, key)) for key, value in node.items()}
    if isinstance(node, list):
        return [_shape(item, path) for item in node]
    return _ANY_TEXT if isinstance(node, str) and _is_free(node, path) else node


def _is_free(text: str, path: tuple[str, ...]) -> bool:
    if path[:2] == ("metadata", "labels"):
        return _LABEL.fullmatch(text) is not None
    return path in _FREE_TEXTS and text == (text.strip() or None)


def _explain_unknown_fields(message: str) -> str:
    """Return the unknown fields of a template, "" for another error."""
    fields = _UNKNOWN_FIELD.findall(message)
    if not fields:
        return ""
    names = ", ".join(f"template.{name}" for name in fields)
    return f"unknown field {names}: a template has the fields of a pod; correct the name or leave it out"


def _invalid(task: ReservationTask, text: str) -> Verdict:
    return Verdict(ReservationReason.INVALID, f"task {task.name}: {text}")


def _refused_there(task: ReservationTask, namespace: str, words: str) -> Verdict:
    return _invalid(task, f"admission in namespace {namespace} refuses such a pod: {words}")


def _why_changed(task: ReservationTask, namespace: str, body: Body, pod: Pod) -> Verdict | None:
    """Return how admission changes a pod's choice of nodes, a change that its placeholder would lack."""
    selector = dict(task.template.spec.node_selector)
    if pod.spec.node_selector != selector:
        text = f"admission in namespace {namespace} makes the nodeSelector {dict(pod.spec.node_selector)} of {selector}"
    elif pod.spec.scheduler_name != body["spec"]["schedulerName"]:
        text = f"admission in namespace {namespace} gives such a pod the schedulerName {pod.spec.scheduler_name}"
    else:
        return None
    return _invalid(task, f"{text}; write it into the template, as the owner's pods have it")
