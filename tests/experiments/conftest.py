"""The small study, planned and run once."""

from pathlib import Path

import pytest

from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.page import write_report
from privfed.experiments.running import Store, missing, run
from tests.experiments.small import SMALL, silent


@pytest.fixture(scope="session")
def small() -> Plan:
    return plan(parse_study(SMALL, "study.toml"), Path())


@pytest.fixture(scope="session")
def finished(small: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the small study, run undisturbed and reported."""
    folder = tmp_path_factory.mktemp("study")
    store = Store(folder)
    run(small, store, missing(small, store), 1, silent)
    assert not missing(small, store)
    write_report(folder, small, store)
    return folder
