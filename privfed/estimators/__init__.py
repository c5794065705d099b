"""What users see: estimators and the functions that ask in the same way."""
