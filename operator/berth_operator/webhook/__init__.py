"""The admission webhook: its server, its certificates and its answers."""

from berth_operator.webhook.admission import Admission
from berth_operator.webhook.certificates import CertificateManager
from berth_operator.webhook.evictions import Evictions
from berth_operator.webhook.extender import Held, VolcanoExtender, uncounted_by_queue
from berth_operator.webhook.server import REFETCH_SECONDS, WebhookServer

__all__ = [
    "REFETCH_SECONDS",
    "Admission",
    "CertificateManager",
    "Evictions",
    "Held",
    "VolcanoExtender",
    "WebhookServer",
    "uncounted_by_queue",
]
