"""The differential-privacy claim of a federation's run."""

from __future__ import annotations

from privfed.core.federation import Federation
from privfed.core.roles.secure_sum import SecureSum
from privfed.privacy.claim import PrivacySpent, claimed
from privfed.privacy.ledger import BudgetLedger
from privfed.privacy.stepped import SteppedLedger


def claim_of(federation: Federation, protocol: SecureSum) -> PrivacySpent | None:
    """Return the claim of a run, a rehearsal's included; None without differential privacy."""
    ledger = federation.ledger
    if not isinstance(ledger, BudgetLedger | SteppedLedger):
        return None
    return claimed(federation.configuration, tuple(ledger.payments), one_key=protocol.one_key)
