"""How names become code: registries, lazy imports, and the check that a name keeps its meaning."""
