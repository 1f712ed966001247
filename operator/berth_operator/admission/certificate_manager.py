"""The Secret in which all replicas of the operator share one bundle of certificates."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from berth_core import WEBHOOK_SECRET
from berth_kube import SECRETS, AlreadyExistsError, ConflictError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.admission.certificates import (
    CertificateBundle,
    CertificateTerms,
    renew,
    take_issued,
    why_not_served,
)
from berth_operator.settings import OperatorSettings

_FILES_OF_ISSUER: Final = ("ca.crt", "tls.crt", "tls.key")

_LOG = structlog.get_logger(__name__)


class CertificateManager:
    """Keeps one bundle in the Secret and renews it; if two replicas write at once, one adopts the other's bundle."""

    def __init__(self, client: KubeClient, settings: OperatorSettings) -> None:
        self._client = client
        self._namespace = settings.placeholders.namespace
        self._terms = CertificateTerms(_hosts(settings), timedelta(seconds=settings.webhook.certificate_seconds))
        self._folder = settings.webhook.certificate_folder
        self._issued: CertificateBundle | None = None
        self._refused = ""
        """The last logged reason for which the issuer's certificate is not served."""
        self._changed: datetime | None = None
        """When this process last saw another bundle than before."""
        self.bundle: CertificateBundle | None = None

    @property
    def check_seconds(self) -> float:
        """Return the number of seconds between two refreshes."""
        return self._terms.check_every.total_seconds()

    def refresh(self, now: datetime) -> bool:
        """Read the Secret, renew the bundle if that is due, and return whether the bundle has changed.

        A deleted or damaged Secret is written again from the bundle that this process holds.
        """
        bundle_before = self.bundle
        body = self._read()
        held_bundle = CertificateBundle.from_secret(body) if body is not None else None
        wanted_bundle = self._choose(held_bundle or bundle_before, now)
        self.bundle = held_bundle if wanted_bundle == held_bundle else self._write(wanted_bundle, body)
        if self.bundle != bundle_before:
            self._changed = now
        return self.bundle != bundle_before

    def _choose(self, bundle: CertificateBundle | None, now: datetime) -> CertificateBundle:
        if not self._folder:
            return renew(bundle, self._terms, now)
        is_settled = self._changed is not None and bundle == self.bundle and now - self._changed >= self._terms.settling
        return take_issued(bundle, self._read_issued(now), self._terms, now, settled=is_settled)

    def _read_issued(self, now: datetime) -> CertificateBundle | None:
        """Return the issuer's bundle as it was last readable: the kubelet may be replacing the files just now."""
        try:
            authorities, certificate, key = (
                Path(self._folder, file_name).read_bytes() for file_name in _FILES_OF_ISSUER
            )
        except OSError as error:
            refusal = f"{error.filename}: {error.strerror}"
        else:
            bundle = CertificateBundle(authorities, b"", certificate, key, "")
            refusal = why_not_served(bundle, self._terms, now)
            self._issued = self._issued if refusal else bundle
        if refusal and refusal != self._refused:
            _LOG.warning(telemetry.CERTIFICATE_REFUSED, **{telemetry.KEY_REASON: refusal})
        self._refused = refusal
        return self._issued

    def _read(self) -> dict[str, Any] | None:
        try:
            return self._client.get(SECRETS, WEBHOOK_SECRET, namespace=self._namespace)
        except NotFoundError:
            return None

    def _write(self, bundle: CertificateBundle, over: dict[str, Any] | None) -> CertificateBundle:
        """Store a bundle and return it, or return the bundle of a replica that was faster.

        `over` is the Secret that was read, None if there was none; the resourceVersion keeps a newer one from being
        overwritten.
        """
        secret = bundle.to_secret(self._namespace)
        try:
            if over is None:
                self._client.create(SECRETS, secret, namespace=self._namespace)
            else:
                # With a resourceVersion a patch becomes conditional: 409 if the Secret has changed since it was read.
                version = {"resourceVersion": over["metadata"]["resourceVersion"]}
                patch = {"metadata": version, "data": secret["data"]}
                self._client.merge_patch(SECRETS, WEBHOOK_SECRET, patch, namespace=self._namespace)
        except (AlreadyExistsError, ConflictError):
            # Both replicas must serve certificates of the announced authorities, so the later one takes what the first
            # has stored.
            other_bundle = CertificateBundle.from_secret(self._read() or {})
            if other_bundle is None:
                raise
            return other_bundle
        _LOG.info(telemetry.CERTIFICATE_ISSUED)
        return bundle


def _hosts(settings: OperatorSettings) -> tuple[str, ...]:
    """Return the names and addresses of the webhook; the first is the one that the API server calls."""
    service, namespace = settings.webhook.service, settings.placeholders.namespace
    if service:
        # The first is what API servers check the certificate of a Service against, whatever the cluster's domain is
        # (`HookClient` in apiserver's `pkg/util/webhook/client.go`).
        return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")
    host = urlsplit(settings.webhook.url).hostname or settings.webhook.host
    return tuple(dict.fromkeys((host, "127.0.0.1", "localhost")))
