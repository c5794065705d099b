"""From a claim to its lemmas: each has a section with code that checks it, a proof and tests."""

import ast
import re
from itertools import product
from pathlib import Path

import msgspec
import pytest

from privfed import Box, DPKMeans, Privacy
from privfed.core.values.guarantee import Mechanism, Noise, Unit
from privfed.privacy.adversaries import PAGE, lemmas_of
from tests.privacy.tapes import rows_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text()
SECTIONS = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def model() -> DPKMeans:
    privacy = Privacy(
        epsilon=4.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-1, 1, max_rows=64)
    )
    return DPKMeans(2, privacy=privacy, random_state=0).fit([rows_of(seed, 20) for seed in range(3)])


def test_a_claim_names_its_lemmas_and_their_page(model: DPKMeans) -> None:
    terms = model.transcript_.configuration.privacy
    assert terms is not None and model.privacy_spent_ is not None
    assert f"proof: {PAGE}, {', '.join(lemmas_of(terms))}" in str(model.privacy_spent_)


def test_claims_of_all_kinds_rest_on_sections_of_the_page_and_no_section_is_left(model: DPKMeans) -> None:
    terms = model.transcript_.configuration.privacy
    named = {"steps"}
    for mechanism, noise, unit in product(Mechanism, Noise, Unit):
        rows = 3 if unit == Unit.USER else 0
        kind = msgspec.structs.replace(terms, mechanism=mechanism, noise=noise, unit=unit, rows_per_user=rows)
        named |= set(lemmas_of(kind))
    assert named == set(SECTIONS)


def names_in(path: Path) -> set[str]:
    """Return the names that a module defines, at any depth."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return found


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_a_lemma_has_code_that_checks_it_a_proof_and_tests_that_exist(name: str) -> None:
    said = re.findall(r"\*\*(\w+)\.\*\* (.*?)(?=\n\n|\Z)", SECTIONS[name], re.DOTALL)
    assert [what for what, _ in said] == ["Statement", "Preconditions", "Proof", "Tests"]
    parts = dict(said)
    checked = re.findall(r"`([\w/]+\.py)::(\w+)`", parts["Preconditions"])
    assert checked
    for path, known in checked:
        assert known in names_in(ROOT / path), (path, known)
    tests = re.findall(r"`(tests/[\w/]+\.py)`", parts["Tests"])
    assert tests
    assert all((ROOT / path).exists() for path in tests)


def test_links_of_the_page_lead_to_sections() -> None:
    links = re.findall(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", TEXT)
    assert len(links) > 8
    for path, anchor in links:
        page = ((ROOT / PAGE).parent / path).read_text()
        heads = {
            re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-")
            for one in re.findall(r"^#+ (.*)", page, re.M)
        }
        assert not anchor or anchor in heads, (path, anchor)
