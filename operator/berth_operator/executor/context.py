"""What every part of the operator that acts has in common."""

from dataclasses import dataclass
from typing import Final

from berth_core import Clock
from berth_kube import KubeClient
from berth_operator.cache import Cache
from berth_operator.settings import OperatorSettings

WITHOUT_NODE: Final = "status.phase=Pending,spec.nodeName="
"""Field selector of pods that wait for a node."""
NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that may hold something of a node."""


@dataclass(frozen=True, slots=True)
class Context:
    """The client, the cache, the settings and the clock of one operator."""

    client: KubeClient
    cache: Cache
    settings: OperatorSettings
    clock: Clock
