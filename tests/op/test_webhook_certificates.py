"""The webhook's certificate names its hosts, is renewed in time, and keeps its authority so that no call is missed."""

import ssl
from datetime import datetime, timedelta

import pytest
from cryptography import x509

from berth_operator.certificates import CertificateBundle, is_current, issue_bundle
from builders import NOON

HOSTS = ("berth-webhook.berth-system.svc", "127.0.0.1")
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def bundle() -> CertificateBundle:
    return issue_bundle(HOSTS, NOON)


def leaf(of: CertificateBundle) -> x509.Certificate:
    return x509.load_pem_x509_certificate(of.certificate)


def authority(of: CertificateBundle) -> x509.Certificate:
    return x509.load_pem_x509_certificate(of.authority)


def test_the_certificate_names_every_host(bundle: CertificateBundle) -> None:
    names = leaf(bundle).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["berth-webhook.berth-system.svc"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_the_certificate_is_signed_by_its_authority_and_signs_nothing(bundle: CertificateBundle) -> None:
    leaf(bundle).verify_directly_issued_by(authority(bundle))
    constraints = authority(bundle).extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints.ca is True
    with pytest.raises(x509.ExtensionNotFound):
        leaf(bundle).extensions.get_extension_for_class(x509.BasicConstraints)


CURRENT = {
    "new": (HOSTS, NOON, True),
    "for one of its hosts": (HOSTS[:1], NOON, True),
    "for another host": (("elsewhere.svc",), NOON, False),
    "for one host too many": ((*HOSTS, "elsewhere.svc"), NOON, False),
    "more than 90 days before its end": (HOSTS, NOON + 274 * DAY, True),
    "90 days before its end": (HOSTS, NOON + 275 * DAY, False),
    "past its end": (HOSTS, NOON + 400 * DAY, False),
}


@pytest.mark.parametrize(("hosts", "now", "want"), CURRENT.values(), ids=CURRENT.keys())
def test_a_certificate_is_current(
    bundle: CertificateBundle,
    hosts: tuple[str, ...],
    now: datetime,
    want: bool,  # noqa: FBT001 - what the case wants
) -> None:
    assert is_current(bundle, hosts, now) is want


def test_a_certificate_of_another_authority_is_not_current(bundle: CertificateBundle) -> None:
    other = issue_bundle(HOSTS, NOON)
    mixed = CertificateBundle(bundle.authority, bundle.authority_key, other.certificate, other.key)
    assert not is_current(mixed, HOSTS, NOON)


@pytest.mark.parametrize("damage", [b"", b"not PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_damaged_certificate_is_not_current(bundle: CertificateBundle, damage: bytes) -> None:
    assert not is_current(CertificateBundle(bundle.authority, bundle.authority_key, damage, bundle.key), HOSTS, NOON)
    assert not is_current(CertificateBundle(damage, bundle.authority_key, bundle.certificate, bundle.key), HOSTS, NOON)


def test_a_renewal_keeps_the_authority(bundle: CertificateBundle) -> None:
    later = NOON + 300 * DAY
    renewed = issue_bundle(HOSTS, later, prior=bundle)
    assert renewed.authority == bundle.authority
    assert renewed.certificate != bundle.certificate
    assert is_current(renewed, HOSTS, later)
    leaf(renewed).verify_directly_issued_by(authority(bundle))


PRIORS = {
    "too old to outlive a new certificate": (NOON + 3300 * DAY, None),
    "with a damaged key": (NOON, b"not PEM"),
    "with no key": (NOON, b""),
}


@pytest.mark.parametrize(("now", "key"), PRIORS.values(), ids=PRIORS.keys())
def test_an_authority_that_cannot_serve_is_replaced(
    bundle: CertificateBundle, now: datetime, key: bytes | None
) -> None:
    prior = CertificateBundle(
        bundle.authority, bundle.authority_key if key is None else key, bundle.certificate, bundle.key
    )
    renewed = issue_bundle(HOSTS, now, prior=prior)
    assert renewed.authority != bundle.authority
    assert is_current(renewed, HOSTS, now)


def test_a_secret_keeps_the_bundle(bundle: CertificateBundle) -> None:
    secret = bundle.to_secret("berth-system")
    assert secret["metadata"]["namespace"] == "berth-system"
    assert CertificateBundle.from_secret(secret) == bundle


SECRETS = {
    "without data": {},
    "with no data": {"data": None},
    "with a part missing": {"data": {"ca.crt": "YQ==", "ca.key": "YQ==", "tls.crt": "YQ=="}},
    "with a part that is not base64": {"data": {"ca.crt": "?", "ca.key": "", "tls.crt": "", "tls.key": ""}},
    "with a part that is a number": {"data": {"ca.crt": 1, "ca.key": "", "tls.crt": "", "tls.key": ""}},
}


@pytest.mark.parametrize("body", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_that_holds_no_bundle_is_none(body: dict[str, object]) -> None:
    assert CertificateBundle.from_secret(body) is None


def test_the_context_speaks_modern_tls_only(bundle: CertificateBundle) -> None:
    assert bundle.to_context().minimum_version is ssl.TLSVersion.TLSv1_2
