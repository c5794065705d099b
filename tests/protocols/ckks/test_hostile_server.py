"""What a server that adds as it likes achieves: an error that ends the fit and erases the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import tenseal

from privfed.core.agreed.configuration import Configuration
from privfed.core.stored.encoding import decode, encode
from privfed.errors import IntegrityError, MessageError, ProtocolError, RefusedError
from privfed.protocols import CKKS
from privfed.protocols.ckks import cipher
from privfed.protocols.ckks.cipher import CipherSum, Ciphertexts, Key
from privfed.protocols.ckks.ckks import CHECK_SLOTS, CkksAdder, CkksScheme, Encrypted
from privfed.protocols.ckks.grid import SLOTS, Capacity, grid_of
from privfed.protocols.client_opened.client_opened import GroupSession
from privfed.protocols.client_opened.scheme import Adder
from tests.default_run import slow_but
from tests.protocols.ckks.padding import padded, unpadded
from tests.protocols.federations import Sums, vectors

N, SIZE = 5, SLOTS + 100
QUESTION = vectors(SIZE)
Uploads = dict[int, Ciphertexts]
Forge = Callable[[list[Uploads]], bytes]
"""Makes a total of the uploads of each sum so far, the last one's at the end."""


class HostileAdder(CkksAdder):
    def __init__(self, scheme: HostileScheme) -> None:
        super().__init__()
        self._scheme = scheme
        scheme.uploads.append({})

    def add(self, client: int, body: bytes, name: str) -> None:
        super().add(client, body, name)
        self._scheme.uploads[-1][client] = decode(body, Encrypted, sender=name, stage="collect").ciphertexts

    def result(self) -> tuple[tuple[int, ...], bytes]:
        contributors, honest = super().result()
        forge = self._scheme.forge
        return contributors, honest if forge is None else forge(self._scheme.uploads)


class HostileScheme(CkksScheme):
    """The scheme, with a coordinator that makes totals of its own once `forge` is set."""

    forge: Forge | None = None

    def __init__(self, terms: Any) -> None:
        super().__init__(terms)
        self.uploads: list[Uploads] = []

    def adder(self) -> Adder:
        return HostileAdder(self)


class Hostile(CKKS):
    """Encrypted sums whose coordinator is hostile."""

    def scheme(self, configuration: Configuration) -> HostileScheme:
        return HostileScheme(configuration.terms)


def hostile_run() -> tuple[Sums, HostileScheme]:
    """Return a federation after one honest sum."""
    run = Sums(Hostile(), N)
    run.ask(QUESTION)
    assert isinstance(run.session, GroupSession)
    scheme = run.session.relay._scheme
    assert isinstance(scheme, HostileScheme)
    return run, scheme


def added(*answers: Ciphertexts) -> bytes:
    total = CipherSum()
    for answer in answers:
        total.add(answer)
    return encode(Encrypted(total.total()))


def vectors_of(answer: Ciphertexts) -> list[Any]:
    """Return ciphertexts as a server, which has no key, holds them."""
    return [tenseal.ckks_vector_from(cipher._public_context(), unpadded(one)) for one in answer]


def total_of(parts: list[Any]) -> bytes:
    return encode(Encrypted(tuple(padded(part.serialize()) for part in parts)))


def subtracted(sums: list[Uploads]) -> bytes:
    answers = [vectors_of(one) for one in sums[-1].values()]
    return total_of([a + b + c + d - e for a, b, c, d, e in zip(*answers, strict=True)])


def shifted(offset: float, slot: int | None = None) -> Forge:
    def forge(sums: list[Uploads]) -> bytes:
        first, *rest = vectors_of(honest(sums))
        offsets = np.full(SLOTS, offset) if slot is None else offset * (np.arange(SLOTS) == slot)
        return total_of([first + offsets.tolist(), *rest])

    return forge


def honest(sums: list[Uploads]) -> Ciphertexts:
    total: Encrypted = decode(added(*sums[-1].values()), Encrypted, sender="", stage="")
    return total.ciphertexts


def changed(change: Callable[[bytes], bytes], place: int = 0) -> Forge:
    """Change one ciphertext of the honest total."""

    def forge(sums: list[Uploads]) -> bytes:
        total = list(honest(sums))
        total[place] = change(total[place])
        return encode(Encrypted(tuple(total)))

    return forge


def first_part(one: Uploads, other: Uploads) -> bytes:
    """Return the first ciphertext of one sum's total with the second of another's."""
    return encode(Encrypted((honest([one])[0], honest([other])[1])))


def mixed(choose: Callable[[Uploads], list[Ciphertexts]]) -> Forge:
    """Take the first ciphertext from a sum of other answers than the second."""
    return lambda sums: first_part(dict(enumerate(choose(sums[-1]))), sums[-1])


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def foreign(sums: list[Uploads]) -> bytes:
    return encode(Encrypted(Key.generate().encrypt(np.zeros(2 * SLOTS, dtype=np.int64), Capacity(N))))


def other_scale(sums: list[Uploads]) -> bytes:
    return encode(Encrypted(Key.generate().encrypt(np.zeros(2 * SLOTS, dtype=np.int64), Capacity(100 * N))))


FORGERIES: dict[str, tuple[Forge, str]] = {
    "one client's alone": (lambda sums: added(sums[-1][1]), "holds 1 answers, but needs"),
    "two clients' alone": (lambda sums: added(sums[-1][1], sums[-1][2]), "holds 2 answers, but needs"),
    "n times one client's": (lambda sums: added(*[sums[-1][1]] * N), "each client once at most|off the grid"),
    "one client's twice": (lambda sums: added(*sums[-1].values(), sums[-1][0]), "each client once at most"),
    "one client's taken away": (subtracted, "each client once at most"),
    "the total before": (lambda sums: added(*sums[0].values()), "check words"),
    "one old answer": (lambda sums: added(sums[0][0], *[sums[-1][i] for i in range(1, N)]), "check words"),
    "first part of one client": (mixed(lambda own: [own[1]] * N), "check words|off the grid"),
    "first part of fewer clients": (mixed(lambda own: [own[0], own[2], own[4]]), "check words"),
    "first part of the sum before": (lambda sums: first_part(sums[0], sums[-1]), "check words"),
    "parts exchanged": (lambda sums: encode(Encrypted(honest(sums)[::-1])), "check words|off the grid"),
    "an offset in every slot": (shifted(1.0), "check words"),
    "an offset in one slot": (shifted(2.0**20, 17), "check words"),
    "an offset of half a step": (shifted(0.5), "off the grid"),
    "foreign key": (foreign, "off the grid"),
    "another scale": (other_scale, "at the scale"),
    "truncated": (changed(lambda data: data[:-100]), "cannot be read"),
    "truncated inside": (changed(lambda data: padded(unpadded(data)[:-100])), "cannot be read"),
    "a flipped bit": (changed(flipped), "cannot be read|off the grid"),
    "a flipped bit at the end": (changed(flipped, 1), "cannot be read|off the grid"),
    "no ciphertext": (lambda sums: encode(Encrypted(())), "0 ciphertexts"),
    "one ciphertext less": (lambda sums: encode(Encrypted(honest(sums)[:1])), "1 ciphertexts"),
    "no message": (lambda sums: b"junk", "cannot be read"),
    "nothing": (lambda sums: b"", "cannot be read"),
}
BY_DEFAULT = (
    *("one client's alone", "one client's twice", "one client's taken away", "the total before"),
    *("parts exchanged", "an offset of half a step", "another scale", "truncated", "one ciphertext less"),
)
"""One forgery for each check that meets it."""


@pytest.mark.parametrize("name", slow_but(FORGERIES, *BY_DEFAULT))
@pytest.mark.few(3)
def test_a_forged_total_is_an_error_and_ends_the_fit(name: str) -> None:
    run, scheme = hostile_run()
    forge, reason = FORGERIES[name]
    scheme.forge = forge
    opened = len(run.transcript.totals())
    with pytest.raises(IntegrityError, match=reason):
        run.ask(QUESTION)
    assert len(run.transcript.totals()) == opened
    # The clients meet the same total with the next request: each refuses it, and holds no key any more.
    assert all(run.state(i).group.extra for i in range(N))
    with pytest.raises(ProtocolError, match="total"):
        run.ask(QUESTION)
    assert all(run.state(i).group is None for i in range(N))


def test_a_total_of_some_clients_is_theirs_and_the_who_slots_name_them() -> None:
    run, scheme = hostile_run()
    scheme.forge = lambda sums: added(*[sums[-1][i] for i in (0, 2, 4)])
    total = run.ask(QUESTION)
    assert total.contributors == (0, 2, 4)
    steps = grid_of(QUESTION.to_bytes(), N).step
    expected = sum(np.rint(run.values[i] / steps) for i in (0, 2, 4)) * steps
    np.testing.assert_array_equal(QUESTION.spec.flatten(total.statistics), expected)


def test_a_total_that_needs_no_answers_is_noticed() -> None:
    """What (0, delta) decrypts to: slots of the server's choice, with check words that it must guess."""
    run, scheme = hostile_run()
    grid = grid_of(QUESTION.to_bytes(), N)
    chosen = np.zeros(grid.size + CHECK_SLOTS, dtype=np.int64)
    chosen[grid.size - N : grid.size] = 1
    group = run.state(0).group
    for guess in (0, 1, 12345):
        chosen[grid.size :] = guess
        body = encode(Encrypted(Key.from_bytes(group.extra).encrypt(chosen, grid.capacity)))
        scheme.forge = lambda sums, body=body: body  # type: ignore[misc]
        with pytest.raises(IntegrityError, match="check words"):
            run.ask(QUESTION)
        run, scheme = hostile_run()
        group = run.state(0).group


def test_the_server_holds_no_key() -> None:
    run = Sums(CKKS(), N)
    run.ask(QUESTION)
    assert isinstance(run.session, GroupSession)
    secrets = {run.state(0).group.extra, run.state(0).group.secret}
    assert {run.state(i).group.extra for i in range(N)} < secrets and len(secrets) == 2
    relay = run.session.relay
    seen = [
        data
        for exchange, replies in run.engine.log
        for data in (*exchange.requests.values(), *(reply for _, reply in replies))
    ]
    for text in (*seen, *relay._boxes.values(), *(one.body for one in relay._totals)):
        assert not any(secret in text for secret in secrets)
    total: Encrypted = decode(relay._totals[-1].body, Encrypted, sender="", stage="")
    for vector in vectors_of(total.ciphertexts):
        with pytest.raises(ValueError, match="secret_key"):
            vector.decrypt()


def test_every_fit_has_a_key_of_its_own() -> None:
    keys = set()
    for _ in range(2):
        run = Sums(CKKS(), 3)
        run.ask(vectors())
        keys.add(run.state(0).group.extra)
    assert len(keys) == 2


def test_an_answer_of_another_form_leaves_its_sender_out() -> None:
    _, scheme = hostile_run()
    adder = scheme.adder()
    first = scheme.uploads[0]
    adder.add(0, encode(Encrypted(first[0])), "clinic-0")
    for odd in ((), first[1][:1], (first[1][0], padded(b"junk")), (*first[1], first[1][0])):
        with pytest.raises(MessageError, match="clinic-1"):
            adder.add(1, encode(Encrypted(odd)), "clinic-1")
    adder.add(2, encode(Encrypted(first[2])), "clinic-2")
    contributors, body = adder.result()
    assert contributors == (0, 2)
    assert body == added(first[0], first[2])


@pytest.mark.parametrize(
    "extra", [b"", padded(b"junk"), padded(cipher.parameters())], ids=["none", "junk", "public"]
)
def test_a_leader_that_sends_no_usable_key_is_refused_with_a_code(extra: bytes) -> None:
    run = Sums(CKKS(), 3)
    run.ask(vectors())
    with run.stores[1].transaction() as transaction:
        state = transaction.load()
        group = msgspec.structs.replace(state.group, extra=extra)
        transaction.save(msgspec.structs.replace(state, group=group))
    with pytest.raises(RefusedError) as error:
        run.ask(vectors())
    assert error.value.codes == {"clinic-1": "key"}
