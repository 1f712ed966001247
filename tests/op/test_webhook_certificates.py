"""The webhook's certificate names its hosts, is renewed in time, and keeps its authority so that no call is missed."""

import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from hypothesis import given, settings
from hypothesis import strategies as st

from berth_operator.admission.certificates import CertificateBundle, CertificateTerms, renew
from builders import NOON

HOSTS = ("berth-webhook.berth-system.svc", "127.0.0.1")
DAY = timedelta(days=1)
TERMS = CertificateTerms(HOSTS)


@pytest.fixture(scope="module")
def bundle() -> CertificateBundle:
    return renew(None, TERMS, NOON)


def leaf(of: CertificateBundle) -> x509.Certificate:
    return x509.load_pem_x509_certificate(of.certificate)


def authority(of: CertificateBundle) -> x509.Certificate:
    return x509.load_pem_x509_certificate(of.authorities)


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


KEPT = {
    "new": (TERMS, NOON, True),
    "for one of its hosts": (replace(TERMS, hosts=HOSTS[:1]), NOON, True),
    "for another host": (replace(TERMS, hosts=("elsewhere.svc",)), NOON, False),
    "for one host too many": (replace(TERMS, hosts=(*HOSTS, "elsewhere.svc")), NOON, False),
    "before the last quarter of its life": (TERMS, NOON + 273 * DAY, True),
    "in the last quarter of its life": (TERMS, NOON + 274 * DAY, False),
    "past its end": (TERMS, NOON + 400 * DAY, False),
}


@pytest.mark.parametrize(("terms", "now", "want"), KEPT.values(), ids=KEPT.keys())
def test_a_certificate_is_kept(
    bundle: CertificateBundle,
    terms: CertificateTerms,
    now: datetime,
    want: bool,  # noqa: FBT001 - what the case wants
) -> None:
    assert (renew(bundle, terms, now) == bundle) is want


def test_a_renewal_keeps_authority_and_path(bundle: CertificateBundle) -> None:
    renewed = renew(bundle, TERMS, NOON + 300 * DAY)
    assert (renewed.authorities, renewed.path) == (bundle.authorities, bundle.path)
    assert renewed.certificate != bundle.certificate
    leaf(renewed).verify_directly_issued_by(authority(bundle))


JUNK = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
DAMAGES: dict[str, Callable[[CertificateBundle, CertificateBundle], CertificateBundle]] = {
    "an empty certificate": lambda one, _: replace(one, certificate=b""),
    "a certificate that is not PEM": lambda one, _: replace(one, certificate=b"not PEM"),
    "a certificate of junk": lambda one, _: replace(one, certificate=JUNK),
    "an authority of junk": lambda one, _: replace(one, authorities=JUNK),
    "an authority's key that is not PEM": lambda one, _: replace(one, authority_key=b"not PEM"),
    "another authority's key": lambda one, other: replace(one, authority_key=other.authority_key),
    "another certificate's key": lambda one, other: replace(one, key=other.key),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_damaged_is_made_anew_under_its_path_and_not_taken_from_a_secret(
    bundle: CertificateBundle, damage: Callable[[CertificateBundle, CertificateBundle], CertificateBundle]
) -> None:
    damaged = damage(bundle, renew(None, TERMS, NOON))
    assert CertificateBundle.from_secret(damaged.to_secret("berth-system")) is None
    mended = renew(damaged, TERMS, NOON)
    assert mended.path == bundle.path
    assert renew(mended, TERMS, NOON) == mended
    leaf(mended).verify_directly_issued_by(authority(mended))


def test_a_certificate_of_another_authority_is_not_served(bundle: CertificateBundle) -> None:
    other = renew(None, TERMS, NOON)
    mended = renew(replace(bundle, certificate=other.certificate, key=other.key), TERMS, NOON)
    leaf(mended).verify_directly_issued_by(authority(bundle))


def test_an_authority_is_announced_before_anything_of_it_is_served(bundle: CertificateBundle) -> None:
    late = NOON + 3 * 365 * DAY + DAY
    fresh = replace(renew(bundle, TERMS, late - 100 * DAY))
    announced = renew(fresh, TERMS, late)
    assert announced.certificate == fresh.certificate
    assert announced.authorities.endswith(bundle.authorities)
    assert announced.authorities != bundle.authorities
    assert renew(announced, TERMS, late + TERMS.settling / 2) == announced
    settled = renew(announced, TERMS, late + TERMS.settling)
    leaf(settled).verify_directly_issued_by(authority(settled))
    assert settled.authorities == announced.authorities


@given(life_seconds=st.integers(40, 2400), seed=st.integers())
@settings(max_examples=5, deadline=None)
def test_over_all_of_time_what_is_served_is_trusted_by_what_was_announced_a_while_ago(
    life_seconds: int, seed: int
) -> None:
    """Replicas that look at any time within each interval serve what a registration of the last interval trusts."""
    terms = CertificateTerms(HOSTS, timedelta(seconds=life_seconds))
    random, now, bundle = Random(seed), NOON, renew(None, terms, NOON)  # noqa: S311 - moments, no keys
    announced = bundle
    while now < NOON + 12 * terms.life:
        now += terms.check_every * random.uniform(0.2, 3.0)
        after = renew(bundle, terms, now)
        trusted = x509.load_pem_x509_certificates(announced.authorities)
        valid = [one for one in trusted if one.not_valid_after_utc > now]
        assert any(signed(after, one) for one in valid)
        assert leaf(after).not_valid_after_utc > now
        assert len(x509.load_pem_x509_certificates(after.authorities)) <= 2
        announced, bundle = bundle, after


@pytest.mark.parametrize("old_life", [6, 60, 3600], ids="made to last {} s".format)
@pytest.mark.parametrize("left_share", [0.9, 0.3, 0.2, 0.02], ids="{} of it left".format)
def test_a_certificate_is_served_without_a_gap_where_new_ones_are_to_last_longer(
    old_life: float, left_share: float
) -> None:
    short = CertificateTerms(HOSTS, timedelta(seconds=old_life))
    now = NOON + short.life * (1 - left_share)
    bundle = renew(renew(None, short, NOON), TERMS, now)
    assert bundle.is_valid(now)
    while now < NOON + 2 * short.life:
        now += TERMS.check_every
        assert bundle.is_valid(now), f"{now - NOON} after the first was made"
        bundle = renew(bundle, TERMS, now)
    assert leaf(bundle).not_valid_after_utc >= NOON + TERMS.life


def test_what_was_made_by_a_clock_that_was_ahead_is_made_anew(bundle: CertificateBundle) -> None:
    ahead = renew(None, TERMS, NOON + DAY)
    assert not ahead.is_valid(NOON)
    mended = renew(ahead, TERMS, NOON)
    assert mended.is_valid(NOON)
    assert authority(mended).not_valid_before_utc <= NOON
    leaf(mended).verify_directly_issued_by(authority(mended))
    assert mended.path == ahead.path != bundle.path


def signed(of: CertificateBundle, by: x509.Certificate) -> bool:
    try:
        leaf(of).verify_directly_issued_by(by)
    except InvalidSignature:
        return False
    return True


def test_a_secret_keeps_the_bundle(bundle: CertificateBundle) -> None:
    secret = bundle.to_secret("berth-system")
    assert secret["metadata"]["namespace"] == "berth-system"
    assert CertificateBundle.from_secret(secret) == bundle


SECRETS = {
    "without data": {},
    "with no data": {"data": None},
    "with a part missing": {"data": {"ca.crt": "YQ==", "ca.key": "YQ==", "tls.crt": "YQ=="}},
    "with a part that is not base64": {"data": {"ca.crt": "?", "ca.key": "", "tls.crt": "", "tls.key": "", "path": ""}},
    "with a part that is a number": {"data": {"ca.crt": 1, "ca.key": "", "tls.crt": "", "tls.key": ""}},
}


@pytest.mark.parametrize("body", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_that_holds_no_bundle_is_none(body: dict[str, object]) -> None:
    assert CertificateBundle.from_secret(body) is None


def test_the_context_speaks_modern_tls_only(bundle: CertificateBundle) -> None:
    assert bundle.to_context().minimum_version is ssl.TLSVersion.TLSv1_2
