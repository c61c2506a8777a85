"""The references in the READMEs: made of the code, and fresh."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from spinney_tools import cli, clone, reference
from spinney_tools.command_tree import node_of, tree
from spinney_tools.launcher.answers import PARSERS, answer


@pytest.mark.parametrize("name", reference.READMES)
def test_every_reference_is_fresh(name: str) -> None:
    file = clone.root() / name
    assert "<!-- reference:" in file.read_text()
    assert not reference.refresh(file, write=False), "run ./spinney reference"


def test_the_parsers_that_the_launcher_has_are_fresh() -> None:
    assert not reference.refresh(PARSERS, reference.parsers, write=False), "run ./spinney reference"


@pytest.mark.parametrize("path", [path for path, _ in tree().walk()], ids=" ".join)
def test_the_launcher_helps_as_the_command_does(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert answer([*path, "--help"]) == 0
    said = capsys.readouterr().out
    with contextlib.suppress(SystemExit):
        cli.main([*path, "--help"])
    assert said == capsys.readouterr().out


def test_every_command_and_setting_is_there() -> None:
    commands = reference.commands("cloud")
    for path, _ in node_of(("cloud",)).walk(("cloud",)):
        assert len(path) == 1 or f"| `spinney {' '.join(path)}` | " in commands
    assert "| `spinney cloud user token` | Make a token for HTTP | `--data` `--config` `--for` |" in commands
    assert "| `http.port` | `8080` | 0: any free one. |" in reference.cloud_settings()
    assert "| `cloud.url` | `mqtt://127.0.0.1:1883` | " in reference.mobile_settings().replace('"', "")


@pytest.mark.parametrize("name", ["cloud", "mobile", "mote"])
def test_every_command_says_what_it_does(name: str) -> None:
    for line in reference.commands(name).splitlines()[2:]:
        assert line.split(" | ")[1].strip(), line


def test_only_what_is_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- reference:mote-commands -->\nold\n<!-- /reference -->\nafter\n")
    assert reference.refresh(page, write=False)
    assert "old" in page.read_text()
    assert reference.refresh(page, write=True)
    text = page.read_text()
    assert text.startswith("before\n<!-- reference:mote-commands -->\n")
    assert text.endswith("\n<!-- /reference -->\nafter\n")
    assert "| `spinney mote flash` |" in text
    assert "old" not in text
    assert not reference.refresh(page, write=True)


def test_a_mark_that_nobody_knows_is_said() -> None:
    with pytest.raises(reference.PageError, match="no reference 'odd'; there are: cloud-commands"):
        reference.filled("<!-- reference:odd -->\n<!-- /reference -->")


def test_a_cell_of_a_table_stays_one() -> None:
    assert reference.table(["a"], [["x | y\nz"]]) == "| a |\n| --- |\n| x \\| y z |\n"


def test_check_says_what_is_not_fresh_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clone, "root", lambda: tmp_path)
    monkeypatch.setattr(reference, "READMES", ("README.md",))
    monkeypatch.setattr(reference, "PARSERS", tmp_path / "parsers.json")
    (tmp_path / "README.md").write_text("<!-- reference:mote-commands -->\n<!-- /reference -->")
    assert reference.main(["--check"]) == 1
    said = (
        "README.md: not fresh; ./spinney reference writes it\nparsers.json: not fresh; ./spinney reference writes it\n"
    )
    assert capsys.readouterr().out == said
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
