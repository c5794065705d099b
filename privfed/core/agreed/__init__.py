"""What the parties agree on before a run, what a secure sum assumes, and each client's own policy."""
