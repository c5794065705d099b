"""TLS for a SuperLink, under an authority of one's own, and keys by which it knows nodes.

The secure sums do not rest on either: they keep outsiders off the network, and the SuperLink from being
somebody else. Keys are P-256 (TLS) and P-384 in OpenSSH's form (nodes), as Flower takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from privfed.core.stored.files import make_folder
from privfed.party.identity import write_new

CERTIFICATES = "certificates"
AUTHORITY, SERVER, SERVER_KEY = "ca.crt", "server.crt", "server.key"
"""In that folder: what nodes get, and what the SuperLink alone has."""

NODE_KEY, NODE_PUBLIC = "flower-key", "flower-key.pub"
"""In a node's folder: its key for the SuperLink, and what the SuperLink gets of it."""

_DAYS = 825


def write_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write an authority's certificate, and the SuperLink's with its key. The authority's key is not kept.

    Args:
        folder: to write to.
        hosts: names and addresses by which nodes reach the SuperLink.

    Raises:
        ArgumentError: there are some already.
    """
    make_folder(folder)
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _named("privfed federation")
    root = (
        _certificate(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .add_extension(_usage(authority=True), critical=True)
        .sign(authority, SHA256())
    )
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = (
        _certificate(_named(hosts[0]), issuer, own.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .add_extension(known, critical=False)
        .add_extension(_usage(authority=False), critical=True)
        .sign(authority, SHA256())
    )
    write_new(folder / SERVER_KEY, own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_new(folder / SERVER, server.public_bytes(Encoding.PEM))
    write_new(folder / AUTHORITY, root.public_bytes(Encoding.PEM))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
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
        .not_valid_after(begin + timedelta(days=_DAYS))
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


def write_node_key(folder: Path) -> None:
    """Write the key by which a SuperLink knows a node, and its public half, into the node's folder.

    Raises:
        ArgumentError: there is one already.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_new(folder / NODE_PUBLIC, public + b"\n")
    write_new(folder / NODE_KEY, secret)
