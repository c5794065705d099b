"""What users see: estimators and the functions that ask through the same door."""
