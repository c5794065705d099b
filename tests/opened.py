"""What who opens the totals saw of a run: the server, or the clients, as the secure sum has it."""

from __future__ import annotations

from privfed.core.record.records import Began, View
from privfed.core.record.transcript import Transcript


def opened(transcript: Transcript) -> View:
    """Return the view of those who read the totals."""
    began = transcript.of(Began)[0]
    return transcript.view(began.recipient)
