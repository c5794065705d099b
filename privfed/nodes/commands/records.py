"""A party's signed record: what its journal says that it gave, to whom, under which guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from privfed.cli.run_folder import pretty
from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.policy import Usage
from privfed.core.stored.files import write_new
from privfed.errors import ArgumentError
from privfed.nodes.deploy.testimonies import TESTIMONIES, testify
from privfed.nodes.flower.node import agreements
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.protocols.crypto.keys import CryptographyError, bound, verify


def usages(kept: Journal) -> dict[str, Usage]:
    """Return what each data set has given, by its name."""
    return {name: kept.usage(name) for name in sorted({one.data_set for one in kept.fits})}


def record(folder: Path, groups: bool) -> bytes:
    """Return a party's record, signed with its key: no secret key, state, total or row is in it.

    Args:
        folder: the party's.
        groups: whether the groups of rows are in it, as `privfed flower join --carry` needs them.
    """
    own = read_identity(folder)
    kept, agreed = Journal(folder, own), agreements(folder)
    found = {
        "name": own.name,
        "key": own.key.public.hex(),
        "counter": kept.head.counter,
        "head": kept.head.head.hex(),
        "data_sets": {
            name: {"given": given, **kept.data_set(name).kept(groups)} for name, given in usages(kept).items()
        },
        "fits": [msgspec.to_builtins(one) | _about(agreed.get(one.agreement)) for one in kept.fits],
        "entries": kept.entries(),
    }
    plain = msgspec.json.decode(msgspec.json.encode(found))
    return pretty({"record": plain, "signature": own.key.sign(_signed(plain)).hex()})


def write_testimony(folder: Path, name: str, out: Path) -> None:
    """Do the work of `privfed journal testify`."""
    found = testify(folder, name)
    found.check()
    write_new(out, TESTIMONIES.to_bytes(found))
    click.echo(f"wrote {out}: {len(found.fits)} fits with {name}; your move: send it to {name}'s owner.")


def read_record(path: Path) -> dict[str, Any]:
    """Return a record that its own key signed.

    Raises:
        ArgumentError: it is missing, or was changed.
    """
    try:
        found = msgspec.json.decode(path.read_bytes())
        plain: dict[str, Any] = found["record"]
        verify(bytes.fromhex(plain["key"]), bytes.fromhex(found["signature"]), _signed(plain))
    except (OSError, msgspec.MsgspecError, CryptographyError, KeyError, TypeError, ValueError):
        raise ArgumentError(
            f"{path} is no record of privfed journal export, or was changed. Of testimonies name the "
            "coordinator's and those of two clients at least, each with --carry."
        ) from None
    return plain


def _signed(plain: dict[str, Any]) -> bytes:
    return bound("journal record", msgspec.json.encode(plain, order="sorted"))


def _about(agreement: Agreement | None) -> dict[str, Any]:
    if agreement is None:  # Of a fit that was not joined over Flower.
        return {}
    agreed, keys = agreement.configuration, agreement.registry
    return {
        "coordinator": keys.server.hex(),
        "participants": agreed.clients,
        "columns": agreed.columns,
        "n_clusters": agreed.n_clusters,
    }
