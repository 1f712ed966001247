"""The verdict on a new Reservation: whether rules and the API server accept it, and whether quotas allow the amount."""

from berth_core import InputError, Reservation, ReservationReason, RetryableError
from berth_kube import NotFoundError
from berth_operator.quota.limits import why_not_tolerable
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.act.quota_admission import QuotaAdmission
from berth_operator.reservation.act.template_dry_runs import TemplateDryRuns, invalid_task
from berth_operator.reservation.node_choice import NodeChoice
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.rules import Postponement
from berth_operator.reservation.validation import refuse_requests


class Validator:
    """Validates Reservations by rules, limits and dry runs of their templates, then counts them against quotas."""

    def __init__(self, context: Context, priorities: PriorityClasses, quotas: QuotaAdmission) -> None:
        self._client = context.client
        self._cache = context.cache
        self._settings = context.settings
        self._clock = context.clock
        self._rules = context.rules
        self._priorities = priorities
        self._quotas = quotas
        self._dry_runs = TemplateDryRuns(context)

    def judge(self, reservation: Reservation) -> Verdict | None:
        """Return why a Reservation is impossible, or count it; raises `RetryableError` while a rule cannot decide."""
        certain = (
            self._why_against_rules(reservation)
            or self._why_unknown_class(reservation)
            or self._why_beyond_limits(reservation)
        )
        verdict = certain or self._dry_runs.why_refused(reservation)
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
                # The dry run in our own namespace leaves the class out, and that in the owner's may be switched off.
                class_name = task.template.spec.priority_class_name
                return invalid_task(task, f'no PriorityClass is named "{class_name}"')
        return None

    def _why_beyond_limits(self, reservation: Reservation) -> Verdict | None:
        """Return the operator's node or toleration limit that a template breaks."""
        limits = self._settings.limits
        reserved = frozenset() if limits.control_plane_nodes else self._cache.control_plane_nodes()
        for task in reservation.spec.tasks:
            names = set(task.node_names)
            if names and names <= reserved:
                names_text = ", ".join(sorted(names))
                return invalid_task(
                    task, f"{names_text}: no place is held on control-plane nodes (--control-plane-nodes)"
                )
            tolerations = () if limits.dry_runs else task.template.spec.tolerations
            refusal = why_not_tolerable(tolerations, limits.tolerable(reservation.metadata.namespace))
            if refusal:
                return invalid_task(task, refusal)
        return None

    def _why_forbidden(self, reservation: Reservation) -> Verdict | None:
        """Count the Reservation, or return the limit or quota that forbids it."""
        try:
            refusal = self._quotas.admit(reservation)
        except InputError as error:
            return Verdict(ReservationReason.INVALID, str(error))
        return Verdict(ReservationReason.FORBIDDEN, refusal) if refusal else None
