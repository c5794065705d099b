"""Audits: compare the empirical epsilon of a mechanism, a whole run, or the noise itself with the claim."""

from privfed.attacks.audits.noise import (
    RunAudit,
    audit_noises,
    audit_pmf,
    audit_run,
    exact_epsilon,
    hockey_stick,
)
from privfed.attacks.audits.rows import RowsAudit, RowShift, audit_rows
from privfed.attacks.audits.samples import Audit, Claim, audit, audit_one_run, audit_samples
from privfed.attacks.audits.units import audit_units

__all__ = [
    "Audit",
    "Claim",
    "RowShift",
    "RowsAudit",
    "RunAudit",
    "audit",
    "audit_noises",
    "audit_one_run",
    "audit_pmf",
    "audit_rows",
    "audit_run",
    "audit_samples",
    "audit_units",
    "exact_epsilon",
    "hockey_stick",
]
