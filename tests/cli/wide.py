"""The command line on a terminal so wide that no line of a table is broken, and without pictures."""

from collections.abc import Sequence

from click.testing import CliRunner, Result

from privfed.cli.main import main

DRAWING = {"fit", "resume", "select-k", "attack"}


def without_pictures(words: Sequence[object]) -> list[str]:
    """Return the words of a command that draws only if they ask for it: most tests look at no picture."""
    said = [str(word) for word in words]
    return [*said, "--no-picture"] if DRAWING & set(said[:1]) and "--picture" not in said else said


def run(*words: object, exit_code: int = 0) -> Result:
    """Run the command, without pictures but for --picture; an exit code that differs is an error."""
    said = CliRunner(env={"COLUMNS": "2000"}).invoke(main, without_pictures(words))
    assert said.exit_code == exit_code, (said.output, said.exception)
    return said
