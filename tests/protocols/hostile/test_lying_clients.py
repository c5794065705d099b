"""A client that keeps to the form of messages and lies in them: it may stop a sum, never falsify it unseen.

What it answers is its own affair: any number in range is a valid answer, and stays one here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.roles.engine import Exchange, Replies
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import IntegrityError, ProtocolError
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import ENCAPSULATION_BYTES
from privfed.protocols.masked import blocks
from privfed.protocols.masked.blocks import BlockMaker
from privfed.protocols.masked.client_state import box_bytes
from privfed.protocols.masked.masked_messages import Prepared, Unmasking, Upload
from privfed.protocols.masked.session import DEALT, FORGED, LIED, REJECTED, UNDECIDED
from privfed.protocols.setup.advertising import hash_of, signed
from privfed.protocols.setup.parties import NO_KEY
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Advertisement, AdvertiseRequest
from tests.protocols.federations import Sums, names
from tests.protocols.tapes import (
    QUESTION,
    Forger,
    N,
    Nonsense,
    resealed,
    resigned,
)
from tests.some import some


def replace(**fields: Any) -> Callable[[Any], Any]:
    """Return a change of fields; a function of the old value, or the new value."""

    def change(message: Any) -> Any:
        return msgspec.structs.replace(
            message,
            **{name: one(getattr(message, name)) if callable(one) else one for name, one in fields.items()},
        )

    return change


def prepared_as(**fields: Any) -> Callable[[Any], Any]:
    """Return a change of a message's preparations."""
    return replace(preparations=lambda sent: tuple(replace(**fields)(one) for one in sent))


def prepared_with(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a change of a message's preparations, each by a function."""
    return replace(preparations=lambda sent: tuple(change(one) for one in sent))


LIES = [
    pytest.param("collect", replace(words=lambda w: w[:-8]), id="upload-shorter"),
    pytest.param("collect", replace(words=lambda w: bytes(w) + bytes(8)), id="upload-longer"),
    pytest.param("collect", replace(words=b""), id="upload-empty"),
    pytest.param("collect", replace(words=lambda w: w[:-3]), id="upload-of-part-of-a-word"),
    pytest.param("collect", replace(receipts=lambda r: r[:-16]), id="receipts-fewer"),
    pytest.param("collect", replace(receipts=b""), id="receipts-none"),
    pytest.param("collect", prepared_as(block=77), id="preparation-of-no-block"),
    pytest.param("collect", prepared_as(cohort=77), id="preparation-of-another-cohort"),
    pytest.param("collect", prepared_as(boxes=lambda b: b[:-1]), id="boxes-shorter"),
    pytest.param("collect", prepared_as(recovery=lambda r: r[:-32]), id="recovery-shorter"),
    pytest.param("collect", prepared_as(commitments=b""), id="commitments-none"),
    pytest.param("collect", lambda message: Prepared(()), id="another-message"),
    pytest.param("collect", lambda message: Unmasking(b"", b"", ()), id="a-later-message"),
    pytest.param("unmask", replace(answer_shares=lambda s: s[:-32]), id="shares-fewer"),
    pytest.param("unmask", replace(answer_shares=lambda s: s[:-1]), id="shares-of-part-of-a-key"),
    pytest.param("unmask", replace(answer_shares=b""), id="shares-none"),
    pytest.param("unmask", lambda message: Upload(b"", b"", bytes(64), ()), id="an-earlier-message"),
]


@pytest.mark.parametrize(("stage", "lie"), LIES)
@pytest.mark.few(5)
def test_a_reply_that_is_well_sealed_and_wrong_is_thrown_away(
    forged: Callable[..., Forger], stage: str, lie: Callable[[Any], Any]
) -> None:
    run = Sums(Masked(losses=9), N)
    # The last sum of a block brings the preparations of the next one.
    for _ in range(BLOCK - 1):
        run.ask(QUESTION)

    def forge(exchange: Exchange, client: int, reply: bytes) -> list[bytes]:
        return [resealed(run, 3, reply, lie)] if (exchange.stage, client) == (stage, 3) else []

    forger = forged(run, forge, instead=True)
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: stage} and set(total.rejected) == {3}
    forger.assert_all_thrown_away()
    forger.forge = lambda *_: []
    assert run.ask(QUESTION).contributors == tuple(range(N))


@pytest.mark.parametrize("signs", [True, False])
def test_a_client_whose_boxes_do_not_open_is_left_out_of_the_sum(signs: bool) -> None:
    run = Sums(Masked(losses=9), N)
    stages: list[str] = []

    def change(exchange: Exchange, replies: Replies) -> Replies:
        stages.append(exchange.stage)

        def lie(message: Any) -> Any:
            changed = prepared_as(boxes=lambda boxes: b"\1" * len(boxes))(message)
            return prepared_with(lambda one: resigned(run, 3, one))(changed) if signs else changed

        # In the first collect another client's bytes are damaged: it is named though it is asked again.
        damaged = 1 if stages.count("collect") == 1 and exchange.stage == "collect" else None
        return [
            (
                i,
                b"?"
                if i == damaged
                else resealed(run, i, one, lie)
                if i == 3 and exchange.stage == "prepare"
                else one,
            )
            for i, one in replies
        ]

    run.engine.change_replies = change
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == (0, 1, 2, 4)
    assert total.dropped == {3: "prepare"} and set(total.rejected) == {1, 3}
    # The others show that its box does not open with the key that it signed for, and that decides.
    assert total.rejected[3] == LIED[0]
    assert stages == ["advertise", "agree", "prepare", "collect", "prepare", "collect", "unmask"]
    for _ in range(2):
        assert run.ask(QUESTION).contributors == (0, 1, 2, 4)


def liar(run: Sums, who: int, *lies: tuple[str, Callable[[Any], Any]]) -> None:
    """Have a client lie in the replies of some stages, from now on."""
    told = dict(lies)
    run.engine.change_replies = lambda exchange, replies: [
        (i, resealed(run, i, one, told[exchange.stage]) if i == who and exchange.stage in told else one)
        for i, one in replies
    ]


@pytest.mark.parametrize("n", [4, 5, 6, 8, 12])
@pytest.mark.parametrize("last", [False, True])
def test_whoever_complains_of_a_good_box_takes_one_other_with_it_at_most(n: int, last: bool) -> None:
    run, who = Sums(Masked(losses=9), n), n - 1 if last else 0
    run.ask(QUESTION)
    for victim in some(range(1, n - 1)):
        liar(run, who, ("collect", lambda message: Refusal(f"box:{victim}")))  # noqa: B023
        if n < 6:
            with pytest.raises(ProtocolError) as caught:
                run.ask(QUESTION)
            # The end says who was left out, and why.
            assert sum(UNDECIDED in note for note in caught.value.__notes__) == 2
            return
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        out = set(range(n)) - set(total.contributors)
        assert out == {who, 1} == set(total.rejected) and set(total.rejected.values()) == {UNDECIDED}


@pytest.mark.parametrize("n", [4, 6, 8])
def test_whoever_rejects_receipts_that_are_right_costs_itself(n: int) -> None:
    run = Sums(Masked(losses=9), n)
    run.ask(QUESTION)
    liar(run, 2, ("unmask", lambda message: Refusal("receipts")))
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == tuple(range(n)) and total.dropped == {2: "unmask"}
    total = run.ask(QUESTION)
    assert set(range(n)) - set(total.contributors) == {2} and total.rejected == {2: REJECTED}


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("n", [4, 6, 8])
def test_a_client_that_spoils_its_receipts_stops_nothing_where_it_signs_and_is_out_where_it_does_not(
    n: int, signs: bool
) -> None:
    run = Sums(Masked(losses=9), n)
    run.ask(QUESTION)
    lie = {"receipts": lambda receipts: bytes(len(receipts))}
    liar(run, 2, ("collect", replace(**lie if signs else lie | {"signature": bytes(64)})))
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    if signs:
        assert total.contributors == tuple(range(n)) and not total.rejected and not total.dropped
    else:
        assert set(range(n)) - set(total.contributors) == {2} and total.rejected == {2: FORGED}


def boxless(run: Sums, victims: Callable[[int, int], set[int]]) -> None:
    """Have clients make no boxes for those that `victims` names, from who makes them and their block."""

    def change(exchange: Exchange, replies: Replies) -> Replies:
        return [
            (i, resealed(run, i, one, lie(i)) if exchange.stage in ("prepare", "collect", "unmask") else one)
            for i, one in replies
        ]

    def lie(who: int) -> Callable[[Any], Any]:
        others, size = [i for i in range(run.n) if i != who], box_bytes(BLOCK)

        def spoiled(one: Any) -> Any:
            boxes = bytearray(one.boxes)
            for place in map(others.index, victims(who, one.block)):
                boxes[place * size : (place + 1) * size] = bytes(size)
            return msgspec.structs.replace(one, boxes=bytes(boxes))

        return lambda message: (
            prepared_with(spoiled)(message) if hasattr(message, "preparations") else message
        )

    run.engine.change_replies = change


def test_who_makes_no_box_for_another_client_in_each_block_costs_one_of_them() -> None:
    """Both ends of a pair were left out of the block in silence, and came back with the next one."""
    run = Sums(Masked(losses=9), 10)
    boxless(run, lambda who, block: {block - 1} if who == 9 else set())
    for _ in some(range(2 * BLOCK + 1)):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.rejected == {0: NO_KEY, 9: NO_KEY} and total.contributors == tuple(range(1, 9))


@pytest.mark.parametrize(
    "made", [{12: {0, 1}, 13: {0, 2}}, {12: {0, 1, 2, 3}, 13: {3, 4, 5}}, {12: {13}, 13: {0}}]
)
def test_two_that_make_no_boxes_cost_two_others_at_most(made: dict[int, set[int]]) -> None:
    """Of pairs with one end in common that end left, and then both of each other pair: three honest ones."""
    run = Sums(Masked(losses=9), 14)
    boxless(run, lambda who, block: made.get(who, set()))
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert len(total.rejected.keys() - made.keys()) <= len(made)
        assert total.rejected.keys() == set(range(14)) - set(total.contributors)
        assert set(total.rejected.values()) == {NO_KEY}


@pytest.mark.parametrize("victims", [{3}, {1, 2}, set(range(1, 8))])
def test_who_invites_some_to_nothing_costs_one_other_and_another_leads(victims: set[int]) -> None:
    """All but one of these were left without the clients' secret, for good."""
    run = Sums(Masked(losses=9, verified=True), 8)

    def invite(one: Any) -> Any:
        return msgspec.structs.replace(one, box=bytes(60)) if one.client in victims else one

    lie = replace(invitations=lambda sent: tuple(map(invite, sent)))
    liar(run, 0, ("prepare", lambda message: lie(message) if isinstance(message, Prepared) else message))
    for turn in range(3):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.rejected == {0: UNDECIDED, min(victims): UNDECIDED}
        assert set(total.contributors) == set(range(8)) - total.rejected.keys(), turn


SPOILED = [
    pytest.param(replace(locked=lambda s: s[:-1]), id="locked-shorter"),
    pytest.param(replace(locked=b""), id="locked-empty"),
    pytest.param(replace(locked=lambda s: bytes(len(s))), id="locked-zeros"),
    pytest.param(replace(answer_shares=lambda s: bytes(len(s))), id="shares-zeros"),
    pytest.param(replace(answer_shares=lambda s: b"\1" + s[1:]), id="one-share-wrong"),
]


@pytest.mark.parametrize("lie", SPOILED)
def test_wrong_shares_of_one_client_do_not_spoil_the_sum(lie: Callable[[Any], Any]) -> None:
    run = Sums(Masked(), 7)
    run.ask(QUESTION)
    run.engine.change_replies = lambda exchange, replies: [
        (i, resealed(run, i, reply, lie) if (exchange.stage, i) == ("unmask", 3) else reply)
        for i, reply in replies
    ]
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == tuple(range(7))


def spoiled(shares: bytes, *owners: int) -> bytes:
    """Return shares of which those of some owners, or of all, are others."""
    places = owners or range(len(shares) // 32)
    changed = bytearray(shares)
    for place in places:
        changed[32 * place + 5] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("what", ["answer keys", "own masks"])
@pytest.mark.parametrize(
    ("n", "liars"), [(7, (1,)), (7, (1, 4)), (10, (0, 1, 2)), (10, (0, 4, 8)), (20, (3, 5, 7, 9))]
)
def test_whoever_gives_wrong_shares_is_named_and_costs_nobody_else(
    n: int, liars: tuple[int, ...], what: str
) -> None:
    run, lies = Sums(Masked(losses=9), n), {"answer_shares": spoiled}
    run.ask(QUESTION)

    def change(exchange: Exchange, replies: Replies) -> Replies:
        if exchange.stage == "collect" and what == "own masks":
            # They hold other shares than they were dealt, and seal these for the coordinator.
            for i in liars:
                state = run.state(i)
                pending = state.keys.pending
                shares = bytearray(pending.shares)
                for place in range(len(shares) // 96):
                    shares[96 * place] ^= 1
                keys = msgspec.structs.replace(
                    state.keys, pending=msgspec.structs.replace(pending, shares=bytes(shares))
                )
                run.stores[i].save(msgspec.structs.replace(state, keys=keys))
        lied = exchange.stage == "unmask" and what == "answer keys"
        return [
            (i, resealed(run, i, one, replace(**lies)) if lied and i in liars else one) for i, one in replies
        ]

    run.engine.change_replies = change
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == tuple(range(n)) and not total.dropped
    run.engine.change_replies = None
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert set(range(n)) - set(total.contributors) == set(liars) == set(total.rejected)
        assert set(total.rejected.values()) == {DEALT}


def test_lies_about_one_share_a_sum_add_up(n: int = 7) -> None:
    """Of up to three pairs either end may lie; of pairs with four of six others the one in common does."""
    run = Sums(Masked(losses=9), n)
    run.ask(QUESTION)
    for place in range(4):
        liar(run, 0, ("unmask", replace(answer_shares=lambda shares: spoiled(shares, place))))  # noqa: B023
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == tuple(range(n)) and not total.rejected
    run.engine.change_replies = None
    assert run.ask(QUESTION).rejected == {0: DEALT}


@pytest.mark.parametrize("n_wrong", [1, 2, 3, 5])
def test_who_deals_wrong_shares_frames_nobody(
    n_wrong: int, monkeypatch: pytest.MonkeyPatch, n: int = 7
) -> None:
    """Its boxes are signed and open. Up to the spare shares its secret opens, and more stop the sum."""
    real_made, real_share = BlockMaker.made, blocks.share

    def made(self: BlockMaker, *words: Any) -> Any:
        def dealt(*words: Any) -> Any:
            shares = real_share(*words)
            shares[:n_wrong] ^= np.uint8(1)
            return shares

        with pytest.MonkeyPatch.context() as patch:
            if self.me == 3:
                patch.setattr(blocks, "share", dealt)
            return real_made(self, *words)

    monkeypatch.setattr(BlockMaker, "made", made)
    run = Sums(Masked(losses=9), n)
    for _ in range(3):
        try:
            total = run.ask(QUESTION)
        except IntegrityError as error:
            assert n_wrong > 2 and names(n)[3] in str(error)
        else:
            run.assert_exact(total, QUESTION)
            assert n_wrong < 3 and total.contributors == tuple(range(n))
    assert not set(run.session._out) - {3}  # type: ignore[attr-defined]


@pytest.mark.parametrize("rows", [1, N - 1])
def test_wrong_recovery_spoils_a_sum_and_names_the_pairs(rows: int) -> None:
    """What client 3 gave ahead does not open to its seeds with others, and then it is lost."""
    run = Sums(Masked(losses=9), N)
    for _ in range(BLOCK - 1):
        run.ask(QUESTION)
    lie = prepared_as(recovery=lambda r: bytes(one ^ 1 for one in r[: 32 * rows]) + r[32 * rows :])
    run.engine.change_replies = lambda exchange, replies: [
        (i, resealed(run, i, one, lie) if (exchange.stage, i) == ("collect", 3) else one)
        for i, one in replies
    ]
    run.ask(QUESTION)
    run.engine.change_replies = None
    # Only the first number of the new block is wrong.
    liar, other = names(N)[3], names(N)[0]
    named = rf"by {liar} or {other}(, {liar} or .*){{{rows - 1}}}\."
    with pytest.raises(IntegrityError, match=named):
        run.ask(QUESTION, 0, (0,), Fault(3, "collect"))
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        # What the masks of a lost client show is no evidence that others can check: nobody is out for it.
        assert total.contributors == tuple(range(N))


def test_a_contributor_that_counts_itself_twice_is_noticed() -> None:
    run = Sums(Masked(losses=9), N)
    run.ask(QUESTION)

    def counted_twice(words: bytes) -> bytes:
        vector = np.frombuffer(words, dtype="<u8").copy()
        vector[-1] += np.uint64(1)
        return vector.tobytes()

    run.engine.change_replies = lambda exchange, replies: [
        (
            i,
            resealed(run, i, one, replace(words=counted_twice))
            if (exchange.stage, i) == ("collect", 3)
            else one,
        )
        for i, one in replies
    ]
    with pytest.raises(IntegrityError, match="of 5 clients counts 6"):
        run.ask(QUESTION)
    assert len(run.transcript.totals()) == 1
    run.engine.change_replies = None
    run.assert_exact(run.ask(QUESTION), QUESTION)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "box:",
        "box:\N{SUPERSCRIPT TWO}",
        "box:-1",
        "box:3",
        "box:77",
        "box:" + "9" * 5000,
        "x" * 10_000,
        "\0",
    ],
)
def test_whatever_code_a_client_refuses_with_the_sum_goes_on(code: str) -> None:
    run = Sums(Masked(losses=9), N)
    run.engine.change_replies = lambda exchange, replies: [
        (
            i,
            resealed(run, i, reply, lambda message: Refusal(code))
            if (exchange.stage, i) == ("collect", 3)
            else reply,
        )
        for i, reply in replies
    ]
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: "collect"}


@pytest.mark.parametrize("which", ["key", "encapsulation"])
def test_a_client_that_advertises_an_unusable_key_is_left_out(which: str) -> None:
    run = Sums(Masked(losses=9), N)
    bad = {"key": bytes(32), "encapsulation": b"\xff" * ENCAPSULATION_BYTES}[which]

    def unusable(exchange: Exchange, replies: Replies) -> Replies:
        if exchange.stage != "advertise":
            return replies
        request = decode(exchange.requests[3], AdvertiseRequest, sender="", stage="")
        one = decode(dict(replies)[3], Advertisement, sender="", stage="")
        one = msgspec.structs.replace(one, **{which: bad})
        keys = one.key, hash_of(one.encapsulation), one.signing
        what = signed(3, request.fit, request.agreement, *keys, b"")
        signature = run.sides[3]._identity.sign(what)  # type: ignore[attr-defined]
        lie = encode(msgspec.structs.replace(one, signature=signature))
        return [(i, lie if i == 3 else reply) for i, reply in replies]

    run.engine.change_replies = unusable
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: "advertise"} and set(total.rejected) == {3}


def fuzz_liars(sessions: int, seed: int) -> dict[str, int]:
    """Let one client of nine send well-sealed nonsense in every sum; count what came of it."""
    rng, counts = random.Random(seed), {"opened": 0, "failed": 0, "without it": 0}
    nonsense = Nonsense(rng)

    def lie(message: Any) -> Any:
        # What it answers is its own affair: any number of its own is a valid answer.
        altered = nonsense(message)
        return (
            msgspec.structs.replace(altered, words=message.words) if isinstance(message, Upload) else altered
        )

    for _ in range(sessions):
        run, stage = Sums(Masked(), 9), ""
        run.ask(QUESTION)
        run.engine.change_replies = lambda exchange, replies: [
            (i, resealed(run, i, one, lie) if (exchange.stage, i) == (stage, 3) else one)  # noqa: B023
            for i, one in replies
        ]
        for _ in range(6):
            stage = rng.choice(["collect", "unmask"])
            try:
                total = run.ask(QUESTION)
            except ProtocolError:
                counts["failed"] += 1
            else:
                run.assert_exact(total, QUESTION)
                assert set(range(9)) - {3} <= set(total.contributors)
                counts["opened"] += 1
                counts["without it"] += bool(total.dropped or total.rejected)
    return counts


@pytest.mark.slow
def test_one_lying_client_of_nine_neither_stops_nor_falsifies_a_sum_nor_costs_another() -> None:
    counts = fuzz_liars(25, seed=10)
    assert counts["failed"] == 0 and counts["opened"] > counts["without it"] > 15


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_client_that_lies_for_long() -> None:
    fuzz_liars(500, seed=11)
