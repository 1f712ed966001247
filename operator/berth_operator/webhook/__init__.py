"""The admission webhook: its server, its certificates and its answers."""

from berth_operator.webhook.admission import Admission, Answer, Review, adding_gate, allow, name_of, patched, read_pod
from berth_operator.webhook.certificates import CertificateManager
from berth_operator.webhook.extender import Held, VolcanoExtender, uncounted_by_queue
from berth_operator.webhook.server import REFETCH_SECONDS, WebhookServer

__all__ = [
    "REFETCH_SECONDS",
    "Admission",
    "Answer",
    "CertificateManager",
    "Held",
    "Review",
    "VolcanoExtender",
    "WebhookServer",
    "adding_gate",
    "allow",
    "name_of",
    "patched",
    "read_pod",
    "uncounted_by_queue",
]
