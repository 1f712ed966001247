"""The HTTP server of the extender."""

from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from berth_core import InputError
from berth_operator.admission.request_limits import IDLE_SECONDS, LARGEST_BODY_BYTES, BodyReader, BodyRefusedError
from berth_operator.capabilities.extender import metrics
from berth_operator.capabilities.extender.verbs import (
    ABSTAIN,
    PERMIT,
    Awaits,
    HasSlot,
    HasWaited,
    HeldIn,
    HoldsFor,
    Overuse,
    Victims,
    Vote,
    choose_victims,
    for_none,
    judge_queue,
    never,
    vote_on_job,
)
from berth_service.listening import join_address, listen

VERBS: Final = ("preemptable", "reclaimable")
ENQUEUEABLE: Final = "jobEnqueueable"
OVERUSED: Final = "queueOverused"
_STOP_SECONDS: Final = 2.0
_BACKLOG: Final = 128


class VolcanoExtender:
    """Serves the verbs over plain HTTP: Volcano's plugin has no setting for a certificate authority."""

    def __init__(
        self,
        address: tuple[str, int],
        namespace: str,
        *,
        has_slot: HasSlot,
        awaits: Awaits,
        held_in: HeldIn,
        has_waited: HasWaited = never,
        holds: HoldsFor = for_none,
    ) -> None:
        """`address` is a host and a port; `namespace` is that of the placeholders."""
        self._has_slot = has_slot
        self._awaits = awaits
        self._held_in = held_in
        self._has_waited = has_waited
        self._holds = holds
        self._host, self._port = address
        self._namespace = namespace
        self._bodies = BodyReader()
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Return `HOST:PORT` with the real port in place of 0."""
        port = self._runner.addresses[0][1] if self._runner and self._runner.addresses else self._port
        return join_address(self._host, port)

    async def start(self) -> None:
        """Listen; raises InputError if the address is not a free one of this machine."""
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        for verb in VERBS:
            app.router.add_post(f"/{verb}", partial(self._answer, verb))
        app.router.add_post(f"/{ENQUEUEABLE}", self._vote)
        app.router.add_post(f"/{OVERUSED}", self._judge)
        # Not decompressed: a body could then take more memory than `BodyReader` reserves for it.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_STOP_SECONDS, keepalive_timeout=IDLE_SECONDS, auto_decompress=False
        )
        await self._runner.setup()
        try:
            await web.SockSite(self._runner, listen(self._host, self._port, backlog=_BACKLOG)).start()
        except OSError as error:
            raise InputError(
                "--volcano-extender-address", self.address, f"one to listen on: {error.strerror}"
            ) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, verb: str, request: web.Request) -> web.Response:
        """Answer which pods may be evicted.

        After a refusal Volcano's plugin names no victim in its tier, so that no placeholder is evicted by mistake.
        """
        try:
            answer = choose_victims(await self._bodies.read(request), self._namespace)
        except (BodyRefusedError, InputError) as refusal:
            metrics.ANSWERS.labels(verb=verb, verdict="refused").inc()
            status = refusal.status if isinstance(refusal, BodyRefusedError) else 400
            return web.Response(status=status, text=str(refusal))
        return self._reply(verb, "spared" if answer.status == PERMIT else "abstained", answer)

    async def _vote(self, request: web.Request) -> web.Response:
        """Answer whether a job is let in; abstain on what cannot be read.

        With `extender.ignorable` Volcano's plugin takes a failed request for a permission (`AddJobEnqueueableFn` in
        `pkg/scheduler/plugins/extender/extender.go`).
        """
        try:
            body = await self._bodies.read(request)
            answer = vote_on_job(
                body,
                self._has_slot,
                self._awaits,
                self._namespace,
                has_waited=self._has_waited,
                holds=self._holds,
            )
        except (BodyRefusedError, InputError):
            return self._reply(ENQUEUEABLE, "refused", Vote(ABSTAIN))
        return self._reply(ENQUEUEABLE, "permitted" if answer.status == PERMIT else "abstained", answer)

    async def _judge(self, request: web.Request) -> web.Response:
        """Answer whether a queue is overused; one that cannot be read is not, as if there were no extender."""
        try:
            answer = judge_queue(await self._bodies.read(request), self._held_in)
        except (BodyRefusedError, InputError):
            return self._reply(OVERUSED, "refused", Overuse())
        return self._reply(OVERUSED, "overused" if answer.overused else "abstained", answer)

    def _reply(self, verb: str, verdict: str, answer: Victims | Vote | Overuse) -> web.Response:
        metrics.ANSWERS.labels(verb=verb, verdict=verdict).inc()
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
