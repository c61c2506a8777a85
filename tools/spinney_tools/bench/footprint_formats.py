"""`spinney bench formats`: which form takes how many bytes on the uplink, and what it costs broker and gateway.

The readings are those of the footprint's walker: each has an id, four quantities, times, a place and its cell. A batch
has readings that follow each other, of one mote, or of sixteen that stay where they are. A batch of one is what a phone
with a mote sends; several are what waited for a link, or for others that were under way.

Dictionaries are fair to all: zlib's and zstd's know a message of the same form, of another walker; the packed format
has its own. "Refers" is each form with the message before it as its dictionary, too, as the packed format has it once
the cloud has stored that. All that is compressed has the packed format's head. Arrow gets no dictionary: it has one
inside, and its schema alone is larger than the others' messages.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cbor2
import pyarrow as pa

from spinney.packed import BATCH, Contents, pack, write_rows
from spinney_cloud.intake import Intake, Sender
from spinney_cloud.numbering import Numbers
from spinney_cloud.payloads import read_payload
from spinney_cloud.settings import Limits
from spinney_cloud.source_owners import SourceOwners

from .footprint_setting import Walk, heard_at, walk
from .machine import describe
from .table import Table

SIZES: Final = (1, 16, 256)
MOTES: Final = 16
REPEATS: Final = 40
"""Batches of which bytes and times are means, at most."""
TRAINED_ON: Final = 77
"""The seed of the walker whose readings are in the dictionaries."""
JSON: Final = "JSON"
PACKED: Final = "packed"
Row = dict[str, Any]
Rows = Sequence[Row]
Form = Callable[[Rows, Rows], bytes]
"""The bytes of a batch, and, for some, with the batch before it."""


@dataclass(frozen=True, slots=True)
class Case:
    """What batches are like."""

    name: str
    batches: Sequence[Rows]
    """The first is only there for the second to refer to."""


@dataclass(frozen=True, slots=True)
class Formats:
    """What was measured."""

    sizes: dict[str, dict[str, float]]
    """Bytes of a reading, by form and case."""
    costs: dict[str, dict[str, float]]
    """Microseconds of a reading, by what is done and case."""

    def missed(self) -> list[str]:
        """The packed format has the fewest bytes in each case."""
        least = {case: min(each[case] for each in self.sizes.values()) for case in self.sizes[PACKED]}
        refers = self.sizes[f"{PACKED}, refers"]
        return [f"formats: {case}: another is smaller" for case in least if refers[case] > least[case]]

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        return {"bytes": self.sizes, "microseconds": self.costs}


def measure(progress: Callable[[str], None]) -> Formats:
    """The same bytes each time."""
    progress("packing the readings of walkers and of motes that stay, in each form")
    cases = [*_cases(walk(1, hours=8.0), 1), *_cases(walk(2, hours=1.0), MOTES)]
    forms = _forms(_rows(walk(TRAINED_ON, hours=0.1))[:4])
    sizes = {name: {case.name: _size(form, case) for case in cases} for name, form in forms.items()}
    return Formats(sizes, _costs(cases))


# ---- readings


def _cases(walked: Walk, motes: int) -> list[Case]:
    rows = _rows(walked) if motes == 1 else _of_motes(walked, motes)
    name = "1 mote that moves" if motes == 1 else f"{motes} that stay"
    found = []
    for size in SIZES:
        starts = range(0, len(rows) - size + 1, size)[: REPEATS + 1]
        found.append(Case(f"{size:,} of {name}", [rows[start : start + size] for start in starts]))
    return found


def _rows(walked: Walk, source: str = "m0") -> list[Row]:
    return [{"id": f"{source}:1:{n}", "source": source, **sample} for n, sample in enumerate(walked.samples, 1)]


def _of_motes(walked: Walk, motes: int) -> list[Row]:
    """Each has the walker's air, a little later than the one before, and a place of its own."""
    found = []
    for n in range(len(walked.samples)):
        for mote in range(motes):
            sample = walked.samples[(n + 17 * mote) % len(walked.samples)]
            place = walked.samples[mote]
            stays = {"lat": place["lat"], "long": place["long"], "cell": place["cell"]}
            time_s = walked.samples[n]["time"] + mote
            times = {"time": time_s, "heard": heard_at(time_s)}
            source = f"c0000000{mote:04x}"
            found.append({"id": f"{source}:1:{n + 1}", "source": source, **sample, **stays, **times})
    return found


# ---- forms


def _forms(known: Rows) -> dict[str, Form]:
    """By name; those with a dictionary know these readings."""
    forms: dict[str, Form] = {JSON: lambda rows, _: _json(rows), "CBOR": lambda rows, _: _cbor(rows)}
    forms["Arrow IPC"] = lambda rows, _: _arrow(rows)
    forms["Arrow IPC, its own zstd"] = lambda rows, _: _arrow(rows, compression="zstd")
    forms["Arrow IPC, deflate"] = lambda rows, _: _deflated(_arrow(rows), b"")
    for name, form in (("JSON", _json), ("CBOR", _cbor)):
        forms |= _compressed(name, form, form(known))
    forms[PACKED] = lambda rows, _: _packed(rows)
    forms[f"{PACKED}, refers"] = lambda rows, before: _packed(rows, write_rows(_contents(before)))
    return forms


def _compressed(name: str, form: Callable[[Rows], bytes], known: bytes) -> dict[str, Form]:
    found: dict[str, Form] = {
        f"{name}, deflate": lambda rows, _: _deflated(form(rows), b""),
        f"{name}, deflate, dictionary": lambda rows, _: _deflated(form(rows), known),
        f"{name}, deflate, refers": lambda rows, before: _deflated(form(rows), known + form(before)),
    }
    if importlib.util.find_spec("zstandard"):
        found[f"{name}, zstd"] = lambda rows, _: _zstd(form(rows), b"")
        found[f"{name}, zstd, dictionary"] = lambda rows, _: _zstd(form(rows), known)
        found[f"{name}, zstd, refers"] = lambda rows, before: _zstd(form(rows), known + form(before))
    return found


def _envelope(rows: Rows) -> dict[str, Any]:
    return {"batch": _name(rows), "publications": rows, "epochs": _epochs(rows)}


def _name(rows: Rows) -> str:
    return f"Zm9vYmFy-{rows[0]['id'].rpartition(':')[2]}"


def _epochs(rows: Rows) -> dict[str, int]:
    return {row["source"]: 1_731_900_000_000 for row in rows}


def _json(rows: Rows) -> bytes:
    return json.dumps(_envelope(rows), separators=(",", ":")).encode()


def _cbor(rows: Rows) -> bytes:
    return cbor2.dumps(_envelope(rows))


def _arrow(rows: Rows, compression: str | None = None) -> bytes:
    """Without the name of the batch and the leases, for which it has no place."""
    table = pa.Table.from_pylist(list(rows))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return out.getvalue()


def _deflated(data: bytes, known: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, known)
    return _head(known) + packer.compress(data) + packer.flush()


def _head(known: bytes) -> bytes:
    """As much as before a packed message: how long it is, and which dictionary it needs."""
    return bytes(8 if known else 4)


def _zstd(data: bytes, known: bytes) -> bytes:
    zstandard: Any = importlib.import_module("zstandard")
    dictionary = zstandard.ZstdCompressionDict(known, zstandard.DICT_TYPE_RAWCONTENT) if known else None
    parameters = zstandard.ZstdCompressionParameters.from_level(
        19, write_checksum=False, write_content_size=False, format=zstandard.FORMAT_ZSTD1_MAGICLESS
    )
    packer = zstandard.ZstdCompressor(compression_params=parameters, dict_data=dictionary)
    return _head(known) + bytes(packer.compress(data))


def _contents(rows: Rows) -> Contents:
    return Contents(list(rows), _epochs(rows), name=_name(rows))


def _packed(rows: Rows, earlier: bytes | None = None) -> bytes:
    return pack(BATCH, write_rows(_contents(rows)), earlier=earlier)


def _size(form: Form, case: Case) -> float:
    before, *batches = case.batches
    sizes = []
    for rows in batches:
        sizes.append(len(form(rows, before)) / len(rows))
        before = rows
    return statistics.fmean(sizes)


# ---- what it costs


def _costs(cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        for form, encode in ((JSON, _joined), (PACKED, _parsed_and_packed)):
            for what, microseconds in _cost(case, encode).items():
                found.setdefault(f"{what}: {form}", {})[case.name] = microseconds
    return found


def _cost(case: Case, encode: Callable[[Sequence[bytes]], bytes]) -> dict[str, float]:
    texts = [[json.dumps(row, separators=(",", ":")).encode() for row in rows] for rows in case.batches]
    payloads = [encode(each) for each in texts]
    works: dict[str, Callable[[], object]] = {
        "the broker writes it": lambda: [encode(each) for each in texts],
        "the gateway reads it": lambda: [read_payload(each, 0.0) for each in payloads],
        "all of the gateway's intake": lambda: _taken(payloads),
    }
    count = sum(map(len, case.batches))
    return {what: _seconds(work) / count * 1e6 for what, work in works.items()}


def _joined(texts: Sequence[bytes]) -> bytes:
    """As the broker does it: what is in its outbox is JSON already."""
    return b'{"batch":"Zm9vYmFy-1","publications":[%b],"epochs":{"m0":1731900000000}}' % b",".join(texts)


def _parsed_and_packed(texts: Sequence[bytes]) -> bytes:
    contents = Contents(list(map(json.loads, texts)), {"m0": 1_731_900_000_000}, name="Zm9vYmFy-1")
    return pack(BATCH, write_rows(contents))


def _taken(payloads: Sequence[bytes]) -> None:
    intake = Intake(Limits(rate=10**7, payload=4 * 1024**2), Numbers(1), SourceOwners())
    for payload in payloads:
        taken = intake.take(Sender("default", "v0"), payload, 0.0)
        assert taken.rows, taken.refusals


def _seconds(work: Callable[[], object]) -> float:
    """The best of some, by the process' own time."""
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def table(found: Formats) -> Table:
    """One column for each case."""
    cases = list(found.sizes[PACKED])
    rows = [
        *((f"bytes: {form}", *(f"{each[case]:.1f}" for case in cases)) for form, each in found.sizes.items()),
        *((f"us: {what}", *(f"{each[case]:.1f}" for case in cases)) for what, each in found.costs.items()),
    ]
    notes = (
        "Of one reading, by how many are in a batch: bytes of the payload (*simulated* readings), microseconds of one",
        "core (*measured*, in one run). *Dictionary*: the form knows four readings of another walker; *refers*: the",
        "batch before it, too. The broker's outbox holds JSON, so that JSON costs it next to nothing. zstd is there",
        "only if the package zstandard is: for 32-bit ARM it has no wheel, and Python's own zlib is everywhere.",
    )
    return Table("formats", describe(), ("a reading, in batches of", *cases), tuple(rows), notes, measured=False)
