"""The command line on a terminal so wide that no line of a table is broken."""

from click.testing import CliRunner, Result

from privfed.cli.main import main


def run(*words: object, exit_code: int = 0) -> Result:
    """Run the command; an exit code that differs is an error."""
    said = CliRunner(env={"COLUMNS": "2000"}).invoke(main, [str(word) for word in words])
    assert said.exit_code == exit_code, (said.output, said.exception)
    return said
