"""What the others take in the same run: everything up by MQTT, CoAP as the paper counts it, CUPUS' filters on brokers.

Of all three every sample leaves its mote. As the paper counts, MQTT sends every reading and nothing else; CUPUS sends
what is covered, and for each change of context an announcement up and the subscriptions that match it down; CoAP sends
what is covered, and for each change of context three: a request to the resource directory, its answer, and what is
subscribed to. A change of context is a volunteer in another cell.

Of bytes the paper says nothing. Here a reading is the publication that we send, a subscription as in our activations,
an announcement as ours; all of it goes by MQTT, or for CoAP by that. Each is counted twice: in JSON, and packed as ours
is. Packed readings refer to the last one, as ours do, where MQTT's PUBACK says that it came; CoAP's notifications,
which nobody confirms, do not. A batch has one reading with everybody: none waits as long as the next takes to come.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from spinney.packed import BATCH, TEXT, Contents, pack, write_rows
from spinney_mobile.announcing import Announcer
from spinney_mobile.cells import H3
from spinney_mobile.promises import Area

from .footprint_mote import EVERY_SAMPLE
from .footprint_setting import ABILITIES, ROWS, Asked, Walk
from .footprint_spinney import Coordinator, Filters
from .footprint_traffic import Footprint, Visits

COAP_BYTES: Final = 4 + 4 + 3 + 2 + 1
"""Of RFC 7252 and 7641, around a payload: header, token of four bytes, Observe, Content-Format, payload marker."""
COAP_ANSWER_BYTES: Final = 4 + 4
"""2.04, with its token."""
_CLIENT: Final = "v0"
_SOURCE: Final = "m0"


class Others:
    """Of one run, in JSON or packed."""

    def __init__(self, walk: Walk, *, packs: bool = False) -> None:
        self._walk = walk
        self._packs = packs
        self._rows = [_row(number, sample) for number, sample in enumerate(walk.samples, 1)]
        self._attributes = _attributes()

    def mqtt(self) -> Footprint:
        """Each sample goes up."""
        found = self._sampled()
        for payload in self._readings(self._rows):
            found.publish(f"spinney/{_CLIENT}/pub", payload)
        return found

    def cupus_and_coap(self, asked: Asked, filters: Filters) -> tuple[Footprint, Footprint]:
        """Each sample that is covered goes up, and each change of context has its messages."""
        cupus, coap = self._sampled(), self._sampled()
        covered = [row for place, row in enumerate(self._rows) if asked.covered >> place & 1]
        for payload in self._readings(covered):
            cupus.publish(f"spinney/{_CLIENT}/pub", payload)
        for payload in self._readings(covered, refers=False):
            coap.uplink.add(COAP_BYTES + len(payload))
        for announcement, subscriptions in self._contexts(asked, filters):
            cupus.publish(f"spinney/{_CLIENT}/ann", announcement)
            cupus.publish(f"spinney/{_CLIENT}/act", subscriptions)
            coap.uplink.add(COAP_BYTES + len(announcement))
            coap.uplink.add(COAP_ANSWER_BYTES)
            coap.uplink.add(COAP_BYTES + len(subscriptions))
        return cupus, coap

    def _readings(self, rows: Sequence[dict[str, Any]], *, refers: bool = True) -> Iterator[bytes]:
        """Each in a message of its own."""
        earlier = None
        for row in rows:
            if not self._packs:
                yield json.dumps(row, separators=(",", ":")).encode()
                continue
            data = write_rows(Contents([row]))
            yield pack(BATCH, data, earlier=earlier, keep=refers)
            earlier = data if refers else None

    def _text(self, item: Any) -> bytes:
        text = orjson.dumps(item)
        return pack(TEXT, text) if self._packs else text

    def _sampled(self) -> Footprint:
        """Over BLE, each sample in a visit of its own."""
        found = Footprint()
        visits = Visits(_SOURCE, ROWS)
        visits.look(found.ble, times=self._walk.volunteers)
        for _ in range(self._walk.volunteers):
            visits.visit(found.ble, changes=[({1: EVERY_SAMPLE.code}, [])], sets_clock=True)
        for _ in self._walk.samples:
            visits.visit(found.ble, events=1)
        return found

    def _contexts(self, asked: Asked, filters: Filters) -> Iterator[tuple[bytes, bytes]]:
        """For each change of context what is announced, and all subscriptions that may match there."""
        cloud, grid = Coordinator(filters, [one.matches for one in asked.questions]), H3()
        for cell, times in Counter(self._walk.contexts).items():
            place = Area(*grid.centre(cell), grid.radius_meters(cell)).to_json()
            item = {"sources": [{"name": _SOURCE, "attributes": self._attributes}], "place": place, "session": "any"}
            announcement = self._text(item)
            told = self._text([one.to_json() for one in cloud.desired(item).values()])
            for _ in range(times):
                yield announcement, told


def _row(number: int, sample: Any) -> dict[str, Any]:
    return {"id": f"{_SOURCE}:1:{number}", "source": _SOURCE, **sample}


def _attributes() -> Any:
    announcer = Announcer()
    announcer.hear(_SOURCE, 0.0)
    announcer.describe(_SOURCE, ABILITIES, 0.0)
    return announcer.body()["sources"][0]["attributes"]
