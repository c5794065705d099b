"""Secure sums: protocols that open the total of a cohort's answers, but no client's answer.

A protocol has two parts, both without sockets, threads or clocks. The session, on the coordinator, is a
generator that yields exchanges and is sent replies; the client side is a pure step function.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    # Read by type checkers alone: who shows a recorded run loads what this interface says, not its parts.
    from privfed.core.agreed.agreement import Agreement, Signer
    from privfed.core.agreed.configuration import Configuration, Terms
    from privfed.core.agreed.policy import ClientPolicy
    from privfed.core.asking.question import Question
    from privfed.core.roles.conversation import Total
    from privfed.core.roles.engine import ClientSide, Exchange, Replies

Finished = TypeVar("Finished")
Steps = Generator["Exchange", "Replies", Finished]


SumName = Literal["plain", "masked", "masked-verified", "masked-proven", "group-masked", "ckks"]
"""Names of privfed's own secure sums, for type checkers; packages and users may register more."""

COLLECT: Final = "collect"
"""Stage in which clients answer, in all sums of privfed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Holds the assumptions behind a secure sum's promises, each as text without a full stop.

    Args:
        honest: who must follow the protocol.
        colluding: how many clients may share all that they know with the server.
        besides: other assumptions, on identities, state and cryptography.
    """

    honest: str
    colluding: str
    besides: str

    def __str__(self) -> str:
        """Return all assumptions in one line, for reports."""
        return f"{self.honest}; {self.colluding}; {self.besides}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Describes one stage of a protocol.

    Args:
        name: name of the stage in exchanges and faults.
        unheard: what happens to a client whose reply does not arrive in this stage, in words.
        answers: whether clients answer the question in this stage. Under differential privacy, every such
            exchange pays for the question once.
    """

    name: str
    unheard: str
    answers: bool = False


def answer_stages(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Return the names of the stages in which clients answer."""
    return tuple(one.name for one in stages if one.answers)


def declared(promise: str) -> str:
    """Return what a secure sum promises that is not privfed's own, marked as its author's word."""
    return f"{promise} (what the secure sum promises, declared by its author)"


@dataclass(frozen=True, slots=True)
class Sight:
    """Describes in words what the opener of totals sees.

    Args:
        short: text for a table.
        whole: text for a report.
    """

    short: str
    whole: str


SIGHTS = {
    "sums": Sight(
        "totals only", "totals over the clients that answered, and who they were; no single client's answer"
    ),
    "unlinked contributions": Sight(
        "every answer, under no name",
        "every client's answer, under no name; answers of one client that look alike are linked",
    ),
    "contributions": Sight("every answer", "every single client's answer, in clear"),
}
"""The values of `SecureSum.reveals`, explained."""


class Session(Protocol):
    """The coordinator's part of a secure sum; it keeps its state over all sums of a fit."""

    def open(self) -> Steps[None]:
        """Set up the session with all clients."""

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open the total of a cohort's answers.

        Args:
            question: what is asked.
            index: index of the sum in the run; it seeds the clients' simulation randomness.
            cohort: label of the cohort.
            upcoming: labels of the cohorts that may be asked next.

        Raises:
            ProtocolError: the sum failed; nothing was opened.
        """

    def close(self) -> Steps[None]:
        """Deliver what clients still wait for after the last sum, such as its total; more sums may follow."""


@runtime_checkable
class Relays(Protocol):
    """A session that must keep more than totals, to go on in another process where it was."""

    def relayed(self) -> Iterable[bytes]:
        """Return what is new since this was asked last, to be kept before anything else is sent."""

    def recall(self, relayed: Iterable[bytes], opened: int) -> None:
        """Take what was kept, in order, and how many sums were opened, before the session is opened."""


@dataclass(frozen=True, slots=True)
class NextQuestion:
    """What a replay's run asks next.

    Args:
        question: the encoded question.
        cohort: label of the cohort.
        metric: which of the agreed metrics asks it; -1 for the algorithm, and where nobody needs to know.
    """

    question: bytes
    cohort: int
    metric: int = -1


class Replay(Protocol):
    """One client's own run of the algorithm: it knows the next question from the totals so far."""

    @property
    def told(self) -> int:
        """How many totals it has when a set-up begins."""

    @property
    def ended(self) -> bool:
        """Whether it asks nothing more after the totals that it has, as long as no metric is asked for."""

    def ask(self, index: int) -> NextQuestion:
        """Return what sum `index` asks.

        Raises:
            MessageError: this replay has not come to that sum, or asks no more.
        """

    def tell(self, index: int, total: Total) -> None:
        """Take an opened total. The same one may come again, after a crash of the client."""


class TotalReader(Protocol):
    """Whoever drives a run of sums that clients open knows the totals from one of these clients."""

    def read(self, index: int) -> Total | None:
        """Return the total of sum `index`; None where the client has not passed it on."""


DECLARED = (
    *("name", "recipient", "reveals", "one_key", "slotted_sums", "verified"),
    *("assumptions", "stages", "terms", "parties"),
)
"""What every secure sum has, whoever wrote it."""


class SecureSum(Protocol):
    """A protocol that opens the total of a cohort's answers."""

    @property
    def name(self) -> str:
        """Its name, as users write it."""

    @property
    def recipient(self) -> Literal["server", "clients"]:
        """Who can read a total."""

    @property
    def reveals(self) -> Literal["sums", "unlinked contributions", "contributions"]:
        """What the opener sees."""

    @property
    def one_key(self) -> bool:
        """Whether one client's key opens every upload, as where all clients share one key."""

    @property
    def slotted_sums(self) -> int:
        """In how many sums of a fit contributions are shown without their clients; usually 0."""

    @property
    def verified(self) -> bool:
        """Whether, where the server opens totals, every client gets each of them and checks it."""

    @property
    def assumptions(self) -> Assumptions:
        """The conditions of its promises, as text for reports."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of its exchanges: in which clients answer, and what becomes of one that is not heard."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the bounds that protect a client.

        Raises:
            ArgumentError: so few clients cannot be protected; the message names what is possible.
        """

    def coordinator(
        self, agreement: Agreement, identity: Signer, totals: TotalReader | None = None
    ) -> Session:
        """Return the coordinator's session of a fit whose clients may be on other machines.

        Args:
            agreement: the configuration and the public keys of all.
            identity: the coordinator's own key.
            totals: where clients open the totals, who passes them on to whoever drives the run; None for a
                session that only relays. Not used where the server opens.
        """

    def client(
        self,
        agreement: Agreement,
        position: int,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
    ) -> ClientSide:
        """Return one client's side of a fit.

        Args:
            agreement: what the client was given, and not by the coordinator.
            position: its number on the wire.
            identity: its own key.
            policy: what it answers.
            replay: where clients open the totals, its own run of the algorithm. Not used where the server
                opens.

        Raises:
            ArgumentError: the key is not the registered one, or a replay is needed.
        """

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients for a simulation in one process, with fresh identities."""
