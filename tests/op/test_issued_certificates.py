"""An issuer's certificate is served once its authority is announced, and own ones where there is none that is good."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from api_server_in_memory import ApiServerInMemory
from berth_operator.admission.certificate_manager import CertificateManager
from berth_operator.admission.certificates import CertificateBundle, CertificateTerms, renew, why_not_served
from berth_operator.settings import OperatorSettings, WebhookSettings
from berth_service.certificates import KeyPair, make_authority, sign_server, to_pem
from builders import NOON
from issuers import Issuer, bundle_of

SERVICE: Final = "berth-webhook"
HOST: Final = f"{SERVICE}.berth-system.svc"
LIFE: Final = timedelta(seconds=40)
TERMS: Final = CertificateTerms((HOST, f"{HOST}.cluster.local"), LIFE)
CHECK: Final = TERMS.check_every
NOT_YET_SETTLED: Final = 4
"""Checks."""


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "mounted", HOST, NOON)


def replica(api: ApiServerInMemory, folder: Path | str) -> CertificateManager:
    webhook = WebhookSettings(service=SERVICE, certificate_seconds=LIFE.total_seconds(), certificate_folder=str(folder))
    return CertificateManager(api.as_client(), OperatorSettings(webhook=webhook))


def served(one: CertificateManager) -> CertificateBundle:
    assert one.bundle is not None
    return one.bundle


def check(one: CertificateManager, times: int, after: datetime) -> datetime:
    """Have a replica look several times, and return the time of the last."""
    for _ in range(times):
        after += CHECK
        one.refresh(after)
    return after


def calls(called: CertificateBundle, trusting: bytes, now: datetime) -> bool:
    """Return whether a caller that trusts some authorities accepts what answers."""
    leaf, *between = x509.load_pem_x509_certificates(called.certificate)
    store = Store(x509.load_pem_x509_certificates(trusting))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(HOST))
    try:
        verifier.verify(leaf, between)
    except VerificationError:
        return False
    return True


def test_a_first_replica_serves_what_the_issuer_has_made_already(issuer: Issuer) -> None:
    issued = issuer.issue(NOON)
    operator = replica(ApiServerInMemory(), issuer.folder)
    operator.refresh(NOON)
    assert replace(served(operator), path="") == issued
    assert served(operator).path


def test_own_certificates_serve_until_the_issuers_authority_has_been_announced_a_while(issuer: Issuer) -> None:
    operator = replica(ApiServerInMemory(), issuer.folder)
    operator.refresh(NOON)
    own = served(operator)
    issued = issuer.issue(NOON)
    now = check(operator, 1, NOON)
    assert (served(operator).certificate, served(operator).path) == (own.certificate, own.path)
    assert served(operator).authorities == own.authorities + issued.authorities
    now = check(operator, NOT_YET_SETTLED, now)
    assert served(operator).certificate == own.certificate
    now = check(operator, 1, now)
    assert (served(operator).certificate, served(operator).path) == (issued.certificate, own.path)
    assert served(operator).authority_key == b""
    check(operator, NOT_YET_SETTLED + 2, now)
    assert served(operator).authorities == issued.authorities


def test_a_renewed_certificate_of_the_same_authority_is_served_at_the_next_look(issuer: Issuer) -> None:
    issuer.issue(NOON)
    operator = replica(ApiServerInMemory(), issuer.folder)
    operator.refresh(NOON)
    now = check(operator, NOT_YET_SETTLED + 1, NOON)
    renewed = issuer.issue(now)
    check(operator, 1, now)
    assert served(operator).certificate == renewed.certificate


def test_a_replica_that_sees_an_older_certificate_leaves_the_newer_one(issuer: Issuer, tmp_path: Path) -> None:
    api = ApiServerInMemory()
    late = Issuer(tmp_path / "late", HOST, NOON)
    late.write(issuer.issue(NOON))
    one, other = replica(api, issuer.folder), replica(api, late.folder)
    one.refresh(NOON)
    other.refresh(NOON)
    now = check(one, NOT_YET_SETTLED + 1, NOON)
    renewed = issuer.issue(now)
    now = check(one, 1, now)
    check(other, 3 * NOT_YET_SETTLED, now)
    assert served(other).certificate == served(one).certificate == renewed.certificate
    assert not one.refresh(now)


def test_without_the_issuer_own_certificates_follow_before_its_last_one_ends(issuer: Issuer) -> None:
    issued = issuer.issue(NOON, life=10 * LIFE)
    operator = replica(ApiServerInMemory(), issuer.folder)
    operator.refresh(NOON)
    issuer.remove()
    now, announced = NOON, served(operator).authorities
    while now < NOON + 12 * LIFE:
        now = check(operator, 1, now)
        assert calls(served(operator), announced, now)
        announced = served(operator).authorities
    assert served(operator).certificate != issued.certificate
    again = issuer.issue(now)
    check(operator, NOT_YET_SETTLED + 2, now)
    assert served(operator).certificate == again.certificate


def test_an_operator_that_no_longer_has_an_issuer_goes_back_to_own_certificates(issuer: Issuer) -> None:
    api = ApiServerInMemory()
    issued = issuer.issue(NOON)
    replica(api, issuer.folder).refresh(NOON)
    one = replica(api, "")
    one.refresh(NOON)
    assert served(one).certificate == issued.certificate
    assert served(one).authorities.endswith(issued.authorities)
    now, announced = NOON, served(one).authorities
    for _ in range(NOT_YET_SETTLED + 2):
        now = check(one, 1, now)
        assert calls(served(one), announced, now)
        announced = served(one).authorities
    assert served(one).certificate != issued.certificate
    assert renew(served(one), TERMS, now) == served(one)


@pytest.mark.parametrize("seed", range(3))
def test_over_all_of_time_two_replicas_serve_what_was_announced_a_look_before(issuer: Issuer, seed: int) -> None:
    """The issuer renews, changes its authority, loses its Secret and comes back; both look at any time."""
    random, api, now = Random(seed), ApiServerInMemory(), NOON  # noqa: S311 - moments, no keys
    both = [replica(api, issuer.folder), replica(api, issuer.folder)]
    for one in both:
        one.refresh(now)
    announced, seen = served(both[0]).authorities, set()
    for _ in range(160):
        now += CHECK
        act = random.randrange(20)
        if act == 0:
            issuer.issue(now, life=2 * LIFE)
        elif act == 1:
            issuer.change_authority(now)
        elif act == 2:
            issuer.remove()
        for one in random.sample(both, 2):
            one.refresh(now)
            assert calls(served(one), announced, now)
            seen.add(served(one).certificate)
        announced = served(both[0]).authorities
    assert len(seen) >= 3


def test_a_file_that_is_just_being_replaced_changes_nothing(issuer: Issuer) -> None:
    issuer.issue(NOON)
    operator = replica(ApiServerInMemory(), issuer.folder)
    operator.refresh(NOON)
    before = served(operator)
    (issuer.folder / "tls.key").write_bytes(renew(None, TERMS, NOON).key)
    check(operator, NOT_YET_SETTLED + 2, NOON)
    assert served(operator) == before


OTHER: Final = make_authority("other", now=NOON, life=1000 * LIFE)


def named(host: str, *, life: timedelta = 10 * LIFE, begins: datetime = NOON) -> CertificateBundle:
    return bundle_of(sign_server(OTHER, host, [host], now=begins, life=life), OTHER)


REFUSED: Final = {
    "another host": (named("elsewhere.svc"), f"does not name {HOST}"),
    "another authority": (
        replace(named(HOST), authorities=to_pem(make_authority("third", now=NOON, life=LIFE).certificate)),
        "no valid authority",
    ),
    "no authority": (replace(named(HOST), authorities=b""), "cannot be read"),
    "another key": (replace(named(HOST), key=named(HOST).key), "do not belong together"),
    "a key that is none": (replace(named(HOST), key=b"?"), "cannot be read"),
    "too short a rest": (named(HOST, life=7 * CHECK), "not for long"),
    "a beginning that is to come": (named(HOST, begins=NOON + timedelta(hours=1)), "not valid yet"),
}


@pytest.mark.parametrize(("issued", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_an_issued_certificate_is_not_served_with(issued: CertificateBundle, want: str) -> None:
    assert want in why_not_served(issued, TERMS, NOON)


def test_an_own_certificate_serves_where_the_issued_one_cannot_be(issuer: Issuer) -> None:
    issuer.write(named("elsewhere.svc"))
    operator = replica(ApiServerInMemory(), issuer.folder)
    check(operator, 3 * NOT_YET_SETTLED, NOON)
    assert served(operator).authority_key
    assert calls(served(operator), served(operator).authorities, NOON)


def test_keys_of_other_kinds_and_authorities_between_are_served(issuer: Issuer) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    between = authority_under(OTHER)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(between.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOON)
        .not_valid_after(NOON + 10 * LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(between.key.public_key()), critical=False)
    )
    leaf = builder.sign(between.key, hashes.SHA256())
    plain = (serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    text = key.private_bytes(serialization.Encoding.PEM, *plain)
    chain = to_pem(leaf) + to_pem(between.certificate)
    issuer.write(CertificateBundle(to_pem(OTHER.certificate), b"", chain, text, ""))
    operator = replica(ApiServerInMemory(), issuer.folder)
    operator.refresh(NOON)
    assert served(operator).certificate == chain
    served(operator).to_context()


def authority_under(above: KeyPair) -> KeyPair:
    """Make an authority that another one vouches for."""
    alone = make_authority("between", now=NOON, life=100 * LIFE)
    certificate = alone.certificate
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(above.certificate.subject)
        .public_key(alone.key.public_key())
        .serial_number(2)
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    for extension in certificate.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return KeyPair(alone.key, builder.sign(above.key, hashes.SHA256()))
