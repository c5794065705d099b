"""Parameters of estimators, said once: how they are declared, and what several estimators share."""
