"""Each party's view is cut from the record of a run, and holds what this party saw."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.core.record.records import Began
from privfed.core.record.transcript import Transcript
from privfed.errors import RunFolderError
from tests.core.test_transcript import Clients, fitted, lines, write_lines
from tests.raised import parameter_refused


def test_plain_server_sees_every_answer(blobs: Clients) -> None:
    model = fitted(blobs, "plain")
    view = model.transcript_.view("server")
    assert view.party == "server" and len(view.sums) == len(model.transcript_.totals())
    for seen, (_, total) in zip(view.sums, model.transcript_.totals(), strict=True):
        assert set(seen.answers) == set(seen.contributors) == set(range(10))
        assert seen.total is not None
        for name, array in seen.total.items():
            np.testing.assert_array_equal(array, total.statistics[name])
            added = np.sum([answer[name] for answer in seen.answers.values()], axis=0)
            np.testing.assert_allclose(array, added, rtol=1e-12, atol=1e-12)
        assert set(seen.upload_bytes) == set(range(10)) and min(seen.upload_bytes.values()) > 0


def test_server_sees_answers_only_where_the_sum_shows_them(blobs: Clients, protocol: str) -> None:
    transcript = fitted(blobs, protocol).transcript_
    shown = transcript.of(Began)[0].reveals == "contributions"
    assert all(bool(seen.answers) == shown for seen in transcript.view("server").sums)
    assert (protocol == "plain") == shown


def test_observer_sees_only_the_result(blobs: Clients, protocol: str) -> None:
    model = fitted(blobs, protocol)
    view = model.transcript_.view("observer")
    assert view.sums == ()
    assert set(view.result) == {"centers"}
    np.testing.assert_array_equal(view.result["centers"], model.cluster_centers_)


def test_observer_with_colluders_sees_their_questions_and_answers_but_no_total(blobs: Clients) -> None:
    view = fitted(blobs, "plain").transcript_.view("observer", colluding=[3])
    assert view.colluding == (3,)
    assert all(set(seen.answers) == {3} and seen.total is None for seen in view.sums)
    assert all(seen.contributors == () and seen.upload_bytes == {} for seen in view.sums)


def test_colluding_clients_see_their_own_answers_and_no_total_that_the_server_opens(blobs: Clients) -> None:
    view = fitted(blobs, "plain").transcript_.view("clients", colluding=[7, 3, 3])
    assert view.colluding == (3, 7)
    assert all(set(seen.answers) == {3, 7} and seen.total is None for seen in view.sums)


def test_server_with_colluders_keeps_what_it_sees(blobs: Clients, protocol: str) -> None:
    transcript = fitted(blobs, protocol).transcript_
    alone, together = transcript.view("server"), transcript.view("server", colluding=[3, 7])
    assert together.colluding == (3, 7)
    relays = transcript.of(Began)[0].recipient == "clients"
    for one, other in zip(alone.sums, together.sums, strict=True):
        assert one.cohort == other.cohort and other.total is not None and other.question is not None
        assert (one.total is None) == (one.question is None) == relays
        assert set(one.answers) <= set(other.answers)


def test_where_clients_open_the_server_sees_who_took_part_and_how_much_was_sent(blobs: Clients) -> None:
    view = fitted(blobs, "group-masked").transcript_.view("server")
    assert view.result == {}
    for seen in view.sums:
        assert seen.question is None and seen.purpose == "" and seen.total is None and seen.answers == {}
        assert seen.cohort == seen.contributors == tuple(range(10))
        assert set(seen.upload_bytes) == set(range(10)) and min(seen.upload_bytes.values()) > 0


@pytest.mark.parametrize("party", [("clients", ()), ("clients", [4]), ("server", [4]), ("observer", [4])])
@pytest.mark.parametrize("over", ["group-masked", "masked-verified"])
def test_where_clients_open_or_verify_each_of_them_reads_every_question_and_total(
    blobs: Clients, party: tuple[str, list[int]], over: str
) -> None:
    model = fitted(blobs, over)
    view = model.transcript_.view(party[0], colluding=party[1])
    np.testing.assert_array_equal(view.result["centers"], model.cluster_centers_)
    for seen, (asked, total) in zip(view.sums, model.transcript_.totals(), strict=True):
        assert seen.question is not None and seen.question.to_bytes() == asked.question
        assert seen.total is not None and seen.contributors == total.contributors and not seen.answers


def test_clients_see_the_questions_of_their_own_cohorts(blobs: Clients) -> None:
    groups = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    model = DWFKMeans(4, cohorts=groups, max_iter=4, tol=0.0, random_state=0).fit(blobs)
    for seen in model.transcript_.view("clients", colluding=[3, 4]).sums:
        assert (seen.question is not None) == bool(seen.purpose) == (3 in seen.cohort)
    assert all(seen.question is not None for seen in model.transcript_.view("server").sums)


@pytest.mark.parametrize("client", [-1, 10, "a", True])
def test_view_of_an_unknown_client_is_an_error(blobs: Clients, client: Any) -> None:
    transcript = fitted(blobs, "plain").transcript_
    with parameter_refused("colluding[0]"):
        transcript.view("server", colluding=[client])


def test_view_of_an_unknown_party_is_an_error(blobs: Clients) -> None:
    with parameter_refused("party"):
        fitted(blobs, "plain").transcript_.view("everybody")


def test_question_in_a_view_can_be_answered_again(blobs: Clients) -> None:
    # An attacker answers its colluders' questions itself.
    seen = fitted(blobs, "plain").transcript_.view("server").sums[-1]
    assert type(seen.question).__name__ == "Inertia"
    assert seen.question.spec.layout == seen.total.layout  # type: ignore[union-attr]


def test_question_that_is_damaged_on_disk_is_an_error(blobs: Clients, tmp_path: Path) -> None:
    fitted(blobs, "plain", tmp_path)
    damaged = [msgspec.json.decode(line) for line in lines(tmp_path)]
    for record in damaged:
        if record["type"] == "Asked":
            record["question"] = record["question"][:8]
    write_lines(tmp_path, damaged)
    with pytest.raises(RunFolderError, match="question of sum 0 is damaged"):
        Transcript.load(tmp_path).view("server")
