"""Opening a federation, for fits, metrics, scalers, selections and studies.

A request becomes an agreement, an engine that connects the clients, a transcript and a ledger. A federation
over arrays (`federation_over`) answers questions one by one, as metrics ask them. `claim_of` says what a
finished run claims.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import MOST_SUMS, ClientPolicy
from privfed.core.agreed.program import kept_starts
from privfed.core.asking.phases import unasked
from privfed.core.asking.question import Question
from privfed.core.connection import Engine, Opening
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Kept, Transcript
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import SecureSum, answer_stages
from privfed.core.stored.files import make_folder, replaced
from privfed.core.values.domain import Domain
from privfed.core.values.origin import check_origins
from privfed.errors import ArgumentError, PrivacyError, RefusedError, warn
from privfed.federation.clients import gathered
from privfed.federation.driver import Federation
from privfed.federation.request import SPARE_SUMS, FederationRequest, check_kinds, seed_from
from privfed.federation.simulation import Simulation, check_fresh, folder_to_resume
from privfed.party.program import Stated, agreed_program
from privfed.privacy.claim import Privacy, PrivacySpent, claimed
from privfed.privacy.derived import origin_of
from privfed.privacy.dp_sgd import SteppedLedger
from privfed.privacy.ledger import BudgetLedger, refuses_fit, unopened
from privfed.privacy.noised import Noised
from privfed.protocols.secure_sums import by_author

if TYPE_CHECKING:
    from privfed.metrics.asked import AskedMetric

NONCE_BYTES = 16
"""Bytes of an agreement's nonce: two fits with equal parameters are two agreements."""

PAYMENT = "payment"
"""File by which a budget knows the simulated run of a folder, and by which an older copy of it is noticed."""


def open_federation(request: FederationRequest) -> Federation:
    """Open a federation: agree, connect the clients, and keep the record and the coordinator's ledger.

    Under differential privacy each client has a ledger of its own besides.

    Raises:
        ArgumentError: see `FederationRequest.agreed`; or the rows and the engine do not fit together.
        RunFolderError: the folder holds another run, or none that can be resumed.
        ResumeError: the run there is of other clients or parameters.
        RefusedError: the policy of clients in this process forbids a fit under differential privacy.
        PrivacyError: rows were scaled or filled by numbers that other rows gave exactly.
    """
    engine: Engine = Simulation() if request.engine is None else request.engine
    _check_rows_lie_where(engine, request)
    configuration = request.agreed()
    if request.privacy is not None and request.privacy.noise_seed is None:
        check_origins(filling_or_scaling=request.clients.prepared)
    if engine.members is not None:
        configuration = msgspec.structs.replace(configuration, nonce=secrets.token_bytes(NONCE_BYTES))
    folder = None if request.run_dir is None else Path(request.run_dir)
    transcript = _transcript(folder, engine.record, request.resume)
    if request.resume:
        configuration = msgspec.structs.replace(configuration, nonce=transcript.configuration.nonce)
        transcript.check_agreement(configuration)
    policy = request.policy if engine.members is None and request.privacy is not None else None
    if policy is not None and (code := refuses_fit(policy, configuration)) is not None:
        # Clients in this process are asked whether they will join before a budget pays.
        names = dict.fromkeys(configuration.clients, code)
        raise RefusedError(names, stage="join", note=", and nothing was paid")
    run = _pay(request, configuration)
    seen = request.clients.answering(request.policy)
    # A client object that was used in another fit would reuse what it trained there, so it is reset.
    data = None if seen is None else tuple(one.anew() for one in seen)
    connection = engine.connect(
        Opening(
            configuration=configuration,
            protocol=request.secure_sum,
            transcript=transcript,
            algorithm=request.algorithm,
            domain=request.declared,
            policy=request.policy,
            data=data,
            folder=folder,
        )
    )
    return Federation(
        configuration,
        connection.session,
        connection.carrier,
        transcript,
        recipient=request.secure_sum.recipient,
        reveals=request.secure_sum.reveals,
        answer_stages=answer_stages(request.secure_sum.stages),
        by_author=by_author(request.secure_sum),
        domain=request.declared,
        ledger=_ledger(request, configuration, transcript),
        timeout=connection.timeout,
        watch=request.watch,
        logs=connection.logs,
        late=connection.late,
        again=partial(_again, request),
        named=request.named,
        start=request.start.total if request.start and kept_starts(configuration.program) else None,
        **_program(request, configuration),
        recording=_recording(request, transcript, run),
        data=data,
        steps=getattr(request.secure_sum, "steps", None),
    )


_USED: WeakSet[Privacy] = WeakSet()
"""Claims that stand alone, and that a run of this process has begun on."""


def _recording(
    request: FederationRequest, transcript: Transcript, run: str
) -> Callable[[], AbstractContextManager[None]]:
    """Return what tells the budget of each question: an older copy of the run's folder sends none."""
    paying = None if request.privacy is None else request.privacy.paid_by
    if paying is None:
        return nullcontext
    return lambda: paying.recording(run, len(transcript.of(Asked)) + 1)


def _pay(request: FederationRequest, configuration: Configuration) -> str:
    """Pay for a run from the budget that its privacy was taken from, before any client is asked.

    Return by what the budget knows the run. A run in a folder is known by what is drawn for it, and kept
    there, wherever the folder is moved. Of copies one alone goes on, since the budget counts questions.

    Raises:
        PrivacyError: a run that was paid from a budget goes on without it.

    Warns:
        UserWarning: another run claimed the same privacy, and no budget adds them up. It says nothing of
            rows: whether these are the same, the caller knows.
    """
    privacy = request.privacy
    if privacy is None:
        return ""
    kept = None if request.run_dir is None else Path(request.run_dir).absolute() / PAYMENT
    name, shown = secrets.token_hex(NONCE_BYTES), ""
    if kept is not None and not request.resume:
        kept.unlink(missing_ok=True)
    elif kept is not None and kept.exists():
        found, _, shown = kept.read_text(encoding="ascii").partition(" ")
        name = found or name
    run = configuration.nonce.hex() or name
    if privacy.paid_by is not None:
        asked, resume = _asked(request), request.resume
        with nullcontext() if kept is None else _written(kept) as fresh:
            shown = privacy.paid_by.pay(privacy, request.steps, asked, run, resumed=resume, shown=shown)
            # Written last: no run is resumed that has not come further than this.
            if fresh is not None:
                fresh.write_text(f"{name} {shown}".rstrip(), encoding="ascii")
    elif request.resume and kept is not None and kept.exists():
        raise PrivacyError(
            f"{kept.parent} was begun on a budget: resume it with privacy=budget.take(share, reserve=False) "
            "of that budget and share, which does not pay again."
        )
    elif origin_of(privacy) in _USED and privacy.noise_seed is None and not request.resume:
        warn(
            f"this Privacy was used before: on the same rows, both runs together spend more than epsilon="
            f"{privacy.epsilon:g}. Draw each from a PrivacyBudget, which adds them up.",
        )
    else:
        _USED.add(origin_of(privacy))
    return run


@contextmanager
def _written(kept: Path) -> Iterator[Path]:
    """Yield a path whose file replaces `kept`. A folder that cannot be written to fails before it is paid."""
    new = not kept.parent.exists()
    make_folder(kept.parent)
    try:
        with replaced(kept) as fresh:
            yield fresh
    except BaseException:
        if new and not any(kept.parent.iterdir()):
            kept.parent.rmdir()
        raise


def _asked(request: FederationRequest) -> str:
    """Return what is asked for, in a few words: the algorithm that a description begins with."""
    try:
        return str(json.JSONDecoder().raw_decode(request.description)[0]["algorithm"])
    except (ValueError, TypeError, KeyError):
        return request.description


def _program(request: FederationRequest, configuration: Configuration) -> dict[str, Any]:
    """Return what a federation knows of the agreed program, as its parameters."""
    program = agreed_program(configuration, request.declared, request.algorithm)
    if program is None:
        return {}
    every = tuple(chain(program.phases, *program.metrics))

    def never(question: Question) -> str:
        return unasked(every, question.inner if isinstance(question, Noised) else question)

    return {"placed": Stated(program), "unasked": never}


def _again(request: FederationRequest, parameters: Mapping[str, Any]) -> Federation:
    """Open another federation of the same clients, which agree on another program.

    Raises:
        PrivacyError: privacy is claimed: another federation would have a budget of its own.
    """
    if request.privacy is not None:
        raise PrivacyError(
            "under differential privacy a fit's federation asks what was agreed on, within its budget; pass "
            "the clients' arrays and privacy=, which is another claim on the same rows."
        )
    return open_federation(replace(request, **parameters, run_dir=None, resume=False, watch=None))


def _check_rows_lie_where(engine: Engine, request: FederationRequest) -> None:
    """Check that rows are where the engine's clients are.

    Raises:
        ArgumentError: they are not; or a policy is given for clients that have their own, or noise that
            repeats, which they refuse.
    """
    members, clients = engine.members, request.clients
    if members is None and clients.data is None:
        raise ArgumentError("the clients of this engine have no rows of their own: pass them.")
    if members is None:
        return
    # A run that is resumed has the clients that agreed to it: by now others may be in the engine's list.
    if clients.data is not None or not set(clients.names) <= set(members.names):
        raise ArgumentError(
            f"this engine's {len(members.names)} clients have their rows: call fit() without X, groups and "
            "client_names.",
            parameters=["client_names"],
        )
    if request.policy is not None:
        raise ArgumentError("this engine's clients have policies of their own; leave policy out.")
    if request.privacy is not None and request.privacy.noise_seed is not None:
        raise ArgumentError(
            f"Privacy(noise_seed={request.privacy.noise_seed}) makes noise that repeats, for clients "
            "that are simulated in this process; this engine's clients refuse it. Leave noise_seed out."
        )


def _transcript(folder: Path | None, record: Kept, resume: bool) -> Transcript:
    if resume:
        return Transcript.load(folder_to_resume(folder), mend=True, record=record)
    if folder is not None:
        check_fresh(folder)
    return Transcript(folder, record)


def _ledger(
    request: FederationRequest, configuration: Configuration, transcript: Transcript
) -> BudgetLedger | SteppedLedger | None:
    if request.privacy is None:
        return None
    if request.steps is not None:
        return SteppedLedger(configuration)
    return BudgetLedger(configuration, unopened=unopened(transcript))


OPTIONS = (
    "protocol",
    "domain",
    "policy",
    "random_state",
    "groups",
    "client_names",
    "privacy",
    "engine",
    "run_dir",
)
"""What a user may say of a federation outside a fit."""


def open_over(
    X: Any,
    labels: Any = None,
    *,
    groups: Any = None,
    client_names: Iterable[Any] | None = None,
    protocol: str | SecureSum = "masked",
    domain: Domain | None = None,
    policy: ClientPolicy | None = None,
    purpose: str = "metrics",
    n_clusters: int | None = None,
    random_state: Any = 0,
    privacy: Privacy | None = None,
    engine: Engine | None = None,
    run_dir: str | Path | None = None,
    metric: AskedMetric | None = None,
    algorithm: Algorithm[Any] | None = None,
) -> Federation:
    """Return a federation over client arrays, or over an engine's clients, outside a fit (for metrics).

    Clients answer what `metric` or `algorithm` declares; where both are None, only those do whose `policy`
    says `undeclared=True`, and they answer anything within it. Clients count rows in cells only where a
    number of clusters is agreed on.

    Raises:
        ArgumentError: an argument is of another type, or the metric's centers have other columns than the
            rows; nothing was paid.
    """
    check_kinds({"engine": engine, "policy": policy, "domain": domain, "privacy": privacy})
    options: dict[str, Any] = {"names": client_names, "domain": domain, "private": privacy is not None}
    clients, about = (
        gathered(engine, X, groups, labels, **options),
        None if metric is None else metric.centers,
    )
    if about is not None and about.shape[1:] != (clients.n_features,):
        raise ArgumentError(f"centers need {clients.n_features} columns, got shape {about.shape}.")
    return open_federation(
        FederationRequest(
            clients=clients,
            description=purpose,
            # Nodes answer fits of so many sums by default, those of a lost client among them.
            max_sums=MOST_SUMS - SPARE_SUMS,
            algorithm=algorithm,
            metrics=() if metric is None else (metric.alone(),),
            protocol=protocol,
            n_clusters=n_clusters,
            seed=seed_from(random_state),
            domain=domain,
            privacy=privacy,
            engine=engine,
            policy=policy,
            run_dir=run_dir,
        )
    )


def federation_over(
    clients: Any, labels: Any = None, *, metric: AskedMetric | None = None, **options: Any
) -> Federation:
    """Return a federation over `clients`, in which a metric may be asked.

    Args:
        clients: list of tables, or a federation. Of one whose agreement does not have the metric (any more),
            the clients agree anew, on this metric alone.
        labels: list of integer codes, one array a client; None with a federation.
        metric: declares what will be asked; None only for clients that answer what is not declared.
        **options: of `open_over`.

    Raises:
        ArgumentError: an option is unknown; or labels or options are passed with a federation, which has its
            own.
    """
    if strange := sorted(options.keys() - {*OPTIONS, "n_clusters", "purpose", "algorithm"}):
        raise ArgumentError(f"a metric takes no {strange[0]}=; it takes {', '.join(OPTIONS)}.")
    if not isinstance(clients, Federation):
        return open_over(clients, labels, metric=metric, **options)
    if labels is not None or options:
        given = sorted([*options, *(["labels"] if labels is not None else [])])
        raise ArgumentError(
            f"a federation keeps its own {', '.join(given)}; pass them when its clients are given."
        )
    return clients if metric is None else clients.for_metric(metric)


def claim_of(
    federation: Federation, protocol: SecureSum, before: PrivacySpent | None = None
) -> PrivacySpent | None:
    """Return the claim of a run, with that of a run before (`claimed`); None without differential privacy."""
    ledger = federation.ledger
    if not isinstance(ledger, BudgetLedger | SteppedLedger):
        return None
    return claimed(
        federation.configuration,
        tuple(ledger.payments),
        one_key=protocol.one_key,
        by_author=by_author(protocol),
        before=before,
    )
