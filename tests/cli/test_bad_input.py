"""Bad input of `privfed fit`: one clear line, exit code 2, and no folder left behind."""

from pathlib import Path

import pytest

BAD_WORDS = {
    "unknown group": ("--group hospitl", "has no column 'hospitl'"),
    "unknown label": ("--label specie", "has no column 'specie'"),
    "unknown column": ("--columns petal", "has no column 'petal'"),
    "empty column": ("--columns a,,b", "empty name"),
    "label as feature": ("--columns species", "which is the label"),
    "too many clusters": ("-k 151", "151 clusters cannot be found in 150 rows"),
    "no clusters": ("-k 0", "--n-clusters must be a whole number in [1, inf)"),
    "no number": ("-k many", "'many' is not a valid integer"),
    "low alone": ("--low 0", "--low and --high go together"),
    "high alone": ("--high 8", "--low and --high go together"),
    "max-rows alone": ("--max-rows 8", "--max-rows goes with --low and --high"),
    "bounds of some clients": ("--low 0 --high 8 --max-rows a=3,b=4", "--max-rows has a bound for each of 2"),
    "no number of rows": ("--low 0 --high 8 --max-rows a=3,b", "or NAME=NUMBER"),
    "rows of one client twice": ("--low 0 --high 8 --max-rows a=3,a=4", "or NAME=NUMBER"),
    "rows of nobody": ("--low 0 --high 8 --max-rows a=3,5", "or NAME=NUMBER"),
    "low is text": ("--low a --high 8", "'a' is no number"),
    "low is NaN": ("--low nan --high 8", "finite"),
    "low above high": ("--low 8 --high 0", "--low must be below --high in each feature"),
    "other number of bounds": ("--low 0,0 --high 8,8", "4 features"),
    "outside the domain": ("--low -1 --high 4", "outside the"),
    "too many rows": ("--low 0 --high 8 --max-rows 3", "--max-rows 3"),
    "local steps of lloyd": ("--algorithm lloyd --local-iter 2", "lloyd takes one local step"),
    "unknown algorithm": ("--algorithm kmeans", "'kmeans' is none of dp, dwf"),
    "unknown protocol": ("--protocol paillier", "'paillier' is none of plain, masked"),
    "no class of algorithms": (
        "--algorithm privfed.questions.lloyd:Inertia",
        "must be one that clusters rows",
    ),
    "no class of secure sums": ("--protocol privfed.questions.lloyd:Inertia", "made without arguments"),
    "an estimator as a secure sum": (
        "--protocol privfed.estimators.local_steps:DWFKMeans",
        "declares no name",
    ),
    "unknown start": ("--init best", "'best' is not one of"),
    "learning rate": ("--learning-rate 1.5", "--learning-rate must be"),
    "momentum": ("--momentum 1", "--momentum must be"),
    "tol": ("--tol nan", "--tol must be"),
    "max-iter": ("--max-iter 0", "--max-iter must be"),
    "too many clients": ("--clients-per-round 7", "--clients-per-round must be a whole number in [1, 6]"),
    "one client of a round": ("--clients-per-round 1 --protocol masked", ""),
    "seed": ("--seed -1", "--seed"),
    "separator": ("--separator ;;", "--separator must be one character"),
    "unknown option": ("--foo", "No such option"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_WORDS.values(), ids=BAD_WORDS.keys())
def test_bad_words_are_one_line(failing, words, tmp_path, bad, message) -> None:
    said = failing(*words, "--protocol", "plain", "--out", tmp_path / "run", *bad.split())
    assert message in said
    assert not (tmp_path / "run").exists()


def test_a_text_column_is_answered_with_what_it_may_be(failing, iris, tmp_path) -> None:
    said = failing("fit", iris, "--label", "species", "--out", tmp_path / "run")
    assert "'hospital'" in said and "(--drop)" in said and "(--group, --label, --id)" in said


def test_a_table_without_a_group_is_one_client(failing, tmp_path) -> None:
    (tmp_path / "one.csv").write_text("a,b\n" + "1,2\n3,4\n" * 9)
    said = failing("fit", tmp_path / "one.csv", "-k", 2, "--protocol", "masked", "--out", tmp_path / "run")
    assert "one client" in said
    assert "--group" in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "no header line"),
        (b"hospital,a\nh1,x\nh2,y\n", "not numeric"),
        (b"hospital,a\nh1,1\nh2,\n", "missing"),
        (b"\x00\xff\xfe", ""),
    ],
    ids=["no file", "empty", "text", "missing value", "no text"],
)
def test_bad_tables_are_one_line(failing, tmp_path, content, message) -> None:
    if content is not None:
        (tmp_path / "bad.csv").write_bytes(content)
    said = failing("fit", tmp_path / "bad.csv", "--group", "hospital", "--out", tmp_path / "run")
    assert message in said
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_kept(invoke, failing, words, tmp_path) -> None:
    full = [*words, "--protocol", "plain", "--out", tmp_path / "run"]
    invoke(*full)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert f"privfed resume {tmp_path / 'run'}" in failing(*full)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_file_is_no_folder(failing, words, iris) -> None:
    assert "is a file" in failing(*words, "--out", iris)


def test_a_folder_that_cannot_be_written_is_one_line(failing, words) -> None:
    assert "/proc/privfed" in failing(*words, "--out", Path("/proc/privfed/run"))


def test_files_of_others_in_the_folder_stay(failing, words, tmp_path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    failing(*words, "--out", tmp_path / "run", "--tol", "nan")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_values_that_need_a_domain_are_one_line(failing, tmp_path) -> None:
    (tmp_path / "huge.csv").write_text("c,a\n" + "".join(f"c{i % 5},{i}e300\n" for i in range(1, 30)))
    said = failing("fit", tmp_path / "huge.csv", "--group", "c", "-k", 2, "--out", tmp_path / "run")
    assert "domain" in said


def test_usage_errors_name_the_help(failing) -> None:
    assert failing("fit") == "Missing argument 'DATA'; see 'privfed fit --help'"
    assert "No such command 'fly'" in failing("fly")
    assert "Missing argument 'RUN'" in failing("resume")


def test_the_bare_command_prints_its_help(invoke) -> None:
    text = invoke().stdout
    for command in ("fit", "resume", "predict", "show", "tradeoff"):
        assert f"\n  {command}" in text
    assert invoke("--help").stdout == text
    assert "privfed, version " in invoke("--version").stdout
