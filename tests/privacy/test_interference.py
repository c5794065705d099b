"""With noised answers pinned, nothing else of a run differs between neighbours: for all that is registered.

The cases follow from the registries of estimators, metrics and indices, from what `privfed` exports with
`privacy=`, and from the commands: what is new is run without being named here. Harder neighbours, other sums
and domains have the cases of `test_byte_identity.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import privfed
from privfed import metrics, select_n_clusters
from privfed.cli.main import main
from privfed.estimators.choosing import INDICES
from privfed.estimators.registry import ESTIMATORS, TRAINED
from privfed.metrics.named import ASKS, OF_LABELS
from tests.cli import test_claims
from tests.cli.wide import without_pictures
from tests.deep.estimators import test_byte_identity as models
from tests.privacy.audited import N_LABELS, K, Run, centers_for
from tests.privacy.tapes import BASE, BOX, NEIGHBOURS, D, Tape, privacy_for, rows_of, seen
from tests.some import some

FAR = NEIGHBOURS["one more, far outside the domain"]
CLIENTS = (BASE, 5.0 * rows_of(9, 3))
"""One client, and another in its place."""

MODELS = {ESTIMATORS.find(name) for name in TRAINED}
FEW = {"n_clusters": K, "max_iter": 3, "averaging": "weighted"}
"""Parameters that an estimator gets where it has them; fuzzy steps of plain means have no bound."""

REFUSED = {
    "metric clients_per_cluster",
    *(f"index {name}" for name in set(INDICES) - {"davies_bouldin", "fuzzy_davies_bouldin"}),
}
"""What refuses differential privacy, whatever the rows are."""


def fitting(kind: Callable[..., Any]) -> Run:
    """Return the run of an estimator with its defaults, and few rounds."""
    words = set(inspect.signature(kind).parameters)
    given = {name: value for name, value in FEW.items() if name in words}

    def run(clients: Any, **surroundings: Any) -> Any:
        known = {"random_state": 3, **surroundings}
        model = kind(**given)
        model.set_params(**{name: one for name, one in known.items() if name in model.get_params()})
        return model.fit(clients)

    return run


def metric(name: str) -> Run:
    def run(clients: Any, *, run_dir: object = None, **words: Any) -> Any:
        centers = centers_for(D)
        if name not in OF_LABELS:
            return getattr(metrics, name)(clients, centers, **words)
        # All of these are computed from one table; nodes have labels of their own.
        labels = clients and [np.zeros(len(own), np.int64) for own in clients]
        return metrics.labels_agreement(clients, centers, labels, n_labels=N_LABELS, **words)

    return run


def index(name: str) -> Run:
    fuzzy = {"averaging": "weighted", "local_iter": 1} if name.startswith("fuzzy") else {}
    kind = "fuzzy" if fuzzy else "dp"
    return lambda clients, **words: select_n_clusters(
        clients, range(2, 6), estimator=kind, index=name, random_state=3, **fuzzy, **words
    )


def takers() -> dict[str, Run]:
    """Return a run for everything that is registered or exported, and takes `privacy=`."""
    exported = {name: getattr(privfed, name) for name in privfed.__all__}
    kinds = {kind for kind in exported.values() if isinstance(kind, type) and takes_privacy(kind)}
    kinds |= {kind for kind in map(ESTIMATORS.find, ESTIMATORS) if isinstance(kind, type)} - MODELS
    found = {kind.__name__: fitting(kind) for kind in kinds}
    found |= {f"metric {name}": metric(name) for name in ASKS}
    found["metric with_interval"] = lambda clients, run_dir=None, **words: metrics.with_interval(
        "davies_bouldin", clients, centers_for(D), **words
    )
    return found | {f"index {name}": index(name) for name in INDICES}


def takes_privacy(kind: Callable[..., Any]) -> bool:
    return "privacy" in inspect.signature(kind).parameters


TAKERS = takers()


def compared(run: Run, unit: str, folder: Path, pair: tuple[np.ndarray, np.ndarray]) -> bool:
    """Compare all that is seen of two runs whose noised answers are the same; say whether both answered."""
    privacy, found = privacy_for("plain", BOX, unit), []
    with pytest.MonkeyPatch.context() as patch:
        tape = Tape(patch)
        for side, rows in zip(("one", "two"), pair, strict=True):
            found.append(seen(run, folder / side, "plain", privacy, rows, patch))
            tape.replay()
    assert found[0] == found[1]
    # All answers of the second run were made, with noise of their own, and none was sent.
    assert tape.differed == len(tape.answers)
    return bool(tape.answers)


@pytest.mark.parametrize("name", sorted(TAKERS))
@pytest.mark.few(5)
def test_nothing_but_noised_answers_depends_on_a_record_or_a_client(name: str, tmp_path: Path) -> None:
    answered = [
        compared(TAKERS[name], unit, tmp_path / unit, pair)
        for unit, pair in (("record", FAR), ("client", CLIENTS))
    ]
    assert any(answered) is not (name in REFUSED)


def test_every_registered_model_has_a_case_of_its_own() -> None:
    assert {kind for kind in vars(models).values() if isinstance(kind, type)} >= MODELS


def told(home: Path, rows: np.ndarray, name: str, invoke: Callable[..., Any]) -> list[object]:
    """Return what a command shows of clients of which one has these rows: output, exit code and files."""
    home.mkdir()
    lines = [
        f"{client},{','.join(map(repr, row[:2]))}{f',{5.0 * row[2]},{int(row[0] > row[1])}' * timed}"
        for timed in (False, True)
        for client, own in zip("abcd", [rows, *(rows_of(seed, 30) for seed in (3, 4, 5))], strict=True)
        for row in own.tolist()
    ]
    half = len(lines) // 2
    for file, head, own_lines in (("t", "g,a,b", lines[:half]), ("s", "g,a,b,t,e", lines[half:])):
        (home / f"{file}.csv").write_text("\n".join([head, *own_lines]) + "\n")
    test_claims.write_schema(home)
    if not {"fit", "select-k", "summary", "schema fill", "schema scale", PATH} & {name}:
        invoke((*typed_for("fit", home)[0][:-1], home / "run"))
    for step in typed_for(name, home)[:-1]:
        assert invoke(step).exit_code == 0
    said = invoke(typed_for(name, home)[-1])
    files = {
        str(path.relative_to(home)): timeless(path.read_bytes(), home)
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.name not in ("t.csv", "s.csv")
    }
    return [said.exit_code, timeless(said.output.encode(), home), files]


PATH = "from gaps to the profile"
GAP = (FAR[0], np.where(np.arange(len(FAR[0]))[:, None] == 0, np.nan, FAR[0]))
"""A client, and the same with a record that has no values."""


def typed_for(name: str, home: Path) -> list[tuple[object, ...]]:
    """Return the words of a command, or of all on the way from a schema with gaps to the profile."""
    cases = test_claims.cases(home, home / "out")
    if name != PATH:
        return [cases[name]]
    files = [home / one for one in ("t.toml", "one.toml", "two.toml")]
    rows = (home / "t.csv", "--max-rows", 100, *test_claims.CLAIM, *test_claims.GROUPS)
    return [
        ("schema", "fill", *rows, "--schema", files[0], "--out", files[1]),
        ("schema", "scale", *rows, "--schema", files[1], "--out", files[2]),
        ("fit", *rows, "--schema", files[2], "--algorithm", "dp", "-k", 2, "--out", home / "run"),
        cases["profile"],
    ]


def timeless(content: bytes, home: Path) -> bytes:
    """Return what was written without times, and the hashes of masked bytes."""
    content = content.replace(str(home).encode(), b"")
    return re.sub(rb'"sha256":"[0-9a-f]{64}"|[\d.:]+ s\b|seconds\W+[\d.]+|"began":[^,]*', b"", content)


ODD_LINES = [
    "a,",
    "a,word,0.1",
    "a,1e999,0",
    'a,"0,1",0',
    'a,"0.1,0.2',
    "a,0.1,0.2,9,9",
    "a,0.1,\udcff",
    ",,",
    "a,0x1,0",
]
"""Lines of which no value is a number, or which are none of the table."""


@pytest.mark.parametrize("rule", ["leave-out", "0.5"])
def test_no_line_shows_where_a_rule_says_what_becomes_of_it(rule: str, tmp_path: Path) -> None:
    """Without a schema as with one: the rule is for every value that is no number, as at a party."""
    for line in some(ODD_LINES):
        found = []
        with pytest.MonkeyPatch.context() as patch:
            tape = Tape(patch)
            for extra in ([], [line]):
                lines = [f"{'abcd'[i % 4]},{a},{b}" for i, (a, b, _) in enumerate(rows_of(3, 40).tolist())]
                text = "\n".join(["g,a,b", *lines, *extra, ""])
                (tmp_path / "t.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
                words = ("summary", tmp_path / "t.csv", *test_claims.PRIVATELY, *PLAIN, "--missing", rule)
                said = CliRunner(env={"COLUMNS": "2000"}).invoke(main, [str(word) for word in words])
                found.append((said.exit_code, said.output))
                tape.replay()
        assert found[0] == found[1] and found[0][0] == 0, line


OF_ROWS = {"predict", "attack", "audit"}
"""Commands that compute from rows, for whoever has them: no claim covers what they print, and they say so."""


@pytest.mark.parametrize("name", [PATH, *sorted(set(test_claims.cases(Path(), Path())) - OF_ROWS)])
@pytest.mark.few(1)
@pytest.mark.filterwarnings(
    "ignore:all centers lie at one end",
    "ignore:noise may move",
    "ignore:center . alone holds rows",
    "ignore:no gap parts",
)
def test_no_record_shows_in_what_a_command_prints_and_writes(name: str, tmp_path: Path) -> None:
    def invoke(words: tuple[object, ...]) -> Any:
        return CliRunner(env={"COLUMNS": "2000"}).invoke(
            main, without_pictures([*words, *PLAIN * takes(words)])
        )

    found = []
    with pytest.MonkeyPatch.context() as patch:
        tape = Tape(patch)
        for side, rows in zip(("one", "two"), GAP if name == PATH else FAR, strict=True):
            found.append(told(tmp_path / side, rows, name, invoke))
            tape.replay()
    assert found[0][0] == 0
    assert found[0] == found[1]
    assert tape.differed == len(tape.answers) > 0


PLAIN = ("--protocol", "plain")


def takes(words: tuple[object, ...]) -> bool:
    """Say whether a command opens sums, of which plain ones repeat to the byte."""
    return words[0] in {"fit", "measure", "select-k", "summary", "schema", "survival"}
