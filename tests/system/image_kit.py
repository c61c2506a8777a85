"""A small interpreter of Dockerfiles: what an engine would do, really done, in namespaces of this machine's kernel.

The base image is this machine: its /usr, read-only, its Python, and a copy of its /etc. Each RUN is run as it stands,
in a root of its own; only `apt-get` is a stand-in, since what it would install is here. The built image is then run as
its USER, its root read-only. Standard library only: it runs itself, as root, by `unshare` (see `outside`).
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).parents[2]
DOCKERFILE = TOP / "cloud" / "Dockerfile"
WAIT_SECONDS = 120.0
STOP_SECONDS = 60.0
SHELL = ["/bin/sh", "-ec"]
PATH = "/image/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VOLUME = "/var/lib/spinney"
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
"""Whatever is left running or mounted ends with the first process."""


class Instruction(NamedTuple):
    """One of a Dockerfile."""

    name: str
    rest: str


@dataclass
class Image:
    """A root, and how to run it."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)


# ---- Reading ----------------------------------------------------------------------------------------------------


def instructions(text: str) -> Iterator[Instruction]:
    """All of a Dockerfile; comments are none, and continued lines are one."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield Instruction(name.upper(), rest.strip())


def expand(text: str, values: Mapping[str, str]) -> str:
    """With variables replaced as Docker does."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], ""), text)


def words(text: str) -> list[str]:
    """The exec form, or the shell's."""
    if text.startswith("["):
        given = json.loads(text)
        assert isinstance(given, list)
        return [str(word) for word in given]
    return [*SHELL, text]


def is_ignored(path: str, patterns: Sequence[str]) -> bool:
    """By .dockerignore: the last pattern that fits a path or a folder above it decides."""
    ignored = False
    parts = path.split("/")
    above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    for pattern in patterns:
        plain = pattern.lstrip("!").removeprefix("**/")
        names = above if not pattern.lstrip("!").startswith("**/") else [*above, *parts]
        if any(fnmatch.fnmatchcase(name, plain) for name in names):
            ignored = not pattern.startswith("!")
    return ignored


def ignore_patterns() -> list[str]:
    """Of the clone."""
    lines = (TOP / ".dockerignore").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def context() -> Iterator[str]:
    """What an engine is given of the clone: paths of files."""
    patterns = ignore_patterns()
    for top in sorted(TOP.iterdir()):
        if is_ignored(top.name, patterns):
            continue
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            path = file.relative_to(TOP).as_posix()
            if file.is_file() and not is_ignored(path, patterns):
                yield path


# ---- Building, in the namespaces --------------------------------------------------------------------------------


class Builder:
    """Follows a Dockerfile; `said` keeps what each step printed."""

    def __init__(self, place: Path, arguments: Mapping[str, str]) -> None:
        self.place = place
        self.given = arguments
        self.stages: dict[str, Image] = {}
        self.globals: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def build(self, file: Path) -> Image:
        """The last stage."""
        image: Image | None = None
        for name, rest in instructions(file.read_text()):
            began = time.monotonic()
            if name == "FROM":
                image = self._from(rest)
            elif name == "ARG" and image is None:
                key, _, value = rest.partition("=")
                self.globals[key] = self.given.get(key, value)
            else:
                assert image is not None, f"{name} before FROM"
                getattr(self, f"_{name.lower()}")(image, rest)
            self.seconds[f"{name} {rest}"[:60]] = round(time.monotonic() - began, 1)
        assert image is not None
        return image

    def _from(self, rest: str) -> Image:
        base, _, name = expand(rest, self.globals).partition(" AS ")
        assert re.fullmatch(r"python:3\.\d+-slim-\w+", base), f"the base image is to be a slim Python: {base}"
        root = self.place / f"stage-{len(self.stages)}"
        make_root(root)
        self.arguments = {}
        image = self.stages[name or str(len(self.stages))] = Image(root)
        return image

    def _arg(self, _image: Image, rest: str) -> None:
        key, _, value = rest.partition("=")
        self.arguments[key] = self.given.get(key, value)

    def _label(self, _image: Image, rest: str) -> None:
        shlex.split(rest)

    def _env(self, image: Image, rest: str) -> None:
        for pair in shlex.split(rest):
            key, _, value = pair.partition("=")
            image.environment[key] = expand(value, image.environment)

    def _run(self, image: Image, rest: str) -> None:
        network = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or "proxy" in key.lower()}
        more = {**network, **self.arguments, "HOME": "/root"}
        done = subprocess.run(
            inside(image, [*SHELL, rest], more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"RUN {rest}\n{done.stdout}"

    def _copy(self, image: Image, rest: str) -> None:
        given = rest.split()
        stage = given.pop(0).removeprefix("--from=") if given[0].startswith("--from=") else None
        *sources, target = given
        into = image.root / os.path.join(image.folder, target).lstrip("/")  # noqa: PTH118 - not of this root
        if stage is not None:
            (source,) = sources
            shutil.copytree(self.stages[stage].root / source.lstrip("/"), into, symlinks=True)
            return
        for path in context():
            for source in sources:
                if path == source and target.endswith("/"):
                    place_file(TOP / path, into / path)
                elif path.startswith(f"{source}/"):
                    place_file(TOP / path, into / path.removeprefix(f"{source}/"))
        assert into.exists(), f"COPY {rest}: there is no such thing in the context"

    def _workdir(self, image: Image, rest: str) -> None:
        image.folder = rest
        (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _user(self, image: Image, rest: str) -> None:
        image.user = rest

    def _volume(self, image: Image, rest: str) -> None:
        image.volumes.append(rest)

    def _expose(self, image: Image, rest: str) -> None:
        image.ports += rest.split()

    def _healthcheck(self, image: Image, rest: str) -> None:
        image.health = words(rest.partition("CMD ")[2])

    def _stopsignal(self, _image: Image, rest: str) -> None:
        assert rest == "SIGTERM"

    def _entrypoint(self, image: Image, rest: str) -> None:
        image.entrypoint = words(rest)

    def _cmd(self, image: Image, rest: str) -> None:
        image.command = words(rest)


def place_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def make_root(root: Path) -> None:
    """The base image: of this machine, read-only where it is shared."""
    root.mkdir(mode=0o755)
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64"):
        here = Path("/") / name
        if here.is_symlink():
            (root / name).symlink_to(here.readlink())
        elif here.exists():
            bind(here, root)
    shutil.copytree("/etc", root / "etc", symlinks=True, ignore_dangling_symlinks=True)
    for name in ("var/lib/apt/lists", "var/tmp", "proc", "root", "image/bin", "opt"):
        (root / name).mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    mount("-t", "proc", "proc", str(root / "proc"))
    bind(Path("/dev"), root, "rw")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "dev" / "shm"))
    own = Path(sys.base_prefix)
    if not own.is_relative_to("/usr"):
        bind(own, root)
    for given in (Path.home() / ".config" / "pip", *map(Path, filter(None, [os.environ.get("PIP_CERT")]))):
        if given.exists() and not given.is_relative_to("/etc") and not given.is_relative_to("/usr"):
            bind(given, root)
    stand_in(root, "python", f'exec {Path(getattr(sys, "_base_executable", sys.executable)).resolve()} "$@"')
    stand_in(root, "apt-get", 'case "$1" in update|install) ;; *) echo "no such step: $1" >&2; exit 1;; esac')


def stand_in(root: Path, name: str, script: str) -> None:
    file = root / "image" / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def bind(here: Path, root: Path, how: str = "ro") -> None:
    there = root / str(here).lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    there.mkdir() if here.is_dir() else there.touch()
    mount("--bind", str(here), str(there))
    if how == "ro":
        mount("-o", "remount,bind,ro", str(there))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def inside(image: Image, command: Sequence[str], more: Mapping[str, str] | None = None) -> list[str]:
    """A command line that runs another one in the image, as its user."""
    values = [f"{key}={value}" for key, value in {**image.environment, **(more or {})}.items()]
    where = ["chroot", f"--userspec={image.user}", *([] if image.user.startswith("0") else ["--groups="])]
    return [*where, str(image.root), "env", "-i", f"--chdir={image.folder}", *values, *command]


# ---- Running ----------------------------------------------------------------------------------------------------


class Run:
    """An image as `docker run --read-only --tmpfs /tmp -v data:VOLUME` runs it."""

    def __init__(self, image: Image, place: Path, more: Mapping[str, str]) -> None:
        self.image = image
        self.more = more
        volume = image.root / VOLUME.lstrip("/")
        owner = volume.stat()
        data = place / "data"
        data.mkdir()
        os.chown(data, owner.st_uid, owner.st_gid)
        # A mount of its own, so that it can be read-only and what is mounted in it need not be.
        root = place / "read-only"
        root.mkdir()
        mount("--rbind", str(image.root), str(root))
        mount("--bind", str(data), str(root / VOLUME.lstrip("/")))
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "tmp"))
        mount("-o", "remount,bind,ro", str(root))
        self.image.root = root

    def do(self, command: Sequence[str]) -> dict[str, Any]:
        """A command instead of the image's own, to its end."""
        done = subprocess.run(
            inside(self.image, command, self.more), capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
        )
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}

    def health(self) -> dict[str, Any]:
        """What the image's own check says."""
        return self.do(self.image.health)

    def serve(self, then: Sequence[Sequence[str]]) -> dict[str, Any]:
        """The image's own command until its check passes; then what is to be done; and its end on SIGTERM."""
        log = self.image.root / "tmp" / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                inside(self.image, [*self.image.entrypoint, *self.image.command], self.more),
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + WAIT_SECONDS
        while (health := self.health())["code"] and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        done = [self.do(each) for each in then]
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_SECONDS)
        return {"health": health, "done": done, "code": code, "log": log.read_text(errors="replace")}


def main(place: Path) -> dict[str, Any]:
    """Builds the cloud's image and runs it; what was found."""
    builder = Builder(place, {})
    image = builder.build(DOCKERFILE)
    found: dict[str, Any] = {
        "seconds": builder.seconds,
        "ports": image.ports,
        "volumes": image.volumes,
        "megabytes": sum(file.lstat().st_size for file in (image.root / "opt").rglob("*")) // 10**6,
    }
    any_port = {f"SPINNEY_CLOUD__{name}__PORT": "0" for name in ("HTTP", "MQTT", "NATS")}
    run = Run(image, place, any_port)
    spinney = image.entrypoint
    found["id"] = run.do(["id", "-u"])
    found["writing"] = run.do(["touch", "/opt/spinney/x", "/etc/x", "/x"])
    found["stranger"] = run.do([*spinney, *image.command])
    found["user"] = run.do([*spinney, "cloud", "user", "add", "ana", "--role", "operator"])
    core = "import spinney.native as n; print(n.core() is not None)"
    found["core"] = run.do(["python", "-c", core])
    found["served"] = run.serve([["id", "-un"]])
    found["afterwards"] = run.health()
    return found


def outside(place: Path) -> dict[str, Any]:
    """All this, in namespaces of its own."""
    place.chmod(0o755)
    command = [*NAMESPACES, sys.executable, "-P", __file__, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def refusal() -> str | None:
    """Why images cannot be built here; None: they can."""
    done = subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return None if os.geteuid() == 0 and done.returncode == 0 else "needs root and namespaces, as building images does"


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
