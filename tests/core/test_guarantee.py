"""The words of a guarantee: enums, whose strings are what users write and what messages hold."""

import ast
import inspect
import json
import warnings
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import privfed
from privfed import Box, Privacy
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.values import guarantee
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit, Word
from privfed.errors import ArgumentError
from tests.some import some

KINDS: dict[str, type[Word]] = {
    "unit": Unit,
    "neighbours": Neighbours,
    "noise": Noise,
    "mechanism": Mechanism,
}
WORDS = {
    "unit": ["record", "user", "client"],
    "neighbours": ["add-remove", "replace-one"],
    "noise": ["distributed", "local", "server"],
    "mechanism": ["gaussian", "skellam"],
}


def privacy(**words: Any) -> Privacy:
    needed = {"rows_per_user": 2} if words.get("unit") == "user" else {}
    usual = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "record",
        "neighbours": "add-remove",
        "domain": Box(-1, 1),
    }
    return Privacy(**{**usual, **needed, **words})


@pytest.mark.parametrize("name", KINDS)
def test_the_words_are_what_users_and_type_checkers_know(name: str) -> None:
    kind = KINDS[name]
    assert list(kind.words()) == WORDS[name]
    _, literal = get_args(getattr(guarantee, f"Any{kind.__name__}"))
    assert list(get_args(literal)) == WORDS[name]


@pytest.mark.parametrize("name", KINDS)
def test_strings_and_members_are_one(name: str) -> None:
    for member in some(KINDS[name]):
        words = [privacy(**{name: member}), privacy(**{name: member.value})]
        for one in words:
            assert type(getattr(one, name)) is KINDS[name]
            assert getattr(one, name) is member
        assert f"{member} {member!r}" == f"{member.value} {member.value!r}"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("value", ["rows", "", "RECORD", None, 1, ["record"]], ids=repr)
def test_a_wrong_word_is_an_error_that_names_the_allowed_ones(name: str, value: Any) -> None:
    allowed = " or ".join(map(repr, WORDS[name]))
    with pytest.raises(ArgumentError) as error:
        privacy(**{name: value})
    assert str(error.value) == f"{name} must be {allowed}, got {name}={value!r}."


def test_messages_and_json_hold_the_same_bytes_as_of_strings() -> None:
    terms = privacy().terms()
    strings: dict[str, Any] = {name: str(getattr(terms, name).value) for name in KINDS}
    plain = msgspec.structs.replace(terms, **strings)
    assert all(type(getattr(plain, name)) is str for name in KINDS)
    assert msgspec.msgpack.encode(terms) == msgspec.msgpack.encode(plain)
    assert msgspec.json.encode(terms) == msgspec.json.encode(plain)
    assert json.dumps([terms.unit, terms.noise]) == '["record", "distributed"]'
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=PrivacyTerms)
    assert read == terms and type(read.unit) is Unit and type(read.mechanism) is Mechanism


def test_messages_with_another_word_are_refused() -> None:
    wrong = msgspec.structs.replace(privacy().terms(), unit="rows")
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=PrivacyTerms)


def test_the_library_compares_with_members_and_not_with_bare_strings() -> None:
    """`privacy.noise == "sever"` would be false for ever; `Noise.SEVER` is an error."""
    bare, looked_at = [], 0
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            if any(isinstance(one, ast.Attribute) and one.attr in KINDS for one in sides):
                looked_at += 1
                bare += [(path.name, node.lineno) for one in sides if _bare(one)]
    assert looked_at >= 20
    # What audits call noise is of another list: "gaussian" or "any".
    assert {name for name, _ in bare} <= {"samples.py"}


def _sources() -> list[Path]:
    root = Path(inspect.getfile(privfed)).parent
    folders = [root, root / "attacks", root / "protocols"]
    return sorted({path.resolve() for folder in folders for path in folder.resolve().rglob("*.py")})


def _bare(node: ast.expr) -> bool:
    values = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    return bool(
        {value for value in values if isinstance(value, str)} & {w for ws in WORDS.values() for w in ws}
    )


def test_a_seeded_run_is_written_as_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = repr(privacy(noise="local"))
    assert "unit='record'" in text and "noise='local'" in text
