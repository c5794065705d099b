"""The rows of each user that a client answers from, at unit "user": at most so many, by a keyed choice.

Which rows of a user count follows from that user's rows and the client's own key alone: a keyed hash of id
and row puts them in order, and the first ones are kept. So a user's presence changes no choice among the rows
of others, and nobody without the key can write rows that are sure to be kept. Rows without an id belong to
no user, and are left out.

Reveals: nothing; it happens before any question is answered.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.core.values.guarantee import Unit
from privfed.errors import ArgumentError, DataError
from privfed.party.groups import as_ids

KEY_BYTES = 32
"""Length of the key by which a client chooses."""


def of_users(data: ClientData, terms: PrivacyTerms, key: bytes | None) -> ClientData:
    """Return the rows that a client answers from: at unit "user" at most `rows_per_user` of each.

    Args:
        data: its rows, and whose they are.
        terms: what was agreed.
        key: the client's own, of `KEY_BYTES` bytes.

    Raises:
        ArgumentError: nothing says whose the rows are, or there is no key.
    """
    if terms.unit != Unit.USER:
        return data
    kept = chosen(data, terms.rows_per_user, key)
    found = data.only(kept)
    nameless = sum(one == "" for one in as_ids(data.users or ()))
    if nameless:
        found.errors.append(DataError(f"{nameless} rows have no id and are left out. This stays here."))
    return found


def chosen(data: ClientData, most: int, key: bytes | None) -> npt.NDArray[np.bool_]:
    """Return which rows are kept, at most `most` of each user, bool of shape (n_rows,).

    Raises:
        ArgumentError: nothing says whose the rows are, or there is no key.
    """
    if data.users is None:
        raise ArgumentError(
            'unit="user" needs whose each row is: load the tables with load_clients(..., id=...), on the '
            'command line with --id; or claim unit="record".'
        )
    if key is None or len(key) != KEY_BYTES:
        raise ArgumentError(
            f'unit="user" needs a key of {KEY_BYTES} bytes that only this client knows; join with '
            "privfed.party.joining.Party, which has one."
        )
    ids = as_ids(data.users)
    names, owner, sizes = np.unique(np.array(ids, dtype=object), return_inverse=True, return_counts=True)
    kept = np.isin(owner, np.flatnonzero((names != "") & (sizes <= most)))
    many = np.flatnonzero(np.isin(owner, np.flatnonzero((names != "") & (sizes > most))))
    if not len(many):
        return kept
    # Equal rows of a user have equal hashes, and the order among them is the user's own.
    hashes = np.array([_hash(key, ids[i], _content(data, i)) for i in many.tolist()], dtype=np.uint64)
    order = np.lexsort((hashes, owner[many]))
    owners = owner[many][order]
    firsts = np.flatnonzero(np.diff(owners, prepend=-1))
    rank = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    kept[many[order[rank < most]]] = True
    return kept


def check_named(data: ClientData, name: str) -> None:
    """Check that each row of a simulated client has an id.

    Raises:
        DataError: one has none; the message names the client.
    """
    if "" in as_ids(data.users or ()):
        raise DataError(
            f'client {name}: rows without an id belong to no user, and unit="user" protects users; name '
            "their users, or drop them."
        )


def _content(data: ClientData, row: int) -> bytes:
    label = b"" if data.labels is None else data.labels[row].tobytes()
    content: bytes = (data.features[row] + 0.0).tobytes() + label
    return content


def _hash(key: bytes, user: str, content: bytes) -> int:
    name = user.encode("utf-8", "surrogatepass")
    found = hashlib.blake2b(digest_size=8, key=key, person=b"privfed users")
    found.update(len(name).to_bytes(8, "big") + name + content)
    return int.from_bytes(found.digest(), "big")
