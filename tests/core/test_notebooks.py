"""A notebook shows results as small tables: well-formed, escaped, without rows, names or links."""

import re
import traceback
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy, PrivacyBudget, attacks, metrics, select_n_clusters
from privfed.core.record.transcript import Transcript
from privfed.core.values.shown import as_table
from privfed.errors import DataError, PrivFedError
from privfed.metrics import Profiles

HOSTILE = "<script src=https://x>&\"'</td>"
SECRET = 0.7306148
NAMES = ("ward-of-anna", "ward-of-bert", "ward-of-carl")


class _Table(HTMLParser):
    """Reads a table, and fails at anything else and at tags that do not fit together."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.lines: list[list[tuple[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        assert tag in ("table", "tr", "th", "td") and not attrs
        self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        elif tag != "table":
            self.lines[-1].append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        tag, text = self.lines[-1].pop()
        self.lines[-1].append((tag, text + data))


def read(one: Any) -> list[list[str]]:
    """Return the texts of what a notebook shows: a head of names, and lines of equal length."""
    table = _Table()
    table.feed(one._repr_html_())
    table.close()
    head, *lines = table.lines
    assert not table.open and head and {tag for tag, _ in head} == {"th"}
    assert all({tag for tag, _ in line} == {"td"} and len(line) == len(head) for line in lines)
    return [[text for _, text in line] for line in table.lines]


def clients() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: np.vstack([rng.uniform(-1, 1, (30, 2)), [[SECRET, SECRET]]]) for name in NAMES}


def claimed() -> DPKMeans:
    privacy = Privacy(epsilon=5.0, delta=1e-4, unit="record", domain=Box(-1, 1), neighbours="add-remove")
    return DPKMeans(2, privacy=privacy).fit(clients())


def report() -> attacks.Report:
    rows = list(clients().values())
    view = DWFKMeans(2, protocol="plain", max_iter=2, tol=0).fit(rows).transcript_.view("server")
    prior = attacks.Prior(sample=rows[0])
    found = attacks.Differencing(client=0).run(view, prior, np.random.default_rng(0))
    return replace(attacks.evaluate(found, attacks.Truth(rows)), given=HOSTILE)


def audited() -> Any:
    rng = np.random.default_rng(0)
    return attacks.audit(
        lambda mean, trials: rng.normal(mean, 1.0, (trials, 1)),
        0.0,
        1.0,
        epsilon=1.0,
        delta=1e-5,
        trials=1000,
    )


CASES: dict[str, Callable[[Path], Any]] = {
    "selection": lambda _: replace(
        select_n_clusters(clients(), range(2, 4), estimator=DWFKMeans(max_iter=2, tol=0)), index=HOSTILE
    ),
    "profiles": lambda _: metrics.profiles(clients(), np.array([[0.5, 0.5], [-0.5, -0.5]])),
    "report": lambda _: report(),
    "audit": lambda _: audited(),
    "claim": lambda _: replace(claimed().privacy_spent_, composed=HOSTILE),  # type: ignore[type-var]
    "budget": lambda path: PrivacyBudget(2.0, 1e-5, "record", "add-remove", path / "<b>&.db"),
    "remaining": lambda path: PrivacyBudget(2.0, 1e-5, "record", "add-remove", path / "b.db").remaining(),
    "federation": lambda _: claimed().federation_,
    "transcript": lambda _: DWFKMeans(2, max_iter=2, tol=0).fit(clients()).transcript_,
    "empty transcript": lambda _: Transcript(),
}


WITH_TEXT = ("selection", "report", "claim")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_notebook_shows_a_table(case: str, tmp_path: Path) -> None:
    one = CASES[case](tmp_path)
    page, texts = one._repr_html_(), [text for line in read(one) for text in line]
    assert str(SECRET)[:6] not in page and not any(name in page for name in NAMES)
    assert "object at 0x" not in page
    assert any(HOSTILE in text for text in texts) == (case in WITH_TEXT)


def test_text_is_escaped_and_lines_keep_their_order() -> None:
    shown = type("Shown", (), {"_repr_html_": as_table(lambda _: [("a", HOSTILE), (1, "<"), (None, "ü")])})
    assert read(shown()) == [["a", HOSTILE], ["1", "<"], ["None", "ü"]]


def test_profiles_of_clusters_without_rows_are_shown() -> None:
    empty = np.full((1, 3), np.nan)
    assert len(read(Profiles(np.zeros(1), empty, empty, np.zeros(3), np.ones(3)))) == 3


def _one_deep(fit: Callable[[], object]) -> object:
    return fit()


@pytest.mark.parametrize(
    "fit",
    [
        lambda: DWFKMeans(3, protocol="mask").fit([np.ones((9, 2))] * 4),  # type: ignore[arg-type]
        lambda: DWFKMeans(0).fit([np.ones((9, 2))] * 4),
        lambda: metrics.davies_bouldin([np.ones((9, 2))] * 4, np.zeros((3, 3))),
    ],
    ids=["protocol", "clusters", "metric"],
)
def test_an_error_shows_the_callers_lines_and_its_place_and_no_calls_between(
    fit: Callable[[], object],
) -> None:
    with pytest.raises(PrivFedError) as caught:
        _one_deep(fit)
    shown = "\n".join(caught.value._render_traceback_())
    calls = re.findall(r'File "(.+)", line \d+, in', shown)
    assert [Path(one) == Path(__file__) for one in calls] == [True, True, True, False]
    assert len(calls) < len(traceback.extract_tb(caught.value.__traceback__))
    assert str(caught.value) in shown and calls[-1] == str(caught.traceback[-1].path)


def test_an_error_from_code_of_the_users_own_within_a_fit_shows_that_code() -> None:
    def weight(*_: Any) -> Any:
        raise DataError("mine")

    with pytest.raises(DataError) as caught:
        _one_deep(lambda: as_table(weight)(None))
    calls = re.findall(r'File "(.+)", line \d+, in (\w+)', "\n".join(caught.value._render_traceback_()))
    assert calls[-1] == (__file__, "weight") and all(file == __file__ for file, _ in calls)
