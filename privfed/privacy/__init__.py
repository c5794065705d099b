"""Differential privacy: noise, sensitivities, accounting and the ledger of what was spent."""
