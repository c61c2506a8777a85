"""Which extras of pyproject.toml a command line needs. Readable by old Pythons, as the launcher is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

# What each part's tests need beyond the extra `test`.
PARTS = {
    "core": [],
    "mote": ["test-mote"],
    "mobile": ["test-mobile", "test-mote", "test-cloud"],
    "cloud": ["cloud", "test-cloud"],
    "pipeline": ["test-cloud", "test-pipeline"],
    "system": ["test-mobile", "test-mote", "test-cloud", "test-pipeline", "test-system"],
}
# The same for benchmarks.
BENCHES = {
    "energy": ["sim"],
    "mobile": ["mobile"],
    "hearing": ["mobile", "sim"],
    "adverts": ["mobile", "sim"],
    "footprint": ["mobile", "sim", "cloud"],
    "formats": ["mobile", "sim", "cloud", "formats"],
    "idle": ["mobile", "sim", "cloud"],
    "matcher": ["cloud"],
    "delivery": ["cloud"],
    "cloud": ["cloud"],
    "source": ["pipeline"],
    "ingest": ["pipeline"],
    "lake": ["pipeline"],
    "spark": ["pipeline"],
    "dashboard": ["cloud", "test-mobile"],
    "all": ["mobile", "sim", "cloud", "pipeline", "test-mobile", "formats"],
}
WITH_PIPELINE = ("--with-pipeline", "--pipeline-run")


def extras_of(arguments: Sequence[str], with_tests: Sequence[str]) -> frozenset[str]:
    """Those that a command line needs; `with_tests`: the parts that have any."""
    command, *words = [*itertools.takewhile(lambda word: not word.startswith("-"), arguments)] or [""]
    if command == "up":
        return up_extras(tuple(arguments))
    if command == "check":
        return frozenset(["dev", "test"]).union(*(PARTS[part] for part in with_tests))
    if command == "bench":
        return frozenset(["test"]).union(*(BENCHES.get(word, []) for word in words))
    if command == "cloud" and any(word.partition("=")[0] in WITH_PIPELINE for word in arguments):
        return frozenset(["pipeline"])
    if command in ("cloud", "sim", "mobile", "pipeline"):
        return frozenset([command])
    if command in ("lake", "replay"):
        return frozenset(["pipeline"])
    if command == "homeassistant":
        return frozenset(["cloud", "mobile"])
    if command == "reference":
        return frozenset(["cloud", "mobile", "flash"])
    if command == "dist":
        return frozenset(["dist", "cloud", "mobile", "flash", "pipeline"])
    if command == "mote":
        return frozenset(["flash"])
    if command not in ("test", "soak"):
        return frozenset()
    named = [part for part in PARTS if any(word == part or word.startswith(f"tests/{part}") for word in words)]
    return frozenset(["test"]).union(*(PARTS[part] for part in named or with_tests))


def up_extras(arguments: tuple[str, ...]) -> frozenset[str]:
    """The whole stack, the simulator for the city alone; `up` has the pipeline installed while it runs."""
    sources = [word.partition("=")[2] for word in arguments if word.startswith("--source=")]
    sources += [after for word, after in itertools.pairwise(arguments) if word == "--source"]
    return frozenset(["cloud", "mobile"] if "ble" in sources else ["cloud", "mobile", "sim"])
