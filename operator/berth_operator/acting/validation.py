"""Owns the verdict on a new Reservation: whether its pods would be taken, and whether it may hold so much.

It does not own what a verdict leads to: `decisions.statuses` does.
"""

import re
import threading
from collections.abc import Callable
from typing import Any, Final

from berth_core.clock import Clock
from berth_core.errors import InputError
from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationReason, ReservationTask
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, NotFoundError, RefusedError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator.acting.allowances import Allowances
from berth_operator.acting.priorities import Priorities
from berth_operator.bounds.limits import why_not_tolerable
from berth_operator.decisions import manifests
from berth_operator.decisions.acceptance import refuse_requests
from berth_operator.decisions.observation import Verdict
from berth_operator.picture.readable import templates_digest
from berth_operator.settings import OperatorSettings

_REMEMBERED: Final = 10_000
_UNKNOWN_FIELD: Final = re.compile(r'unknown field "([^"]*)"')
_ASKED_SECONDS: Final = 30.0
"""How long an answer of a namespace's admission counts for others of the same templates."""
_OF_AMOUNTS: Final = ("exceeded quota", "failed quota", "insufficient quota", " usage per ", "limit to request ratio")
"""In the words of quotas and limit ranges, which are judged with what other Reservations hold."""
_NOT_OF_THE_TEMPLATE: Final = ('cannot create resource "pods"', "error looking up service account")
"""In refusals that say nothing of the template: a right is missing, or the namespace's default account as yet."""


class Validator:
    """Puts templates to the API server as dry runs, equal ones once, then to the namespace's allowance."""

    def __init__(
        self,
        client: KubeClient,
        priorities: Priorities,
        allowances: Allowances,
        settings: OperatorSettings,
        clock: Clock,
        control_plane_nodes: Callable[[], frozenset[str]],
    ) -> None:
        self._client = client
        self._priorities = priorities
        self._allowances = allowances
        self._settings = settings
        self._clock = clock
        self._control_plane_nodes = control_plane_nodes
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, ...], float] = {}
        """What was taken of which templates, oldest first, and when (monotonic seconds)."""

    def judge(self, reservation: Reservation) -> Verdict | None:
        """Return why a Reservation cannot be carried out, None where it can; it is counted in then."""
        certain = self._why_unknown_class(reservation) or self._why_out_of_bounds(reservation)
        told = certain or self._why_refused(reservation)
        if told is None or told.reason is not ReservationReason.INVALID:
            told = refuse_requests(reservation) or told
        if told is not None and told.reason is ReservationReason.INVALID:
            return told
        forbidden = self._why_forbidden(reservation)
        if told is not None and forbidden is None:
            self.forget(reservation.metadata.uid)
        return forbidden or told

    def forget(self, uid: str) -> None:
        """Count a Reservation out again that is gone."""
        self._allowances.forget(uid)

    def _why_unknown_class(self, reservation: Reservation) -> Verdict | None:
        for task in reservation.spec.tasks:
            try:
                self._priorities.of(task.template.spec)
            except NotFoundError:
                name = task.template.spec.priority_class_name
                return _invalid(task, f'no PriorityClass is named "{name}"')
        return None

    def _why_out_of_bounds(self, reservation: Reservation) -> Verdict | None:
        """Return which of the operator's own bounds on nodes and tolerations a template is beyond."""
        limits = self._settings.limits
        reserved = frozenset() if limits.control_plane_nodes else self._control_plane_nodes()
        for task in reservation.spec.tasks:
            names = set(task.reservation_node_names)
            if names and names <= reserved:
                told = ", ".join(sorted(names))
                return _invalid(task, f"{told}: no place is held on control-plane nodes (--control-plane-nodes)")
            tolerations = () if limits.dry_runs else task.template.spec.tolerations
            refusal = why_not_tolerable(tolerations, limits.tolerable(reservation.metadata.namespace))
            if refusal:
                return _invalid(task, refusal)
        return None

    # --- what the API server says

    def _why_refused(self, reservation: Reservation) -> Verdict | None:
        """Return the API server's refusal of a pod of one of the templates, here or in the Reservation's namespace."""
        digest, namespace = templates_digest(reservation), reservation.metadata.namespace
        as_pod = (digest,)
        in_namespace = (digest, namespace, reservation.spec.scheduler_name)
        questions: list[tuple[tuple[str, ...], Callable[..., Verdict | None]]] = []
        if not self._was_taken(as_pod):
            questions.append((as_pod, self._why_malformed))
        if self._settings.limits.dry_runs and not self._was_taken(in_namespace, _ASKED_SECONDS):
            questions.append((in_namespace, self._why_not_admitted))
        if not questions:
            return None
        raw = self._client.get(RESERVATIONS, reservation.metadata.name, namespace=namespace)
        for key, ask in questions:
            for raw_task, task in zip(raw["spec"]["tasks"], reservation.spec.tasks, strict=True):
                verdict = ask(reservation, task, raw_task.get("template") or {})
                if verdict is not None:
                    return verdict
            if digest:
                self._remember(key)
        return None

    def _was_taken(self, key: tuple[str, ...], within_seconds: float | None = None) -> bool:
        with self._lock:
            at = self._taken.get(key)
        if at is None:
            return False
        return within_seconds is None or self._clock.monotonic() - at < within_seconds

    def _remember(self, key: tuple[str, ...]) -> None:
        with self._lock:
            self._taken.pop(key, None)
            self._taken[key] = self._clock.monotonic()
            while len(self._taken) > _REMEMBERED:
                del self._taken[next(iter(self._taken))]

    def _why_malformed(
        self, reservation: Reservation, task: ReservationTask, raw_template: dict[str, Any]
    ) -> Verdict | None:
        """Return why a template is no pod, None where it is one."""
        settings = self._settings.placeholders
        body = manifests.build_validation_pod(reservation.metadata.uid, task.name, raw_template, settings)
        try:
            self._client.create(PODS, body, namespace=settings.namespace, dry_run=True, strict=True)
        except (InvalidObjectError, RefusedError) as error:
            words = _in_its_words(error, body)
            return _invalid(task, _explain_unknown_fields(words) or words)
        except ForbiddenError:
            return None  # our own namespace is stricter than the owner's, which is not the template's fault
        return None

    def _why_not_admitted(
        self, reservation: Reservation, task: ReservationTask, raw_template: dict[str, Any]
    ) -> Verdict | None:
        """Return what admission in the Reservation's namespace has against a task's pods, None where nothing."""
        namespace = reservation.metadata.namespace
        body = manifests.build_admission_pod(reservation, task, raw_template)
        try:
            pod = self._client.create(PODS, body, namespace=namespace, dry_run=True, type=Pod)
        except ForbiddenError as error:
            if any(words in error.message for words in _NOT_OF_THE_TEMPLATE):
                raise
            if any(words in error.message for words in _OF_AMOUNTS):
                return Verdict(ReservationReason.FORBIDDEN, f"task {task.name}: {_in_its_words(error, body)}")
            return _refused_there(task, namespace, _in_its_words(error, body))
        except (InvalidObjectError, RefusedError) as error:
            return _refused_there(task, namespace, _in_its_words(error, body))
        return _why_changed(task, namespace, body, pod)

    def _why_forbidden(self, reservation: Reservation) -> Verdict | None:
        """Count the Reservation in, or return which limit or quota of its namespace forbids it."""
        try:
            refusal = self._allowances.admit(reservation)
        except InputError as error:
            return Verdict(ReservationReason.INVALID, str(error))
        return Verdict(ReservationReason.FORBIDDEN, refusal) if refusal else None


def _explain_unknown_fields(told: str) -> str:
    """Return what is wrong with a template of unknown fields, "" where the API server said something else."""
    fields = _UNKNOWN_FIELD.findall(told)
    if not fields:
        return ""
    names = ", ".join(f"template.{name}" for name in fields)
    return f"unknown field {names}: a template has the fields of a pod; correct the name or leave it out"


def _invalid(task: ReservationTask, text: str) -> Verdict:
    return Verdict(ReservationReason.INVALID, f"task {task.name}: {text}")


def _refused_there(task: ReservationTask, namespace: str, words: str) -> Verdict:
    return _invalid(task, f"admission in namespace {namespace} refuses such a pod: {words}")


def _in_its_words(error: KubeError, body: manifests.Body) -> str:
    """Return a refusal without the name of the dry-run pod."""
    name = body["metadata"]["name"]
    return error.message.removeprefix(f'Pod "{name}" is invalid: ').removeprefix(f'pods "{name}" is forbidden: ')


def _why_changed(task: ReservationTask, namespace: str, body: manifests.Body, pod: Pod) -> Verdict | None:
    """Return what admission makes of a pod's choice of nodes, which a placeholder would not have; None for nothing."""
    asked = dict(task.template.spec.node_selector)
    if pod.spec.node_selector != asked:
        text = f"admission in namespace {namespace} makes the nodeSelector {dict(pod.spec.node_selector)} of {asked}"
    elif pod.spec.scheduler_name != body["spec"]["schedulerName"]:
        text = f"admission in namespace {namespace} gives such a pod the schedulerName {pod.spec.scheduler_name}"
    else:
        return None
    return _invalid(task, f"{text}; write it into the template, as the owner's pods have it")
