"""Makes a span of each step of a Reservation, where traces are on."""

import os
from typing import TYPE_CHECKING, Final

from berth_operator.capabilities.traces.steps import describe_step
from berth_operator.reservation.act.executor import ActionWatcher, ExecutedAction
from berth_operator.runtime.capability import Capability, Kernel
from berth_service.traces import are_on, build_tracer

if TYPE_CHECKING:
    from berth_service.spans import Tracer

_SERVICE: Final = "berth-operator"


class Traces(Capability):
    """Exports spans of what the executor does."""

    def __init__(self, kernel: Kernel) -> None:  # noqa: ARG002 - all are built alike
        self._tracer: Tracer | None = None

    async def start(self) -> None:
        self._tracer = build_tracer(_SERVICE, os.environ)

    async def stop(self) -> None:
        if self._tracer is not None:
            self._tracer.stop()

    def action_watcher(self) -> ActionWatcher | None:
        return self._trace if are_on(os.environ) else None

    def _trace(self, executed: ExecutedAction) -> None:
        step = describe_step(executed)
        if self._tracer is None or step is None:
            return
        span = self._tracer.begin(
            step.name,
            trace=step.trace,
            span=step.span,
            parent=step.parent,
            at=executed.began_at,
            attributes=step.attributes,
        )
        span.end(at=executed.ended_at, attributes={}, failure=executed.failure)
