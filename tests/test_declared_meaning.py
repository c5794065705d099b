"""Meaning is declared: nothing in the library is decided by what a field, a class or a stage is called.

The test reads the syntax trees of privfed, protocols and attacks. It finds `hasattr` and `getattr`, names of
classes that are used for anything but words to people, and comparisons with names of statistics or stages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = {"__name__", "__qualname__", "__class__"}
VALUES = {"Entry", "Exchange", "Statistics", "StatisticsSpec", "_asked"}
"""Calls whose strings name statistics and stages."""

OPTIONS = {"averaging", "parts", "party", "recipient", "weighting"}
"""Declared options some of whose values are called like statistics."""

ASKS = "entries of its own class, of which `asks` declares those that are asked for"
FITTED = "scikit-learn's convention: an attribute that ends in _ is there once the model is fitted"
SHOWN = "it is a word for people, in a message"
MARKED = "what another object has is asked: a module, a side of a sum or an outcome of any class"
FOREIGN = "what users pass is of no class of ours: Python's own protocol is asked"
OWN_WORDS = "reads, by name, fields of one known class that are listed there"

ALLOWED = {
    (
        "attacks/cohorts/linkage.py",
        "signature",
    ): "what arrives without its client is compared by whatever the "
    "contribution holds; an attacker may guess, and is scored for it",
    ("attacks/base/reading.py", "_shown"): SHOWN,
    ("attacks/commands/attacking.py", "attack"): OWN_WORDS,
    ("privfed/deep/attacks/membership.py", "totals_of"): ASKS,
    ("privfed/deep/training/dp_sgd.py", "is_foreign"): MARKED,
    ("privfed/deep/training/probing.py", "_check_rows"): MARKED,
    ("protocols/client_opened/relay.py", "Relay._confirmed"): MARKED,
    ("protocols/setup/ceilings.py", "Ceiling.read"): OWN_WORDS,
    ("privfed/nodes/deploy/supernode.py", "Fleet._why"): SHOWN,
    ("attacks/enumeration/enumerated_domain.py", "_least_whole"): FOREIGN,
    ("privfed/federation/passed.py", "as_passed"): FOREIGN,
    ("privfed/federation/passed.py", "_aligned"): FOREIGN,
    ("privfed/estimators/doubts.py", "_asked_last"): ASKS,
    ("privfed/estimators/doubts.py", "intervals_of"): ASKS,
    ("privfed/estimators/doubts.py", "Doubted.sample"): ASKS,
    ("privfed/federation/driver.py", "Federation._found"): MARKED,
    ("privfed/party/replay.py", "ProgramReplay._go_on"): MARKED,
    ("privfed/deep/estimators/predicting.py", "kind_of"): MARKED,
    ("privfed/deep/training/torch_trainer.py", "TorchTrainer._of"): MARKED,
    ("privfed/deep/training/torch_trainer.py", "_check_layers"): FOREIGN,
    ("privfed/deep/training/torch_trainer.py", "_called"): SHOWN,
    ("privfed/deep/training/fingerprint.py", "described"): FOREIGN,
    ("privfed/deep/training/fingerprint.py", "_plain"): FOREIGN,
    ("privfed/deep/training/fingerprint.py", "_values"): FOREIGN,
    ("privfed/deep/training/trainer.py", "one_line"): SHOWN,
    ("privfed/algorithms/private/noised_rounds.py", "weights_of"): ASKS,
    ("privfed/algorithms/private/noised_rounds.py", "stepped"): ASKS,
    ("privfed/algorithms/private/clients.py", "ClientLengths.shares"): ASKS,
    ("privfed/questions/bounded/bounded_sums.py", "SumsInCells._row_counts"): ASKS,
    ("privfed/questions/bounded/bounded_sums.py", "OffsetSums.contributions"): ASKS,
    (
        "privfed/algorithms/weightings.py",
        "weighting.declare",
    ): "a user's function travels by the module and name that it declares, with a version",
    (
        "privfed/core/names.py",
        "same_definition",
    ): "two definitions are compared as a whole, names among it",
    ("privfed/core/names.py", "moved.find"): "a module that has moved has the names of the new one, whatever",
    ("privfed/core/names.py", "_named"): "two definitions are compared as a whole, names among it",
    ("privfed/core/names.py", "_comparable"): "two definitions are compared as a whole, names among it",
    (
        "privfed/core/stored/encoding.py",
        "asdict",
    ): "reads all fields of a dataclass, whatever they are called",
    ("privfed/core/asking/question.py", "wire_name"): "the name on the wire is declared here, once",
    ("privfed/core/asking/statistics.py", "StatisticsSpec._flat"): OWN_WORDS,
    ("privfed/core/stored/encoding.py", "decode"): SHOWN,
    ("privfed/cli/program.py", "_in_options"): "notes of an exception, which Python adds when there are any",
    ("privfed/cli/program.py", "command.decorate"): "a command is called like the function that describes it",
    ("privfed/data/table_files.py", "_unreadable"): SHOWN,
    ("privfed/deep/training/torch_trainer.py", "TorchTrainer.initial"): FOREIGN,
    ("privfed/estimators/saving.py", "check_fitted"): FITTED,
    ("privfed/deep/estimators/base.py", "FederatedModel._stored"): FITTED,
    ("privfed/estimators/base.py", "FederatedClusterer._stored"): FITTED,
    ("privfed/deep/estimators/predicting.py", "Predicting._rows"): FOREIGN,
    ("privfed/estimators/transformers.py", "FederatedImputer._find"): FOREIGN,
    ("privfed/estimators/transformers.py", "FederatedImputer._filled"): FOREIGN,
    ("privfed/federation/request.py", "check_kinds"): SHOWN,
    (
        "privfed/federation/opening.py",
        "open_federation",
    ): "a secure sum on a grid says its steps; others have none",
    ("protocols/slotted.py", "Slotted.steps"): "a secure sum on a grid says its steps; others have none",
    ("privfed/estimators/local_centers.py", "_OverCenters._fit_clients"): OWN_WORDS,
    ("privfed/estimators/local_centers.py", "agreed_locally"): OWN_WORDS,
    ("privfed/nodes/commands/own_rows.py", "_answered"): "entries of a journal have kinds",
    ("privfed/estimators/selection.py", "select_n_clusters"): SHOWN,
    ("privfed/estimators/saving.py", "privacy_to_dict"): OWN_WORDS,
    (
        "privfed/estimators/registry.py",
        "find",
    ): "classes that the caller passed are found by the name in a file",
    ("privfed/experiments/planning.py", "_named"): OWN_WORDS,
    ("privfed/experiments/planning.py", "_product"): OWN_WORDS,
    ("privfed/experiments/running.py", "_remedy"): FOREIGN,
    ("privfed/experiments/cells.py", "_called"): SHOWN,
    (
        "privfed/federation/request.py",
        "protocol_of",
    ): "a user's object is asked for all that a secure sum declares",
    ("privfed/federation/passed.py", "check_given"): FOREIGN,
    ("privfed/federation/clients.py", "_named"): FOREIGN,
    (
        "privfed/testing/contracts.py",
        "EstimatorContract.test_clones_have_the_same_parameters",
    ): FITTED,
    (
        "privfed/testing/questions.py",
        "BoundedQuestionContract.test_one_record_in_place_of_another_moves_no_more_than_is_said",
    ): OWN_WORDS,
    ("privfed/extend.py", "register_algorithm"): "the name in agreements is declared here, once",
    ("privfed/privacy/claim.py", "noised_fields"): "a field of results is called like a statistic",
}
"""(Module, definition) -> why it may."""


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of each module, by its path in the repository."""
    found = [path for top in ("privfed", "protocols", "attacks") for path in (ROOT / top).rglob("*.py")]
    plain = {path.relative_to(ROOT).as_posix(): path for path in found}
    own = {
        name: path
        for name, path in plain.items()
        if not name.startswith(("privfed/protocols/", "privfed/attacks/"))
    }
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sorted(own.items())}


def called(node: ast.AST) -> str:
    """Return the name of the function or class that is called; empty where it is no call of a name."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else ""
    )


def strings(node: ast.AST) -> set[str]:
    """Return the strings that stand on one side of a comparison, alone or in a list of them."""
    listed = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {one.value for one in listed if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def name_of(node: ast.AST) -> str:
    """Return the last name of what is compared: of a variable, an attribute, or what stands in brackets."""
    if isinstance(node, ast.Subscript):
        return "".join(strings(node.slice))
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def vocabulary() -> frozenset[str]:
    """Return the names of statistics and stages: strings of entries and `asks`, keys of statistics."""
    found: set[str] = set()
    for node in (node for tree in trees().values() for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and called(node) in VALUES:
            for value in (*node.args[:2], *(one.value for one in node.keywords)):
                keys = value.keys if isinstance(value, ast.Dict) else [value]
                found = found.union(*(strings(key) for key in keys if key is not None))
        if isinstance(node, ast.AnnAssign) and name_of(node.target) == "asks" and node.value is not None:
            found |= strings(node.value)
    return frozenset(found)


def compares_names(node: ast.AST) -> bool:
    """Say whether something is compared with the name of a statistic or a stage."""
    if isinstance(node, ast.MatchValue):
        return bool(strings(node.value) & vocabulary())
    if not isinstance(node, ast.Compare):
        return False
    sides = (node.left, *node.comparators)
    compared = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
    return (
        compared
        and any(strings(one) & vocabulary() for one in sides)
        and not OPTIONS & set(map(name_of, sides))
    )


def reads_own(node: ast.AST) -> bool:
    """Say whether an object reads a field of its own by name: which class that is is known."""
    return isinstance(node, ast.Call) and bool(node.args) and name_of(node.args[0]) == "self"


def hits(node: ast.AST, where: str = "", *, shown: bool = False) -> Iterator[tuple[str, str]]:
    """Yield where a module may infer meaning: the definition around it, and how.

    Args:
        node: a part of the syntax tree.
        where: name of the definition around it.
        shown: whether it stands in a message, where the name of a class is words to people.
    """
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    shown = shown or isinstance(node, ast.JoinedStr)
    if called(node) == "hasattr" or (called(node) == "getattr" and not reads_own(node)):
        yield where, called(node)
    if isinstance(node, ast.Attribute) and node.attr in NAMES and not shown:
        yield where, "the name of a class"
    if compares_names(node):
        yield where, "the name of a statistic or stage"
    for child in ast.iter_child_nodes(node):
        yield from hits(child, where, shown=shown)


@cache
def found() -> dict[tuple[str, str], set[str]]:
    """Return (module, definition) -> how it may infer meaning."""
    listed: dict[tuple[str, str], set[str]] = {}
    for module, tree in trees().items():
        for where, how in hits(tree):
            listed.setdefault((module, where), set()).add(how)
    return listed


def test_nothing_is_inferred_from_names() -> None:
    undeclared = {place: how for place, how in found().items() if place not in ALLOWED}
    assert not undeclared, "declare what is meant on the object concerned, or add a reason to ALLOWED"


@pytest.mark.parametrize("place", ALLOWED, ids=lambda place: f"{place[0]}:{place[1]}")
def test_every_exception_is_needed_and_says_why(place: tuple[str, str]) -> None:
    assert place in found(), "this exception is no longer needed: remove it"
    assert len(ALLOWED[place].split()) > 3


@pytest.mark.parametrize(
    "code",
    [
        "hasattr(model, 'sums')",
        "getattr(protocol, 'sums', 0)",
        "getattr(model, name)",
        "type(question).__name__ == 'LloydSums'",
        "known[question.__class__.__name__]",
        "record.stage == 'collect'",
        "if 'count' in answer: pass",
        "name not in ('sum', 'movement')",
        "match name:\n    case 'count': pass",
    ],
)
def test_the_test_sees_what_it_looks_for(code: str) -> None:
    assert list(hits(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "f'{type(question).__name__} is unknown'",
        "getattr(self, name)",
        "began.recipient == 'clients'",
        "answer['count'].sum()",
        "params['weight'] == 'u^m'",
    ],
)
def test_the_test_sees_nothing_else(code: str) -> None:
    assert not list(hits(ast.parse(code)))
