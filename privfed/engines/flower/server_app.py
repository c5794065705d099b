"""The ServerApp of a run that a process on the same machine drives: it relays."""

from __future__ import annotations

from multiprocessing.connection import Client

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from privfed.engines.flower.grid import GridNetwork
from privfed.engines.flower.relay import relay

RELAY = "relay"
"""Key of the run's configuration: path of the driving process's socket."""


def server_app(path: str | None = None) -> ServerApp:
    """Return a ServerApp that relays.

    Args:
        path: of the socket; None to take it from the run's configuration.
    """

    def main(grid: Grid, context: Context) -> None:
        where = str(context.run_config.get(RELAY, "")) if path is None else path
        if not where:
            raise RuntimeError("this app is driven by a process that starts it: see privfed flower run")
        with Client(where, family="AF_UNIX") as pipe:
            relay(GridNetwork(grid), pipe)

    app = ServerApp()
    app.main()(main)
    return app


app = server_app()
"""What an app's pyproject.toml names."""
