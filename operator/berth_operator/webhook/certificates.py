"""The webhook's certificates: lifetimes, renewal, and the Secret that replicas share.

The API server learns of a new authority a moment after its creation, so an authority signs nothing before it has been
announced for a while:

    1. the server certificate is in the last quarter of its life  -> a new one of the same authority
    2. the authority will not outlive two server certificates     -> a new one is announced beside the old one
    3. the new authority has been announced for a while           -> a server certificate of the new one
    4. the server certificate ends before that, or has not begun  -> a server certificate of the first authority at once
"""

import base64
import secrets
import ssl
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from berth_core import MANAGED_BY_OPERATOR, MANAGED_LABEL, WEBHOOK_SECRET
from berth_kube import SECRETS, AlreadyExistsError, ConflictError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.settings import OperatorSettings
from berth_service.certificates import BACKDATE, KeyPair, key_to_pem, make_authority, sign_server, to_pem

_CHECKS_PER_LIFE: Final = 40
_LONGEST_CHECK: Final = timedelta(minutes=1)
_CHECKS_TO_SETTLE: Final = 5
_CHECKS_TO_SPARE: Final = 2
"""A server certificate that ends within this many checks is replaced."""
_LIVES_OF_AUTHORITY: Final = 5
_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key", "path")
_PATH_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """The hosts and lifetimes of certificates."""

    hosts: tuple[str, ...]
    """Names and addresses by which the API server may call the webhook."""

    life: timedelta = timedelta(days=365)
    """Of a server certificate; an authority lasts five times as long."""

    @property
    def renew_before(self) -> timedelta:
        return self.life / 4

    @property
    def check_every(self) -> timedelta:
        """Return the time between two checks of the certificates."""
        return min(_LONGEST_CHECK, self.life / _CHECKS_PER_LIFE)

    @property
    def settling(self) -> timedelta:
        """Return how long an authority is announced before it is used."""
        return _CHECKS_TO_SETTLE * self.check_every


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """Our authorities and the server certificate, in PEM, and the webhook's path."""

    authorities: bytes
    """The signing one first, then those that an earlier server certificate may still need."""

    authority_key: bytes
    """Key of the first authority."""

    certificate: bytes
    key: bytes

    path: str
    """A secret: only callers that know it get an answer; the registration has it."""

    def to_secret(self, namespace: str) -> dict[str, Any]:
        """Return the Secret that both replicas share."""
        values = (self.authorities, self.authority_key, self.certificate, self.key, self.path.encode())
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": WEBHOOK_SECRET,
                "namespace": namespace,
                "labels": {MANAGED_LABEL: MANAGED_BY_OPERATOR},
            },
            "type": "Opaque",
            "data": {key: base64.b64encode(value).decode() for key, value in zip(_KEYS, values, strict=True)},
        }

    @classmethod
    def from_secret(cls, body: dict[str, Any]) -> "CertificateBundle | None":
        """Read a bundle from its Secret.

        None for an incomplete or mismatched one.
        """
        data = body.get("data") or {}
        try:
            values = [base64.b64decode(data[key], validate=True) for key in _KEYS]
            path = values.pop().decode("ascii")
        except (KeyError, ValueError, TypeError):
            return None
        authorities, authority_key, certificate, key = values
        bundle = cls(authorities, authority_key, certificate, key, path)
        return bundle if path and _read(bundle) is not None else None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the server certificate is valid now."""
        return _is_current(x509.load_pem_x509_certificate(self.certificate), now)

    def to_context(self) -> ssl.SSLContext:
        """Return a server context for TLS 1.2 and later with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make a context use this certificate for handshakes from now on."""
        with tempfile.TemporaryDirectory(prefix="berth-webhook-") as folder:
            path = Path(folder) / "tls.pem"
            path.touch(mode=0o600)
            path.write_bytes(self.certificate + self.key)
            context.load_cert_chain(path)


def renew(bundle: CertificateBundle | None, terms: CertificateTerms, now: datetime) -> CertificateBundle:
    """Return the bundle to use from now on.

    It is the same one if that is still good.
    """
    parts = _read(bundle) if bundle is not None else None
    if bundle is None or parts is None:
        return _issue_anew(terms, now, path=bundle.path if bundle else secrets.token_urlsafe(_PATH_BYTES))
    return _renew_readable(bundle, parts, terms, now)


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parsed certificates of a bundle; each key fits its certificate."""

    authorities: list[x509.Certificate]
    leaf: x509.Certificate

    @property
    def first(self) -> x509.Certificate:
        return self.authorities[0]


def _read(bundle: CertificateBundle) -> _Parts | None:
    """Return the parts of a bundle.

    None if they are unreadable or do not match.
    """
    try:
        authorities = x509.load_pem_x509_certificates(bundle.authorities)
        KeyPair.from_pem(bundle.authorities, bundle.authority_key)
        return _Parts(authorities, KeyPair.from_pem(bundle.certificate, bundle.key).certificate)
    except (ValueError, TypeError):
        return None


def _renew_readable(
    bundle: CertificateBundle, parts: _Parts, terms: CertificateTerms, now: datetime
) -> CertificateBundle:
    """Return the replacement of a readable bundle."""
    leaf, first = parts.leaf, parts.first
    trusted = any(_signed_by(leaf, one) and _is_current(one, now) for one in parts.authorities)
    left = leaf.not_valid_after_utc - now
    outlasts_checks = leaf.not_valid_before_utc <= now and left > _CHECKS_TO_SPARE * terms.check_every
    serves = trusted and outlasts_checks and _names_all(leaf, terms)
    if first.not_valid_after_utc - now < 2 * terms.life or not _is_current(first, now):
        announced = _announce(bundle, parts, terms, now)
        return announced if serves else _issue(announced, terms, now)
    settled = now - (first.not_valid_before_utc + BACKDATE) >= terms.settling
    old = left <= terms.renew_before or not _signed_by(leaf, first)
    return _issue(bundle, terms, now) if not serves or (old and settled) else bundle


def _signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names_all(leaf: x509.Certificate, terms: CertificateTerms) -> bool:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return set(terms.hosts) <= {str(name.value) for name in names}


def _announce(bundle: CertificateBundle, parts: _Parts, terms: CertificateTerms, now: datetime) -> CertificateBundle:
    """Put a new authority before the valid ones; the server certificate stays."""
    authority = _new_authority(terms, now)
    kept = [one for one in parts.authorities if one.not_valid_after_utc > now]
    authorities = b"".join(map(to_pem, [authority.certificate, *kept]))
    return replace(bundle, authorities=authorities, authority_key=key_to_pem(authority.key))


def _issue_anew(terms: CertificateTerms, now: datetime, *, path: str) -> CertificateBundle:
    """Return a new bundle with the path of an earlier one."""
    authority = _new_authority(terms, now)
    blank = CertificateBundle(
        authorities=to_pem(authority.certificate),
        authority_key=key_to_pem(authority.key),
        certificate=b"",
        key=b"",
        path=path,
    )
    return _issue(blank, terms, now)


def _issue(bundle: CertificateBundle, terms: CertificateTerms, now: datetime) -> CertificateBundle:
    """Return a bundle with a new server certificate of its first authority."""
    authority = KeyPair.from_pem(bundle.authorities, bundle.authority_key)
    hosts = sorted(set(terms.hosts))
    leaf = sign_server(authority, hosts[0], hosts, now=now, life=terms.life)
    return replace(bundle, certificate=to_pem(leaf.certificate), key=key_to_pem(leaf.key))


def _new_authority(terms: CertificateTerms, now: datetime) -> KeyPair:
    return make_authority("berth webhook authority", now=now, life=_LIVES_OF_AUTHORITY * terms.life)


# --- the shared Secret -----------------------------------------------------------------------------------------------

_LOG = structlog.get_logger(__name__)


class CertificateManager:
    """Keeps one bundle in the Secret and renews it.

    Of two concurrent replicas one yields.
    """

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
        """Read the Secret and renew it if due.

        Returns whether the bundle changed. A deleted or damaged Secret is restored from what this process has.
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
        """Store a bundle, or take that of a faster replica.

        It replaces the one that was read.
        """
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
        _LOG.info(telemetry.CERTIFICATE_ISSUED)
        return bundle


def _hosts(settings: OperatorSettings) -> tuple[str, ...]:
    """Return the webhook's names and addresses for the API server."""
    service, namespace = settings.webhook.service, settings.placeholders.namespace
    if service:
        return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")
    host = urlsplit(settings.webhook.url).hostname
    return tuple(sorted({host or settings.webhook.host, "127.0.0.1", "localhost"}))
