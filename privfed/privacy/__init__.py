"""Differential privacy: noise, sensitivities, accounting, and ledgers of the budget spent."""
