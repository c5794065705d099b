"""Describes in words what each party of a run saw, and under which assumptions."""

from __future__ import annotations

from privfed.experiments.report.summary import Row

_TOTALS = {
    "sums": "totals over the clients of each round and who was in them, never a single client's answer",
    "unlinked contributions": "every client's answer, but not whose it was",
    "contributions": "every single client's answer in clear",
}

_ASSUMES = {
    "plain": "nothing: it protects nobody, and is the baseline that attacks are measured on",
    "masked": "at most the agreed number of clients collude with the server; it may lie, but it cannot "
    "break X25519, AES-256 or Ed25519",
}


def saw(row: Row) -> dict[str, str]:
    """Return for each party what it saw of a run of this configuration."""
    if row.opens_to == "server":
        server = f"every question, and {_TOTALS.get(row.reveals, row.reveals)}"
        clients = "the questions, which hold the centroids of each round, and its own answers"
    else:
        server = "who took part and the lengths of messages; no question, no total"
        clients = f"the questions and {_TOTALS.get(row.reveals, row.reveals)}"
    assumed = _ASSUMES.get(row.setup.protocol, "see the page of this sum in docs/protocols")
    noise = row.setup.privacy
    if noise is not None:
        kind = "rehearsed noise: nobody is protected here" if noise.rehearsal else "claimed"
        whose = "it noised the totals itself," if noise.noise == "server" else "answers carry noise"
        server += f"; {whose} for epsilon {noise.epsilon:g} of one {noise.unit} ({kind})"
        if row.setup.protocol == "plain":
            assumed = (
                "each client draws the whole noise by itself; its answers protect its rows by nothing else"
            )
    return {
        "the server": server,
        "a client": clients,
        "an observer": "the final centroids",
        "assumed": assumed,
    }
