"""The authority of a federation, and the SuperLink's certificate of it.

The secure sums rest neither on TLS nor on the keys by which a SuperLink knows nodes: these keep outsiders off
the network, and the SuperLink from being somebody else. Keys are P-256 (TLS) and P-384 in OpenSSH's form
(nodes), as Flower takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from privfed.core.stored.files import make_folder, rewrite, write_new
from privfed.errors import ArgumentError

CERTIFICATES = "certificates"
AUTHORITY, AUTHORITY_KEY, SERVER, SERVER_KEY = "ca.crt", "ca.key", "server.crt", "server.key"
"""In that folder: what kits have, and three that stay there."""

NODE_KEY = "flower-key"
"""In a node's folder: its key for the SuperLink; its card has the public half."""

_DAYS, _AUTHORITY_DAYS = 825, 3650


def certify(folder: Path, hosts: Sequence[str] = ()) -> None:
    """Write a new certificate of the SuperLink, with its key, and an authority if none lasts.

    The authority and its key stay as long as they outlive the certificate, so that nodes notice nothing.

    Args:
        folder: to write to.
        hosts: names and addresses by which nodes reach the SuperLink; empty for the last ones.
    """
    make_folder(folder)
    if not (folder / SERVER).exists() and not hosts:
        raise ArgumentError("a first certificate needs a name or address of this machine: --host.")
    names = (
        # This machine's own processes reach it, too.
        [_host(one) for one in dict.fromkeys((*hosts, "127.0.0.1"))]
        if hosts
        else [*_read(folder / SERVER).extensions.get_extension_for_class(x509.SubjectAlternativeName).value]
    )
    own = ec.generate_private_key(ec.SECP256R1())
    root, authority = _authority(folder)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = (
        _certificate(_named("privfed SuperLink"), root.subject, own.public_key(), _DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(known, critical=False)
        .add_extension(_usage(authority=False), critical=True)
        .sign(authority, SHA256())
    )
    for name, content in ((SERVER_KEY, _secret(own)), (SERVER, server.public_bytes(Encoding.PEM))):
        rewrite(folder / name, content)


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority that is there, or a new one where that does not outlive a new certificate."""
    if (folder / AUTHORITY).exists():
        found, key = (
            _read(folder / AUTHORITY),
            load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None),
        )
        lasts = found.not_valid_after_utc > datetime.now(UTC) + timedelta(days=_DAYS)
        if lasts and isinstance(key, ec.EllipticCurvePrivateKey):
            return found, key
    made, issuer = ec.generate_private_key(ec.SECP256R1()), _named("privfed federation")
    root = (
        _certificate(issuer, issuer, made.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(made.public_key()), critical=False)
        .add_extension(_usage(authority=True), critical=True)
        .sign(made, SHA256())
    )
    for name, content in ((AUTHORITY_KEY, _secret(made)), (AUTHORITY, root.public_bytes(Encoding.PEM))):
        rewrite(folder / name, content)
    return root, made


def ends(folder: Path) -> datetime:
    """Return when the SuperLink's certificate ends, in UTC."""
    return _read(folder / SERVER).not_valid_after_utc


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    # An hour back, since clocks differ.
    begin = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    no = dict.fromkeys(
        (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("encipher_only", "decipher_only"),
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **no)


def write_node_key(folder: Path) -> bytes:
    """Write the key by which a SuperLink knows a node into its folder; return the public half, for its card.

    Raises:
        ArgumentError: there is one already.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    write_new(folder / NODE_KEY, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
