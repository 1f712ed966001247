"""The capability that answers evictions by others, if it is switched on."""

import threading
from collections.abc import Callable, Mapping
from functools import partial

from berth_operator.admission.reviews import AdmissionReview, Answer, Review
from berth_operator.capabilities.evictions.manifests import PATH_OF_NAMESPACES, PATH_OF_PODS
from berth_operator.capabilities.evictions.moves import EvictionMoves
from berth_operator.capabilities.evictions.settings import COMMAND, EvictionSettings
from berth_operator.runtime.capability import Capability, Kernel


class Evictions(Capability):
    """Hands the webhook's reviews and a thread to `EvictionMoves`; does nothing without `--evictions`."""

    command = COMMAND

    def __init__(self, kernel: Kernel) -> None:
        client, settings, clock = kernel.context.client, kernel.context.settings, kernel.context.clock
        self._kernel = kernel
        self._moves = EvictionMoves(client, settings, clock) if settings.of(EvictionSettings).enabled else None

    @property
    def answers_always(self) -> bool:
        return self._moves is not None

    def reviews(self) -> Mapping[str, Review]:
        if self._moves is None:
            return {}
        return {
            PATH_OF_NAMESPACES: partial(_answer, self._moves, by_namespace=True),
            PATH_OF_PODS: partial(_answer, self._moves, by_namespace=False),
        }

    def tasks(self) -> Mapping[str, Callable[[threading.Event], None]]:
        if self._moves is None:
            return {}
        client_config, leads = self._kernel.client_config, self._kernel.leads
        return {"evictions": partial(self._moves.run, client_config=client_config, leads=leads)}


async def _answer(moves: EvictionMoves, review: AdmissionReview, *, by_namespace: bool) -> Answer:
    return await moves.answer(review.request, by_namespace=by_namespace)
