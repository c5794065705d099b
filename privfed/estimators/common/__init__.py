"""What all estimators share: checks of parameters, clients from tables, claims, messages."""
