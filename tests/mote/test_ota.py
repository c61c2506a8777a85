"""Updates over the air: verified, switched at once, on trial first; power lost at any step leaves a set that runs."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import spinney_boot
from mote_flash import CuttableFiles, PowerCut
from spinney_boot import FACTORY, TRIAL_BOOTS, Files, Pointer, choose, read_pointer, slot_folder, write_pointer
from spinney_mote.ota import MAX_BUNDLE, Ota, OtaError, is_library_file, tag_of

from spinney.mote.bundle import BundleError, bundle, library_files

LIBRARY = Path(__file__).parents[2] / "firmware" / "lib" / "spinney_mote"
KEY = bytes(range(32))
NEW = {
    "spinney_mote/__init__.py": b"",
    "spinney_mote/a.py": b"A = 1\n" * 1000,
    "spinney_mote/drivers/b.mpy": b"B" * 100,
}


def send(ota: Ota, data: bytes, chunk_bytes: int = 180) -> None:
    ota.begin(len(data))
    for offset in range(0, len(data), chunk_bytes):
        assert ota.write(offset, data[offset : offset + chunk_bytes]) == min(offset + chunk_bytes, len(data))


def staged(folder: Path, slot: int) -> dict[str, bytes]:
    root = folder / slot_folder(slot)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("chunk_bytes", [1, 20, 180, 5000])
def test_a_whole_update_runs_at_the_next_start_and_is_kept_once_healthy(tmp_path: Path, chunk_bytes: int) -> None:
    files = Files(str(tmp_path))
    ota = Ota(files, KEY)
    send(ota, bundle(NEW, KEY), chunk_bytes)
    assert choose(files) == FACTORY  # nothing is switched before the commit
    ota.commit()
    assert staged(tmp_path, 1) == NEW
    assert choose(files) == 1
    assert Ota(files, KEY, running=1).healthy()
    assert [choose(files) for _ in range(10)] == [1] * 10


def test_the_second_update_takes_the_other_place(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    for slot, text in ((1, b"one"), (2, b"two"), (1, b"three")):
        new = {**NEW, "spinney_mote/a.py": text}
        ota = Ota(files)
        send(ota, bundle(new))
        ota.commit()
        assert choose(files) == slot
        assert staged(tmp_path, slot) == new
        assert Ota(files, running=slot).healthy()


def test_a_set_that_is_never_healthy_is_given_up_for_the_last_good_one(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    write_pointer(files, Pointer(good=1))
    ota = Ota(files)
    send(ota, bundle(NEW))
    ota.commit()
    assert [choose(files) for _ in range(TRIAL_BOOTS + 2)] == [2] * TRIAL_BOOTS + [1, 1]
    assert read_pointer(files).failed == 2


def test_a_set_is_healthy_only_while_it_runs(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    write_pointer(files, Pointer(good=0, trial=1, tries=2))
    assert not Ota(files, running=FACTORY).healthy()
    assert read_pointer(files).good == FACTORY


def test_no_update_while_one_is_on_trial(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    write_pointer(files, Pointer(good=0, trial=1, tries=2))
    with pytest.raises(OtaError, match="on trial still"):
        Ota(files).begin(1000)


def test_power_lost_at_any_step_leaves_the_old_set_or_the_whole_new_one(tmp_path: Path) -> None:
    data = bundle(NEW, KEY)
    outcomes = set()
    for step in range(100):
        folder = tmp_path / str(step)
        plain = Files(str(folder))
        send(old := Ota(plain, KEY), bundle({**NEW, "spinney_mote/a.py": b"old"}, KEY))
        old.commit()
        assert choose(plain) == 1
        assert Ota(plain, KEY, running=1).healthy()
        files = CuttableFiles(str(folder), cut_at=step, part=5)
        cut = False
        try:
            ota = Ota(files, KEY, running=1)
            send(ota, data)
            ota.commit()
            chosen = choose(files)
            Ota(files, KEY, running=chosen).healthy()
        except PowerCut:
            cut = True
        chosen = choose(Files(str(folder)))
        outcomes.add(chosen)
        content = staged(folder, chosen)
        assert content == NEW if chosen == 2 else content["spinney_mote/a.py"] == b"old"
        if not cut:
            assert chosen == 2
            assert step > 8
            break
    else:
        pytest.fail("never came to an end")
    assert outcomes == {1, 2}


def test_an_update_goes_on_after_a_lost_connection(tmp_path: Path) -> None:
    data = bundle(NEW)
    ota = Ota(Files(str(tmp_path)))
    ota.begin(len(data))
    ota.write(0, data[:500])
    with pytest.raises(OtaError, match="the next offset is 500, not 320"):
        ota.write(320, data[320:500])
    ota.write(ota.received, data[ota.received :])
    ota.commit()
    assert staged(tmp_path, 1) == NEW


def test_bytes_that_the_flash_changed_are_found_at_the_commit(tmp_path: Path) -> None:
    ota = Ota(Files(str(tmp_path)))
    send(ota, bundle(NEW))
    (tmp_path / "set1" / "spinney_mote" / "a.py").write_bytes(b"A = 2\n" * 1000)
    with pytest.raises(OtaError, match=r"spinney_mote/a\.py is not what was sent"):
        ota.commit()
    assert choose(Files(str(tmp_path))) == FACTORY


def test_a_bundle_in_which_any_byte_differs_is_refused(tmp_path: Path) -> None:
    data = bundle({"spinney_mote/__init__.py": b"", "spinney_mote/a.py": b"A = 1\n"}, KEY)
    for at in range(len(data)):
        files = Files(str(tmp_path))
        with pytest.raises(OtaError):  # noqa: PT012 - in which step is all the same
            ota = Ota(files, KEY)
            send(ota, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            ota.commit()
        assert choose(files) == FACTORY


def test_an_unfinished_update_is_not_committed(tmp_path: Path) -> None:
    data = bundle(NEW)
    ota = Ota(Files(str(tmp_path)))
    ota.begin(len(data))
    ota.write(0, data[:-1])
    with pytest.raises(OtaError, match=f"{len(data) - 1} of {len(data)} bytes are here"):
        ota.commit()
    with pytest.raises(OtaError, match="more than"):
        ota.write(len(data) - 1, b"12")
    assert not ota.is_open


@pytest.mark.parametrize("key", [b"", bytes(32), KEY[::-1]])
def test_who_has_not_the_key_cannot_update(tmp_path: Path, key: bytes) -> None:
    with pytest.raises(OtaError, match="another ota_key"):
        send(Ota(Files(str(tmp_path)), KEY), bundle(NEW, key))


@pytest.mark.parametrize("total", [0, 40, MAX_BUNDLE + 1])
def test_a_bundle_of_impossible_size_is_refused(tmp_path: Path, total: int) -> None:
    with pytest.raises(OtaError, match="a bundle has at most"):
        Ota(Files(str(tmp_path))).begin(total)


@pytest.mark.parametrize(
    "name",
    [
        "main.py",
        "../main.py",
        "spinney_mote/../../main.py",
        "spinney_mote/x.txt",
        "spinney_mote/.py",
        "spinney_mote//a.py",
        "spinney_boot.py",
        "spinney_mote/a/b/c.py",
        "spinney_mote/A.py",
        "/spinney_mote/a.py",
    ],
)
def test_nothing_outside_the_library_is_written(tmp_path: Path, name: str) -> None:
    assert not is_library_file(name)
    with pytest.raises(OtaError, match="none of the library's"):
        send(Ota(Files(str(tmp_path))), bundle({"spinney_mote/__init__.py": b"", name: b"x"}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_set_without_its_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OtaError, match="lacks spinney_mote/__init__"):
        send(Ota(Files(str(tmp_path))), bundle({"spinney_mote/a.py": b"x"}))


def test_noise_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    noise = random.Random(4)
    files = Files(str(tmp_path))
    ota = Ota(files)
    for _ in range(2000):
        chunk = noise.randbytes(noise.choice([1, 8, 60, 180]))
        try:
            if noise.random() < 0.2:
                ota.begin(noise.randrange(-1, MAX_BUNDLE + 2))
            elif noise.random() < 0.2:
                ota.commit()
            else:
                ota.write(noise.choice([0, ota.received]), chunk)
        except OtaError:
            pass
    assert choose(files) == FACTORY
    assert staged(tmp_path, 1) == {}


def test_the_library_itself_fits_into_a_bundle(tmp_path: Path) -> None:
    library = library_files(LIBRARY)
    assert all(is_library_file(name) for name in library)
    ota = Ota(Files(str(tmp_path)))
    send(ota, bundle(library))
    ota.commit()
    assert staged(tmp_path, 1) == library


def test_too_many_files_for_a_bundle() -> None:
    with pytest.raises(BundleError, match="100 files need a manifest"):
        bundle({f"spinney_mote/file{n}.py": b"" for n in range(100)})
    with pytest.raises(BundleError, match="a bundle of"):
        bundle({"spinney_mote/a.py": bytes(MAX_BUNDLE)})


def test_the_tag_is_hmac_sha256() -> None:
    # RFC 4231, test case 2
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert tag_of(b"Jefe", b"what do ya want for nothing?").hex() == expected


def test_the_chosen_set_is_first_on_the_path(tmp_path: Path) -> None:
    files = Files(str(tmp_path / "state"))
    write_pointer(files, Pointer(good=2))
    script = "import spinney_boot, sys; print(spinney_boot.start(), sys.path[0])"
    path = str(Path(spinney_boot.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2", "state/set2"]


def test_a_good_set_that_cannot_be_loaded_gives_way_to_the_one_that_was_flashed(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    write_pointer(files, Pointer(good=2))
    spinney_boot.distrust(files, running=2)
    assert read_pointer(files).failed == 2
    assert choose(files) == FACTORY
    spinney_boot.distrust(files, running=FACTORY)
    assert choose(files) == FACTORY
