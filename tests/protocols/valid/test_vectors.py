"""The vectors of docs/protocols/valid-vectors.json, and a verifier that was written apart from the product's.

`python -m tests.protocols.valid.test_vectors` draws new ones and writes the file.
"""

from __future__ import annotations

import json
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.protocols.valid import proof
from privfed.protocols.valid.proof import functional, prove, sigma_hash_of, totals_hold, verify
from privfed.protocols.valid.statement import Statement
from tests.protocols.valid.reference import P, Stated, Table, holds
from tests.protocols.valid.stated import Exchange, clustered, clusters, drawn, forms, plain

pytest.importorskip("numba")

FILE = Path(__file__).parents[3] / "docs" / "protocols" / "valid-vectors.json"


def stated(given: dict[str, Any]) -> Statement:
    rows = [({int(i): a for i, a in terms.items()}, low, high) for terms, low, high in given["forms"]]
    low, high = (np.array(given[name], dtype=np.int64) for name in ("low", "high"))
    return Statement(given["clients"], low, high, forms(*rows))


def followed(given: dict[str, Any], patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what follows from given secrets: in tests alone a key is not drawn."""
    key, sigma, context = (bytes.fromhex(given[name]) for name in ("key", "sigma", "context"))
    patch.setattr(proof, "new_secret", lambda: key)
    statement, digits = stated(given), np.array(given["digits"], dtype=np.int64)
    committed = proof.commit(statement, digits, context, sigma_hash_of(sigma))
    made = prove(statement, digits, key, context, sigma)
    return {
        "statement": statement.digest.hex(),
        "implied": np.flatnonzero(statement.implied).tolist(),
        "sigma hash": sigma_hash_of(sigma).hex(),
        "functional": [[str(one) for one in row[:3]] for row in functional(sigma, statement).tolist()],
        "pads": [str(one) for one in committed.pads.tolist()],
        "root": committed.root.hex(),
        "v": [str(one) for one in verify(statement, committed.root, context, sigma, made).tolist()],
        "bytes": len(made),
        "proof begins": made[:48].hex(),
        "SHA-256 of the proof": sha256(made).hexdigest(),
    }


def drawn_anew() -> list[dict[str, Any]]:
    """Return three statements with answers, and new secrets."""
    rng = np.random.default_rng()
    uneven = Statement(9, np.array([-5, 3, 0]), np.array([65, 3, 2**40]), forms(({0: 2, 2: 1}, -4, 2**39)))
    box = clusters(3, 2, 70, 1 << 20, clients=12)
    wide = Statement(3, np.full(340, -(2**7)), np.full(340, 2**7 - 1))
    answers = np.array([65, 3, 2**38]), clustered(box, 3, 2, rng), drawn(wide, rng)
    return [
        {
            "clients": one.clients, "low": one.low.tolist(), "high": one.high.tolist(),
            "forms": rows_of(one), "digits": digits.tolist(), "context": secrets.token_hex(20),
            "key": secrets.token_hex(32), "sigma": secrets.token_hex(32),
        }
        for one, digits in zip((uneven, box, wide), answers, strict=True)
    ]  # fmt: skip


def rows_of(statement: Statement) -> list[tuple[dict[int, int], int, int]]:
    """Return the forms of a statement, with their ends as it drew them in."""
    made = statement.forms
    rows: list[dict[int, int]] = [{} for _ in made.low]
    terms = zip(made.form.tolist(), made.digit.tolist(), made.coefficient.tolist(), strict=True)
    for form, digit, factor in terms:
        rows[form][digit] = factor
    return list(zip(rows, made.low.tolist(), made.high.tolist(), strict=True))


VECTORS = json.loads(FILE.read_text()) if FILE.exists() else []


def plainly(given: dict[str, Any]) -> Stated:
    rows = [({int(i): a for i, a in terms.items()}, low, high) for terms, low, high in given["forms"]]
    return Stated(given["clients"], given["low"], given["high"], rows)


@pytest.mark.parametrize("number", range(3))
def test_what_follows_from_the_given_is_what_the_file_says(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = VECTORS[number]
    assert followed(one["given"], monkeypatch) == one["then"]


@pytest.mark.parametrize("number", range(3))
def test_a_verifier_from_the_page_alone_agrees(number: int) -> None:
    given, then = VECTORS[number]["given"], VECTORS[number]["then"]
    context, sigma, root = (bytes.fromhex(one) for one in (given["context"], given["sigma"], then["root"]))
    statement, own = stated(given), plainly(given)
    made = prove(
        statement, np.array(given["digits"], dtype=np.int64), bytes.fromhex(given["key"]), context, sigma
    )
    assert own.digest() == statement.digest
    assert own.implied() == then["implied"]
    assert len(Table(own).rows) == proof._arranged(statement, proof.COLUMNS, proof.WIDTHS).n_rows
    assert [str(one) for one in holds(own, root, context, sigma, made)] == then["v"]
    # v is the functional of the digits and the pads, in whole numbers.
    pads = [
        sum(int(word) << 64 * i for i, word in enumerate(then["pads"][at : at + 3])) for at in range(0, 24, 3)
    ]
    for row, pad, v in zip(functional(sigma, statement).tolist(), pads, then["v"], strict=True):
        value = sum(factor * digit for factor, digit in zip(row, given["digits"], strict=True))
        assert (value + pad) % P == int(v)
    altered = bytearray(made)
    altered[100] ^= 1
    with pytest.raises((AssertionError, IndexError)):
        holds(own, root, context, sigma, bytes(altered))


def test_of_a_thousand_clients_more_functionals_are_proven() -> None:
    statement, given = plain(3, 12, 1000), np.array([-2048, 0, 2047])
    exchange = Exchange(statement, given)
    own = Stated(1000, statement.low.tolist(), statement.high.tolist(), [])
    made = exchange.proof()
    v = holds(own, exchange.committed.root, exchange.context, exchange.sigma, made)
    assert v == exchange.checked(made).tolist() and len(v) == 18
    assert totals_hold(statement, exchange.sigma, given, exchange.committed.pads, np.array([v], np.uint64))


def main() -> None:
    """Draw new vectors and write the file."""
    given = drawn_anew()
    with pytest.MonkeyPatch.context() as patch:
        vectors = [{"given": one, "then": followed(one, patch)} for one in given]
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, vectors)) + "\n]\n")


if __name__ == "__main__":
    main()
