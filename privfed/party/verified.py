"""A client's own run of what was agreed: where it gets totals, it answers only what this run asks next.

Without totals a client checks the form of a question (`privfed.party.program`). With them it knows the next
question itself. The same run serves sums that clients open (`group-masked`, `ckks`) and verified masked sums:
only where its totals come from differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import built
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import StateStore
from privfed.core.values.domain import Domain
from privfed.errors import ArgumentError
from privfed.party.program import refuse_size, setting_of
from privfed.party.replica import AlgorithmReplica, OpenedTotal
from privfed.privacy.ledger import BudgetLedger


def reads_totals(opens_to: str, configuration: Configuration) -> bool:
    """Say whether a client of a sum gets the totals, and so needs a run of its own.

    Args:
        opens_to: who opens totals, as `SecureSum.opens_to`.
        configuration: what was agreed.
    """
    return opens_to == "clients" or configuration.terms.verified


def own_run(
    configuration: Configuration,
    store: StateStore,
    *,
    domain: Domain | None = None,
    tells: Callable[[int, OpenedTotal], None] = lambda index, total: None,
    start: Total | None = None,
) -> AlgorithmReplica[Any]:
    """Return a client's own run of the agreed algorithm, after the totals that its store has.

    Args:
        configuration: what was agreed.
        store: keeps the totals told so far (`privfed.party.replica.TOTALS`).
        domain: the declared domain, where that is a ball; a box is in the agreement.
        tells: hears each total besides.
        start: total of an earlier fit's start, where the agreement names one.

    Raises:
        ArgumentError: the agreement declares no algorithm, or this party runs other versions.
        PolicyError: something that is agreed on is too large to be built.
    """
    agreed = configuration.program
    if agreed is None or agreed.algorithm is None:
        raise ArgumentError(
            "the agreement names no algorithm, so that this client cannot tell from totals what comes next. "
            "Agree on an estimator; metrics alone are asked over sums that the server opens, unverified."
        )
    agreed.check_versions()
    refuse_size(configuration)
    ledger = None if configuration.noising_terms is None else BudgetLedger(configuration)
    setting = replace(setting_of(configuration, domain), start=start)
    return AlgorithmReplica(built(agreed.algorithm), setting, store, ledger=ledger, tells=tells)
