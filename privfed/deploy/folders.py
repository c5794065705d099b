"""The folders of a federation over Flower, the coordinator's and a node's, with their certificates and keys.

The secure sums rest neither on TLS nor on the keys by which a SuperLink knows nodes: these keep outsiders off
the network, and the SuperLink from being somebody else. Keys are P-256 (TLS) and P-384 in OpenSSH's form
(nodes), as Flower takes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from cryptography.x509.oid import NameOID

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.names import ALGORITHMS
from privfed.core.stored.encoding import digest
from privfed.core.stored.files import make_folder, replaced
from privfed.core.values.domain import FloatArray
from privfed.data.table import LabelArray, Missing
from privfed.engines.flower.settings import APP, PARTIES_FILE, SETTINGS, FederationFile, quoted
from privfed.engines.flower.settings import FILE as FEDERATION
from privfed.errors import ArgumentError
from privfed.party.identity import (
    PARTIES,
    SIGNED_KEY,
    OwnIdentity,
    Parties,
    read_signed_key,
    write_identity,
    write_new,
)
from privfed.party.journal import Journal
from privfed.version import __version__

NODES, COORDINATOR = "nodes", "coordinator"
"""In the folder of a federation whose parties are all on this machine."""

_APP = """\
# A thin app: all code is in the installed privfed, which every node has.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "privfed-app"
version = "{version}"
description = "Federated clustering over secure sums"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "privfed"

[tool.flwr.app.components]
serverapp = "privfed.engines.flower.apps:server"
clientapp = "privfed.engines.flower.apps:client"
"""

_NODE = """\
# What this node's owner decides, and nobody else. Its identity and journal lie beside this file.
data = {data}  # table with this node's rows
data_set = {data_set}  # your own name of these rows, for the journal
{columns}{rows}{modules}{tells}
# What this node answers, whatever the others agree on. What is not named here is refused (docs/party.md):
# without algorithms all of them, over plain sums all, models that are trained without differential privacy.
[policy]
{policy}
"""


def write_app(folder: Path, columns: Sequence[str], **settings: Any) -> FederationFile:
    """Write a federation's file and its thin Flower app into a folder.

    Args:
        folder: to make.
        columns: names of the columns, the same for all.
        **settings: other fields of `FederationFile`, with paths relative to the folder.

    Raises:
        ArgumentError: the folder holds one already.
    """
    usual: dict[str, Any] = {"coordinator": Path(COORDINATOR), "parties": Path(PARTIES_FILE)}
    file = FederationFile(folder=folder, columns=tuple(columns), **{**usual, **settings})
    make_folder(folder)
    make_folder(folder / APP)
    write_new(folder / FEDERATION, file.text().encode())
    write_new(folder / APP / "pyproject.toml", _APP.format(version=__version__).encode())
    return FederationFile.read(folder)


def new_party(folder: Path, name: str) -> OwnIdentity:
    """Make a party's identity with its journal, as `privfed keys new` does.

    Raises:
        ArgumentError: the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ArgumentError(f"{folder} is not empty; name a new folder, one for each identity.")
    own = OwnIdentity.generate(name)
    Journal.create(folder, own)
    # Last: a folder with an identity has its journal.
    write_identity(folder, own)
    return own


def write_node(
    folder: Path,
    data: str,
    data_set: str,
    columns: Sequence[str] | None = None,
    *,
    labels: str | None = None,
    id: str | None = None,
    classes: int | None = None,
    times: Sequence[str] = (),
    missing: Missing | None = None,
    modules: Sequence[str] = (),
    tells: bool = False,
    approved: Mapping[str, Any] | None = None,
) -> None:
    """Write a node's settings beside its identity.

    Args:
        folder: of its identity.
        data: path of its table.
        data_set: its own name of the rows.
        columns: feature columns in the agreed order; None for all of the table.
        labels: column of classes, whole numbers that mean the same at all clients; None for none.
        id: column with whose each row is; None where each stands for itself.
        classes: how many classes there are; None for any number.
        times: the two columns that say in which rounds a row is there; empty where none do.
        missing: "leave-out", or the public number in place of a missing value; None to declare nothing.
        modules: modules of this machine that register what it runs besides privfed's own.
        tells: whether it tells totals that only clients open to the process that drives the run.
        approved: what its owner approves, as parameters of `ClientPolicy.closed`; None for nothing.

    Raises:
        ArgumentError: the folder has settings already, or what is approved is no policy.
    """
    named = "" if columns is None else f"columns = [{', '.join(map(quoted, columns))}]\n"
    tell = f"tells = {str(tells).lower()}  # tell totals that only clients open to the coordinator's process"
    own = f"modules = [{', '.join(map(quoted, modules))}]  # register what runs besides privfed's own\n"
    rows = "" if labels is None else f"labels = {quoted(labels)}  # each row's class, from 0\n"
    rows += "" if id is None else f"id = {quoted(id)}  # whose each row is\n"
    rows += "" if classes is None else f"classes = {classes}  # rows with other labels have none\n"
    rows += f"times = [{', '.join(map(quoted, times))}]  # first round, and first without\n" if times else ""
    rule = quoted(missing) if isinstance(missing, str) else missing
    rows += "" if missing is None else f"missing = {rule}  # what becomes of rows without a number\n"
    lines = {"columns": named, "rows": rows, "modules": own if modules else "", "tells": tell}
    ClientPolicy.closed(**approved or {})
    policy = "\n".join(f"{name} = {_written(value)}" for name, value in (approved or {}).items())
    text = _NODE.format(data=quoted(data), data_set=quoted(data_set), policy=policy, **lines)
    write_new(folder / SETTINGS, text.encode())


def _written(value: object) -> str:
    """Return a value of a policy as TOML."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Collection):
        return f"[{', '.join(map(_written, sorted(value)))}]"
    return str(value).lower()


def make_local(
    folder: Path,
    rows: Mapping[str, FloatArray],
    columns: Sequence[str],
    labels: Mapping[str, LabelArray] | None = None,
    classes: int | None = None,
    approved: Mapping[str, Any] | None = None,
    **settings: Any,
) -> FederationFile:
    """Make a federation whose parties are all on this machine: for simulations, trials and tests.

    Args:
        folder: to make.
        rows: name of each client -> its rows.
        columns: names of the columns.
        labels: name of each client -> its rows' classes, integers from 0; None for none.
        classes: how many classes there are; None for as many as the labels of all clients tell apart.
        approved: what each node's owner approves; None for every algorithm that is registered here.
        **settings: fields of `FederationFile`.

    Raises:
        ArgumentError: a client's name, which may come from a table, cannot be that of a folder.
    """
    for name in rows:
        if name in ("", ".", "..") or any(one in name for one in "/\\\0"):
            raise ArgumentError(
                f"each client gets a folder of its name, which {name!r} cannot be; rename it."
            )
    write_certificates(folder / CERTIFICATES, ["127.0.0.1", "localhost"])
    root = Path(CERTIFICATES) / AUTHORITY
    file = write_app(folder, columns, root_certificates=root, **settings)
    new_party(folder / COORDINATOR, "coordinator")
    for name, table in rows.items():
        own = folder / NODES / name
        new_party(own, name)
        write_node_key(own)
        arrays: dict[str, Any] = {"X": table} if labels is None else {"X": table, "y": labels[name]}
        np.savez(own / "rows.npz", **arrays)
        labelled: dict[str, Any] = (
            {} if labels is None else {"labels": "y", "classes": classes or _classes(labels)}
        )
        allowed = {"algorithms": ALGORITHMS.names()} if approved is None else approved
        write_node(own, "rows.npz", "rows", **labelled, tells=True, approved=allowed)
    signed_keys = [read_signed_key(folder / NODES / name / SIGNED_KEY) for name in rows]
    parties = PARTIES.to_bytes(Parties.of(read_signed_key(folder / COORDINATOR / SIGNED_KEY), signed_keys))
    write_new(folder / PARTIES_FILE, parties)
    for name in rows:
        write_new(folder / NODES / name / PARTIES_FILE, parties)
    return file


def _classes(labels: Mapping[str, LabelArray]) -> int:
    return max(2, *(int(one.max(initial=0)) + 1 for one in labels.values()))


def nodes_of(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the nodes that are on this machine, by name."""
    return tuple(sorted(one for one in (folder / NODES).glob("*") if one.is_dir()))


CERTIFICATES = "certificates"
AUTHORITY, SERVER, SERVER_KEY = "ca.crt", "server.crt", "server.key"
"""In that folder: what nodes get, and what the SuperLink alone has."""

NODE_KEY, NODE_PUBLIC = "flower-key", "flower-key.pub"
"""In a node's folder: its key for the SuperLink, and what the SuperLink gets of it."""

ADMITTED = "admitted"
"""In the coordinator's folder: the keys of the nodes that may connect, one a file."""

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


def admit(folder: Path, keys: Sequence[Path]) -> None:
    """Keep the public keys of nodes that may connect; a running SuperLink reads them within seconds.

    Args:
        folder: the coordinator's.
        keys: files that `write_node_key` wrote at the nodes.

    Raises:
        ArgumentError: one is no such key.
    """
    make_folder(folder / ADMITTED)
    for path in keys:
        try:
            data = path.read_bytes()
            if not isinstance(load_ssh_public_key(data), ec.EllipticCurvePublicKey):
                raise ValueError
        except (OSError, ValueError, UnsupportedAlgorithm):
            raise ArgumentError(f"{path} is no {NODE_PUBLIC} of privfed flower join.") from None
        with replaced(folder / ADMITTED / f"{digest('node key', data).hex()[:32]}.pub") as place:
            place.write_bytes(data)


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
