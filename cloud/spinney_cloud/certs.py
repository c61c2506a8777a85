"""Our own certificates: a CA in the data directory, and what it signs for servers and clients.

certs/ca.crt ca.key        whom everybody is to trust
certs/server.crt .key      for MQTT, HTTP and NATS
certs/client-NAME.crt .key for whoever shows a certificate
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .data_dir import write_whole

FOLDER = "certs"
CA = "ca"
SERVER = "server"
CA_DAYS = 3650
CERTIFICATE_DAYS = 397
"""Some clients refuse more."""
CLOCK_SKEW = timedelta(hours=1)
"""How far a client's clock may be behind."""
EXPIRES_SOON = timedelta(days=30)


class CertificatesError(Exception):
    """What cannot be done with certificates, and why."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What is worth knowing of a certificate."""

    name: str
    subject: str
    hosts: tuple[str, ...]
    until: datetime
    signed_by_us: bool

    @property
    def expires_soon(self) -> bool:
        """Whether it is time for another."""
        return datetime.now(UTC) + EXPIRES_SOON > self.until


class Certificates:
    """The certificates of a data directory."""

    def __init__(self, data: Path) -> None:
        self.folder = data / FOLDER

    def path(self, name: str) -> Path:
        """A certificate's file; the key's ends in .key instead."""
        return self.folder / f"{name}.crt"

    def key_path(self, name: str) -> Path:
        """The file of a certificate's key."""
        return self.folder / f"{name}.key"

    def make_ca(self, *, force: bool = False) -> Path:
        """A new CA. With `force` in the place of another, and nobody trusts what that one has signed any more."""
        self._must_be_free(CA, force)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Spinney CA")
        builder = _builder(name, name, key.public_key(), CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        self._write(CA, key, builder.sign(key, hashes.SHA256()))
        return self.path(CA)

    def make_server(self, hosts: Sequence[str], *, force: bool = False) -> Path:
        """A certificate for the names and addresses under which clients reach the cloud."""
        if not hosts:
            raise CertificatesError("under which names or addresses do clients reach it?")
        self._must_be_free(SERVER, force)
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        self._sign(SERVER, _name(hosts[0]), [names], [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        return self.path(SERVER)

    def make_client(self, user: str, *, force: bool = False) -> Path:
        """A certificate by which a user shows who they are."""
        self._must_be_free(f"client-{user}", force)
        self._sign(f"client-{user}", _name(user), [], [ExtendedKeyUsageOID.CLIENT_AUTH])
        return self.path(f"client-{user}")

    def renew(self, name: str) -> Path:
        """Another key and certificate in the place of one, for the same names."""
        if name == CA:
            raise CertificatesError("a new CA is made by `certs init --force`, and then all it is to sign")
        old = self._read(name)
        usage = old.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self._sign(name, old.subject, _alternatives(old), list(usage))
        return self.path(name)

    def show(self) -> list[Shown]:
        """All there are, the CA first."""
        found = sorted(path.stem for path in self.folder.glob("*.crt"))
        ca = self._read(CA) if CA in found else None
        return [self._shown(name, ca) for name in sorted(found, key=lambda name: (name != CA, name))]

    def _shown(self, name: str, ca: x509.Certificate | None) -> Shown:
        certificate = self._read(name)
        hosts = tuple(str(each.value) for names in _alternatives(certificate) for each in names)
        return Shown(
            name,
            _common_name(certificate),
            hosts,
            certificate.not_valid_after_utc,
            ca is not None and _is_signed_by(certificate, ca),
        )

    def _must_be_free(self, name: str, force: bool) -> None:
        if self.path(name).exists() and not force:
            raise CertificatesError(f"{self.path(name)} is there already; --force puts another in its place")

    def _sign(
        self,
        name: str,
        subject: x509.Name,
        extensions: Sequence[x509.ExtensionType],
        usage: list[x509.ObjectIdentifier],
    ) -> None:
        ca, ca_key = self._read(CA), self._read_key(CA)
        key = ec.generate_private_key(ec.SECP256R1())
        days = min(CERTIFICATE_DAYS, (ca.not_valid_after_utc - datetime.now(UTC)).days)
        if days < 1:
            raise CertificatesError("the CA's own certificate is over: make another with `certs init --force`")
        builder = _builder(subject, ca.subject, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        self._write(name, key, builder.sign(ca_key, hashes.SHA256()))

    def _read(self, name: str) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(self.path(name).read_bytes())
        except FileNotFoundError:
            hint = "; make one with `certs init`" if name == CA else ""
            raise CertificatesError(f"there is no certificate {self.path(name)}{hint}") from None
        except ValueError as error:
            raise CertificatesError(f"{self.path(name)} is damaged: {error}") from error

    def _read_key(self, name: str) -> ec.EllipticCurvePrivateKey:
        try:
            key = serialization.load_pem_private_key(self.key_path(name).read_bytes(), None)
        except (OSError, ValueError) as error:
            raise CertificatesError(f"{self.key_path(name)} cannot be read: {error}") from error
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        """The key first: a certificate without its key is of no use, and a server must not start with a mixed pair."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        form = serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        write_whole(self.key_path(name), secret)
        write_whole(self.path(name), certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError as error:
        raise CertificatesError(f"{text!r:.80} will not do as a name: {error}") from error


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise CertificatesError(f"{host!r:.80} is no host's name: {error}") from error


def _alternatives(certificate: x509.Certificate) -> list[x509.SubjectAlternativeName]:
    values = (extension.value for extension in certificate.extensions)
    return [value for value in values if isinstance(value, x509.SubjectAlternativeName)]


def _common_name(certificate: x509.Certificate) -> str:
    [name] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def _is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
