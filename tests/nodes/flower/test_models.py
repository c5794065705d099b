"""Estimators of models over nodes that are asked by messages alone, a process of their own for each."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.core.asking.question import question_from_bytes
from privfed.core.stored.encoding import Refusal, decode
from privfed.deep import CFL, DCFL, IFCA, FedAvg
from privfed.errors import (
    ArgumentError,
    DataError,
    NotEnoughClientsError,
    ProtocolError,
    RefusedError,
    ResumeError,
    StateError,
)
from privfed.nodes.deploy.folders import write_node
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import EXPIRED, Heard
from privfed.nodes.flower.node import answered, check_node
from privfed.nodes.flower.node_messages import Answered, Ask, Join, read_down, read_up
from privfed.nodes.flower.settings import NodeSettings
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import FILE, FitLine, Journal
from privfed.party.state import Memories
from privfed.protocols import Masked, Slotted
from privfed.questions.slots import Slots
from tests.nodes.flower.models import (
    BY_DP_SGD,
    WORDS,
    assert_same_models,
    here,
    labelled,
    over,
    remembered,
)
from tests.nodes.flower.networks import Folders
from tests.party.killing import KILLED, SURVIVED, die, killed_at

SPLIT = {"split_after": 1, "split_mean_norm": 2.0, "split_max_norm": 0.1}
NAMED = {"protocol": Slotted(Masked(), sums=4)}
COMING = {"cohorts": [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation that nobody has used."""
    return labelled(tmp_path_factory.mktemp("made") / "fed")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "fed"))


CLEAR: dict[str, Any] = {"protocol": "plain", "rounds": 2}
SHOWN: dict[str, Any] = {**CLEAR, "merge": "gathered"}


def case(kind: type[Any], **own: Any) -> Callable[..., Any]:
    return lambda **words: kind(**{**WORDS, **own, **words})


QUICK = {
    "fedavg": case(FedAvg, **CLEAR),
    "ifca": case(IFCA, **CLEAR),
    "cfl": case(CFL, **SPLIT, **SHOWN),
    "dcfl": case(DCFL, **SHOWN),
}
CASES = {
    **QUICK,
    "fedavg-masked-undeclared": case(FedAvg, domain=None, weighting="rows"),
    "ifca-masked": case(IFCA),
    "cfl-slotted": case(CFL, **SPLIT),
    "dcfl-slotted": case(DCFL),
    "dcfl-coming-and-going": case(DCFL, **COMING, **NAMED, sketch_error=0.5),
}
PRIVATE = {"dcfl": case(DCFL, **BY_DP_SGD)}


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES]
)
def test_models_over_nodes_are_those_in_this_process(name: str, folder: Path) -> None:
    engine, _ = over(folder)
    fitted, own = CASES[name](engine=engine).fit(), here(CASES[name]())
    assert_same_models(fitted, own)
    assert engine.faults == []
    # What each node remembers is what the client here does.
    known = [remembered(one)[1] for one in nodes_of(folder)]
    rounds = range(1, own.n_iter_ + 1)
    np.testing.assert_array_equal(
        own.labels_history_, np.array([[one.labels.get(t, -1) for one in known] for t in rounds])
    )
    assert not hasattr(fitted, "labels_")


def test_models_by_dp_sgd_are_paid_by_every_node_and_claimed_as_in_this_process(folder: Path) -> None:
    engine, _ = over(folder)
    fitted, own = PRIVATE["dcfl"](engine=engine).fit(), here(PRIVATE["dcfl"]())
    assert fitted.privacy_spent_ == own.privacy_spent_ and fitted.privacy_spent_.epsilon == 8.0
    assert len(fitted.history_) == len(own.history_)
    for node in nodes_of(folder):
        assert line(node).spent == pytest.approx(1.0)
        assert (remembered(node)[0].trained, remembered(node)[1].trainings) == (4, 4)


@pytest.mark.slow
def test_a_node_that_forgets_its_trainings_by_dp_sgd_refuses_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privfed.party.state.Memories", lambda *_: Memories())
    engine, _ = over(folder)
    with pytest.raises(RefusedError, match="policy:budget"):
        PRIVATE["dcfl"](engine=engine).fit()


def line(node: Path) -> FitLine:
    return Journal(node, read_identity(node)).fits[-1]


def test_a_memory_is_its_owners_alone_and_ends_with_the_fit(folder: Path) -> None:
    engine, _ = over(folder)
    CASES["dcfl"](engine=engine).fit()
    node = nodes_of(folder)[0]
    update = remembered(node)[1].update
    assert update is not None and update.tobytes()[:64] not in (node / FILE).read_bytes()
    assert stat.S_IMODE((node / FILE).stat().st_mode) == 0o600
    engine.end_fits()
    assert line(node).closed
    with pytest.raises(StateError, match="has ended"):
        remembered(node)
    # Its keys are overwritten.
    left = b"".join(one.read_bytes() for one in node.rglob("*") if one.is_file())
    assert update.tobytes()[:64] not in left


class Lost(FlowerEngine):
    """An engine whose Flower run is lost once, after nodes were asked and before they are heard."""

    def __init__(self, folder: Path, trips: int) -> None:
        _, network = over(folder)
        send = network.send

        def sends(messages: Any, seconds: float) -> Heard:
            heard = send(messages, seconds)
            if network.trips == trips:
                raise ProtocolError("the Flower run ended")
            return heard

        network.send = sends  # type: ignore[method-assign]
        super().__init__(folder, network=network)


@pytest.mark.parametrize("trips", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "words", [pytest.param({}, id="clear", marks=pytest.mark.slow), pytest.param(BY_DP_SGD, id="by-dp-sgd")]
)
def test_a_fit_is_resumed_with_what_nodes_remember(
    trips: int, words: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    """Without spare trainings: nobody trains again what it trained."""
    words = {**WORDS, **words, "protocol": "plain", "merge": "gathered"}
    model = DCFL(**words, engine=Lost(folder, trips), run_dir=tmp_path / "run")
    with pytest.raises(ProtocolError, match="the Flower run ended"):
        model.fit()
    resumed = model.resume()
    if words.get("privacy") is None:
        assert_same_models(resumed, here(DCFL(**words)))
    else:
        assert len(resumed.history_) == 5
        for node in nodes_of(folder):
            assert line(node).spent == pytest.approx(1.0)
            assert (remembered(node)[0].trained, remembered(node)[1].trainings) == (4, 4)


@pytest.mark.parametrize(
    ("words", "after"),
    [
        pytest.param({"protocol": "plain"}, 2, id="plain"),
        pytest.param({}, 6, id="masked", marks=pytest.mark.slow),
        pytest.param(BY_DP_SGD, 6, id="by-dp-sgd", marks=pytest.mark.slow),
    ],
)
def test_trainings_longer_than_the_timeout_name_the_remedy_and_are_resumed(
    words: dict[str, Any], after: int, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, network = over(folder)
    model = FedAvg(**WORDS | words, engine=engine, run_dir=tmp_path / "run")
    send = network.send

    def sends(messages: Any, seconds: float) -> Heard:
        # A node ends what takes longer than its message lives: nothing of it is kept.
        late = network.trips == after
        return Heard(faults=dict.fromkeys(messages, EXPIRED)) if late else send(messages, seconds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(network, "send", sends)
        with pytest.raises(
            NotEnoughClientsError, match=r"c0, .*c5 gave no reply within 5 s.*raise timeout"
        ) as raised:
            model.fit()
    assert raised.value.stage == "collect" and raised.value.left == 0
    assert str(folder / "federation.toml") in str(raised.value) and "resume" in str(raised.value)
    assert str(raised.value).partition("Missing")[2].partition(". ")[2] in caplog.text
    resumed = model.resume()
    assert len(resumed.history_) == 5
    private = "privacy" in words
    if not private:
        assert_same_models(resumed, here(FedAvg(**WORDS | words)))
    for node in nodes_of(folder):
        assert line(node).spent == pytest.approx(1.0 if private else 0.0)


@pytest.mark.slow
def test_a_node_that_missed_a_later_set_up_of_the_slots_answers_in_none(folder: Path, tmp_path: Path) -> None:
    """It knows the secret of the group before the fit was stopped: its slot could be another's."""
    protocol = Slotted(Masked(losses=9), sums=8)
    model = DCFL(**WORDS, protocol=protocol, engine=Lost(folder, 12), run_dir=tmp_path / "run")
    with pytest.raises(ProtocolError, match="the Flower run ended"):
        model.fit()
    network = Folders(nodes_of(folder))
    # The first exchange is to join, the next one the set-up of the group.
    network.faults[(2, 102)] = EXPIRED
    resumed = model.set_params(engine=FlowerEngine(folder, network=network)).resume()
    shown = []
    for asked, total in resumed.transcript_.totals():
        question = question_from_bytes(asked.question)
        if isinstance(question, Slots):
            shown.append(total.contributors)
            origins = [one["origin"].tolist() for one in question.contributions(total.statistics)]
            assert [sorted(one)[-1] for one in origins] == [sum(one) for one in origins]
            assert [sum(one) for one in origins] == [1.0] * len(total.contributors)
    assert shown[0] == (0, 1, 2, 3, 4, 5) and shown[-1] == (0, 1, 3, 4, 5)


def test_a_simulated_fit_by_dp_sgd_still_needs_spare_trainings(tmp_path: Path) -> None:
    def stop(index: int, ask: object, total: object) -> None:
        raise ProtocolError("stopped")

    model = FedAvg(**{**WORDS, **BY_DP_SGD}, protocol="plain", run_dir=tmp_path / "run")
    X, y = [np.full((5, 4), 0.5)] * 3, [np.zeros(5, dtype=np.int64)] * 3
    with pytest.raises(ProtocolError, match="stopped"):
        model.fit_clients(model._gather(X, y, None), watch=stop)
    with pytest.raises(ResumeError, match="without spare trainings"):
        model.resume(X, y)


def asked(made: Path, folder: Path) -> tuple[list[bytes], Path]:
    """Run a fit by DP-SGD; return what the first node was sent, and its folder as it was before."""
    engine, network = over(Path(shutil.copytree(made, folder)))
    FedAvg(**{**WORDS, **BY_DP_SGD, "rounds": 2}, protocol="plain", engine=engine).fit()
    sent = [one for one in network.down[:: len(network.folders)]]
    assert [type(read_down(one)) for one in sent] == [Join, Ask, Ask]
    return sent, nodes_of(made)[0]


def trainings(node: Path) -> tuple[float, int, int]:
    """Return the share that a node has paid, which training it remembers, and how often it trained."""
    memories, memory = remembered(node)
    return line(node).spent, memories.trained, memory.trainings


@pytest.fixture
def read(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nodes take rows that were read before: what reads tables has threads, and hangs in a fork."""
    table = NodeSettings.read(nodes_of(made)[0]).raw()
    monkeypatch.setattr(NodeSettings, "raw", lambda *_, **__: table)


@pytest.mark.slow
@pytest.mark.usefixtures("read")
def test_killed_before_any_statement_a_node_trains_no_more_often_than_it_pays(
    made: Path, tmp_path: Path
) -> None:
    (joining, first, second), fresh = asked(made, tmp_path / "other")
    codes, kept = [], []
    for step in range(1000):
        node = Path(shutil.copytree(fresh, tmp_path / str(step)))
        answered(node, joining)
        code, reply = killed_at(step, lambda node=node: answered(node, first))  # type: ignore[misc]
        spent = trainings(node)
        assert spent in [(0.0, 0, 0), (0.5, 1, 1)] and bool(reply) <= (spent == (0.5, 1, 1))
        again = read_up(answered(node, first), "a node")
        assert isinstance(again, Answered | Refusal) and trainings(node) == (0.5, 1, 1)
        if reply:
            assert again == read_up(reply, "a node")
        assert isinstance(read_up(answered(node, second), "a node"), Answered)
        assert trainings(node) == (1.0, 2, 2)
        codes.append(code)
        kept.append(spent[1])
        if code == SURVIVED:
            break
    assert codes == [KILLED] * (len(codes) - 1) + [SURVIVED] and len(codes) > 20
    assert kept == sorted(kept) and kept[-1] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("read")
def test_killed_before_its_last_reply_is_written_a_node_answers_no_more(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (joining, first, second), fresh = asked(made, tmp_path / "other")
    node = Path(shutil.copytree(fresh, tmp_path / "node"))
    answered(node, joining)
    with monkeypatch.context() as patched:
        patched.setattr("privfed.nodes.flower.node.rewrite", lambda *_: die())
        assert killed_at(10**6, lambda: answered(node, first)) == (KILLED, b"")
    assert trainings(node) == (0.5, 1, 1)
    again = read_up(answered(node, first), "a node")
    assert isinstance(again, Answered)
    decode(again.reply, Refusal, sender="a node", stage="collect")
    assert trainings(node) == (0.5, 1, 1)
    assert isinstance(read_up(answered(node, second), "a node"), Answered)


@pytest.mark.parametrize("written", ["0.5", "illness", "-1", ""])
def test_labels_that_are_no_codes_are_told_to_the_owner_and_never_quoted(
    written: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(f"a,kind\n1.0,0\n2.0,{written}\n")
    write_node(tmp_path, "rows.csv", "rows", labels="kind")
    with pytest.raises(DataError, match=r"1 of 2 rows have no class.*a whole number from 0") as raised:
        NodeSettings.read(tmp_path).report()
    assert not written or f"{written} " not in str(raised.value)
    data = NodeSettings.read(tmp_path).rows()
    assert data.labels is not None and data.labels.tolist() == [0, -1]


def test_labels_are_the_numbers_that_are_written(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,kind\n1.0,7\n2.0,10\n3.0,7\n")
    write_node(tmp_path, "rows.csv", "rows", labels="kind")
    data = NodeSettings.read(tmp_path).rows()
    assert data.labels is not None and data.labels.tolist() == [7, 10, 7] and data.n_features == 1
    (tmp_path / "node.toml").write_text((tmp_path / "node.toml").read_text().replace('"kind"', "1"))
    with pytest.raises(ArgumentError, match="labels must be a text, got 1"):
        NodeSettings.read(tmp_path)


@pytest.mark.parametrize(
    ("instead", "words", "code"),
    [
        ("# labels =", {}, "agreement:labels"),
        ("labels =", {"n_classes": 2}, "agreement:labels"),
        ("labels =", {"timed": True, "domain": None}, "agreement:times"),
    ],
)
def test_what_a_nodes_owner_does_not_declare_is_not_used(
    instead: str, words: dict[str, Any], code: str, folder: Path
) -> None:
    """Labels, another number of classes, times: a node joins no fit that needs them."""
    for node in nodes_of(folder):
        settings = (node / "node.toml").read_text()
        (node / "node.toml").write_text(settings.replace("labels =", instead))
        check_node(node)
    engine, _ = over(folder)
    with pytest.raises(RefusedError, match="owner declares no") as refused:
        FedAvg(**WORDS | words, engine=engine).fit()
    assert refused.value.stage == "join" and set(refused.value.codes.values()) == {code}
