"""Home Assistant's MQTT discovery: which topics and payloads make a sensor of an attribute.

After its documentation: https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery, with the device classes and
their units of https://www.home-assistant.io/integrations/sensor/ and /binary_sensor/. One topic for each entity is
what every version takes, and other programs that read this format, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from spinney.expression import Value
from spinney.publication import RESERVED

BASE: Final = "spinney-mobile"
ONLINE: Final = b"online"
OFFLINE: Final = b"offline"
MAX_ATTRIBUTES: Final = 64
"""Of one source."""
WHYS: Final = ["match", "enter", "exit", "top"]
"""Why there is a notification."""
_LONGEST_SLUG: Final = 48
_LONGEST_MODEL: Final = 200

_UNITS: Final = {
    "C": "°C",
    "F": "°F",
    "ug/m3": "µg/m³",
    "m3": "m³",
    "m3/h": "m³/h",
    "m/s2": "m/s²",
    "uS/cm": "µS/cm",
    "deg": "°",
}
"""Ours, and how Home Assistant writes them."""

_CLASSES: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    name: (device_class, frozenset(units.split()))
    for names, device_class, units in (
        ("temperature temp dew_point", "temperature", "°C °F K"),
        ("humidity", "humidity", "%"),
        ("moisture", "moisture", "%"),
        ("battery", "battery", "%"),
        ("pressure", "atmospheric_pressure", "hPa Pa kPa mbar bar"),
        ("illuminance", "illuminance", "lx"),
        ("voltage", "voltage", "V mV"),
        ("current", "current", "A mA"),
        ("power", "power", "W kW"),
        ("energy", "energy", "Wh kWh MWh"),
        ("co2 CO2", "carbon_dioxide", "ppm"),
        ("co CO", "carbon_monoxide", "ppm"),
        ("no2 NO2", "nitrogen_dioxide", "µg/m³"),
        ("o3 O3", "ozone", "µg/m³"),
        ("so2 SO2", "sulphur_dioxide", "µg/m³"),
        ("pm1 PM1", "pm1", "µg/m³"),
        ("pm25 PM25", "pm25", "µg/m³"),
        ("pm10 PM10", "pm10", "µg/m³"),
        ("tvoc", "volatile_organic_compounds", "µg/m³"),
        ("mass", "weight", "kg g"),
        ("mass_lb", "weight", "lb"),
        ("distance", "distance", "m mm cm km"),
        ("speed", "speed", "m/s km/h"),
        ("duration", "duration", "s min h"),
        ("volume_flow_rate", "volume_flow_rate", "m³/h"),
        ("volume_storage", "volume_storage", "L m³"),
        ("gas", "gas", "m³ L"),
        ("water", "water", "L m³"),
        ("precipitation", "precipitation", "mm"),
        ("conductivity", "conductivity", "µS/cm"),
    )
    for name in names.split()
}
_GROWING: Final = frozenset({"energy", "gas", "water", "precipitation"})
"""Totals that only grow; statistics want to know."""
_BINARY: Final[Mapping[str, str]] = {
    "battery_low": "battery",
    "gas_detected": "gas",
    "wet": "moisture",
}
_BINARY_AS_CALLED: Final = frozenset(
    {
        "battery_charging",
        "carbon_monoxide",
        "cold",
        "connectivity",
        "door",
        "garage_door",
        "heat",
        "light",
        "lock",
        "motion",
        "moving",
        "occupancy",
        "opening",
        "plug",
        "presence",
        "problem",
        "running",
        "safety",
        "smoke",
        "sound",
        "tamper",
        "vibration",
        "window",
    }
)
"""Device classes that have the attribute's own name."""


class Message(NamedTuple):
    """To be published."""

    topic: str
    payload: bytes
    retain: bool


def slug(name: str) -> str:
    """A name as part of a topic and an id; different names stay different."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST_SLUG]
    return plain if plain == name else f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def broker_topic(client: str) -> str:
    """Whether this broker is there: its will says when not."""
    return f"{BASE}/broker/{client}/availability"


def source_topic(source: str, leaf: str) -> str:
    """Of a source: `state` or `availability`. Whichever broker owns it says it here."""
    return f"{BASE}/source/{slug(source)}/{leaf}"


def availability(source: str, *, there: bool) -> Message:
    """Whether a source is heard."""
    return Message(source_topic(source, "availability"), ONLINE if there else OFFLINE, retain=True)


def state(source: str, publication: Mapping[str, Any], rssi: int | None) -> Message:
    """A reading. It is not retained: what a server keeps would look new whenever Home Assistant starts."""
    item = {name: value for name, value in publication.items() if name not in RESERVED}
    item |= {"time": publication.get("time")} | ({} if rssi is None else {"_rssi": rssi})
    return Message(source_topic(source, "state"), json.dumps(item, ensure_ascii=False).encode(), retain=False)


def subscription_topic(sid: str, leaf: str) -> str:
    """Of a subscription: `event` or `state`."""
    return f"{BASE}/subscription/{slug(sid)}/{leaf}"


def event(sid: str, why: str, publication: Mapping[str, Any], scope: Value | None) -> Message:
    """A notification. It is not retained: it has happened once."""
    more = {} if scope is None else {"scope": scope}
    item = {**publication, **more, "event_type": why}
    return Message(subscription_topic(sid, "event"), json.dumps(item, ensure_ascii=False).encode(), retain=False)


def in_state(sid: str, *, holds: bool) -> Message:
    """Whether a state filter holds anywhere."""
    return Message(subscription_topic(sid, "state"), b"ON" if holds else b"OFF", retain=True)


class Describer(NamedTuple):
    """What all configurations of one broker have in common."""

    prefix: str
    """Home Assistant's discovery prefix."""
    client: str
    version: str
    expire_after: float

    def entities(
        self, source: str, publication: Mapping[str, Value], units: Mapping[str, str], *, rssi: bool
    ) -> Iterator[tuple[str, Message]]:
        """For each attribute of a reading its name, and the message that makes an entity of it."""
        names = [name for name in publication if name not in RESERVED][:MAX_ATTRIBUTES]
        for name in names:
            yield name, self._entity(source, name, publication[name], units.get(name))
        if rssi:
            own = {"device_class": "signal_strength", "unit_of_measurement": "dBm", "state_class": "measurement"}
            hidden = {"entity_category": "diagnostic", "enabled_by_default": False}
            yield "_rssi", self._message("sensor", source, "_rssi", "Signal", own | hidden)

    def subscription(self, sid: str, text: str, *, has_state: bool) -> Iterator[Message]:
        """What makes a device of a subscription: an event for each notification and, of a state filter, on and off."""
        unique = f"spinney_subscription_{slug(sid)}"
        common = {
            "availability": [{"topic": broker_topic(self.client)}],
            "device": {"identifiers": [unique], "name": sid, "model": text[:_LONGEST_MODEL]},
            "origin": {"name": "Spinney", "sw_version": self.version},
        }
        told = {"name": "Notification", "event_types": WHYS, "state_topic": subscription_topic(sid, "event")}
        yield self._of_subscription("event", unique, "event", told | common)
        if has_state:
            holds = {"name": "State", "state_topic": subscription_topic(sid, "state")}
            yield self._of_subscription("binary_sensor", unique, "state", holds | common)

    def _of_subscription(self, component: str, unique: str, leaf: str, item: dict[str, Any]) -> Message:
        item |= {"unique_id": f"{unique}_{leaf}", "object_id": f"{unique}_{leaf}"}
        topic = f"{self.prefix}/{component}/{unique}/{leaf}/config"
        return Message(topic, json.dumps(item, ensure_ascii=False).encode(), retain=True)

    def _entity(self, source: str, name: str, value: Value, unit: str | None) -> Message:
        title = name.replace("_", " ")
        title = title[:1].upper() + title[1:]
        if isinstance(value, bool):
            base = _base(name)
            device_class = base if base in _BINARY_AS_CALLED else _BINARY.get(base)
            own: dict[str, Any] = {"payload_on": "True", "payload_off": "False"}
            own |= {} if device_class is None else {"device_class": device_class}
            return self._message("binary_sensor", source, name, title, own)
        return self._message("sensor", source, name, title, _sensor(name, value, unit))

    def _message(self, component: str, source: str, name: str, title: str, own: Mapping[str, Any]) -> Message:
        unique = f"spinney_{slug(source)}_{slug(name)}"
        item = {
            "name": title,
            "unique_id": unique,
            "object_id": unique,
            "state_topic": source_topic(source, "state"),
            "value_template": f"{{{{ value_json[{json.dumps(name)}] | default('') }}}}",
            "expire_after": round(self.expire_after),
            "availability_mode": "all",
            "availability": [{"topic": broker_topic(self.client)}, {"topic": source_topic(source, "availability")}],
            "device": {"identifiers": [f"spinney_{slug(source)}"], "name": source},
            "origin": {"name": "Spinney", "sw_version": self.version},
            **own,
        }
        topic = f"{self.prefix}/{component}/spinney_{slug(source)}/{slug(name)}/config"
        return Message(topic, json.dumps(item, ensure_ascii=False).encode(), retain=True)


def _sensor(name: str, value: Value, unit: str | None) -> dict[str, Any]:
    """A class only where its unit is known to be one that Home Assistant takes for it."""
    shown = _UNITS.get(unit or "", unit)
    own: dict[str, Any] = {}
    known = _CLASSES.get(_base(name))
    if known is not None and shown in known[1]:
        own["device_class"] = known[0]
    if shown:
        own["unit_of_measurement"] = shown
    if not isinstance(value, str):
        own["state_class"] = "total_increasing" if _base(name) in _GROWING else "measurement"
    if _base(name) == "battery":
        own["entity_category"] = "diagnostic"
    return own


def _base(name: str) -> str:
    """Without the number of a second sensor of its kind: temperature_2."""
    return re.sub(r"_\d+$", "", name)
