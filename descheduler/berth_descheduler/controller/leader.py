"""Elects the replica that serves the policies: it leads by a Lease while the others wait."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import structlog

from berth_core import BerthError
from berth_descheduler import telemetry
from berth_descheduler.capability import Leading
from berth_descheduler.controller.runner import Runner
from berth_descheduler.controller.status_controller import StatusController
from berth_descheduler.controller.store import PolicyStore, ServiceContext, WakeUp
from berth_descheduler.migration.operator.cleanup import clean_up_after_operator
from berth_descheduler.migration.plans.leases import leader_lease, run_lease
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_descheduler.registry import EVERY_CAPABILITY
from berth_descheduler.run_watch import RunWatch

_LOG = structlog.get_logger(__name__)
_TRY_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.2
_JOIN_SECONDS: Final = 10.0


class LeaderElector:
    """One replica of the service."""

    def __init__(self, context: ServiceContext, metrics: PolicyMetrics, stop: threading.Event) -> None:
        self._context = context
        self.run_watch = RunWatch(context.clock)
        self._metrics = metrics
        self._stop = stop
        cycle = context.defaults.cycle
        self._leader = leader_lease(context.client, context.clock, cycle)
        self._run_lease = run_lease(context.client, context.clock, cycle)
        self._state = "starting"

    def serve(self) -> None:
        """Serve the policies whenever this replica leads, until asked to stop."""
        try:
            while not self._stop.is_set():
                if self._becomes_leader():
                    self._lead()
        finally:
            # Released on a regular end, so that the next replica need not wait for the Lease to run out.
            self._leader.release()

    def readiness(self) -> dict[str, object]:
        """Return whether this replica does its part, and which part that is."""
        ready = self._state in {"leading", "waiting"}
        leading = self._state == "leading"
        return {"ready": ready, "leading": leading, "state": self._state, "running": self._metrics.busy}

    def _becomes_leader(self) -> bool:
        """Try to lead, and return whether that succeeded.

        While another replica leads, this one watches the Lease of runs as well, to know how long its holder has been
        silent.
        """
        try:
            won = self._leader.acquire(_TRY_SECONDS)
        except BerthError as error:
            self._state = "unreachable"
            _LOG.warning(telemetry.CALL_FAILED, **{telemetry.KEY_ERROR: str(error)})
            self._stop.wait(_TRY_SECONDS)
            return False
        if not won:
            if self._state != "waiting":
                _LOG.info(telemetry.WAITING, **{telemetry.KEY_IDENTITY: self._context.defaults.cycle.identity})
            self._state = "waiting"
            self._run_lease.look()
        return won

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._leader.lost.is_set()

    def _lead(self) -> None:
        """Serve until asked to stop or no longer leader, and bring to its end what is under way then."""
        cycle = self._context.defaults.cycle
        _LOG.info(telemetry.LEADING, **{telemetry.KEY_IDENTITY: cycle.identity})
        wake_up = WakeUp()
        try:
            with ExitStack() as stack:
                # Only the leader cleans up: two replicas would both take the same gates and guards off.
                stack.enter_context(clean_up_after_operator(self._context.client, self._context.clock, cycle))
                store = stack.enter_context(PolicyStore(self._context, wake_up))
                self._state = "reading"
                if store.wait(self._is_over):
                    self._serve(store, wake_up)
        finally:
            self._state = "ended"
            self._metrics.lead(leading=False)
            _LOG.info(telemetry.NOT_LEADING)
            if self._leader.lost.is_set():
                # Meanwhile another replica may have taken or renewed the Lease of runs.
                self._run_lease.look()

    def _serve(self, store: PolicyStore, wake_up: WakeUp) -> None:
        store.look_at_own()  # what runs beside the runner counts on it
        status_controller = StatusController(self._context, store, self._metrics, wake_up.event())
        leading = Leading(
            client=self._context.client,
            clock=self._context.clock,
            picture=self._context.picture,
            known_policies=store.known,
            known_plans=store.plans,
            show_kept_nodes=self._metrics.keep_nodes,
        )
        works = ((capability.name, capability.work(leading)) for capability in EVERY_CAPABILITY)
        runner = Runner(self._context, store, self._metrics, self._run_lease, wake_up.event(), self.run_watch)
        threads = [
            threading.Thread(
                target=status_controller.work_until, args=(self._is_over,), name="status_controller", daemon=True
            ),
            *(
                threading.Thread(target=work.work_until, args=(self._is_over,), name=thread_name, daemon=True)
                for thread_name, work in works
                if work is not None
            ),
            threading.Thread(target=_wake_at_end, args=(self._is_over, wake_up.wake), name="end", daemon=True),
        ]
        for thread in threads:
            thread.start()
        self._state = "leading"
        self._metrics.lead(leading=True)
        runner.work_until(self._is_over, self._stop)
        for thread in threads:
            # Daemon threads: one that hangs in a call does not keep the replica from ending.
            thread.join(_JOIN_SECONDS)


def _wake_at_end(over: Callable[[], bool], wake: Callable[[], None]) -> None:
    """Wake all threads at the end, so that none waits for its next pause to end."""
    pause = threading.Event()
    while not over():
        pause.wait(_TICK_SECONDS)
    wake()
