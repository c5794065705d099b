"""Sums that clients open and that the server noised: exact but for one draw, whoever is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import kstest

from privfed import DWFKMeans
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import question_from_bytes
from privfed.core.roles.conversation import Ask, Total
from privfed.core.stored.encoding import decode, encode
from privfed.core.values.domain import Box, Ranges
from privfed.engines.in_process import Fault
from privfed.errors import (
    ArgumentError,
    BudgetError,
    IntegrityError,
    PrivacyError,
    ProtocolError,
)
from privfed.federation.clients import gather
from privfed.privacy import pricing
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import Drawn, ServerNoise
from privfed.protocols import CKKS, GroupMasked, Masked, Plain
from privfed.protocols.ckks.cipher import with_noise
from privfed.protocols.ckks.ckks import CHECK_SLOTS, CkksScheme, Encrypted
from privfed.protocols.ckks.grid import SlotGrid
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.group_masked.group_masked import MaskedWords, MaskScheme
from privfed.questions.bounded.bounded_sums import GridSums
from tests.default_run import covering, slow_but
from tests.privacy.served import PROTOCOLS, Asks, by_server, exact, opened, seen_by_server, served, silence
from tests.some import some

RNG = np.random.default_rng(3)
ROWS = [RNG.uniform(-1, 1, (n, 1)) for n in (30, 1, 64, 7, 20)]
RANGES = Ranges([-1.0], [1.0], 64)
WEIGHTS = {"count": 0.2, "sum": 0.2}


def cells(n: int = 50, share: float = 0.2) -> Ask:
    question = GridSums(ranges=RANGES, per_axis=n, radius=1.0 / n)
    return Ask(question, weights={"count": share, "sum": share})


def noise_of(run: Any, rows: list[np.ndarray]) -> list[np.ndarray]:
    """Return the noise in each total of a run, in steps."""
    steps = [ask.question.spec.resolution for ask, _ in run.heard]
    pairs = zip(opened(run.transcript), exact(run.transcript, rows), steps, strict=True)
    return [(total - true) / step for total, true, step in pairs]


def asked(name: str, *asks: Ask, **words: Any) -> Any:
    """Run questions over a protocol; the federation keeps what it heard."""
    options = words.pop("options", {})
    heard: list[tuple[Ask, Total]] = []
    run: Any = served(PROTOCOLS[name](**options), ROWS, Asks(*asks), **words)
    run._watch = lambda index, ask, total: heard.append((ask, total))
    run.heard = heard
    run.run(Asks(*asks))
    return run


@pytest.fixture(params=PROTOCOLS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What is opened.


def test_without_noise_totals_are_the_exact_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    silence(monkeypatch)
    run = asked(name, cells(), cells(7))
    for total, true in some(zip(opened(run.transcript), exact(run.transcript, ROWS), strict=True)):
        np.testing.assert_array_equal(total, true)


def test_totals_are_off_by_the_servers_draw_and_nothing_else(name: str) -> None:
    run = asked(name, cells(), cells(7))
    drawn = ServerNoise(run.configuration)
    for index, noise in some(enumerate(noise_of(run, ROWS))):
        np.testing.assert_array_equal(noise, drawn.draw(index).values)


@pytest.mark.parametrize("noise_seed", [5, None])
def test_noise_in_totals_has_the_declared_distribution(name: str, noise_seed: int | None) -> None:
    run = asked(name, cells(1500), cells(1500), privacy=by_server(noise_seed=noise_seed))
    units = []
    for noise, (ask, total) in zip(noise_of(run, ROWS), run.heard, strict=True):
        assert isinstance(ask.question, Noised) and (noise == np.rint(noise)).all()
        units.append(noise / ask.question._per_value(ask.question.sigma))
        # What algorithms are told of it is one draw, however many clients answered.
        declared = dict(zip(WEIGHTS, ask.question.sigma * ask.question.steps, strict=True))
        assert total.noise_std == pytest.approx(declared)
    pooled = np.concatenate(units)
    # Claimed noise is fresh in each run: a sound one fails one of these once in a million runs.
    assert abs(pooled.mean()) < 5 / np.sqrt(pooled.size)
    assert abs(pooled.var() - 1) < 5 * np.sqrt(2 / pooled.size)
    assert kstest(pooled, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(*units)[0, 1]) < 5 / np.sqrt(units[0].size)


@pytest.mark.parametrize(
    ("unit", "neighbours"), covering(["record", "client"], ["add-remove", "replace-one"])
)
@pytest.mark.few(2)
def test_fits_of_every_unit_and_relation_get_the_noise_that_was_agreed_on(
    name: str, unit: str, neighbours: str
) -> None:
    rows = [np.c_[own, -own] for own in ROWS]
    privacy = by_server(unit=unit, neighbours=neighbours)
    model = DWFKMeans(2, local_iter=1, tol=0, max_iter=2, protocol=name, privacy=privacy).fit(rows)
    drawn, transcript = ServerNoise(model.transcript_.configuration), model.transcript_
    for index, (true, total) in some(
        enumerate(zip(exact(transcript, rows), opened(transcript), strict=True))
    ):
        question = question_from_bytes(transcript.totals()[index][0].question)
        np.testing.assert_array_equal((total - true) / question.spec.resolution, drawn.draw(index).values)


# What the server can see.

DATA: dict[str, list[np.ndarray]] = {
    "spread": [np.random.default_rng(i).uniform(-1, 1, (40, 2)) for i in range(5)],
    "one point": [np.full((40, 2), 0.3)] * 5,
    "few rows, far outside": [np.full((1, 2), 1e200)] * 5,
    "uneven": [np.random.default_rng(i).uniform(-1, 1, (n, 2)) for i, n in enumerate((1, 64, 2, 64, 9))],
}


@pytest.mark.parametrize("name", slow_but(PROTOCOLS, "group-masked"), indirect=True)
def test_neither_number_nor_length_of_messages_depends_on_data(name: str) -> None:
    seen = []
    for seed, rows in enumerate(DATA.values()):
        model = DWFKMeans(
            3, local_iter=1, tol=0, max_iter=4, protocol=name, privacy=by_server(noise_seed=seed)
        ).fit(rows)
        # Who leads is drawn anew in each fit, and its message is longer.
        seen.append(
            [
                (*where, [sorted(size for _, size in one) for one in sizes])
                for *where, sizes in seen_by_server(model.transcript_)
            ]
        )
        view = model.transcript_.view("server")
        assert not view.result and all(one.total is None and one.question is None for one in view.sums)
    assert len(seen[0]) == 3 + len(model.transcript_.totals()) + 1
    assert all(one == seen[0] for one in seen)


@pytest.mark.filterwarnings("ignore:no row lies at", "ignore:the centers are not the means")
def test_a_run_whose_length_totals_decide_would_be_seen(name: str) -> None:
    lengths = {
        len(seen_by_server(DWFKMeans(3, max_iter=30, protocol=name, random_state=0).fit(rows).transcript_))
        for rows in (DATA["spread"], DATA["one point"])
    }
    assert len(lengths) == 2


# Losses, repeats, resuming.


def test_a_sum_that_lost_clients_has_one_draw_too(name: str) -> None:
    faults = [Fault(2, "collect", "lost-reply", frozenset({2}))]
    run = asked(
        name, cells(), cells(7, 0.1), cells(7, 0.1), faults=faults, privacy=by_server(spare=0.3),
        options={"honest": 3},
    )  # fmt: skip
    assert [total.contributors for _, total in run.heard][1] == (0, 1, 3, 4)
    drawn = ServerNoise(run.configuration)
    for index, noise in enumerate(noise_of(run, ROWS)):
        np.testing.assert_array_equal(noise, drawn.draw(index).values)
    # Where masks are not recovered the sum is asked again, and paid again.
    repeats = [payment.purpose for payment in run.ledger.payments].count("repeat")
    assert repeats == (1 if name == "group-masked" else 0)


def test_a_repeat_that_is_not_paid_for_is_refused() -> None:
    faults = [Fault(2, "collect", "lost-reply", frozenset({1}))]
    with pytest.raises(BudgetError, match="asked again"):
        asked("group-masked", cells(50, 0.2), cells(7, 0.2), faults=faults, options={"honest": 3})


def test_who_hears_a_total_late_hears_the_same_bytes(name: str) -> None:
    run: Any = served(PROTOCOLS[name](), ROWS, Asks(cells(), cells(7)))
    run.ask(cells())
    relay = run._session.relay
    first = relay._totals[0].body
    run.ask(cells(7))
    assert relay._totals[0].body == first
    run.close()
    # Nor is a sum that has its noise ever summed again.
    steps = relay.sum(1)
    exchange = next(steps)
    with pytest.raises((PrivacyError, ProtocolError)):
        steps.send(run._carrier.exchange(exchange, None))


@pytest.mark.few(1)
def test_an_opened_total_is_never_noised_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    honest = ServerNoise.draw
    monkeypatch.setattr(ServerNoise, "draw", lambda self, i: (drawn.append(i), honest(self, i))[1])

    def interrupt(index: int, ask: Ask, total: Total) -> None:
        if index == 4:
            raise KeyboardInterrupt

    privacy = by_server(noise_seed=None)
    words: dict[str, Any] = {"local_iter": 1, "tol": 0, "max_iter": 3, "protocol": name, "run_dir": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        DWFKMeans(3, privacy=privacy, **words).fit_clients(gather(DATA["spread"]), watch=interrupt)
    resumed = DWFKMeans(3, privacy=privacy, **words).resume(DATA["spread"])
    assert drawn == list(range(len(resumed.transcript_.totals()))) and len(drawn) > 5
    before = resumed.cluster_centers_
    np.testing.assert_array_equal(
        DWFKMeans(3, privacy=privacy, **words).resume(DATA["spread"]).cluster_centers_, before
    )
    assert len(drawn) == len(resumed.transcript_.totals())


# What is still checked, and what is not.


class LyingMasks(MaskScheme):
    """A coordinator that adds to one masked word of each total."""

    word = 0

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        honest = super().noised(body, noise, n_clients)
        total: MaskedWords = decode(honest, MaskedWords, sender="", stage="")
        words, grid = total.to_numpy(), Grid(noise.spec, n_clients, noise.reach)
        words[: grid.n_narrow][self.word] += np.uint64(1 << 40)
        return encode(msgspec.structs.replace(total, words=words.astype("<u8").tobytes()))


class LyingCkks(CkksScheme):
    """A coordinator that takes from one slot of each total."""

    slot = 0

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        honest = super().noised(body, noise, n_clients)
        total: Encrypted = decode(honest, Encrypted, sender="", stage="")
        grid = SlotGrid(noise.spec, n_clients, noise.reach)
        offset = np.zeros(grid.size + CHECK_SLOTS, dtype=np.int64)
        offset[: grid.size][self.slot] = -1
        return encode(Encrypted(with_noise(total.ciphertexts, offset, grid.capacity)))


class LyingCKKS(CKKS):
    """Encrypted sums whose coordinator changes a slot: the last are who-slots."""

    slot = 0

    def scheme(self, configuration: Configuration) -> LyingCkks:
        scheme = LyingCkks(configuration.terms, by_server=configuration.noised_by_server)
        scheme.slot = self.slot
        return scheme


class LyingGroupMasked(GroupMasked):
    """Masked sums whose coordinator changes a word: the last narrow one counts contributors."""

    word = 0

    def scheme(self, configuration: Configuration) -> LyingMasks:
        scheme = LyingMasks(by_server=configuration.noised_by_server)
        scheme.word = self.word
        return scheme


def lying(name: str, place: int) -> Any:
    """Return a protocol whose coordinator changes what lies at a place."""
    protocol: Any = LyingCKKS() if name == "ckks" else LyingGroupMasked()
    protocol.slot = protocol.word = place
    return protocol


def test_a_server_that_noises_can_change_the_noised_entries_unnoticed(name: str) -> None:
    totals = [
        served(protocol, ROWS, Asks(cells())).run(Asks(cells()))[0].statistics
        for protocol in (lying(name, 0), PROTOCOLS[name]())
    ]
    assert [np.count_nonzero(totals[0][one] != totals[1][one]) for one in WEIGHTS] == [1, 0]


def test_it_cannot_change_who_or_how_many_contributed(name: str) -> None:
    run = served(lying(name, -1), ROWS, Asks(cells()))
    with pytest.raises(IntegrityError, match="check words"):
        run.run(Asks(cells()))


@pytest.mark.parametrize("noise", ["server", "distributed"])
def test_checks_leave_entries_out_only_where_clients_agreed_that_the_server_noises(
    name: str, noise: str
) -> None:
    run: Any = served(PROTOCOLS[name](), ROWS, Asks(cells()), by_server(noise=noise))
    sides = [client._side for client in run._carrier._clients.values()]
    assert {side._scheme._by_server for side in sides} == {noise == "server"}


def test_answers_to_another_question_than_agreed_get_no_noise(name: str) -> None:
    run: Any = served(PROTOCOLS[name](), ROWS, Asks(cells(50)))
    run._session.relay._noise = ServerNoise(served(PROTOCOLS[name](), ROWS, Asks(cells(5000))).configuration)
    with pytest.raises(IntegrityError, match="not of the layout that was agreed on"):
        run.run(Asks(cells(50)))


@pytest.mark.parametrize("protocol", [Plain(), Masked()], ids=["plain", "masked"])
def test_clients_of_sums_that_the_server_reads_do_not_answer_without_noise(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A configuration that no estimator makes: the clients refuse by themselves.
    monkeypatch.setattr(type(protocol), "recipient", "clients")
    run = served(protocol, ROWS, Asks(cells()))
    with pytest.raises(ProtocolError, match="policy:noise"):
        run.run(Asks(cells()))


# Room.


def test_a_total_that_does_not_fit_one_slot_is_an_error_before_anybody_answers() -> None:
    box = Box(-1.0, 1.0, max_rows=1 << 20)
    question = GridSums(ranges=Ranges([-1.0], [1.0], 1 << 20), per_axis=5, radius=0.2)
    runs = Asks(Ask(question, weights=WEIGHTS))
    with pytest.raises(ArgumentError, match=r'max_rows.*one slot.*"group-masked" has room for more'):
        served(CKKS(), ROWS, runs, by_server(domain=box))
    wide = served(GroupMasked(), ROWS, runs, by_server(domain=box))
    assert wide.run(runs)


@pytest.mark.slow
def test_a_later_sum_without_room_is_an_error_before_the_first_is_paid(tmp_path: Path) -> None:
    words: dict[str, Any] = {"local_iter": 1, "tol": 0, "max_iter": 200, "protocol": "ckks"}
    privacy = by_server(epsilon=0.03, noise_seed=None, domain=Box(-1.0, 1.0, max_rows=20_000))
    with pytest.raises(ArgumentError, match="must fit one slot"):
        DWFKMeans(3, privacy=privacy, run_dir=tmp_path, **words).fit([np.tile(ROWS[0], 2)] * 3)
    assert not list(tmp_path.rglob("*.ledger"))


@pytest.mark.parametrize("far", [-1.0, 1.0])
def test_noise_as_far_as_ranges_reach_opens_exactly(
    name: str, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pricing,
        "discrete_gaussian",
        lambda sigma, size, source: np.rint(far * 1e3 * sigma).astype(np.int64),
    )
    run = asked(name, cells(9))
    question = run.heard[0][0].question
    tail = np.ceil(pricing.TAIL * question._per_value(question.sigma))
    np.testing.assert_array_equal(noise_of(run, ROWS)[0], far * tail)
