"""An authority, and what it signs for servers and clients."""

from datetime import timedelta
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from berth_service.certificates import (
    BACKDATE,
    KeyPair,
    key_to_pem,
    make_authority,
    make_key,
    sign_client,
    sign_server,
    to_pem,
)
from builders import NOON

T = TypeVar("T", bound=x509.ExtensionType)
LIFE = timedelta(days=10)
HOSTS = ("webhook.berth-system.svc", "localhost", "127.0.0.1", "::1")

AUTHORITY = make_authority("the authority", now=NOON, life=5 * LIFE)
SERVER = sign_server(AUTHORITY, "the server", HOSTS, now=NOON, life=LIFE)
CLIENT = sign_client(AUTHORITY, "jane", ("system:masters", "people"), now=NOON, life=LIFE)
ALL = {"authority": AUTHORITY, "server": SERVER, "client": CLIENT}


def names(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid)]


def extension(pair: KeyPair, kind: type[T]) -> T:
    return pair.certificate.extensions.get_extension_for_class(kind).value


@pytest.mark.parametrize(("pair", "life"), [(AUTHORITY, 5 * LIFE), (SERVER, LIFE), (CLIENT, LIFE)], ids=list(ALL))
def test_it_is_valid_for_its_life_and_a_moment_before(pair: KeyPair, life: timedelta) -> None:
    assert pair.certificate.not_valid_before_utc == NOON - BACKDATE
    assert pair.certificate.not_valid_after_utc == NOON + life


@pytest.mark.parametrize("pair", ALL.values(), ids=list(ALL))
def test_its_key_is_on_the_curve_p_256_and_is_read_again_with_it(pair: KeyPair) -> None:
    assert isinstance(pair.key.curve, ec.SECP256R1)
    read = KeyPair.from_pem(to_pem(pair.certificate), key_to_pem(pair.key))
    assert read.certificate == pair.certificate
    assert read.key.private_numbers() == pair.key.private_numbers()
    assert b"BEGIN PRIVATE KEY" in key_to_pem(pair.key)


@pytest.mark.parametrize("pair", ALL.values(), ids=list(ALL))
def test_it_is_signed_by_the_authority_and_points_at_its_key(pair: KeyPair) -> None:
    pair.certificate.verify_directly_issued_by(AUTHORITY.certificate)
    if pair is not AUTHORITY:
        own = extension(AUTHORITY, x509.SubjectKeyIdentifier)
        assert extension(pair, x509.AuthorityKeyIdentifier).key_identifier == own.digest


def test_only_the_authority_signs_certificates_and_it_makes_no_other_authorities() -> None:
    assert extension(AUTHORITY, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    for pair in ALL.values():
        usage = extension(pair, x509.KeyUsage)
        assert usage.key_cert_sign is (pair is AUTHORITY)
        assert usage.digital_signature is (pair is not AUTHORITY)


def test_a_server_is_called_by_names_and_addresses() -> None:
    called = extension(SERVER, x509.SubjectAlternativeName)
    assert called.get_values_for_type(x509.DNSName) == list(HOSTS[:2])
    assert [str(address) for address in called.get_values_for_type(x509.IPAddress)] == list(HOSTS[2:])
    assert list(extension(SERVER, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_name_that_is_too_long_for_a_subject_is_cut() -> None:
    host = f"{'a' * 60}.{'b' * 60}.svc"
    pair = sign_server(AUTHORITY, host, (host,), now=NOON, life=LIFE)
    assert names(pair.certificate, NameOID.COMMON_NAME) == [host[:64]]
    assert extension(pair, x509.SubjectAlternativeName).get_values_for_type(x509.DNSName) == [host]


def test_a_client_is_a_user_with_groups() -> None:
    assert names(CLIENT.certificate, NameOID.COMMON_NAME) == ["jane"]
    assert names(CLIENT.certificate, NameOID.ORGANIZATION_NAME) == ["system:masters", "people"]
    assert list(extension(CLIENT, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.CLIENT_AUTH]


FOREIGN = ed25519.Ed25519PrivateKey.generate().private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
UNFIT = {
    "another key": (to_pem(SERVER.certificate), key_to_pem(make_key())),
    "a key of another kind": (to_pem(SERVER.certificate), FOREIGN),
    "no key": (to_pem(SERVER.certificate), b""),
    "no certificate": (b"", key_to_pem(SERVER.key)),
}


@pytest.mark.parametrize(("certificate", "key"), UNFIT.values(), ids=UNFIT.keys())
def test_a_certificate_is_not_read_with(certificate: bytes, key: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        KeyPair.from_pem(certificate, key)
