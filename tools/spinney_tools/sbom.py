"""What an installation brings with it: packages, versions and licences, as CycloneDX and as a table.

It is read from the metadata of what is installed here, so that it names what was really tested together.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("arrow", "mobile", "cloud", "pipeline", "flash", "sim")
"""What people install; `theengs` is GPL and nobody gets it without asking."""
UNKNOWN = "unknown"
BASE = "base"
_NAMESPACE = uuid.UUID("7d9c2f0e-5b1a-5c0e-9f43-2b6f8a1d4c11")
_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
}
"""Trove classifiers, and SPDX's words for them."""
_LONGEST_LICENCE = 60
"""What is longer is the licence's text, not its name."""


class SbomError(Exception):
    """Something without which there is no list."""


@dataclass(frozen=True, slots=True)
class Part:
    """One package."""

    name: str
    version: str
    licence: str
    home: str | None
    needs: tuple[str, ...]
    """Other packages of the list."""

    @property
    def purl(self) -> str:
        """Its name in all SBOMs."""
        return f"pkg:pypi/{canonicalize_name(self.name)}@{self.version}"


@dataclass(slots=True)
class Contents:
    """What there is, by canonical name."""

    root: str
    parts: dict[str, Part] = field(default_factory=dict)
    asked_by: dict[str, list[str]] = field(default_factory=dict)
    """The extras that bring each package; `base` is what comes without any."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Extras that are not installed whole, with what is missing."""


def contents(root: str, extras: Iterable[str]) -> Contents:
    """What the package and those of its extras that are installed here bring."""
    found = Contents(canonicalize_name(root))
    for extra in (BASE, *extras):
        missing: list[str] = []
        reached = _closure(found.root, extra, missing)
        if missing and extra == BASE:
            raise SbomError(f"{', '.join(missing)} is not installed here; ./spinney dist installs what it needs")
        if missing:
            found.left_out[extra] = sorted(set(missing))
            continue
        for name, needs in reached.items():
            _add(found, name, needs)
            found.asked_by.setdefault(name, []).append(extra)
    return found


def _closure(root: str, extra: str, missing: list[str]) -> dict[str, set[str]]:
    """All packages that this extra of the root reaches, each with those that it needs itself."""
    reached: dict[str, set[str]] = {}
    done: set[tuple[str, str]] = set()
    todo = [(root, extra)]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in done:
            continue
        done.add((name, wanted))
        here = _installed(name)
        if here is None:
            missing.append(name)
            continue
        needs = reached.setdefault(name, set())
        for requirement in _requirements(here, wanted):
            other = canonicalize_name(requirement.name)
            if other != name:
                needs.add(other)
            todo += [(other, BASE), *((other, each) for each in requirement.extras)]
    return reached


def _requirements(package: Distribution, extra: str) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        environment = {"extra": "" if extra == BASE else extra}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _add(found: Contents, name: str, needs: set[str]) -> None:
    package = distribution(name)
    known = found.parts.get(name)
    together = needs.union(known.needs if known else ())
    found.parts[name] = Part(
        package.metadata["Name"], package.version, licence_of(package), _home(package), tuple(sorted(together))
    )


def licence_of(package: Distribution) -> str:
    """As SPDX says it where the package does, else as the package says it."""
    said = package.metadata.get_all("License-Expression") or []
    if said:
        return str(said[0])
    classifiers = package.metadata.get_all("Classifier") or []
    names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License :: ")]
    names = [_CLASSIFIERS.get(name, name) for name in names if name != "OSI Approved"]
    if names:
        return " AND ".join(dict.fromkeys(names))
    # Some put the whole text there; its first line is its name.
    first = str((package.metadata.get_all("License") or [""])[0]).strip().partition("\n")[0].strip()
    return _CLASSIFIERS.get(first, first) if 0 < len(first) <= _LONGEST_LICENCE else UNKNOWN


def _home(package: Distribution) -> str | None:
    for line in package.metadata.get_all("Project-URL") or ():
        label, _, url = line.partition(",")
        if re.fullmatch(r"home\s*page|repository|source|source code", label.strip(), re.IGNORECASE):
            return str(url.strip())
    return None


# ---- Written down ---------------------------------------------------------------------------------------------------


def cyclonedx(found: Contents) -> str:
    """CycloneDX 1.6 in JSON; the same for the same packages, without a time."""
    root = found.parts[found.root]
    listed = dict(sorted(found.parts.items()))
    serial = uuid.uuid5(_NAMESPACE, " ".join(part.purl for part in listed.values()))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": _component(root, found.asked_by[found.root], "application"),
            "tools": {"components": [{"type": "application", "name": "spinney dist", "version": root.version}]},
        },
        "components": [
            _component(part, found.asked_by[name], "library") for name, part in listed.items() if name != found.root
        ],
        "dependencies": [
            {"ref": part.purl, "dependsOn": [listed[each].purl for each in part.needs if each in listed]}
            for part in listed.values()
        ],
        "compositions": [{"aggregate": "incomplete" if found.left_out else "complete", "assemblies": [root.purl]}],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _component(part: Part, extras: Sequence[str], kind: str) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": kind,
        "bom-ref": part.purl,
        "name": part.name,
        "version": part.version,
        "purl": part.purl,
        "licenses": _licence(part.licence),
        "properties": [{"name": "spinney:extra", "value": extra} for extra in _shown(extras)],
    }
    if part.home:
        component["externalReferences"] = [{"type": "website", "url": part.home}]
    return component


def _licence(said: str) -> list[Mapping[str, Any]]:
    if said == UNKNOWN:
        return []
    is_expression = re.fullmatch(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*", said.translate(_NO_BRACKETS))
    return [{"expression": said}] if is_expression and " " in said else [{"license": {"name": said}}]


_NO_BRACKETS = {ord("("): None, ord(")"): None}


def licences(found: Contents) -> str:
    """A table for people."""
    rows = [("package", "version", "licence", "comes with"), *_rows(found)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip() for row in rows]
    notes = [f"not listed: {extra} ({', '.join(missing)} not installed)\n" for extra, missing in found.left_out.items()]
    return "\n".join(lines) + "\n" + ("\n" + "".join(notes) if notes else "")


def _rows(found: Contents) -> Iterator[tuple[str, str, str, str]]:
    for name, part in sorted(found.parts.items()):
        yield part.name, part.version, part.licence, ", ".join(_shown(found.asked_by[name]))


def _shown(extras: Sequence[str]) -> Sequence[str]:
    """What comes in any case comes with nothing in particular."""
    return [BASE] if BASE in extras else extras
