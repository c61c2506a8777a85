"""What the pipeline's README says: each way to read a lake, and options and commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit import city, make_log, put
from pyspark.sql import SparkSession
from servers import NatsServer
from test_lake import fill

from spinney_cloud.pipeline import command, command_lake
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.service import write_run
from spinney_cloud.settings import Settings

ROOT = Path(__file__).parents[2]
README = ROOT / "cloud/spinney_cloud/pipeline/README.md"
TEXT = README.read_text()
READERS = dict(re.findall(r"^```python\n# ([^\n]+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
SHELL = "".join(re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where there is a lake as `spinney cloud --with-pipeline` makes it."""
    fill(Lake(tmp_path / "spinney-data/lake"), days=2, batches=1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(code: str, here: Path, spark: SparkSession) -> None:
    """As from a Python that was started here: Spark's Java knows but the folder where it was."""
    exec(compile(code.replace('"spinney-data', f'"{here}/spinney-data'), "README.md", "exec"), {"spark": spark})


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("Spark", r"\|\s+m[01]\|"),
        ("DuckDB", "air/no2"),
        ("pandas", "80.000000"),
        ("Polars", "air/o3"),
    ],
)
def test_each_reads_it_in_two_lines(
    reader: str, said: str, spark: SparkSession, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = READERS[reader]
    assert len(code.splitlines()) == 2
    run(READERS["all of them"] + code, here, spark)
    assert re.search(said, capsys.readouterr().out)


def test_the_log_is_read_as_it_says(
    spark: SparkSession, nats: NatsServer, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_log(nats)
    put(nats, city(3))
    (here / "spinney-data/run").mkdir()
    write_run(here / "spinney-data/run/run.json", Settings(), nats.endpoints())
    run(READERS["the log, from any Spark session, Connect among them"], here, spark)
    assert re.search(r"air/no2\|\s+30\|", capsys.readouterr().out)


def test_a_frame_is_matched_as_it_says(spark: SparkSession, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Lake(here / "spinney-data/lake").dataset().to_table(columns=["type", "numbers"]).to_pylist()
    high = sum(dict(row["numbers"])["NO2"] > 40 for row in rows)
    highest = sum(row["type"] == "air/o3" and dict(row["numbers"])["NO2"] > 90 for row in rows)
    run(READERS["all of them"] + READERS["matches of a frame"], here, spark)
    said = capsys.readouterr().out
    assert re.search(rf"NO2 > 40\s+\|{high}\s+\|", said)
    assert re.search(rf"NO2 > 90\s*\|{highest}\s+\|", said)
    assert high > highest > 0


@pytest.mark.usefixtures("here")
def test_each_command_line_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.partition("#")[0].split() for line in SHELL.splitlines()]
    for line in lines:
        match line:
            case ["spinney", "pipeline", *options]:
                command._parser().parse_args(options)
            case ["spinney", "lake", *options]:
                assert command_lake.main(options) == 0, line
            case ["spinney", "cloud", *options]:
                assert options == ["--with-pipeline"]
    assert len([line for line in lines if line[:2] == ["spinney", "lake"]]) == 6
    assert "there is no lake" not in capsys.readouterr().err
    assert Lake("restored").state("observations").rows == 80


def test_options_and_files_that_it_names_are_there() -> None:
    options = set(re.findall(r"`(--[a-z-]+)", TEXT)) - {"--with-pipeline"}
    assert options <= {*command.FLAGS.values(), "--once", "--check", "--master"}
    for name in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (README.parent / name.partition("#")[0]).exists(), name


def test_its_numbers_are_those_of_the_code() -> None:
    from spinney_cloud.pipeline.running import ROOM
    from spinney_cloud.pipeline.running_loop import AGAIN_SECONDS

    assert f"every\n{AGAIN_SECONDS:g} s" in TEXT
    assert ROOM == 2
    assert "below twice `log.free_disk_floor`" in TEXT
    assert f"Every {Settings().pipeline.compact / 60:g} minutes" in TEXT
