"""Owns what is written down beside the runs: statuses of policies, plans that end unbegun, plans not to be kept.

It does not run anything (`runner`), and keeps off the plan that is being run. It has a thread of its own, so that a bad
policy is told and an approval runs out also while a run takes hours.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from berth_core.errors import BerthError
from berth_core.migration_plans import MigrationPlan, PlanPhase
from berth_core.policies import VALID
from berth_descheduler import log_keys
from berth_descheduler.event_reasons import PolicyEventReason
from berth_descheduler.execution.leftovers import abort_plan, release_reservations
from berth_descheduler.execution.publishing import end_plan
from berth_descheduler.policy_service.book import Book, Office
from berth_descheduler.policy_service.statuses import build_observed_patch, observed_status
from berth_descheduler.policy_service.tally import RunTally
from berth_descheduler.policy_service.work import (
    Ending,
    Known,
    find_endings,
    find_forgotten,
    find_surplus,
    find_unread,
    pause_until,
)
from berth_kube.errors import NotFoundError
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS

_LOG = structlog.get_logger(__name__)
_LONGEST_PAUSE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 2.0


class Clerk:
    """Keeps what is written about policies and plans true."""

    def __init__(self, office: Office, book: Book, tally: RunTally, bell: threading.Event) -> None:
        self._office = office
        self._book = book
        self._tally = tally
        self._bell = bell

    def work_until(self, over: Callable[[], bool]) -> None:
        """Go on until it is over; whatever fails is tried again."""
        while not over():
            self._bell.clear()
            pause = _AGAIN_SECONDS
            try:
                if self.pass_once():
                    now = self._office.clock.now()
                    pause = pause_until(self._book.known().values(), self._book.plans(), now, _LONGEST_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - the loop's boundary: whatever is wrong is tried again
                _LOG.exception(log_keys.CHORE_FAILED)
            self._bell.wait(pause)

    def pass_once(self) -> bool:
        """Do everything that is to be done now; tell whether all of it worked."""
        known, plans, now = self._book.known(), self._book.plans(), self._office.clock.now()
        self._tally.show(known.values())
        chores = [partial(self._write_status, one, plans) for one in known.values()]
        chores += [partial(self._end, ending) for ending in find_endings(known, plans, now)]
        chores += [partial(self._fail, plan) for plan in find_unread(plans)]
        forgotten = find_forgotten(known, plans, now, self._office.plan_retention)
        chores += [partial(self._delete, plan) for plan in (*find_surplus(known, plans, now), *forgotten)]
        failed = [chore for chore in chores if not _attempt(chore)]
        return not failed

    def _write_status(self, known: Known, plans: tuple[MigrationPlan, ...]) -> None:
        """Write a policy's status where it says something else, and tell where it has become valid or invalid."""
        policy = known.policy
        status = observed_status(known, plans, self._office.clock.now())
        if status == policy.status:
            return
        body = build_observed_patch(status)
        self._office.client.merge_patch(DESCHEDULER_POLICIES, policy.metadata.name, body, subresource="status")
        before = policy.condition(VALID)
        after = next(condition for condition in status.conditions if condition.type == VALID)
        if before is not None and (before.status, before.message) == (after.status, after.message):
            return
        if after.status == "True" and before is not None:
            self._office.tell(policy, PolicyEventReason.VALID, after.message, bad=False)
        elif after.status != "True":
            keys = {log_keys.KEY_POLICY: policy.metadata.name, log_keys.KEY_MESSAGE: after.message}
            _LOG.warning(log_keys.POLICY_INVALID, **keys)
            self._office.tell(policy, PolicyEventReason.INVALID, after.message, bad=True)

    def _end(self, ending: Ending) -> None:
        if not self._book.is_in_hand(ending.plan.metadata.name):
            abort_plan(self._office.client, ending.plan, self._office.clock, ending.message, ending.phase)

    def _fail(self, plan: MigrationPlan) -> None:
        """Record on a plan that cannot be read that it failed, and release what it may have held."""
        release_reservations(self._office.client, plan.metadata.name)
        message = f"invalid: {plan.metadata.unreadable}"
        end_plan(self._office.client, self._office.clock, plan, PlanPhase.FAILED, message)

    def _delete(self, plan: MigrationPlan) -> None:
        self._office.client.delete(MIGRATION_PLANS, plan.metadata.name, uid=plan.metadata.uid)
        _LOG.info(log_keys.PLAN_NOT_KEPT, **{log_keys.KEY_PLAN: plan.metadata.name})


def _attempt(chore: Callable[[], None]) -> bool:
    """Do one thing and tell whether it worked; what is gone meanwhile needs nothing more."""
    try:
        chore()
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(log_keys.CHORE_FAILED, **{log_keys.KEY_ERROR: str(error)})
        return False
    except Exception:  # noqa: BLE001 - a mistake with one object must not keep the others' statuses from being true
        _LOG.exception(log_keys.CHORE_FAILED)
        return False
    return True
