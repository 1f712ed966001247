"""The kopf handlers: start, login, and the versions, changes and end of Reservations.

The handlers are declarations. What they call fills the cache. From it `reservation.decide` derives the status, the
places and the moment of expiry, `runtime.controller` carries that out, and kopf writes nothing to a Reservation.
"""

import asyncio
import signal
from typing import Any, Final

import kopf

from berth_core import BerthError
from berth_kube import RESERVATIONS
from berth_operator.runtime.app import App
from berth_operator.runtime.kopf_runtime import ReservationStream, configure
from berth_operator.runtime.kopf_session import Connection

RESERVATION: Final = (RESERVATIONS.group, RESERVATIONS.version, RESERVATIONS.plural)


def declare_process(
    registry: kopf.OperatorRegistry,
    program: App,
    connection: Connection,
    stream: ReservationStream,
    stop_flag: asyncio.Event,
) -> None:
    """Register how kopf starts the program and reaches the API server."""

    # No `on.cleanup`: kopf also runs it when only its watch has failed, and a new run of it follows.
    @kopf.on.startup(id="start", registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:  # noqa: ANN401 - kopf's keyword arguments
        configure(settings)
        try:
            await program.start()
        except BerthError as error:
            raise kopf.PermanentError(str(error)) from error
        stream.expect_requests()
        drain_on_signal(program, stop_flag)

    @kopf.on.login(id="login", registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf's keyword arguments
        return await connection.log_in()


def declare_reservations(registry: kopf.OperatorRegistry, program: App) -> None:
    """Register what happens to a Reservation."""

    # Not `on.delete`: kopf calls it only for objects with its finalizer, with which none could be deleted while the
    # operator is down. Timers need the finalizer, too, so expiry is a delayed key of the queue.
    @kopf.on.event(*RESERVATION, id="event", registry=registry)
    async def apply(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401 - kopf's keyword arguments
        program.apply_event(event["type"], event["object"])

    # kopf repeats a handler that fails, and keeps count of that in the object's annotations: with IGNORED, and since
    # this one only resets a counter in memory, it has nothing to note.
    @kopf.on.resume(*RESERVATION, id="resume", errors=kopf.ErrorsMode.IGNORED, registry=registry)
    @kopf.on.create(*RESERVATION, id="create", errors=kopf.ErrorsMode.IGNORED, registry=registry)
    @kopf.on.update(*RESERVATION, id="update", field="spec", errors=kopf.ErrorsMode.IGNORED, registry=registry)
    async def begin(uid: str, **_: Any) -> None:  # noqa: ANN401 - kopf's keyword arguments
        program.begin_reservation(uid)


def drain_on_signal(program: App, stop_flag: asyncio.Event) -> None:
    """Drain on SIGTERM before kopf stops watching; a second SIGTERM ends the process at once."""
    loop = asyncio.get_running_loop()
    draining: set[asyncio.Task[None]] = set()

    async def drain() -> None:
        try:
            await program.drain()
        finally:
            stop_flag.set()

    def drain_first() -> None:
        # The kubelet sends SIGTERM once and then SIGKILL; a person at a terminal may be in a hurry.
        if draining:
            stop_flag.set()
        else:
            draining.add(asyncio.create_task(drain()))

    # kopf's own handler would stop the watch at once, and the webhook would answer from an ageing cache.
    loop.add_signal_handler(signal.SIGTERM, drain_first)
