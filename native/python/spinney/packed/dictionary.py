"""What both ends know before the first message: what readings, announcements and activations usually say.

A dictionary is part of the format. It never changes; another one has another number, and other words are no reason for
one: they cost a few bytes once, and later messages refer to earlier ones.
"""

from __future__ import annotations

from typing import Final

from . import cbor

_QUANTITIES: Final = (
    "acceleration",
    "battery",
    "conductivity",
    "current",
    "dew_point",
    "direction",
    "distance",
    "duration",
    "energy",
    "gas",
    "gyroscope",
    "mass",
    "moisture",
    "precipitation",
    "rotation",
    "rotational_speed",
    "tvoc",
    "voltage",
    "volume",
    "volume_flow_rate",
    "volume_storage",
    "water",
    "vibration",
    "smoke",
    "tamper",
    "door",
    "garage_door",
    "window",
    "presence",
    "occupancy",
    "opening",
    "motion",
    "light",
    "sound",
    "plug",
    "power",
    "text",
    "button",
    "dimmer",
    "dimmer_steps",
    "illuminance",
    "speed",
    "wind_speed",
    "wind_direction",
    "rain",
    "uv_index",
    "noise",
    "pm1",
    "pm4",
    "NO",
    "NO2",
    "O3",
    "SO2",
    "CO",
    "NOx",
    "co2",
    "pressure",
    "pm10",
    "pm25",
    "humidity",
    "temperature",
)
_OURS: Final = (
    "valid_for",
    "type",
    "room",
    "name",
    "rssi",
    "mgrs",
    "packet_id",
    "source",
    "time",
    "lat",
    "long",
    "cell",
    "heard",
)


def _of_batches() -> bytes:
    """The names as they stand in a group."""
    texts = b"".join(cbor.dumps(name) for name in (*_QUANTITIES, *_OURS))
    air = cbor.dumps(["temperature", "humidity", "pm25", "NO2", "time", "lat", "long", "cell", "heard"])
    room = cbor.dumps(["temperature", "humidity", "pressure", "battery", "time", "heard"])
    return texts + b"ffffff" + room + air


_UNITS: Final = ("%", "ppm", "ppb", "lx", "hPa", "V", "mm", "m/s", "°C", "C", "ug/m3", "µg/m³")
_WORDS: Final = (
    '{"request":"ann","ok":false,"error":{"message":"","ok":true,"session":"-1"}',
    '{"stored":{},"batch":["-',
    '","away":true}',
    '","over":true}',
    '"constants":{"room":"","type":""},"validity":3600,"battery":0.,"radio_load":0.',
    '"presence":"always","value":',
    '"type":"boolean"},"',
    "".join(f'","unit":"{unit}' for unit in _UNITS),
    "".join(f'"{name}":{{"type":"number"' for name in _QUANTITIES),
    '"more":true,"full":true,"leases":[{"source":"","owner":"","epoch":17',
    '"kind":"state","subscription":{"text":"WHEN NO2 > 40 UNTIL NO2 <= 35 FOR EACH room ONCE',
    "S_WITHIN(location, BBOX(POLYGON((S_INTERSECTS(distance(lat, long, CASEI( LIKE ' IN ('",
    ">= -1.7976931348623157e+308 AND <= 1.7976931348623157e+308 AND ",
    " IS NOT NULL OR NOT NO2 >= co2 > pm25 <= humidity < temperature = battery <> type = '",
    '"}},{"filter":"","kind":"state","subscription":{"text":"WHEN  AND lat <=  AND long >=  UNTIL  FOR ',
    '"}},{"filter":"","kind":"content","subscription":{"text":"lat BETWEEN 45. AND 45. AND long BETWEEN 15. AND 15.'
    " AND ",
    '"}}],"drop":["","',
    '{"epoch":17,"full":false,"add":[{"filter":"',
    '"],"counts":{"sent":0,"spared":0,"bytes_sent":0,"bytes_spared":0,"motes_sent":0,"motes_spared":0}}',
    '{"sources":[{"name":"","attributes":{"temperature":{"type":"number","min":-40.0,"max":85.0,"unit":"°C"},'
    '"humidity":{"type":"number","min":0.0,"max":100.0,"unit":"%"},"heard":{"type":"number"},"cell":{"type":"string"}}}],"place":'
    '{"lat":45.,"long":15.,"radius":},"session":"-1","have":17,"lease":["',
)

BATCHES: Final = _of_batches()
TEXTS: Final = "".join(_WORDS).encode()
