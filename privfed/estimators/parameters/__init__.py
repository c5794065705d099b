"""Parameters of estimators, each declared once: the mechanism, and groups that several estimators share."""
