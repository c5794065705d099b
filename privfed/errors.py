"""The tree of errors: everything that privfed raises on purpose.

    PrivFedError
    |-- ArgumentError (ValueError)        a parameter has a value that it cannot have
    |   |-- BoundsError                   a parameter is no number within its bounds
    |   |-- WordError                     a parameter is none of the words that it may be
    |   |-- UndefinedIndexError           a validity index has no value for these clusters
    |   |-- CoarseTotalError              a total is too near the step of the secure sum's grid
    |   `-- FormatError                   bytes were written in another version of their form
    |-- DataError (ValueError)            a client's data cannot be used
    |   `-- ColumnsError                  a party's table has other columns than were agreed
    |-- NotFittedError (sklearn's)        an estimator is not fitted (in privfed.estimators.saving)
    |-- PolicyError                       a party's policy forbids what is asked
    |-- PrivacyError (ValueError)         a differential privacy guarantee cannot be given
    |   `-- BudgetError                   a question costs more than the rest of the budget
    |-- MessageError                      a message is malformed, foreign, repeated or out of order
    |-- ProtocolError                     a secure sum failed, and no result is made of it
    |   |-- NotEnoughClientsError         too few clients are left to open it
    |   |-- RefusedError                  clients refused to answer
    |   |-- RepeatsSpentError             clients dropped out of more sums than may be asked again
    |   |-- ImpossibleTotalError          no honest clients could give the total that was opened
    |   `-- IntegrityError                the result is not the sum of the contributions
    |-- RunFolderError                    a run folder is missing, damaged or in use by another run
    `-- ResumeError                       a transcript does not belong to the run that is to be resumed

    StateError (OSError)                  a client's state cannot be read or stored; it sends no reply

No message of these errors quotes a row of data, a key or a single client's statistics.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from traceback import StackSummary, TracebackException, walk_tb

FAILED = "error"
"""Code of the refusal of a client whose own code failed; it carries no further information."""


FEWEST_QUANTA = 1 << 10
"""Fewest steps of a secure sum's grid that a total of distances needs, for three digits of an index."""


_BETWEEN = ("privfed", "IPython", "sklearn", "functools", "contextlib")
"""Packages whose lines a notebook leaves out above the line where an error is raised."""


class PrivFedError(Exception):
    """Base of every error that privfed raises on purpose.

    Attributes:
        parameters: names of the parameters that the message names without a value, so that the command line
            can name its options instead; with a value they stand as `name=value`.
    """

    parameters: tuple[str, ...] = ()

    def __init__(self, *message: object, parameters: Iterable[str] = ()) -> None:
        super().__init__(*message)
        self.parameters = tuple(parameters)

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the caller's lines and the place of the error, none of ours between."""
        shown = TracebackException.from_exception(self)
        names = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(self.__traceback__))
        shown.stack = StackSummary.from_list(
            one
            for one, name in zip(shown.stack, names, strict=False)
            if one is shown.stack[-1] or name.partition(".")[0] not in _BETWEEN
        )
        return ["".join(shown.format()), "All calls: traceback.print_exception(sys.last_value)"]


class ArgumentError(PrivFedError, ValueError):
    """A parameter is out of its bounds; the message names it, its value, the bound and the remedy."""


class BoundsError(ArgumentError):
    """A parameter is no number within its bounds.

    Attributes:
        parameter: its name.
        value: the value that was passed.
        bounds: the interval in which it must lie, such as "(0, 1]".
    """

    def __init__(
        self, parameter: str, value: object, bounds: str, *, kind: str = "a number", remedy: str = ""
    ) -> None:
        self.parameter, self.value, self.bounds = parameter, value, bounds
        super().__init__(
            f"{parameter} must be {kind} in {bounds}, got {parameter}={value!r}{remedy}.",
            parameters=[parameter],
        )


class WordError(ArgumentError):
    """A parameter is none of the words that it may be.

    Attributes:
        parameter: its name.
        value: the value that was passed.
        words: the words that it may be.
    """

    def __init__(self, parameter: str, value: object, words: Sequence[str | None]) -> None:
        self.parameter, self.value, self.words = parameter, value, tuple(words)
        *others, last = ("None" if one is None else f'"{one}"' for one in words)
        super().__init__(
            f"{parameter} must be {', '.join(others)} or {last}, got {parameter}={value!r}.",
            parameters=[parameter],
        )


class UndefinedIndexError(ArgumentError):
    """A validity index has no value: fewer than two clusters hold rows, or each holds one."""


class CoarseTotalError(ArgumentError):
    """A total has too few steps of the secure sum's grid for an index: one column outweighs all others.

    Attributes:
        entry: name of the total.
        quanta: the total in steps of the grid.
        column: name or number of the column with the widest range, whose square sets the step.
    """

    def __init__(self, entry: str, quanta: float, column: str) -> None:
        self.entry, self.quanta, self.column = entry, quanta, column
        super().__init__(
            f"the total {entry!r} has {quanta:.3g} steps of the secure sum's grid, and an index needs "
            f"{FEWEST_QUANTA}: the range of column {column} is too wide for how close the rows lie to their "
            'centers. Fit with scale="standard", or take fewer clusters.',
            parameters=["scale"],
        )


class FormatError(ArgumentError):
    """Stored bytes are of another version of their form; the message names both."""


class DataError(PrivFedError, ValueError):
    """A client's data cannot be used (empty, not finite, not numeric, other columns, outside the domain)."""


class ColumnsError(DataError):
    """A party's own table has other columns than were agreed; the message names both."""


class PolicyError(PrivFedError):
    """A party's policy forbids what is asked of it."""


class PrivacyError(PrivFedError, ValueError):
    """A differential privacy guarantee cannot be given; the message names the alternative."""


class BudgetError(PrivacyError):
    """A question costs more than the rest of the privacy budget; nothing was sent."""


class MessageError(PrivFedError):
    """A message is malformed, truncated, foreign, repeated or out of order.

    Attributes:
        sender: name of the apparent sender.
        stage: the stage of the protocol in which it arrived.
    """

    def __init__(self, reason: str, *, sender: str, stage: str) -> None:
        super().__init__(f"message of {sender} in stage {stage!r}: {reason}")
        self.reason = reason
        self.sender = sender
        self.stage = stage


class ProtocolError(PrivFedError):
    """A secure sum failed: no total was opened, or one that no honest clients could give."""


class NotEnoughClientsError(ProtocolError):
    """Fewer clients are left than the threshold needs.

    Attributes:
        missing: names of the clients that did not answer.
        left: number of clients that answered.
        needed: number of clients that the sum needs.
        stage: the stage in which too few were left.
    """

    def __init__(
        self, *, missing: Iterable[str], left: int, needed: int, stage: str, remedy: str = ""
    ) -> None:
        self.missing, self.left, self.needed, self.stage = tuple(missing), left, needed, stage
        super().__init__(
            f"{left} clients are left in stage {stage!r}, the sum needs {needed}; nothing was opened. "
            f"Missing: {', '.join(self.missing) or 'none'}. "
            f"{remedy or 'Wait for them and ask again, or start a fit without them.'}"
        )

    def with_remedy(self, remedy: str) -> NotEnoughClientsError:
        """Return the same error with something else to do."""
        return NotEnoughClientsError(
            missing=self.missing, left=self.left, needed=self.needed, stage=self.stage, remedy=remedy
        )


REMEDIES = {
    FAILED: "Why a client's own code failed is in that client's own log",
    "program": (
        "Clients answer what the agreed algorithm asks next, then each agreed metric at most once: ask other "
        "questions in a federation of their own (pass the clients' arrays, or Federation.again)"
    ),
    "proof:challenge": (
        "The server showed another number than its sum was bound to, by which it could read a client's "
        "answer: do not go on with this server"
    ),
    "policy:losses": (
        "More clients were lost in this fit than its terms allow: in so many sums the lost were others than "
        "before. Whoever reads a total with a client and one without learns that client's answer. Agree on "
        "as many as the fit may have sums with losses, as Masked(losses=...), and resume it. docs/party.md "
        "has the calculation. Or claim differential privacy by noise of the clients, under which there is no "
        "limit"
    ),
    "history": (
        "These clients heard of other sums of this agreement than the coordinator knows: it went on without "
        "the run's folder, or told clients different things. Resume the run from its folder, or agree on a "
        "new fit"
    ),
    "totals:missed": (
        "These clients lack totals of earlier set-ups of this fit. Only clients could read them, and the "
        "keys are erased, so that these clients cannot follow it any more: begin a new fit"
    ),
    "policy:models": (
        "A client trains no models that differential privacy does not bound: its owner allows them (models = "
        "true in node.toml), or max_epsilon, for fits that claim one"
    ),
    "policy:min_clients": (
        "Clients want more clients in every sum (min_clients): take more, or draw more of them for a round"
    ),
    "policy:privacy": (
        "Clients take part under differential privacy alone (max_epsilon): claim it, with privacy=..."
    ),
    "policy:noise": (
        "Clients list whose noise they take part under (noise), a node's owner by default that of clients: "
        "claim with that, or owners name noise of the server in node.toml"
    ),
    "policy:cohorts": (
        "Totals of cohorts that differ by one client show that client's answers, and no count of losses "
        "bounds that: ask all clients each round, or fixed groups; or owners allow it (fixed_cohorts = false "
        "in node.toml), or bound epsilon (max_epsilon), and you claim differential privacy"
    ),
    "policy:min_honest": (
        "Clients want to be summed with more honest clients: agree on more, as Masked(honest=...)"
    ),
    "policy:min_colluders": (
        "Clients want sums that withstand more colluding clients: agree on more, as Masked(colluders=...)"
    ),
    "policy:protocol": "Clients list the secure sums over which they answer (protocols): take one of these",
    "policy:ranges": "Clients answer in the ranges of their domain, which are those agreed: declare these",
    "policy:question": "Clients list the questions that they answer (questions): owners may add this one",
    "policy:max_clusters": "Clients answer about fewer clusters than agreed (max_clusters): take fewer",
    "policy:max_sums": "Clients answer fewer sums than agreed (max_sums): take fewer rounds or restarts",
    "policy:max_fits": "Clients take part in no more fits on these rows than their journals allow (max_fits)",
    "policy:unit": "Clients list the units of claims that they take part in (units): claim one of these",
    "policy:neighbours": "Clients list which data sets a claim may compare (neighbours): claim one of these",
    "policy:seeded": (
        "A client that takes part under differential privacy alone (max_epsilon) adds no noise that follows "
        "from a seed, since whoever knows the seed subtracts it: leave out Privacy(noise_seed=...)"
    ),
    "policy:terms": (
        "The agreement's terms are not those of its secure sum, which adds up three clients at least, two of "
        "them honest: take a secure sum as privfed makes it, over more clients"
    ),
    "policy:slots": (
        "A fit has only as many sums with slots as were agreed, each over all clients, and at a threshold of "
        "as many as must contribute: agree on more of them, as Slotted(sums=...)"
    ),
    "policy:repeats": (
        "Clients dropped out of more sums than may be asked again: begin a new fit without them, or agree on "
        "more repeats"
    ),
    "policy:cohort": "A drawn cohort has a number beyond the fit's sums: begin a new fit",
    "policy:budget": "A sum asked again is paid again: keep a share for that with Privacy(spare=...)",
    "policy:domain": (
        "A domain must be declared, as domain=Box(...): differential privacy needs one whose squares float64 "
        "holds accurately"
    ),
    "numerics": (
        "A client that runs the algorithm itself must seed it to the same last bit, and its known answers "
        "differ: give all parties the same versions of privfed and numpy"
    ),
    "policy:verified": (
        'Clients insist on verified totals (protocol="masked-verified"), or refuse them, since every client '
        "then reads every total"
    ),
    "policy:algorithm": (
        "Clients list the algorithms that they take part in, as the configuration names them, and the "
        "questions of metrics that are asked alone or are not privfed's own"
    ),
    "policy:max_epsilon": (
        "The fits on a client's rows would spend more epsilon together than it allows: agree on a smaller one"
    ),
    "policy:filter": (
        "Claims on a client's rows have no epsilon together: they are for several units or neighbours, or of "
        "noise that its filter does not bound. DP-SGD and Skellam noise need a Renyi filter, which the owner "
        "fixes before the first fit (order = 16 in node.toml, or privfed flower join --order)"
    ),
    "policy:max_starts": (
        "Starts of several fits in other cells show the rows that lie between them. A client counts how many "
        'it answered on the same rows: use init="nested", whose cells are the same in each fit'
    ),
    "request:signature": "A request was not signed by the coordinator of the agreement for this client",
    "request:seen": (
        "A client got a request with a number that it knows: an old message was sent again, or two processes "
        "sign as one"
    ),
    "request:sessions": (
        "Too many processes of the coordinator asked a client in this fit, one after another: begin a new fit"
    ),
    "agreement:size": (
        "The agreement or a question has a number (clusters, restarts, columns; cells, local steps, epochs) "
        "beyond what any client builds or works through: see docs/party.md"
    ),
    "agreement:seeded": (
        "The agreement's noise follows from a seed, and whoever knows the seed subtracts it. Only clients "
        "simulated in one process take part in that: leave out Privacy(noise_seed=...)"
    ),
    "start:missing": (
        "A client's journal has no verified total of the start that the agreement names, of the same rows, "
        'columns and clients: use init="nested", which asks anew'
    ),
    "policy:max_losses": (
        "In the fits on a client's rows others were lost or left out more often than it allows, by its "
        "journal. Each further list of clients, or rule of cohorts, counts as a loss: take those of earlier "
        "fits, or its owner allows more (max_losses in node.toml; privfed flower status says what is left)"
    ),
    "policy:unprotected": (
        "A client promised its rows differential privacy, and an earlier fit on them had none: only rows "
        "that are in no earlier fit can be promised it"
    ),
    "journal:peer": (
        "The client whose position the code names shows an older copy of its journal than others met, "
        "or another one, and is left out: its owner makes a new identity (privfed keys new)"
    ),
    "agreement:parties": (
        "A node's list of parties is another than the coordinator's, or than when the fit began: compare "
        "their digits (privfed keys show)"
    ),
    "policy:groups": (
        "A node answers from means of groups of rows, which no claim covers: its owner approves claims "
        "(max_epsilon in node.toml; privfed flower join or local with --max-epsilon)"
    ),
    "agreement:approved": (
        "A node joins only agreements of which its owner keeps a copy, in the folder approved of its party"
    ),
    "agreement:format": (
        "A node cannot read the agreement, and its log says why: give all parties the same version of privfed"
    ),
    "agreement:program": (
        "A node cannot build what was agreed, and its log says why: its owner has not registered an "
        "algorithm or model that is not privfed's own (modules in node.toml)"
    ),
    "version": (
        "The code names what must be equal and is not, the agreement's number and the node's: the party with "
        "the lower number installs a newer privfed, or numpy where that is named. 'privfed flower status' "
        "says which version each party has"
    ),
    "agreement:columns": (
        "A node's table has other columns than the coordinator's federation.toml, or its owner lists them in "
        "another order (columns in node.toml); its log says which"
    ),
    "agreement:labels": (
        "A node's owner declares no labels, or another number of classes (labels and classes in node.toml)"
    ),
    "agreement:ids": "A node's owner declares no column of ids, which unit user needs (id in node.toml)",
    "agreement:missing": (
        "With neighbours that replace a record the number of rows is public, and a node leaves rows out for "
        "what they hold: give missing a number in node.toml or a value in the schema, and no id; or claim "
        'neighbours="add-remove"'
    ),
    "agreement:exact": (
        "Under differential privacy a node reads its table by no schema whose numbers exact sums gave "
        "(exact in it): learn them under --epsilon"
    ),
    "agreement:groups": (
        "A client answers from groups of rows, whose means have no times, events or missing values: its "
        "owner lets it answer from rows, or ask nothing of these (gaps=False, --no-gaps)"
    ),
    "agreement:times": "A node's owner declares no columns that are times of rows (times in node.toml)",
    "agreement:position": "A node has another place in the agreement than it was asked for: begin a new fit",
    "agreement:unknown": "A node has lost what it joined: begin a new fit",
    **{
        f"journal:{one}": (
            "A client's data set is exact, grouped or private for life, and an earlier fit made it so: "
            "claim as that did, or its owner names other rows (data_set in node.toml)"
        )
        for one in ("exact", "grouped", "private")
    },
    "journal:ran": "A client has closed this fit in its journal and answers no more in it: begin a new fit",
    "journal:index": "A client answers no sum again that came before the last one: begin a new fit",
    "journal:question": "A client answers a sum again with the same question only: begin a new fit",
    "message": (
        "A client got a message that does not belong there: an old or altered one, or another version's. "
        "Give all parties the same version of privfed, and begin a new fit"
    ),
    "total": "A total that a client got fails its check, since it was altered or one lied: begin a new fit",
}
"""Code of a refusal -> remedy, for codes that do not suggest it."""


_OF_MESSAGES = frozenset(
    (
        "agreement",
        "box",
        "invitation",
        "key",
        "leaf",
        "members",
        "prepared",
        "receipts",
        "reports",
        "roster",
        "setup",
    )
)
"""Kinds of codes of messages that no party as agreed sends."""


def remedied(code: str) -> str:
    """Return the code in `REMEDIES` whose remedy is that of `code`, which may name a position or versions."""
    kind, _, rest = code.partition(":")
    if kind == "version" or (kind == "journal" and rest.isdecimal()):
        return {"journal": "journal:peer"}.get(kind, kind)
    return "message" if kind in _OF_MESSAGES and code not in REMEDIES else code


class RefusedError(ProtocolError):
    """Clients refused to answer, so that no sum could be opened.

    Attributes:
        codes: client name -> code of the refusal.
        stage: the stage in which they refused.
    """

    def __init__(self, codes: Mapping[str, str], *, stage: str, logs: str = "", note: str = "") -> None:
        self.codes = dict(codes)
        self.stage = stage
        listed = ", ".join(f"{name}: {code}" for name, code in self.codes.items())
        known = {remedied(code) for code in self.codes.values()}
        remedies = "".join(f". {REMEDIES[code]}" for code in sorted(known & set(REMEDIES)))
        here = f". Logs of simulated clients: {logs}" if logs and FAILED in self.codes.values() else ""
        said = f"clients refused in stage {stage!r} ({listed}); nothing was opened{note}"
        super().__init__(f"{said}{remedies}{here}")


class RepeatsSpentError(ProtocolError):
    """Clients dropped out of more sums than the fit allows to ask again.

    Attributes:
        missing: names of the clients that dropped out of the last sum.
        repeats: number of sums that may be asked again.
    """

    def __init__(self, *, missing: Iterable[str], repeats: int) -> None:
        self.missing = tuple(missing)
        self.repeats = repeats
        super().__init__(
            f"clients were lost in a sum ({', '.join(self.missing)}), and the fit has used all {repeats} "
            "repeats; nothing was opened. Begin a new fit without them, or agree on more repeats."
        )


class ImpossibleTotalError(ProtocolError):
    """A total lies where no answers of honest clients could add up to: some client's answer is wrong.

    Attributes:
        entry: name of the total.
        value: the total, or the sum over its values where these count rows.
        low: the lowest value that honest clients could give.
        high: the highest one.
        clients: how many clients answered.
    """

    def __init__(self, entry: str, value: float, low: float, high: float, *, clients: int) -> None:
        self.entry, self.value, self.low, self.high, self.clients = entry, value, low, high, clients
        super().__init__(
            f"the total {entry!r} has the value {value:.6g}, and answers of {clients} honest clients add up "
            f"to at least {low:.6g} and at most {high:.6g}. Some client's answer is wrong, and a secure sum "
            "does not show whose. Ask the clients to check their programs and tables, or fit without one "
            "part of them after the other."
        )


class IntegrityError(ProtocolError):
    """The result is not the sum of the contributions (masks did not cancel, or a check failed)."""


class RunFolderError(PrivFedError):
    """A run folder is missing, damaged, or already holds another run."""


class StateError(OSError):
    """A client's own state or ledger cannot be read or stored, so that it sends no reply.

    It is not a `PrivFedError`, since clients turn those into refusals, and without a stored state a client
    may send neither an answer nor a refusal.
    """


class ResumeError(PrivFedError):
    """A transcript does not belong to the run that is to be resumed."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called privfed, however deep within privfed the warning is found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "privfed":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
