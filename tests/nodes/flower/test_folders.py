"""The files of a federation over Flower, and what is refused in them."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509

from privfed import Ball, ClientPolicy
from privfed.errors import ArgumentError
from privfed.nodes.deploy.certificates import certify, write_node_key
from privfed.nodes.deploy.folders import write_federation, write_node
from privfed.nodes.deploy.local import make_local
from privfed.nodes.flower.settings import FederationFile, NodeSettings
from tests.nodes.flower.federations import OPEN
from tests.raised import parameter_refused


def test_a_federations_file_reads_back(tmp_path: Path) -> None:
    file = write_federation(tmp_path / "fed", ['a "quoted" column', "b"], timeout=30.0)
    assert FederationFile.read(tmp_path / "fed") == file
    assert (file.columns, file.timeout) == (('a "quoted" column', "b"), 30.0)
    with pytest.raises(ArgumentError, match="is there already and is never replaced"):
        write_federation(tmp_path / "fed", ["a"])


def test_settings_that_are_there_keep_their_schema(tmp_path: Path) -> None:
    """An owner who joined again with another schema got an error, and a node that read its table by it."""
    write_node(tmp_path, "rows.csv", "rows", schema="first", approved={})
    with pytest.raises(ArgumentError, match="another party, which knows of no fit before"):
        write_node(tmp_path, "rows.csv", "rows", schema="second", approved={})
    assert (tmp_path / "schema.toml").read_text() == "first"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nodes = 3", "'nodes' is not known; known are columns, superlink"),
        ("columns = []", "columns must be a list of texts"),
        ('columns = ["a"]\ntimeout = "long"', "timeout must be a number, got 'long'"),
        ("columns = [", "is missing or no TOML"),
    ],
)
def test_a_wrong_federation_file_is_an_error(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(line)
    with pytest.raises(ArgumentError, match=message):
        FederationFile.read(tmp_path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "data must be a text, got None"),
        ('data = "r.csv"\ndata_set = "a"\nrows = 1', "'rows' is not known; known are data, data_set"),
        ('data = "r.csv"\ndata_set = "a"\ntells = 1', "tells must be true or false"),
        ('data = "r.csv"\ndata_set = "a"\ncolumns = "a"', "columns must be a list of texts"),
        ('data = "r.csv"\ndata_set = "a"\n[policy]\nmin_client = 2', "'min_client' is not known; known are"),
        ('data = "r.csv"\ndata_set = "a"\n[policy]\nmin_clients = 0', "min_clients"),
        ('data = "r.csv"\ndata_set = "a"\n[domain]\nkind = "cube"', "domain must be kind"),
    ],
)
def test_wrong_settings_of_a_node_are_an_error(lines: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(lines)
    with pytest.raises(ArgumentError, match=message):
        NodeSettings.read(tmp_path)


def test_a_node_insists_on_its_own_policy_and_domain(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(
        'data = "r.csv"\ndata_set = "ward 3"\ncolumns = ["b", "a"]\n'
        '[policy]\nmin_clients = 3\nalgorithms = ["WeightedKMeans"]\n'
        '[domain]\nkind = "ball"\ncenter = 0.0\nradius = 2.0\n'
    )
    (tmp_path / "r.csv").write_text("a,b\n1,2\n3,4\n")
    settings = NodeSettings.read(tmp_path)
    assert (settings.policy.min_clients, settings.policy.algorithms) == (3, {"WeightedKMeans"})
    assert isinstance(settings.domain, Ball) and not settings.tells
    assert settings.rows().features.tolist() == [[2.0, 1.0], [4.0, 3.0]]


def test_a_node_that_joins_takes_no_part_in_plain_sums_unless_its_owner_says_so(tmp_path: Path) -> None:
    names = ['a "b" \\n', "é'"]
    write_node(tmp_path, "C:\\rows.npz", 'ward "3"', names)
    settings = NodeSettings.read(tmp_path)
    assert (settings.data_set, settings.columns) == ('ward "3"', tuple(names))
    assert settings.data.name == "C:\\rows.npz"
    assert settings.policy.protocols == {"masked", "masked-verified", "group-masked", "ckks"}
    assert settings.policy.algorithms == frozenset() and settings.policy.group_size == 5
    (tmp_path / "open").mkdir()
    write_node(tmp_path / "open", "rows.npz", "rows", approved=OPEN)
    assert NodeSettings.read(tmp_path / "open").policy == ClientPolicy.closed(
        **{name: frozenset(one) if isinstance(one, list | tuple) else one for name, one in OPEN.items()}
    )


def test_what_is_approved_must_be_known(tmp_path: Path) -> None:
    with parameter_refused("group_size"):
        write_node(tmp_path, "rows.csv", "rows", approved={"group_size": 0})
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    write_node(tmp_path, "rows.csv", "rows", approved={"algorithms": ["WeightedKMean"]})
    with pytest.raises(ArgumentError, match="no algorithm is called 'WeightedKMean'"):
        NodeSettings.read(tmp_path).report()


@pytest.mark.parametrize("name", ["../../c0", "/c0", "..", "", "a/b", "a\\b", "a\0"])
def test_a_client_named_by_a_table_gets_no_folder_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="each client gets a folder of its name"):
        make_local(tmp_path / "a" / "fed", {"c1": np.zeros((3, 1)), name: np.zeros((3, 1))}, ["a"])
    assert not list(tmp_path.iterdir())


def test_certificates_hold_for_the_hosts_that_were_named(tmp_path: Path) -> None:
    certify(tmp_path, ["hub.example", "10.0.0.5"])
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hub.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "127.0.0.1"]
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    assert len(context.get_ca_certs()) == 1
    server.verify_directly_issued_by(x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes()))
    assert write_node_key(tmp_path).startswith(b"ecdsa-sha2-nistp384 ")
    for secret in ("ca.key", "server.key", "flower-key"):
        assert stat.S_IMODE((tmp_path / secret).stat().st_mode) == 0o600


def test_a_new_certificate_is_of_the_same_authority_for_the_same_hosts(tmp_path: Path) -> None:
    certify(tmp_path, ["hub.example"])
    authority, first = (tmp_path / "ca.crt").read_bytes(), (tmp_path / "server.crt").read_bytes()
    certify(tmp_path)
    assert (tmp_path / "ca.crt").read_bytes() == authority and (tmp_path / "server.crt").read_bytes() != first
    renewed = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    renewed.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    names = renewed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hub.example"]
    with pytest.raises(ArgumentError, match="--host"):
        certify(tmp_path / "other")


def test_a_policy_of_numpy_numbers_is_written_as_one_that_is_read(tmp_path: Path) -> None:
    approved = {"max_epsilon": np.float64(0.5), "max_fits": np.int64(3)}
    write_node(tmp_path, "rows.csv", "rows", approved=approved)
    policy = NodeSettings.read(tmp_path).policy
    assert (policy.max_epsilon, policy.max_fits) == (0.5, 3)
