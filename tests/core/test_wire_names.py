"""Names on the wire stay what they are, whatever classes are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking import question as module
from privfed.core.asking.question import (
    AdditiveOver,
    ClientData,
    Question,
    question_from_bytes,
    register,
    wire_name,
)
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.stored.encoding import Message
from privfed.core.values.domain import Ranges
from privfed.questions.lloyd import LloydSums

RANGES = Ranges(np.zeros(1), np.ones(1), 5)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget afterwards what a test registers."""
    monkeypatch.setattr(module, "_REGISTRY", dict(module._REGISTRY))
    module._READ.clear()


def counting(name: str, former: str | None = None) -> type[Question]:
    """Return a class of questions of some name, which may declare a former one."""

    class Counting(Question):
        additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

        @property
        def spec(self) -> StatisticsSpec:
            return StatisticsSpec(Entry("rows", (1,), 0.0, 5.0, 1.0))

        def answer_all(
            self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
        ) -> list[Statistics]:
            return [Statistics(rows=[float(one.n_rows)]) for one in clients]

    Counting.__name__ = name
    if former is not None:
        Counting.wire_name = former  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True, eq=False)(Counting)


def test_a_renamed_question_is_read_and_written_by_its_former_name() -> None:
    before = register(counting("Before"))(ranges=RANGES).to_bytes()
    del module._REGISTRY["Before"]
    module._READ.clear()
    renamed: Any = register(counting("After", former="Before"))
    assert renamed(ranges=RANGES).to_bytes() == before
    assert type(question_from_bytes(before)) is renamed
    refusing = ClientPolicy(questions=("Before",))
    assert wire_name(renamed) in (refusing.questions or ())


def test_a_subclass_is_another_question() -> None:
    """What it asks may differ: it takes no name of another's."""

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Other(LloydSums):
        pass

    renamed: Any = counting("After", former="Before")
    child = type("Child", (renamed,), {})
    assert (wire_name(Other), wire_name(child), wire_name(renamed)) == ("Other", "Child", "Before")


def test_ranges_have_a_name_of_their_own_on_the_wire() -> None:
    question = LloydSums(ranges=RANGES, centers=np.zeros((2, 1)))
    before = question.to_bytes()
    Ranges.__name__ = "Renamed"
    try:
        assert question.to_bytes() == before
    finally:
        Ranges.__name__ = "Ranges"


TAGS = """
AdvertiseRequest
Advertisement
Agreed
BoxKey
Capsule
CollectRequest
Confirmed
Contribution
EarlierSum
Encrypted
Envelope
ForGroup
Invitation
Invited
Joined
Joining
KeptEntry
KeptOut
LeadRequest
LeafRequest
Listed
MaskedWords
Message
Offered
OpenRequest
OpenedSum
PlainAnswer
PlainRequest
Preparation
PrepareRequest
Prepared
Proof
ProveRequest
ProvenRequest
ProvenUpload
Refusal
Relayed
RosterRequest
Sealed
SignedRequest
Slot
Statement
SumEntry
UnmaskRequest
Unmasking
Upload
VerifiedRequest
WentBack
"""


ENGINES = ("privfed.nodes.flower.", "privfed.nodes.deploy.")


def subclasses(kind: type) -> set[type]:
    return {kind} | {one for child in kind.__subclasses__() for one in subclasses(child)}


def test_messages_have_the_tags_that_other_versions_read() -> None:
    """A message is told by its tag: a class that is renamed keeps it, `tag="Former"`."""
    import privfed.nodes.signed
    import privfed.protocols.ckks.ckks
    import privfed.protocols.group_masked.group_masked
    import privfed.protocols.masked.masked
    import privfed.protocols.plain
    import privfed.protocols.slotted  # noqa: F401

    found = {
        str(one.__struct_config__.tag)  # type: ignore[attr-defined]
        for one in subclasses(Message)
        # An engine's own messages and files are no sum's, and here only if something imported it.
        if one.__module__.startswith("privfed.") and not one.__module__.startswith(ENGINES)
    }
    assert found == set(TAGS.split())
