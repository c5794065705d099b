"""Three hospitals with two wards each cluster over Flower, all on this machine, and things go wrong.

    python -m examples.three_hospitals.run [--out DIR]        (or: make flower-demo)

It makes certificates, identities and the list of parties, starts a SuperLink and a node for each ward (each a
process with a folder of its own, over TLS, known by its key), and a seventh node that nobody registered. It
then fits dynamically weighted k-means over masked sums. On the way one ward's node is killed, and another one
is so slow that its reply comes too late. At the end it prints what each party saw, from its own records, and
the centroids beside those of a fit in this process in which nobody is lost.

Everything is in DIR (default: runs/three_hospitals): look into nodes/<ward>/node.toml and the logs in flwr/.
Takes about five minutes on two cores: a message takes seconds, and a killed node is noticed after forty.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np

from examples.three_hospitals.processes import Processes, free_port
from privfed import ClientPolicy, DWFKMeans
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import Asked, Summed
from privfed.core.roles.conversation import Ask, Total
from privfed.data import ClientTable, ClientTables
from privfed.federation.clients import Clients
from privfed.nodes.deploy.folders import new_party, write_card, write_node
from privfed.nodes.deploy.local import make_local, nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.party import Party
from privfed.protocols import Masked

COLUMNS = ("age", "bmi")
GROUP_SIZE = 5
APPROVED = {"algorithms": ["WeightedKMeans"], "group_size": GROUP_SIZE, "max_losses": 3}
"""What each ward's owner approves: this algorithm, from means of groups of five rows."""

WORDS = {"local_iter": 2, "max_iter": 4, "tol": 0, "random_state": 1}


def wards() -> dict[str, np.ndarray]:
    """Return rows of six wards, float64 of shape (n_rows, 2), drawn here."""
    rng = np.random.default_rng(0)
    means = np.array([[35.0, 22.0], [60.0, 31.0], [75.0, 24.0]])
    rows = {}
    for hospital, shares in {
        "north": (0.6, 0.2, 0.2),
        "south": (0.2, 0.6, 0.2),
        "west": (0.2, 0.2, 0.6),
    }.items():
        for ward in (1, 2):
            of = rng.choice(3, size=60, p=shares)
            rows[f"{hospital}-{ward}"] = means[of] + rng.normal(0.0, (4.0, 2.0), (60, 2))
    return rows


def stranger(folder: Path) -> Path:
    """Make a node that is in nobody's list and whose key the SuperLink was not told."""
    new_party(folder, "stranger")
    for name in ("parties", "kit", "rows.npz"):
        shutil.copy(next(iter(nodes_of(folder.parent))) / name, folder)
    write_node(folder, "rows.npz", "borrowed rows")
    write_card(folder)
    return folder


def run(out: Path) -> None:
    """Make the federation, run it, and print what each party saw."""
    rows, began = wards(), time.monotonic()
    settings = {"superlink": f"127.0.0.1:{free_port()}", "timeout": 40.0, "wait": 180.0}
    file = make_local(out, rows, COLUMNS, approved=APPROVED, **settings)
    print(f"made {out}: folders of {len(rows)} wards and the coordinator, certificates, the list of parties")
    with Processes(file) as running, FlowerEngine(out) as engine:
        running.start_superlink()
        for folder in (*nodes_of(out), stranger(out / "stranger")):
            running.start_node(folder)
        print("started the SuperLink, six nodes and a stranger; fitting over masked sums", flush=True)

        def watch(index: int, ask: Ask, total: Total) -> None:
            names = engine.members.names
            there = ", ".join(names[i] for i in total.contributors)
            print(f"  {time.monotonic() - began:4.0f} s, sum {index} ({ask.purpose}): {there}", flush=True)
            if index == 1:
                print("         -- the node of south-2 is killed: Flower notices within 30 s", flush=True)
                running.kill_node("south-2")
            if index == 3:
                print("         -- the node of west-1 is held up for a minute", flush=True)
                running.hold("west-1", seconds=60.0)

        # One ward is lost for good, another is lost and comes back: more than a fit allows by default.
        protocol = Masked(losses=3)
        model = DWFKMeans(3, protocol=protocol, engine=engine, run_dir=out / "run", **WORDS)
        model.fit_clients(Clients.elsewhere(engine.members), watch=watch)
        engine.end_fits()
        print(f"\nWhat each party saw, from its own records in {out}:")
        tell_superlink(out, model)
        tell_coordinator(model, engine)
        tell_wards(out, model)
        compare(model)


def tell_superlink(out: Path, model: DWFKMeans) -> None:
    """Print what passed the SuperLink, and what it made of the stranger."""
    traffic, names = model.federation_.traffic, model.federation_.setting.clients
    print("\nThe SuperLink saw who sends how many bytes when; what is in them is sealed or masked:")
    for i, name in enumerate(names):
        print(f"  {name}: {traffic.down.get(i, 0):,} bytes down, {traffic.up.get(i, 0):,} up")
    refused = (out / "flwr" / "stranger.log").read_text(errors="replace")
    came = " connected: " in refused
    print(f"  the stranger, with a key that nobody registered: {'WAS LET IN' if came else 'never let in'}")


def tell_coordinator(model: DWFKMeans, engine: FlowerEngine) -> None:
    """Print what the coordinator asked, and the totals that it opened."""
    print("\nThe coordinator saw what it asked, and totals over wards; of no ward its answer:")
    asked = {one.index: question_from_bytes(one.question) for one in model.transcript_.of(Asked)}
    for total in model.transcript_.of(Summed):
        entries = ", ".join(f"{name} {array.shape}" for name, array in total.statistics.items())
        kind = type(asked[total.index]).__name__
        print(f"  sum {total.index}, {kind}, of {len(total.contributors)} wards: {entries}")
    last = model.transcript_.of(Summed)[-1]
    values = ", ".join(
        f"{name} {np.round(array.to_numpy(), 1).tolist()}" for name, array in last.statistics.items()
    )
    print(f"  the last of them in full: {values}")
    for one in engine.faults:
        # Secure sums count from 1, as 0 is their set-up.
        print(f"  {one.client} gave no reply to sum {one.number - 1}, stage {one.stage}: {one.what}")


def tell_wards(out: Path, model: DWFKMeans) -> None:
    """Print what the journal of each ward says."""
    print("\nEach ward saw its own rows and the questions; its journal keeps what it gave:")
    for folder in nodes_of(out):
        (fit,) = Party(folder).journal.fits
        end = "closed, keys erased" if fit.closed else "still open: it was not there at the end"
        print(f"  {folder.name}: {fit.answered} sums answered, {fit.losses} losses of others counted, {end}")


def compare(model: DWFKMeans) -> None:
    """Print the centroids beside those of a fit in this process with all wards all the time."""
    rows = ClientTables([ClientTable(name, table) for name, table in wards().items()], COLUMNS)
    here = DWFKMeans(3, policy=ClientPolicy(group_size=GROUP_SIZE), **WORDS).fit(rows)
    order = [np.abs(here.cluster_centers_ - one).sum(axis=1).argmin() for one in model.cluster_centers_]
    print(f"\nCentroids ({', '.join(COLUMNS)}), and where nobody is lost:")
    for found, other in zip(model.cluster_centers_, here.cluster_centers_[order], strict=True):
        print(f"  {np.round(found, 2)}  {np.round(other, 2)}")


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/three_hospitals"))
    out = parser.parse_args().out
    if out.exists():
        raise SystemExit(f"{out} is there already; name another folder, or remove it.")
    run(out)


if __name__ == "__main__":
    main()
