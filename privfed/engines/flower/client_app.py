"""The ClientApp that Flower runs on a node: bytes in, bytes out, and no text of any error."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from privfed.core.stored.messages import Refusal, encode
from privfed.engines.flower.grid import packed, unpacked
from privfed.engines.flower.node import answered
from privfed.engines.flower.settings import PARTITION, PARTY
from privfed.errors import FAILED, ArgumentError


def folder_of(context: Context, folders: tuple[Path, ...] = ()) -> Path:
    """Return the folder of the party that a node is.

    It follows from the node's own configuration, never from the run's, which whoever submits the run writes.

    Args:
        context: of the message.
        folders: of all parties, in a simulation.

    Raises:
        ArgumentError: the node's configuration names none.
    """
    own = context.node_config
    if not folders and isinstance(own.get(PARTY), str):
        return Path(str(own[PARTY]))
    place = own.get(PARTITION)
    if folders and isinstance(place, int) and 0 <= place < len(folders):
        return folders[place]
    raise ArgumentError("this node's configuration names no party: start it with privfed flower node.")


def client_app(folders: tuple[Path, ...] = ()) -> ClientApp:
    """Return a ClientApp that answers from its party's folder.

    Args:
        folders: of all parties, in a simulation; empty where each node's configuration names its own.
    """

    def answer(message: Message, context: Context) -> Message:
        try:
            reply = answered(folder_of(context, folders), unpacked(message.content))
        except Exception:
            # Flower would send the text of this error to the server.
            reply = encode(Refusal(FAILED))
        return Message(packed(reply), reply_to=message)

    app = ClientApp()
    app.query()(answer)
    return app


app = client_app()
"""What an app's pyproject.toml names."""
