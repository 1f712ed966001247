"""The webhook's certificates: what a bundle holds, and when each part of it is renewed.

An API server reads a new authority from the webhook's registration, which its informer sees a moment later. So an
authority signs nothing before it has been announced there for a while:

    1. the server certificate is in the last quarter of its life  -> a new one of the same authority
    2. the authority will not outlive two server certificates     -> a new one is announced beside the old one
    3. the new authority has been announced for a while           -> a server certificate of the new one
    4. the server certificate ends before that, or has not begun  -> a server certificate of the first authority at once

Where an issuer in the cluster makes certificates, its authority is announced beside the present one in the same way
before its certificate is served. The operator's own certificates serve until the issuer has made one, and again
whenever it renews one too late.
"""

import base64
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from berth_core import MANAGED_BY_OPERATOR, MANAGED_LABEL, WEBHOOK_SECRET
from berth_service.certificates import BACKDATE, KeyPair, key_to_pem, make_authority, sign_server, to_pem

_CHECKS_PER_LIFE: Final = 40
_LONGEST_CHECK: Final = timedelta(minutes=1)
_CHECKS_TO_SETTLE: Final = 5
"""Checks for which an authority is announced before it signs: by then API servers have read it."""
_CHECKS_TO_SPARE: Final = 2
"""A server certificate that ends within this many checks is replaced at once."""
_LIVES_OF_AUTHORITY: Final = 5
_KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key", "path")
# 192 bits: the path is the secret by which the webhook knows API servers.
_PATH_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """The hosts and lifetimes of certificates."""

    hosts: tuple[str, ...]
    """Names and addresses of the webhook; the API server calls it by the first one."""

    life: timedelta = timedelta(days=365)
    """Lifetime of a server certificate; an authority lives five times as long."""

    @property
    def renew_before(self) -> timedelta:
        return self.life / 4

    @property
    def check_every(self) -> timedelta:
        """Return the time between two checks of the certificates."""
        # A share of the life, so that certificates of minutes, as an administrator may ask for, are checked often
        # enough.
        return min(_LONGEST_CHECK, self.life / _CHECKS_PER_LIFE)

    @property
    def settling(self) -> timedelta:
        """Return how long an authority is announced before it is used."""
        return _CHECKS_TO_SETTLE * self.check_every

    @property
    def spare(self) -> timedelta:
        """Return how long before its end a server certificate is replaced at the latest."""
        return _CHECKS_TO_SPARE * self.check_every


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """Our authorities and the server certificate, in PEM, and the webhook's path."""

    authorities: bytes
    """The signing one first, then those that an earlier server certificate may still need."""

    authority_key: bytes
    """Key of the first authority; empty where an issuer in the cluster has it."""

    certificate: bytes
    """The server certificate, followed by the intermediate ones up to an announced authority."""

    key: bytes

    path: str
    """A secret path: an API server authenticates itself to no webhook unless its administrator configures that, so only
    callers that know the path from the registration get an answer."""

    def to_secret(self, namespace: str) -> dict[str, Any]:
        """Return the Secret that all replicas share."""
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
        """Return the bundle in a Secret, None if it is incomplete or its parts do not match."""
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
        # Python's ssl loads a key from a file only (python/cpython#60691).
        with tempfile.TemporaryDirectory(prefix="berth-webhook-") as folder:
            path = Path(folder) / "tls.pem"
            path.touch(mode=0o600)  # before the key is in it
            path.write_bytes(self.certificate + b"\n" + self.key)
            context.load_cert_chain(path)


def renew(bundle: CertificateBundle | None, terms: CertificateTerms, now: datetime) -> CertificateBundle:
    """Return the bundle to use from now on, which is the given one while that is good."""
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
    chain: list[x509.Certificate]
    is_own: bool

    @property
    def first(self) -> x509.Certificate:
        return self.authorities[0]

    @property
    def leaf(self) -> x509.Certificate:
        return self.chain[0]

    def is_trusted(self, now: datetime) -> bool:
        """Return whether a chain of valid certificates leads from the server's to an authority."""
        is_linked = all(
            _signed_by(certificate, issuer) and _is_current(issuer, now) for certificate, issuer in pairwise(self.chain)
        )
        return is_linked and any(
            _signed_by(self.chain[-1], authority) and _is_current(authority, now) for authority in self.authorities
        )

    def lasts(self, duration: timedelta, now: datetime) -> bool:
        """Return whether the server certificate has begun and is valid for longer than this from now on."""
        return self.leaf.not_valid_before_utc <= now and self.leaf.not_valid_after_utc - now > duration


def _read(bundle: CertificateBundle) -> _Parts | None:
    """Return the parts of a bundle, None if they are unreadable or a key does not match its certificate."""
    try:
        authorities = x509.load_pem_x509_certificates(bundle.authorities)
        chain = x509.load_pem_x509_certificates(bundle.certificate)
        if bundle.authority_key:
            KeyPair.from_pem(bundle.authorities, bundle.authority_key)
        is_key_of_leaf = load_pem_private_key(bundle.key, password=None).public_key() == chain[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return _Parts(authorities, chain, is_own=bool(bundle.authority_key)) if is_key_of_leaf else None


def _renew_readable(
    bundle: CertificateBundle, parts: _Parts, terms: CertificateTerms, now: datetime
) -> CertificateBundle:
    """Return the bundle that follows a readable one, by the four rules of the module."""
    leaf, first_authority = parts.leaf, parts.first
    is_signed_by_first = _signed_by(leaf, first_authority)
    # An issuer's certificate need not name more than the host that the API server calls.
    hosts = terms.hosts if parts.is_own and is_signed_by_first else terms.hosts[:1]
    can_serve = parts.is_trusted(now) and parts.lasts(terms.spare, now) and _names_all(leaf, hosts)
    if (
        not parts.is_own
        or first_authority.not_valid_after_utc - now < 2 * terms.life
        or not _is_current(first_authority, now)
    ):
        announced = _announce(bundle, parts, terms, now)
        return announced if can_serve else _issue(announced, terms, now)
    # The start of its validity, less what it is dated back against skewed clocks, is when the authority was made: the
    # time needs no field in the Secret, and survives a restart.
    is_settled = now - (first_authority.not_valid_before_utc + BACKDATE) >= terms.settling
    is_due = leaf.not_valid_after_utc - now <= terms.renew_before or not is_signed_by_first
    return _issue(bundle, terms, now) if not can_serve or (is_due and is_settled) else bundle


def _signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names_all(leaf: x509.Certificate, hosts: Sequence[str]) -> bool:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return set(hosts) <= {str(name.value) for name in names}


def _announce(bundle: CertificateBundle, parts: _Parts, terms: CertificateTerms, now: datetime) -> CertificateBundle:
    """Return the bundle with a new authority before those that are still valid, and the same server certificate."""
    authority = _new_authority(terms, now)
    authorities = _join([authority.certificate], parts, now)
    return replace(bundle, authorities=authorities, authority_key=key_to_pem(authority.key))


def _join(first: list[x509.Certificate], parts: _Parts, now: datetime) -> bytes:
    """Return authorities in PEM, followed by those of a bundle that are still valid."""
    other_authorities = [
        authority for authority in parts.authorities if authority.not_valid_after_utc > now and authority not in first
    ]
    return b"".join(map(to_pem, [*first, *other_authorities]))


def _issue_anew(terms: CertificateTerms, now: datetime, *, path: str) -> CertificateBundle:
    """Return a new bundle; the path is kept, as the registration that API servers have read names it."""
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
    """Return the bundle with a new server certificate of its first authority."""
    authority = KeyPair.from_pem(bundle.authorities, bundle.authority_key)
    hosts = sorted(set(terms.hosts))
    leaf = sign_server(authority, hosts[0], hosts, now=now, life=terms.life)
    return replace(bundle, certificate=to_pem(leaf.certificate), key=key_to_pem(leaf.key))


def _new_authority(terms: CertificateTerms, now: datetime) -> KeyPair:
    return make_authority("berth webhook authority", now=now, life=_LIVES_OF_AUTHORITY * terms.life)


def why_not_served(issued: CertificateBundle, terms: CertificateTerms, now: datetime) -> str:
    """Return why the certificate of an issuer cannot be served, "" if it can."""
    parts = _read(issued)
    if parts is None:
        return "its files cannot be read or do not belong together"
    if not _names_all(parts.leaf, terms.hosts[:1]):
        return f"it does not name {terms.hosts[0]}"
    if not parts.is_trusted(now):
        return "ca.crt has no valid authority of it"
    return "" if parts.lasts(terms.settling + terms.spare, now) else "it is not valid yet or not for long"


def take_issued(
    bundle: CertificateBundle | None,
    issued: CertificateBundle | None,
    terms: CertificateTerms,
    now: datetime,
    *,
    settled: bool,
) -> CertificateBundle:
    """Return the bundle to use from now on where an issuer makes the certificates.

    `settled` is whether every API server must have read the authorities of `bundle` by now. Kubelets update a mounted
    Secret at different times, so replicas ignore a certificate that is older than the one being served.
    """
    parts = _read(bundle) if bundle is not None else None
    offered = _read(issued) if issued is not None and not why_not_served(issued, terms, now) else None
    if bundle is None or parts is None:
        renewed = renew(bundle, terms, now)
        return renewed if issued is None or offered is None else replace(issued, path=renewed.path)
    is_good = parts.is_trusted(now) and _names_all(parts.leaf, terms.hosts[:1])
    can_serve = is_good and parts.lasts(terms.spare, now)
    if issued is None or offered is None:
        # Renewed in time for an authority of ours to settle, should the issuer not come back.
        lasts = is_good and not parts.is_own and parts.lasts(terms.settling + terms.spare, now)
        return bundle if lasts else renew(bundle, terms, now)
    if can_serve and not parts.is_own and offered.leaf.not_valid_before_utc <= parts.leaf.not_valid_before_utc:
        is_same = issued.certificate == bundle.certificate
        return replace(issued, path=bundle.path) if settled and is_same else bundle
    unannounced = [authority for authority in offered.authorities if authority not in parts.authorities]
    if can_serve and unannounced:
        return replace(bundle, authorities=_join(parts.authorities, offered, now))
    # Its authority is announced already, but perhaps not read by every API server: they would refuse the certificate.
    if can_serve and not settled:
        return bundle
    return replace(issued, path=bundle.path, authorities=_join(offered.authorities, parts, now))
