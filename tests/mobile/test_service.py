"""`spinney mobile install-service`: the unit, as systemd itself judges it, and what is written where."""

from __future__ import annotations

import grp
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mobile_kit import command

from spinney_mobile.active import MAX_FILTERS
from spinney_mobile.service import UnitError, plan, unit

SMALL_MACHINE_SECONDS = 0.005
"""For one active filter at the start."""


def lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("run_as", [None, "root"])
def test_systemd_takes_the_unit_and_finds_it_well_fenced(tmp_path: Path, run_as: str | None) -> None:
    made = plan(None, None, user_unit=False, run_as=run_as)
    file = tmp_path / made.path.name
    file.write_text(made.text)
    verified = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert level, judged.stderr
    assert float(level[1]) <= (2.0 if run_as is None else 2.5)


def test_the_unit_starts_this_installation_and_is_watched() -> None:
    found = lines(unit(["/opt/venv/bin/spinney", "mobile"], Path("/etc/spinney/m.toml"), None, user_unit=False))
    assert found["ExecStart"] == (
        "/opt/venv/bin/spinney mobile run --data %S/spinney-mobile --config /etc/spinney/m.toml"
    )
    assert (found["Type"], found["Restart"], found["RestartPreventExitStatus"]) == ("notify", "always", "2")
    assert int(found["WatchdogSec"]) > 0
    assert int(found["TimeoutStartSec"]) >= MAX_FILTERS * SMALL_MACHINE_SECONDS, "else it would never be ready"
    assert (found["DynamicUser"], found["StateDirectory"]) == ("yes", "spinney-mobile")
    assert found["ProtectHome"] == "yes"


def test_the_machines_boot_can_be_read_so_that_a_kill_is_no_power_cut() -> None:
    """Else bits would be unknown after each kill, and be told anew (rule S2)."""
    found = lines(unit(["/opt/venv/bin/spinney"], None, None, user_unit=False))
    assert found.get("ProcSubset", "all") == "all"
    assert "/proc" not in found.get("InaccessiblePaths", "")


def test_an_installation_at_home_can_be_read_and_its_own_data_written() -> None:
    text = unit(["/home/pi/v/bin/spinney"], None, Path("/home/pi/my data"), user_unit=False, run_as="pi")
    found = lines(text)
    assert found["ProtectHome"] == "read-only"
    assert found["ReadWritePaths"] == '"/home/pi/my data"'
    assert found["User"] == "pi"
    assert 'run --data "/home/pi/my data"' in found["ExecStart"]
    assert "DynamicUser" not in text


def test_signs_that_systemd_reads_otherwise_are_escaped() -> None:
    text = unit(["/a b/100%/$x"], None, None, user_unit=True)
    assert 'ExecStart="/a b/100%%/$$x" run' in text
    with pytest.raises(UnitError, match="a line break"):
        unit(["/a\nExecStartPre=/bin/evil"], None, None, user_unit=True)


def test_the_service_may_use_bluez_and_serial_ports_and_nobody_reads_its_data() -> None:
    text = unit(["/x"], None, None, user_unit=False)
    found = lines(text)
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    there = {group.gr_name for group in grp.getgrall()}
    assert found.get("SupplementaryGroups", "").split() == [name for name in ("bluetooth", "dialout") if name in there]
    assert found["DevicePolicy"] == "closed"
    for device in ("ttyUSB", "ttyACM", "ttyAMA"):
        assert f"DeviceAllow=char-{device} rw\n" in text
    assert (found["UMask"], found["StateDirectoryMode"], found["CapabilityBoundingSet"]) == ("0077", "0700", "")


def test_a_users_service_goes_on_when_the_user_has_gone() -> None:
    of_user, of_system = (plan(None, None, user_unit=user, run_as=None) for user in (True, False))
    assert of_user.commands[-1] == ("loginctl", "enable-linger")
    assert of_system.commands == (
        ("systemctl", "daemon-reload"),
        ("systemctl", "enable", "--now", "spinney-mobile.service"),
    )


def test_a_users_unit_asks_for_nothing_that_only_root_may_give() -> None:
    text = unit(["/x"], None, None, user_unit=True)
    for name in ("User=", "DynamicUser", "ProtectSystem", "CapabilityBoundingSet", "DevicePolicy", "Supplementary"):
        assert name not in text
    assert lines(text)["WantedBy"] == "default.target"


def test_a_dry_run_shows_and_writes_nothing(tmp_path: Path) -> None:
    done = command("install-service", "--user", "--dry-run", env=home(tmp_path))
    assert done.returncode == 0
    assert "ExecStart=" in done.stdout
    assert "#   systemctl --user daemon-reload" in done.stdout
    assert not list(tmp_path.rglob("*.service"))


def test_nothing_is_written_where_nobody_can_be_asked(tmp_path: Path) -> None:
    done = command("install-service", "--user", env=home(tmp_path))
    assert done.returncode == 1
    assert "say --yes" in done.stderr
    assert not list(tmp_path.rglob("*.service"))


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="it would start the service here")
def test_with_yes_the_unit_is_written_and_what_it_starts_can_be_started(tmp_path: Path) -> None:
    done = command("install-service", "--user", "--yes", "--config", str(tmp_path / "m.toml"), env=home(tmp_path))
    # the configuration is read first: a unit with a broken one would never start
    assert done.returncode == 2
    (tmp_path / "m.toml").write_text("acquire = []\n")
    done = command("install-service", "--user", "--yes", "--config", str(tmp_path / "m.toml"), env=home(tmp_path))
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("*.service")
    assert file == tmp_path / "systemd" / "user" / "spinney-mobile.service"
    assert file.stat().st_mode & 0o777 == 0o644
    words = shlex.split(lines(file.read_text())["ExecStart"])
    started = subprocess.run([*words[: words.index("run")], "--help"], capture_output=True, text=True, check=False)
    assert "usage: spinney" in started.stdout


def home(folder: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder), "HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
