"""The HTTP server of the extender."""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from berth_core import InputError
from berth_operator.admission.request_limits import LARGEST_BODY_BYTES, BodyRefusedError, LimitedServer
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
from berth_service.listening import join_address

VERBS: Final = ("preemptable", "reclaimable")
ENQUEUEABLE: Final = "jobEnqueueable"
OVERUSED: Final = "queueOverused"


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
        self._server = LimitedServer(any_caller_may_ask=True)

    @property
    def address(self) -> str:
        """Return `HOST:PORT` with the real port in place of 0."""
        return join_address(self._host, self._server.port or self._port)

    async def start(self) -> None:
        """Listen; raises InputError if the address is not a free one of this machine."""
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        for verb in VERBS:
            answer_victims, refuse = partial(self._answer_victims, verb), partial(self._refuse_victims, verb)
            app.router.add_post(f"/{verb}", partial(self._respond, answer_victims, refuse))
        for verb, answer, abstention in ((ENQUEUEABLE, self._vote, Vote(ABSTAIN)), (OVERUSED, self._judge, Overuse())):
            app.router.add_post(f"/{verb}", partial(self._respond, answer, partial(self._abstain, verb, abstention)))
        try:
            await self._server.start(app, self._host, self._port)
        except OSError as error:
            raise InputError(
                "--volcano-extender-address", self.address, f"one to listen on: {error.strerror}"
            ) from error

    async def stop(self) -> None:
        await self._server.stop()

    async def _respond(
        self,
        answer: Callable[[bytes], web.Response],
        refuse: Callable[[int, str], web.Response],
        request: web.Request,
    ) -> web.Response:
        """Answer the body of a request, or refuse it with a status and a reason."""
        try:
            body = await self._server.bodies.read(request)
        except BodyRefusedError as refusal:
            response = refuse(refusal.status, refusal.text)
            response.force_close()  # the rest of the body is not read, so no further request can follow it
            return response
        with self._server.answering(request):
            try:
                return answer(body)
            except InputError as error:
                return refuse(400, str(error))

    def _answer_victims(self, verb: str, body: bytes) -> web.Response:
        """Answer which pods may be evicted."""
        answer = choose_victims(body, self._namespace)
        return self._reply(verb, "spared" if answer.status == PERMIT else "abstained", answer)

    def _refuse_victims(self, verb: str, status: int, text: str) -> web.Response:
        """Refuse to say which pods may be evicted.

        Volcano's plugin then names no victim in its tier, so that no placeholder is evicted by mistake.
        """
        metrics.ANSWERS.labels(verb=verb, verdict="refused").inc()
        return web.Response(status=status, text=text)

    def _vote(self, body: bytes) -> web.Response:
        """Answer whether a job is let in."""
        answer = vote_on_job(
            body, self._has_slot, self._awaits, self._namespace, has_waited=self._has_waited, holds=self._holds
        )
        return self._reply(ENQUEUEABLE, "permitted" if answer.status == PERMIT else "abstained", answer)

    def _judge(self, body: bytes) -> web.Response:
        """Answer whether a queue is overused."""
        answer = judge_queue(body, self._held_in)
        return self._reply(OVERUSED, "overused" if answer.overused else "abstained", answer)

    def _abstain(self, verb: str, abstention: Vote | Overuse, _status: int, _text: str) -> web.Response:
        """Abstain on what cannot be read, as if there were no extender.

        With `extender.ignorable` Volcano's plugin takes a failed request for a permission (`AddJobEnqueueableFn` in
        `pkg/scheduler/plugins/extender/extender.go`).
        """
        return self._reply(verb, "refused", abstention)

    def _reply(self, verb: str, verdict: str, answer: Victims | Vote | Overuse) -> web.Response:
        metrics.ANSWERS.labels(verb=verb, verdict=verdict).inc()
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
