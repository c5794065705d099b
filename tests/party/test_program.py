"""A client answers what the agreed algorithm may ask next, and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import privfed
from privfed.core.asking.phases import Form, Shape
from privfed.core.asking.question import ClientData, Question, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Setting
from privfed.core.roles.engine import Admitting
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PolicyError
from privfed.estimators.base import FederatedClusterer
from privfed.federation.driver import Federation
from privfed.party.answerer import own_answerer
from privfed.party.program import PROGRAM_STATE, Program, ProgramCheck, ProgramState
from privfed.party.state import FileStore
from privfed.privacy.noised import Noised
from privfed.questions.cells import CellSums
from privfed.questions.lloyd import Inertia, LloydSums
from privfed.questions.local_points import PointCells
from privfed.questions.nested_cells import NestedCells
from privfed.questions.ranges import LARGEST, FeatureRanges
from tests.party.programs import positions
from tests.raised import forbidden_by
from tests.some import some


def tables(d: int = 2, n_clients: int = 4) -> list[np.ndarray]:
    """Return rows of three clusters, for some clients."""
    rng = np.random.default_rng(5)
    middles = np.repeat(10.0 * rng.normal(size=(3, d)), 15, axis=0)
    return [middles + rng.normal(size=middles.shape) for _ in range(n_clients)]


def asked_by(model: FederatedClusterer, data: list[np.ndarray]) -> tuple[Program, list[Question]]:
    """Fit over plain sums; return the program and all questions that were asked."""
    model.fit(data)
    federation, terms = model.federation_, model.privacy
    agreed = federation.configuration.seed
    algorithm = model.make_algorithm(data[0].shape[1], agreed if terms is None else terms.unseeded(agreed))
    asked = [question_from_bytes(one.question) for one in federation.transcript.of(Asked)]
    return Program.of(algorithm, federation.setting), asked


def state_after(program: Program, asked: list[Question]) -> ProgramState:
    """Follow questions from the first on; what is known goes through bytes after each."""
    state = ProgramState()
    for index, question in enumerate(asked):
        placed = question if question.position else program.placed(state, question)[0]
        state = program.after(state, placed, index)
        state = PROGRAM_STATE.from_bytes(PROGRAM_STATE.to_bytes(state))
    return state


def refuses(program: Program, state: ProgramState, question: Question) -> bool:
    """Say whether a program refuses a question as the next, whatever position it states."""
    for position in {question.position, *positions(program, state.position)}:
        try:
            program.after(state, question.at(position), state.index + 1)
        except PolicyError as error:
            assert str(error) == "program"
            continue
        return False
    return True


ARRAY = "an array"
"""Stands for centers that are passed."""

INITS = ("coreset", "nested", "kfed", "random", ARRAY)
WORDS: list[tuple[type, dict[str, object]]] = [
    *((privfed.DWFKMeans, {"init": init, "n_init": 2}) for init in INITS),
    *((privfed.DWFKMeans, {"init": init, "local_iter": 3}) for init in INITS),
    *((privfed.EWFKMeans, {"init": init, "local_iter": 1}) for init in INITS),
    (privfed.EWFKMeans, {"n_init": 3, "relocate_empty": True}),
    *((privfed.FederatedMiniBatchKMeans, {"init": init, "n_init": 2, "batch_size": 8}) for init in INITS),
    *(
        (kind, {"init": init, "n_init": 2, "merge": merge})
        for kind, own in ((privfed.FKM, "k-means++"), (privfed.KFED, "kfed"))
        for init, merge in product((own, "coreset", "random"), ("summed", "gathered"))
    ),
    (privfed.KFED, {"n_local_clusters": 4, "local": "kmeans", "clients_per_round": 3}),
    *(
        (privfed.FederatedFuzzyCMeans, {"init": init, "averaging": averaging, "n_init": 2})
        for init, averaging in product(INITS, ("kmeans", "weighted"))
    ),
    (privfed.FederatedFuzzyCMeans, {"averaging": "weighted", "local_iter": 1, "weight": "u"}),
    (privfed.FederatedFuzzyCMeans, {"averaging": "weighted", "local_iter": 1, "m": 3}),
]


def fitted(kind: type, words: dict[str, object], d: int) -> FederatedClusterer:
    """Return a model of three clusters that is not yet fitted."""
    init = {"init": np.arange(3.0 * d).reshape(3, d)} if words.get("init") is ARRAY else {}
    rounds = {} if kind is privfed.DPKMeans else {"max_iter": 4}
    return kind(3, **{"protocol": "plain", "random_state": 3, **rounds, **words, **init})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("place", "kind", "words"), [(i, *one) for i, one in enumerate(WORDS)])
@pytest.mark.few(12)
def test_every_question_of_a_run_is_the_programs(place: int, kind: type, words: dict[str, object]) -> None:
    # Three columns have a grid, four hyperplanes.
    d = 3 + place % 2
    program, asked = asked_by(fitted(kind, words, d), tables(d))
    assert state_after(program, asked).index == len(asked) - 1
    # Clients that miss some sums follow too.
    rng = np.random.default_rng(place)
    for _ in range(5):
        state = ProgramState()
        for index in np.flatnonzero(rng.random(len(asked)) < rng.uniform(0.1, 0.9)).tolist():
            state = program.after(state, asked[index], index)


PRIVATE: list[tuple[type, dict[str, object], str]] = [
    *((privfed.DPKMeans, {}, unit) for unit in ("record", "client")),
    (privfed.DWFKMeans, {"local_iter": 1, "init": "random"}, "record"),
    (privfed.DWFKMeans, {"local_iter": 1, "init": ARRAY}, "client"),
    (privfed.DWFKMeans, {"local_iter": 1}, "record"),
    (privfed.DWFKMeans, {"local_iter": 3, "momentum": 0.3}, "client"),
    (privfed.EWFKMeans, {"local_iter": 2}, "client"),
    (privfed.FederatedMiniBatchKMeans, {"reassign_after": None, "batch_size": 5}, "client"),
    (privfed.FederatedFuzzyCMeans, {"averaging": "weighted", "local_iter": 1}, "record"),
    (privfed.FederatedFuzzyCMeans, {"averaging": "weighted", "local_iter": 2}, "client"),
]


def private(unit: str, epsilon: float, *, ball: bool, noise: str = "distributed") -> privfed.Privacy:
    """Return a guarantee of a seeded run."""
    domain = privfed.Ball(60.0, max_rows=64) if ball else privfed.Box(-40.0, 40.0, max_rows=64)
    return privfed.Privacy(
        epsilon=epsilon,
        delta=1e-6,
        unit=unit,
        domain=domain,
        neighbours="add-remove",
        noise=noise,
        noise_seed=1,
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("place", "kind", "words", "unit"), [(i, *one) for i, one in enumerate(PRIVATE)])
@pytest.mark.few(4)
def test_every_noised_question_is_the_programs(
    place: int, kind: type, words: dict[str, object], unit: str
) -> None:
    # Much noise leads to few cells and rounds, little to many.
    settings = [(2 + place % 2, 1e4), (5, 0.5), (5, 1e4)]
    for d, epsilon in some(settings if kind is privfed.DPKMeans else settings[:2]):
        privacy = private(unit, epsilon, ball=place % 2 == 1)
        model = fitted(kind, {"privacy": privacy, "protocol": "masked", **words}, d)
        program, asked = asked_by(model, tables(d))
        assert state_after(program, asked).index == len(asked) - 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", ["record", "client"])
def test_questions_that_the_server_noises_are_the_programs(unit: str) -> None:
    for d in (2, 4):
        privacy = private(unit, 100.0, ball=False, noise="server")
        words = {"local_iter": 1, "tol": 0.0, "privacy": privacy, "protocol": "group-masked"}
        program, asked = asked_by(fitted(privfed.DWFKMeans, words, d), tables(d))
        assert state_after(program, asked).index == len(asked) - 1


@pytest.mark.filterwarnings("ignore")
def test_a_question_without_the_agreed_noise_is_refused() -> None:
    words = {"privacy": private("record", 10.0, ball=True), "protocol": "masked"}
    program, asked = asked_by(fitted(privfed.DPKMeans, words, 2), tables())
    assert isinstance(asked[0], Noised)
    assert refuses(program, ProgramState(), asked[0].inner)
    assert refuses(program, ProgramState(), replace(asked[0], by_server=True))
    assert not refuses(program, ProgramState(), asked[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", ["record", "client"])
def test_every_question_of_a_scaler_is_its_programs(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[Federation, object]] = []
    run = Federation.run
    monkeypatch.setattr(Federation, "run", lambda self, one: (ran.append((self, one)), run(self, one))[1])
    privfed.FederatedScaler(protocol="plain").fit(tables())
    privfed.FederatedScaler(privacy=private(unit, 10.0, ball=False)).fit(tables())
    if unit == "record":
        model = privfed.DPKMeans(3, privacy=private(unit, 100.0, ball=False))
        privfed.select_n_clusters(tables(), range(2, 5), estimator=model)
    for federation, algorithm in ran:
        asked = [question_from_bytes(one.question) for one in federation.transcript.of(Asked)]
        assert state_after(Program.of(algorithm, federation.setting), asked).index == len(asked) - 1
    assert len(ran) == (3 if unit == "record" else 2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_client_that_sees_some_sums_only_follows_too() -> None:
    program, asked = asked_by(fitted(privfed.DWFKMeans, {"n_init": 3, "local_iter": 3}, 2), tables())
    for kept in (slice(0, None, 2), slice(1, None, 3), slice(len(asked) - 1, None)):
        state = ProgramState()
        for index in range(len(asked))[kept]:
            state = program.after(state, asked[index], index)


@pytest.fixture(scope="module")
def lloyd() -> tuple[Program, list[Question]]:
    """Return a program of Lloyd's algorithm with hyperplanes, and what it asked."""
    return asked_by(fitted(privfed.DWFKMeans, {"local_iter": 1, "tol": 0.0}, 4), tables(4))


def crafted(question: Question) -> list[Question]:
    """Return questions that differ from an honest one in one thing."""
    found = []
    for one in fields(question):
        value = getattr(question, one.name)
        if isinstance(value, np.ndarray) and value.size:
            found.append({one.name: np.concatenate([value, value[:1]])})
        if isinstance(value, int) and not isinstance(value, bool):
            found.append({one.name: value + 1})
        if isinstance(value, bool):
            found.append({one.name: not value})
    own = question.ranges
    found.append({"ranges": Ranges(own.low, own.high + 2.0 * LARGEST, own.rows)})
    found.append({"ranges": Ranges(own.low, own.high, own.rows - 1)})
    return [made for words in found if (made := _made(question, words)) is not None]


def _made(question: Question, words: dict[str, object]) -> Question | None:
    try:
        return replace(question, **words)
    except ArgumentError:
        return None


def test_questions_that_differ_in_one_thing_are_refused(lloyd: tuple[Program, list[Question]]) -> None:
    program, asked = lloyd
    for index, question in some(enumerate(asked)):
        state = state_after(program, asked[:index])
        changed = crafted(question)
        assert len(changed) >= 3
        assert [one for one in changed if not refuses(program, state, one)] == []
        assert not refuses(program, state, question)


def test_questions_out_of_order_are_refused(lloyd: tuple[Program, list[Question]]) -> None:
    program, asked = lloyd
    kinds = [type(one) for one in asked]
    assert kinds == [FeatureRanges, CellSums, *[LloydSums] * 4, Inertia]
    for index in range(len(asked) + 1):
        state = state_after(program, asked[:index])
        for question in asked:
            next_kinds = {kinds[index]} if index < len(asked) else set()
            if 2 < index < 6:
                next_kinds = {LloydSums, Inertia}
            if index == 6:
                next_kinds = {Inertia}
            assert refuses(program, state, question) == (type(question) not in next_kinds)


def test_more_rounds_than_agreed_are_refused(lloyd: tuple[Program, list[Question]]) -> None:
    program, asked = lloyd
    assert refuses(program, state_after(program, asked[:6]), asked[5])
    assert refuses(program, state_after(program, asked), asked[-1])
    assert program.max_sums == 8
    with forbidden_by("program"):
        program.after(ProgramState(), asked[-1], 2**40)


def test_cells_that_do_not_follow_from_the_seed_are_refused(lloyd: tuple[Program, list[Question]]) -> None:
    program, asked = lloyd
    state, cells = state_after(program, asked[:1]), asked[1]
    assert isinstance(cells, CellSums)
    turned = np.roll(cells.normals, 1, axis=1)
    assert refuses(program, state, replace(cells, normals=turned))
    assert not refuses(program, state, replace(cells, normals=cells.normals + 1e-12))


RESTARTED: list[tuple[type, dict[str, object], int]] = [
    (privfed.DWFKMeans, {"init": "kfed"}, 2),
    (privfed.KFED, {}, 2),
    (privfed.FKM, {}, 2),
    (privfed.FederatedFuzzyCMeans, {"averaging": "kmeans"}, 1),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("kind", "words", "openings"), RESTARTED)
def test_geometry_of_every_restart_follows_from_the_seed(
    kind: type, words: dict[str, object], openings: int
) -> None:
    """The server chooses neither the hyperplanes nor the clients' own seeds, in no restart."""
    program, asked = asked_by(fitted(kind, {"n_init": 3, **words}, 4), tables(4))
    states, seen = [ProgramState()], set()
    for index, question in enumerate(asked):
        states.append(program.after(states[-1], question, index))
    for index, question in enumerate(asked):
        if isinstance(question, PointCells):
            seen.add(question.normals.tobytes())
            turned = replace(question, normals=np.roll(question.normals, 1, axis=1))
            assert refuses(program, states[index], turned)
        seed = getattr(getattr(question, "points", None), "seed", None)
        if seed is not None:
            seen.add(seed)
            points = replace(question.points, seed=seed + 1)  # type: ignore[attr-defined]
            assert refuses(program, states[index], replace(question, points=points))
    # Each restart has its own cells, and where clients draw, its own seed.
    assert len(seen) == 3 * openings


@pytest.mark.parametrize("d", [3, 4])
def test_of_nested_cells_the_server_chooses_their_number_only(d: int) -> None:
    program, asked = asked_by(fitted(privfed.DWFKMeans, {"init": "nested"}, d), tables(d))
    state = program.after(ProgramState(), asked[0], 0)
    cells = asked[1]
    assert isinstance(cells, NestedCells) and not refuses(program, state, cells)
    for changed in ({"sides": 64} if d == 3 else {"planes": 12},):
        assert refuses(program, state, replace(cells, **changed))
    # Ranges are those of the run from the first question on, whatever they are.
    ranges = replace(cells.ranges, low=cells.ranges.low - 0.125)
    state = program.after(state, cells, 1)
    moved = replace(asked[2], ranges=ranges)
    assert refuses(program, state, moved) and not refuses(program, state, asked[2])


def test_finer_ranges_are_asked_once_after_the_ranges_at_any_center() -> None:
    far = [rows + 1000.0 for rows in tables(3)]
    program, asked = asked_by(fitted(privfed.DWFKMeans, {}, 3), far)
    assert [type(one) for one in asked[:3]] == [FeatureRanges, FeatureRanges, CellSums]
    states = [ProgramState()]
    for index, question in enumerate(asked):
        states.append(program.after(states[-1], question, index))
    finer = asked[1]
    assert isinstance(finer, FeatureRanges)
    assert not refuses(program, states[1], replace(finer, center=finer.ranges.low))
    assert refuses(program, states[0], finer) and refuses(
        program, states[2], replace(finer, center=finer.ranges.low)
    )


def test_a_grid_of_many_cells_is_refused() -> None:
    program, asked = asked_by(fitted(privfed.DWFKMeans, {}, 2), tables(2))
    state, cells = state_after(program, asked[:1]), asked[1]
    assert isinstance(cells, CellSums)
    assert not refuses(program, state, cells)
    assert refuses(program, state, replace(cells, per_axis=256))


def test_a_sum_may_be_asked_again_but_not_otherwise(lloyd: tuple[Program, list[Question]]) -> None:
    program, asked = lloyd
    state = state_after(program, asked[:4])
    assert program.after(state, asked[3], 3) == state
    moved = replace(asked[3], centers=asked[3].centers + 0.5)  # type: ignore[attr-defined]
    for question, index in ((moved, 3), (asked[2], 2)):
        with forbidden_by("program"):
            program.after(state, question, index)


def test_of_a_form_every_field_is_open_only_if_it_is_named() -> None:
    with pytest.raises(ArgumentError, match="needs a rule for its field centers"):
        Form(LloydSums)
    with pytest.raises(ArgumentError, match="has no field middle"):
        Form(LloydSums, centers=Shape(3, 2), middle=1)


def test_an_algorithm_that_declares_nothing_has_no_program() -> None:
    with pytest.raises(ArgumentError, match="phases"):
        Program.of(object(), Setting(("a",), 2))


def test_an_answerer_follows_its_program_over_a_crash(
    lloyd: tuple[Program, list[Question]], tmp_path: Path
) -> None:
    program, asked = lloyd

    def begun() -> Admitting:
        store = FileStore(tmp_path / "program", PROGRAM_STATE.to_bytes, PROGRAM_STATE.from_bytes)
        return Admitting(own_answerer("0", ClientData(tables(4)[0]), 0), [ProgramCheck(program, store)])

    for index, question in some(enumerate(asked)):
        answer, _ = begun()(question, index)
        assert answer.layout == question.spec.layout
        with forbidden_by("program"):
            begun()(asked[0], index + 1)
