"""Noise is bound to the terms that clients signed: no word of a question makes it one that a seed repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from examples.rdpcfl import RDPCFL
from privfed import Box, ClientPolicy, DPKMeans, Privacy
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.transcript import Transcript
from privfed.core.roles.engine import client_generator
from privfed.deep import FedAvg
from privfed.errors import ArgumentError, PrivFedError
from privfed.federation.simulation import Simulation
from privfed.privacy.dp_sgd import SteppedLedger
from privfed.privacy.ledger import BudgetLedger
from privfed.privacy.sampler import SeededGenerator
from tests.deep.population import clients
from tests.nodes.elsewhere import Elsewhere
from tests.raised import forbidden_by

N, DOMAIN = 4, Box(0.0, 1.0, max_rows=40)
X, Y = clients(N, 30)
NAMES = [f"c{i}" for i in range(N)]


def claim(unit: str, **words: Any) -> Privacy:
    return Privacy(epsilon=8.0, delta=1e-6, unit=unit, domain=DOMAIN, neighbours="add-remove", **words)


MODELS: dict[str, Any] = {"n_classes": 3, "rounds": 2, "random_state": 5}
DP_SGD = {**MODELS, "rows_per_client": 30, "sample_rate": 0.5, "noise_multiplier": 3.0}
Made = Callable[..., Any]
FITS: dict[str, tuple[Made, Privacy]] = {
    "dp-sgd": (lambda **w: FedAvg(**DP_SGD, **w), claim("record", noise="local")),
    "dp-sgd-and-choices": (
        lambda **w: RDPCFL(n_clusters=2, **DP_SGD, **w, merge="gathered", choice_noise=2.0),
        claim("record", noise="local"),
    ),
    "updates": (lambda **w: FedAvg(**MODELS, **w), claim("client")),
    "updates-local-skellam": (
        lambda **w: FedAvg(**MODELS, **w),
        claim("client", noise="local", mechanism="skellam"),
    ),
    "records": (lambda **w: DPKMeans(2, random_state=5, **w), claim("record")),
    "records-local-skellam": (
        lambda **w: DPKMeans(2, random_state=5, **w),
        claim("record", noise="local", mechanism="skellam"),
    ),
}


def fitted(kind: str, engine: Any = None, **words: Any) -> Transcript:
    """Fit over plain sums, at clients of this process or of an engine; return the transcript."""
    make, privacy = FITS[kind]
    model = make(protocol="plain", engine=engine, privacy=replace(privacy, **words))
    about = (X, Y) if engine is None or engine.members is None else (None,)
    names = {} if about == (None,) else {"client_names": NAMES}
    transcript: Transcript = model.fit(*about, **names).transcript_
    return transcript


def predicted(transcript: Transcript) -> bool:
    """Say whether any total is the one that rows and the public seed give: then there is no noise."""
    agreed = transcript.configuration
    data = [ClientData(*own).inside(DOMAIN) for own in zip(X, Y, strict=True)]
    found = False
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        guess = np.zeros(question.spec.size)
        for i in total.contributors:
            seeded = SeededGenerator(client_generator(agreed.seed, NAMES[i], asked.index).bit_generator)
            guess += question.spec.flatten(question.answer(data[i].within(question.ranges)[0], seeded))
        found |= np.allclose(guess, question.spec.flatten(total.statistics), rtol=1e-9, atol=1e-12)
    return found


@pytest.mark.parametrize("kind", FITS)
def test_totals_of_a_seeded_run_follow_from_rows_and_seed(kind: str) -> None:
    """What the tests below look for is found where it is."""
    assert predicted(fitted(kind, noise_seed=1))


def flags(thing: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each yes-or-no field of a question or an algorithm, and of what lies in it."""
    for one in fields(thing):
        value = getattr(thing, one.name)
        if isinstance(value, bool):
            yield (*path, one.name)
        elif is_dataclass(value):
            yield from flags(value, (*path, one.name))


def flipped(thing: Any, path: tuple[str, ...]) -> Any:
    """Return it with one of these fields turned round; as it is where it has no such field."""
    value = getattr(thing, path[0], None)
    if len(path) == 1 and isinstance(value, bool):
        return replace(thing, **{path[0]: not value})
    return replace(thing, **{path[0]: flipped(value, path[1:])}) if len(path) > 1 and value else thing


def engine_of(where: str, folder: Path) -> Any:
    if where == "simulated":
        return Simulation()
    return Elsewhere(folder, X, ClientPolicy(require_privacy=True, max_epsilon=30.0, order=8), Y)


def lies(kind: str, engine: Any) -> list[tuple[tuple[str, ...], bool]]:
    """Return each yes-or-no field of a fit's questions and, marked, of the algorithm that is signed."""
    honest, signed = [], []
    make = FITS[kind][0]
    kept = type(make()).make_algorithm
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(make()), "make_algorithm", lambda *a: signed.append(kept(*a)) or signed[-1])
        honest = fitted(kind, engine)
    assert not predicted(honest)
    asked = [question_from_bytes(one.question) for one, _ in honest.totals()]
    found = [(path, False) for path in sorted({path for question in asked for path in flags(question)})]
    return found + [(path, True) for path in flags(signed[0])]


@pytest.mark.parametrize("where", ["simulated", "parties"])
@pytest.mark.parametrize("kind", FITS)
@pytest.mark.few(2)
def test_no_word_of_a_question_or_program_seeds_the_noise(kind: str, where: str, tmp_path: Path) -> None:
    prices = {ledger: ledger.price for ledger in (BudgetLedger, SteppedLedger)}
    model = type(FITS[kind][0]())
    make = model.make_algorithm
    found = lies(kind, engine_of(where, tmp_path / "honest"))
    assert found
    for number, (path, signed) in enumerate(found):

        def price(ledger: Any, ask: Any, path: tuple[str, ...] = path) -> Any:
            paid = prices[type(ledger)](ledger, ask)  # type: ignore[operator]
            return replace(paid, question=flipped(paid.question, path))

        with pytest.MonkeyPatch.context() as patched:
            if signed:
                patched.setattr(model, "make_algorithm", lambda *a, path=path: flipped(make(*a), path))
            for one in () if signed else prices:
                patched.setattr(one, "price", price)
            try:
                lied = fitted(kind, engine_of(where, tmp_path / str(number)))
            except PrivFedError:
                continue  # Nobody can ask it, or the clients refuse.
        assert not predicted(lied), path


@pytest.mark.parametrize("kind", FITS)
def test_parties_refuse_terms_of_seeded_noise(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of("parties", tmp_path)
    with pytest.raises(ArgumentError, match=r"noise_seed=1\) makes noise that repeats"):
        fitted(kind, engine, noise_seed=1)
    terms = Privacy.terms
    monkeypatch.setattr(
        Privacy, "terms", lambda *a, **k: msgspec.structs.replace(terms(*a, **k), seeded=True)
    )
    with forbidden_by("agreement:seeded"):
        fitted(kind, engine)
    assert all(engine.party(i).journal.fits == () for i in range(N))
