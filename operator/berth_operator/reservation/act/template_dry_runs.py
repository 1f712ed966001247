"""Dry runs of templates: as pods of the operator's namespace, and past the admission of the Reservation's own."""

import hashlib
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from berth_core import Pod, Reservation, ReservationReason, ReservationTask, RetryableError
from berth_core.decoding import decode_json
from berth_kube import PODS, RESERVATIONS, ForbiddenError, InvalidObjectError, RefusedError, without_pod_name
from berth_operator.reservation.act.admission_answers import is_by_admission, why_refused
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.manifests import Body, build_admission_pod, build_validation_pod
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.store.reservation_reading import templates_as_written

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

_OF_TEMPLATE: Final = -1
"""Stands for the index of a slot where the template is refused, before any slot has a placeholder."""

_Question = Callable[[Reservation, ReservationTask, dict[str, Any]], Verdict | None]


class TemplateDryRuns:
    """Asks the API server whether it accepts pods of templates, once for templates of equal shape; thread-safe."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._cache = context.cache
        self._settings = context.settings
        self._clock = context.clock
        self._admission = context.admission
        self._lock = threading.Lock()
        self._accepted: dict[tuple[str, ...], float] = {}
        """Accepted shapes, oldest first, and when (monotonic seconds)."""

    def why_refused(self, reservation: Reservation) -> Verdict | None:
        """Return the API server's refusal of a template in either namespace."""
        name, namespace = reservation.metadata.name, reservation.metadata.namespace
        templates_text = templates_as_written(reservation)
        if not templates_text:
            raw = self._client.get(RESERVATIONS, name, namespace=namespace)
            templates_text = msgspec.json.encode(
                [task.get("template") or {} for task in raw["spec"]["tasks"] or ()]
            ).decode()
        shape = _digest_of_shape(templates_text)
        as_pod = (shape,)
        in_namespace = (shape, namespace, reservation.spec.scheduler_name)
        questions: list[tuple[tuple[str, ...], _Question]] = []
        if not self._was_accepted(as_pod):
            questions.append((as_pod, self._why_malformed))
        if self._settings.limits.dry_runs and not self._was_accepted(in_namespace, _ASKED_SECONDS):
            questions.append((in_namespace, self._why_not_admitted))
        templates = decode_json(templates_text, list[dict[str, Any]]) if questions else []
        for key, ask in questions:
            for template, task in zip(templates, reservation.spec.tasks, strict=True):
                verdict = self._ask(ask, reservation, task, template)
                if verdict is not None:
                    return verdict
            self._remember(key)
        for task in reservation.spec.tasks:  # others of equal shape may have been asked about meanwhile
            self._cache.put_refusal(reservation.metadata.uid, (task.name, _OF_TEMPLATE), "")
        return None

    def _ask(
        self, ask: _Question, reservation: Reservation, task: ReservationTask, raw_template: dict[str, Any]
    ) -> Verdict | None:
        """Return the API server's answer; if admission gives none, the status says why."""
        uid, slot = reservation.metadata.uid, (task.name, _OF_TEMPLATE)
        try:
            return ask(reservation, task, raw_template)
        except RetryableError as error:
            if why := why_refused(error):
                self._cache.put_refusal(uid, slot, f"no pod of task {task.name} can be tried: {why}")
            raise

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
            # Only with `fieldValidation=Strict` is an unknown field an error (KEP-2885); by default it is dropped with
            # a warning.
            with self._admission.asking(settings.namespace):
                self._client.create(PODS, body, namespace=settings.namespace, dry_run=True, strict=True)
        except (InvalidObjectError, RefusedError) as error:
            if is_by_admission(error):
                return None
            words = without_pod_name(error.message)
            return invalid_task(task, _explain_unknown_fields(words) or words)
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
            with self._admission.asking(namespace):
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


_FREE_TEXTS: Final = frozenset(
    ("spec", containers, *field_path)
    for containers in ("containers", "initContainers")
    for field_path in (("image",), ("command",), ("args",), ("env", "value"))
)
"""Paths of a template at which any text makes a valid pod."""
_ANY_TEXT: Final = {"": None}
_LABEL: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@lru_cache(maxsize=16)  # many Reservations in a row have equal templates, and each text may take a mebibyte
def _digest_of_shape(templates_text: str) -> str:
    """Return a digest shared by all templates that differ only in images, commands, variables and label values."""
    # A placeholder copies none of these: what one template was allowed to hold, all of its shape may.
    shapes = [_shape(template) for template in decode_json(templates_text, list[dict[str, Any]])]
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


def _refused_there(task: ReservationTask, namespace: str, words: str) -> Verdict:
    return invalid_task(task, f"admission in namespace {namespace} refuses such a pod: {words}")


def _why_changed(task: ReservationTask, namespace: str, body: Body, pod: Pod) -> Verdict | None:
    """Return how admission changes a pod's choice of nodes, a change that its placeholder would lack."""
    selector = dict(task.template.spec.node_selector)
    if pod.spec.node_selector != selector:
        text = f"admission in namespace {namespace} makes the nodeSelector {dict(pod.spec.node_selector)} of {selector}"
    elif pod.spec.scheduler_name != body["spec"]["schedulerName"]:
        text = f"admission in namespace {namespace} gives such a pod the schedulerName {pod.spec.scheduler_name}"
    else:
        return None
    return invalid_task(task, f"{text}; write it into the template, as the owner's pods have it")


def invalid_task(task: ReservationTask, text: str) -> Verdict:
    return Verdict(ReservationReason.INVALID, f"task {task.name}: {text}")
