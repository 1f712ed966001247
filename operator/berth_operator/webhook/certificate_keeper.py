"""Owns the Secret in which all replicas share the webhook's certificates.

It does not own when which certificate is renewed (`webhook.certificates`) nor the server that uses them.
"""

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import structlog

from berth_core.names import WEBHOOK_SECRET
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from berth_kube.resources import SECRETS
from berth_operator import log_keys
from berth_operator.settings import OperatorSettings
from berth_operator.webhook.certificates import CertificateBundle, CertificateTerms, renew

log = structlog.get_logger(__name__)


class CertificateKeeper:
    """Keeps one bundle in the Secret and renews it in time; of two replicas that do so at once one gives way."""

    def __init__(self, client: KubeClient, settings: OperatorSettings) -> None:
        self._client = client
        self._namespace = settings.placeholders.namespace
        self._terms = CertificateTerms(_hosts(settings), timedelta(seconds=settings.webhook.certificate_seconds))
        self.bundle: CertificateBundle | None = None

    @property
    def check_seconds(self) -> float:
        """Return the seconds between two refreshes."""
        return self._terms.check_every.total_seconds()

    def refresh(self, now: datetime) -> bool:
        """Read the Secret, renew what has to be; tell whether the bundle is another than before.

        A Secret that is gone or damaged is mended with what this process has.
        """
        before = self.bundle
        body = self._read()
        held = CertificateBundle.from_secret(body) if body is not None else None
        wanted = renew(held or before, self._terms, now)
        self.bundle = held if wanted == held else self._write(wanted, body)
        return self.bundle != before

    def _read(self) -> dict[str, Any] | None:
        try:
            return self._client.get(SECRETS, WEBHOOK_SECRET, namespace=self._namespace)
        except NotFoundError:
            return None

    def _write(self, bundle: CertificateBundle, over: dict[str, Any] | None) -> CertificateBundle:
        """Store a bundle over what was read; where another replica was faster, take its bundle instead."""
        secret = bundle.to_secret(self._namespace)
        try:
            if over is None:
                self._client.create(SECRETS, secret, namespace=self._namespace)
            else:
                version = {"resourceVersion": over["metadata"]["resourceVersion"]}
                patch = {"metadata": version, "data": secret["data"]}
                self._client.merge_patch(SECRETS, WEBHOOK_SECRET, patch, namespace=self._namespace)
        except (AlreadyExistsError, ConflictError):
            theirs = CertificateBundle.from_secret(self._read() or {})
            if theirs is None:
                raise
            return theirs
        log.info(log_keys.CERTIFICATE_ISSUED)
        return bundle


def _hosts(settings: OperatorSettings) -> tuple[str, ...]:
    """Return the names and addresses that the API server may call the webhook by."""
    service, namespace = settings.webhook.service, settings.placeholders.namespace
    if service:
        return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")
    host = urlsplit(settings.webhook.url).hostname
    return tuple(sorted({host or settings.webhook.host, "127.0.0.1", "localhost"}))
