"""Owns the declarations by which kopf calls the operator; their bodies are elsewhere.

kopf runs the process: its start, its credentials, its end. It is given no objects to watch (`picture.watches`)
and writes nothing: no finalizer, no annotation, no status, no event.
"""

import asyncio
import itertools
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import kopf

from berth_core.errors import BerthError
from berth_operator.app import Program

_FIRST_WAITS_SECONDS: Final = (1.0, 1.0, 2.0, 3.0)
_LATER_WAITS_SECONDS: Final = 5.0


class EndlessWaits(Iterable[float]):
    """How long kopf waits between its tries: for ever, as its own list would end and the process with it."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_FIRST_WAITS_SECONDS, itertools.repeat(_LATER_WAITS_SECONDS))


def configure(settings: kopf.OperatorSettings) -> None:
    """Have kopf write nothing, and wait for an API server that is away or does not answer."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.error_backoffs = EndlessWaits()
    settings.networking.request_timeout = 30


def declare(
    registry: kopf.OperatorRegistry,
    program: Program,
    login: Callable[[], kopf.ConnectionInfo],
    stop_flag: asyncio.Event,
) -> None:
    """Register the handlers of a program; it sets the flag, at which kopf ends, once it has wound down."""

    @kopf.on.startup(id="start", registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:  # noqa: ANN401 - kopf's keyword arguments
        configure(settings)
        try:
            await program.start()
        except BerthError as error:
            raise kopf.PermanentError(str(error)) from error
        hear_signal(program, stop_flag)

    @kopf.on.cleanup(id="stop", registry=registry)
    async def stop(**_: Any) -> None:  # noqa: ANN401 - kopf's keyword arguments
        await program.stop()

    @kopf.on.login(id="login", registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo:  # noqa: ANN401 - kopf's keyword arguments
        return login()


def hear_signal(program: Program, stop_flag: asyncio.Event) -> None:
    """Have SIGTERM wind the program down before kopf stops to watch; a second one ends it at once."""
    loop = asyncio.get_running_loop()
    winding_down: set[asyncio.Task[None]] = set()

    async def wind_down() -> None:
        try:
            await program.wind_down()
        finally:
            stop_flag.set()

    def hear() -> None:
        if winding_down:
            stop_flag.set()
        else:
            winding_down.add(asyncio.create_task(wind_down()))

    loop.add_signal_handler(signal.SIGTERM, hear)
