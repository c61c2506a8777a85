"""What the owner sets: config.json, made from mote.toml by the host. A wrong entry is told, and its default used."""

import json

_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
MAX_PROBLEMS = 8  # kept in words; all are counted
MAX_SENSORS = 16
FILE_BYTES = 8192


class Config:
    """Every entry with its default."""

    def __init__(self):
        self.name = "mote"
        self.sample_interval_s = 60
        self.advert_interval_ms = 1000
        self.advert_idle_ms = 5000
        self.advert_fast_ms = 60
        self.advert_mode = ""  # open until a broker says otherwise
        self.open_after = 21600
        self.fallback = "encrypted"
        self.deep_sleep = False
        self.awake_ms = 1000
        self.look_ms = 200
        self.reach_s = 300
        self.watchdog_s = 30
        self.ring_bytes = 4096
        self.table_bytes = 8192
        self.bonded_writes = True
        self.passkey = -1  # none: whoever comes while pairing is open
        self.pairing_s = 120
        self.sampling = True
        self.ota_key = ""
        self.buses: dict = {}
        self.sensors: list = []
        self.problems: list = []  # in words, the first few
        self.problem_count = 0

    def complain(self, text: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)


def _whole(low, high):
    def good(value):
        return type(value) is int and low <= value <= high

    return good, "a whole number from %d to %d" % (low, high)


def _one_of(*words):
    return (lambda value: type(value) is str and value in words), "one of %s" % ", ".join('"%s"' % one for one in words)


def _flag():
    return (lambda value: type(value) is bool), "true or false"


def _name(value):
    return type(value) is str and 1 <= len(value) <= 12 and all(letter in _NAME for letter in value)


def _hexadecimal(value):
    return type(value) is str and len(value) in (0, 64) and all(letter in "0123456789abcdef" for letter in value)


def _entries():
    """What each entry must be. A function, since a table would cost memory for good."""
    return {
        "name": (_name, "1 to 12 letters, digits, _ or -"),
        "sample_interval_s": _whole(1, 86400),
        "advert_interval_ms": _whole(20, 10240),
        "advert_idle_ms": _whole(20, 10240),
        "advert_fast_ms": _whole(20, 10240),
        "advert_mode": _one_of("", "open", "encrypted", "presence"),
        "open_after": _whole(0, 31_536_000),
        "fallback": _one_of("encrypted", "open", "presence"),
        "deep_sleep": _flag(),
        "awake_ms": _whole(200, 60000),
        "look_ms": _whole(100, 60000),
        "reach_s": _whole(20, 86400),
        "watchdog_s": _whole(0, 600),
        "ring_bytes": _whole(256, 65536),
        "table_bytes": _whole(256, 65536),
        "bonded_writes": _flag(),
        "passkey": _whole(-1, 999_999),
        "pairing_s": _whole(0, 3600),
        "sampling": _flag(),
        "ota_key": (_hexadecimal, "64 digits of 0-9a-f, or empty"),
        "buses": (lambda value: type(value) is dict, "a table of buses"),
        "sensors": (lambda value: type(value) is list and len(value) <= MAX_SENSORS, "a list of at most 16 sensors"),
    }


_BUS_KINDS = {
    "i2c": ("id", "scl", "sda", "freq"),
    "uart": ("id", "tx", "rx", "baudrate"),
    "adc": ("pin",),
    "onewire": ("pin",),
    "pin": ("pin", "pull_up"),
}


def parse(text) -> Config:
    """The configuration in a text; None is no file, which is all defaults."""
    config = Config()
    if text is None:
        return config
    try:
        found = json.loads(text)
    except ValueError:
        config.complain("config.json is no JSON; all defaults are used")
        return config
    if type(found) is not dict:
        config.complain("config.json must be an object; all defaults are used")
        return config
    _take(config, found)
    config.buses = {name: bus for name, bus in config.buses.items() if _good_bus(config, name, bus)}
    config.sensors = [sensor for sensor in config.sensors if _good_sensor(config, sensor)]
    return config


def _take(config: Config, found: dict) -> None:
    entries = _entries()
    for name in sorted(found):
        if name not in entries:
            config.complain("%s is not known" % name)
            continue
        good, meant = entries[name]
        if good(found[name]):
            setattr(config, name, found[name])
        else:
            config.complain("%s must be %s, not %s; its default is used" % (name, meant, json.dumps(found[name])[:40]))


def _good_bus(config: Config, name: str, bus) -> bool:
    kind = bus.get("kind") if type(bus) is dict else None
    if kind not in _BUS_KINDS:
        config.complain("bus %s: kind must be one of %s" % (name, ", ".join(sorted(_BUS_KINDS))))
        return False
    for key in sorted(bus):
        if key == "kind":
            continue
        if key not in _BUS_KINDS[kind]:
            config.complain("bus %s: %s is not known for kind %s" % (name, key, kind))
        elif type(bus[key]) not in (int, bool) or bus[key] < 0:
            config.complain("bus %s: %s must be a number; the bus is left out" % (name, key))
            return False
    return True


def _good_sensor(config: Config, sensor) -> bool:
    driver = sensor.get("driver") if type(sensor) is dict else None
    if type(driver) is not str or not driver or not all(letter in _NAME for letter in driver):
        config.complain("a sensor needs a driver, such as bme280; it is left out")
        return False
    bus = sensor.get("bus")
    if bus is not None and bus not in config.buses:
        config.complain("sensor %s: there is no bus %s; the sensor is left out" % (driver, json.dumps(bus)[:40]))
        return False
    return True
