"""Acting on the cluster: what changes the objects of the API server."""

from dataclasses import dataclass

from berth_core import Clock
from berth_kube import KubeClient
from berth_operator.cache.cache import Cache
from berth_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Context:
    """What the parts of the operator that act by its cache of the cluster have in common."""

    client: KubeClient
    cache: Cache
    settings: OperatorSettings
    clock: Clock
