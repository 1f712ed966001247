"""An issuer of certificates such as cert-manager, whose Secret a kubelet mounts as files."""

from datetime import datetime, timedelta
from pathlib import Path

from berth_operator.admission.certificates import CertificateBundle
from berth_service.certificates import KeyPair, key_to_pem, make_authority, sign_server, to_pem

LONG = timedelta(days=1)


class Issuer:
    """Makes certificates for one host and writes them where they are mounted."""

    def __init__(self, folder: Path, host: str, now: datetime) -> None:
        self.folder = folder
        self._host = host
        self.change_authority(now)

    def change_authority(self, now: datetime) -> None:
        """Sign what comes next by a new authority."""
        self._authority = make_authority("issuer", now=now, life=LONG)

    def issue(self, now: datetime, *, life: timedelta = LONG) -> CertificateBundle:
        """Make a certificate and mount it."""
        issued = bundle_of(sign_server(self._authority, self._host, [self._host], now=now, life=life), self._authority)
        self.write(issued)
        return issued

    def write(self, issued: CertificateBundle) -> None:
        self.folder.mkdir(exist_ok=True)
        for name, text in {"ca.crt": issued.authorities, "tls.crt": issued.certificate, "tls.key": issued.key}.items():
            (self.folder / name).write_bytes(text)

    def remove(self) -> None:
        """Take the files away, if there are any."""
        for file in self.folder.glob("*"):
            file.unlink()


def bundle_of(leaf: KeyPair, authority: KeyPair) -> CertificateBundle:
    """Return what an issuer's Secret has of a certificate."""
    return CertificateBundle(to_pem(authority.certificate), b"", to_pem(leaf.certificate), key_to_pem(leaf.key), "")
