"""The admission webhook: its server, its certificates and its answers."""

from berth_operator.webhook.admission import Admission, Answer, Review, adding_gate, allow, name_of, patched, read_pod
from berth_operator.webhook.certificates import CertificateManager
from berth_operator.webhook.server import REFETCH_SECONDS, WebhookServer

__all__ = [
    "REFETCH_SECONDS",
    "Admission",
    "Answer",
    "CertificateManager",
    "Review",
    "WebhookServer",
    "adding_gate",
    "allow",
    "name_of",
    "patched",
    "read_pod",
]
