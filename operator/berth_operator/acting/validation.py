"""Owns the verdict on a new Reservation: whether the API server would take its pods, and whether it may hold so much.

It does not own what a verdict leads to: `decisions.statuses` does.
"""

import re
import threading
from typing import Any, Final

from berth_core.errors import InputError
from berth_core.reservations import Reservation, ReservationReason, ReservationTask
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError, InvalidObjectError, NotFoundError, RefusedError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator.acting.allowances import Allowances
from berth_operator.acting.priorities import Priorities
from berth_operator.decisions import manifests
from berth_operator.decisions.acceptance import refuse_requests
from berth_operator.decisions.observation import Verdict
from berth_operator.picture.readable import templates_digest
from berth_operator.settings import PlaceholderSettings

_REMEMBERED: Final = 10_000
_UNKNOWN_FIELD: Final = re.compile(r'unknown field "([^"]*)"')


class Validator:
    """Puts templates to the API server as dry runs, each different set once, then to the namespace's allowance."""

    def __init__(
        self, client: KubeClient, priorities: Priorities, allowances: Allowances, settings: PlaceholderSettings
    ) -> None:
        self._client = client
        self._priorities = priorities
        self._allowances = allowances
        self._settings = settings
        self._lock = threading.Lock()
        self._taken: dict[str, None] = {}
        """Digests of the templates that the API server took, oldest first."""

    def judge(self, reservation: Reservation) -> Verdict | None:
        """Return why a Reservation cannot be carried out, None where it can; it is counted in then."""
        return (
            self._why_unknown_class(reservation)
            or self._why_invalid(reservation)
            or refuse_requests(reservation)
            or self._why_forbidden(reservation)
        )

    def forget(self, uid: str) -> None:
        """Count a Reservation out again that is gone."""
        self._allowances.forget(uid)

    def _why_unknown_class(self, reservation: Reservation) -> Verdict | None:
        for task in reservation.spec.tasks:
            try:
                self._priorities.of(task.template.spec)
            except NotFoundError:
                name = task.template.spec.priority_class_name
                return Verdict(ReservationReason.INVALID, f'task {task.name}: no PriorityClass is named "{name}"')
        return None

    def _why_invalid(self, reservation: Reservation) -> Verdict | None:
        """Return the API server's refusal of a pod of one of the templates."""
        digest = templates_digest(reservation)
        with self._lock:
            if digest in self._taken:
                return None
        raw = self._client.get(RESERVATIONS, reservation.metadata.name, namespace=reservation.metadata.namespace)
        for raw_task, task in zip(raw["spec"]["tasks"], reservation.spec.tasks, strict=True):
            verdict = self._refusal(reservation, task, raw_task.get("template") or {})
            if verdict is not None:
                return verdict
        if digest:
            self._remember(digest)
        return None

    def _remember(self, digest: str) -> None:
        with self._lock:
            self._taken[digest] = None
            while len(self._taken) > _REMEMBERED:
                del self._taken[next(iter(self._taken))]

    def _refusal(self, reservation: Reservation, task: ReservationTask, raw_template: dict[str, Any]) -> Verdict | None:
        """Return why a template's pod would be refused, None where it would be taken."""
        body = manifests.build_validation_pod(reservation.metadata.uid, task.name, raw_template, self._settings)
        try:
            self._client.create(PODS, body, namespace=self._settings.namespace, dry_run=True, strict=True)
        except (InvalidObjectError, RefusedError) as error:
            told = error.message.removeprefix(f'Pod "{body["metadata"]["name"]}" is invalid: ')
            return Verdict(ReservationReason.INVALID, f"task {task.name}: {_explain_unknown_fields(told) or told}")
        except ForbiddenError:
            return None  # our own namespace is stricter than the owner's, which is not the template's fault
        return None

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
