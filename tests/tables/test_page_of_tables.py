"""The commands of docs/tables.md run as they stand there, from exports to profiles."""

import re
import shlex
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from privfed.tables.schema import Column, File, Schema, parse
from tests.some import some


@pytest.mark.slow
def test_the_commands_of_the_page_run_one_after_the_other(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, clients = np.random.default_rng(2), tmp_path / "clients"
    clients.mkdir()
    for name in ("aarhus", "odense", "viborg"):
        lines = ["cpr,age,ward,seen"]
        for i in range(60):
            age, ward = rng.normal(30 + 15 * (i % 4)), ("øre", "hjerte")[i % 2]
            lines.append(f"{name}-{i:03d},{age:.2f},{ward},{i % 28 + 1:02d}-01-2024 08:30")
        text = "\n".join(lines)
        if name == "aarhus":
            text = text.replace(",", ";").replace(".", ",")
        (clients / f"{name}.csv").write_text(text, encoding="latin-1" if name == "aarhus" else "utf-8")
        shutil.copy(clients / f"{name}.csv", tmp_path)
    stays = [
        f"h{i % 3},{i},2024-01-{i % 28 + 1:02d},{5 + 8 * (i % 2) + i % 3},{30 + i % 90}" for i in range(120)
    ]
    (tmp_path / "stays.csv").write_text("\n".join(["hospital,stay,admitted,glucose,age", *stays]))
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/tables.md").read_text()
    commands = [shlex.split(line)[1:] for line in page.splitlines() if line.startswith("    privfed ")]
    assert len(commands) >= 10
    for words in some(commands):
        invoke(*words)
    assert len((tmp_path / "clusters.csv").read_text().splitlines()) == 61
    assert "ward=hjerte" in (tmp_path / "run/centroids-in-units.csv").read_text()


def test_the_reference_has_every_key_of_a_schema_in_an_example_and_a_table() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/files.md").read_text().partition("## Schemas")[2]
    page = page.partition("## Policies")[0]
    schema = parse("\n".join(re.findall(r"^    (.*)$", page, re.MULTILINE)))
    told = {
        key for row in re.findall(r"^\| (.*?) \|", page, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)
    }
    keys = {one.name for kind in (Column, File, Schema) for one in msgspec.structs.fields(kind)}
    assert keys - told == {"columns", "files"}
    used = {
        name
        for one in (*schema.columns.values(), *schema.files.values())
        for name, value in msgspec.structs.asdict(one).items()
        if name == "kind"
        or value != msgspec.structs.asdict(Column(kind="id") if isinstance(one, Column) else File())[name]
    }
    assert keys - used <= {"columns", "files", "scale", "conflicts", "origin", "weight"}
