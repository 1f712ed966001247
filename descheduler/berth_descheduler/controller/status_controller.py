"""Writes policies' statuses, ends plans that cannot begin, and deletes expired plans.

The controller has its own thread, so that an invalid policy is reported and an approval times out even while a run
takes hours. It leaves the plan of the current run alone.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from berth_core import VALID, BerthError, MigrationPlan, PlanPhase
from berth_descheduler import telemetry
from berth_descheduler.controller.decisions import (
    ParsedPolicy,
    PlanTermination,
    pause_until,
    plans_to_end,
    unreadable_plans,
)
from berth_descheduler.controller.plan_retention import expired_plans, plans_over_history_limit
from berth_descheduler.controller.policy_status import build_observed_patch, observed_status
from berth_descheduler.controller.store import PolicyStore, ServiceContext
from berth_descheduler.event_reasons import PolicyEventReason
from berth_descheduler.migration.plans.abort import abort_plan, release_reservations
from berth_descheduler.migration.plans.publishing import end_plan
from berth_descheduler.policy import PolicyError
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, NotFoundError

_LOG = structlog.get_logger(__name__)

_LONGEST_PAUSE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 2.0


class StatusController:
    """Reconciles the statuses of policies and plans."""

    def __init__(
        self, context: ServiceContext, store: PolicyStore, metrics: PolicyMetrics, wake_up: threading.Event
    ) -> None:
        self._context = context
        self._store = store
        self._metrics = metrics
        self._wake_up = wake_up

    def work_until(self, over: Callable[[], bool]) -> None:
        """Work until `over`; retries whatever fails."""
        while not over():
            self._wake_up.clear()
            pause = _AGAIN_SECONDS
            try:
                if self.pass_once():
                    now = self._context.clock.now()
                    pause = pause_until(self._store.known().values(), self._store.plans(), now, _LONGEST_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.exception(telemetry.CHORE_FAILED)
            self._wake_up.wait(pause)

    def pass_once(self) -> bool:
        """Reconcile everything once; return whether all of it worked."""
        all_known = self._store.own.is_read  # asked first: what is read meanwhile is known below
        policies, plans, now = self._store.known(), self._store.plans(), self._context.clock.now()
        invalid = sum(isinstance(parsed.run, PolicyError) for parsed in policies.values())
        self._metrics.show(
            {policy_name: parsed.policy.status for policy_name, parsed in policies.items()}, invalid=invalid
        )
        own = {policy.metadata.uid for policy in self._store.own.all()}
        of_people = (parsed for parsed in policies.values() if parsed.policy.metadata.uid not in own)
        chores = [partial(self._write_status, parsed, plans) for parsed in of_people]
        endings = plans_to_end(policies, plans, now, all_known=all_known)
        chores += [partial(self._end, ending) for ending in endings]
        chores += [partial(self._fail, plan) for plan in unreadable_plans(plans)]
        expired = expired_plans(policies, plans, now, self._context.plan_retention)
        chores += [partial(self._delete, plan) for plan in (*plans_over_history_limit(policies, plans, now), *expired)]
        failed_chores = [chore for chore in chores if not _attempt(chore)]
        return not failed_chores

    def _write_status(self, known: ParsedPolicy, plans: tuple[MigrationPlan, ...]) -> None:
        """Write a policy's status where it changed, and report where the policy became valid or invalid."""
        policy = known.policy
        status = observed_status(known, plans, self._context.clock.now())
        # Each write is an event for this program's own watch, which would wake both of its threads again.
        if status == policy.status:
            return
        body = build_observed_patch(status)
        self._context.client.merge_patch(DESCHEDULER_POLICIES, policy.metadata.name, body, subresource="status")
        valid_before = policy.condition(VALID)
        valid_after = next(condition for condition in status.conditions if condition.type == VALID)
        if valid_before is not None and (valid_before.status, valid_before.message) == (
            valid_after.status,
            valid_after.message,
        ):
            return
        if valid_after.status == "True" and valid_before is not None:
            self._context.record_event(policy, PolicyEventReason.VALID, valid_after.message, bad=False)
        elif valid_after.status != "True":
            keys = {telemetry.KEY_POLICY: policy.metadata.name, telemetry.KEY_MESSAGE: valid_after.message}
            _LOG.warning(telemetry.POLICY_INVALID, **keys)
            self._context.record_event(policy, PolicyEventReason.INVALID, valid_after.message, bad=True)

    def _end(self, ending: PlanTermination) -> None:
        if not self._store.is_in_progress(ending.plan.metadata.name):
            abort_plan(self._context.client, ending.plan, self._context.clock, ending.message, ending.phase)

    def _fail(self, plan: MigrationPlan) -> None:
        """Fail a plan that cannot be read, and release what it may have held."""
        release_reservations(self._context.client, plan.metadata.name)
        message = f"invalid: {plan.metadata.unreadable}"
        end_plan(self._context.client, self._context.clock, plan, PlanPhase.FAILED, message)

    def _delete(self, plan: MigrationPlan) -> None:
        # By uid: a plan of the same name may have been made since the watch has shown this one.
        self._context.client.delete(MIGRATION_PLANS, plan.metadata.name, uid=plan.metadata.uid)
        _LOG.info(telemetry.PLAN_NOT_KEPT, **{telemetry.KEY_PLAN: plan.metadata.name})


def _attempt(chore: Callable[[], None]) -> bool:
    """Do one chore, and return whether it worked; an object that is gone meanwhile needs nothing more."""
    try:
        chore()
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(telemetry.CHORE_FAILED, **{telemetry.KEY_ERROR: str(error)})
        return False
    except Exception:  # noqa: BLE001 - a mistake with one object must not keep the others' statuses from being true
        _LOG.exception(telemetry.CHORE_FAILED)
        return False
    return True
