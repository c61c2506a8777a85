"""Buses and sensors as the configuration lists them. What cannot be made is told in words, and the others go on."""

from . import drivers

RESERVED = ("id", "source", "time", "lat", "long", "type", "valid_for")  # attributes of every publication
_I2C_TIMEOUT_US = 50_000
_UART_TIMEOUT_MS = 50
MAX_ATTRIBUTES = 29  # of a sample


def sensors(config, machine, clock) -> list:
    """All sensors that can be made; `clock` is MicroPython's `time`."""
    buses = {}
    found = []
    names = set()
    for entry in config.sensors:
        driver = entry["driver"]
        try:
            made = _sensor(entry, config, buses, machine, clock)
        except (ValueError, TypeError, OSError, ImportError, AttributeError) as error:
            config.complain("sensor %s: %s; it is left out" % (driver, error))
            continue
        if len(names) + len(made.attributes) > MAX_ATTRIBUTES:
            config.complain("sensor %s: more than %d attributes; it is left out" % (driver, MAX_ATTRIBUTES))
            continue
        _make_unique(made, names)
        found.append(made)
    return found


def _sensor(entry, config, buses, machine, clock):
    options = dict(entry)
    driver = _driver(options.pop("driver"))
    name = options.pop("bus", None)
    for attribute in options.get("names", ()):
        if attribute in RESERVED:
            raise ValueError("%s is reserved" % attribute)
    if name is None:
        return driver(None, clock, **options)
    kind = config.buses[name]["kind"]
    if driver.bus_kind and kind != driver.bus_kind:
        raise ValueError("bus %s is of kind %s, not %s" % (name, kind, driver.bus_kind))
    if name not in buses:
        buses[name] = _MAKERS[kind](config.buses[name], machine)
    return driver(buses[name], clock, **options)


def _driver(name: str):
    """One of the library's, or of the owner's own: a class of that name in a file of that name beside them."""
    if name in drivers.DRIVERS:
        return drivers.load(name)
    try:
        module = __import__("spinney_mote.drivers." + name, None, None, (name,))
    except ImportError:
        return drivers.load(name)  # which says what there is
    return getattr(module, name[0].upper() + name[1:])


def _make_unique(sensor, names) -> None:
    """A second temperature is temperature_2."""
    attributes = []
    for attribute in sensor.attributes:
        name = attribute.name
        number = 1
        while name in names:
            number += 1
            name = "%s_%d" % (attribute.name, number)
        names.add(name)
        attributes.append(attribute if name == attribute.name else attribute.renamed(name))
    sensor.attributes = tuple(attributes)


def _i2c(bus, machine):
    scl = machine.Pin(bus["scl"])
    sda = machine.Pin(bus["sda"])
    return machine.I2C(bus.get("id", 0), scl=scl, sda=sda, freq=bus.get("freq", 100_000), timeout=_I2C_TIMEOUT_US)


def _uart(bus, machine):
    return machine.UART(
        bus.get("id", 1),
        baudrate=bus.get("baudrate", 9600),
        tx=machine.Pin(bus["tx"]),
        rx=machine.Pin(bus["rx"]),
        timeout=_UART_TIMEOUT_MS,
    )


def _adc(bus, machine):
    adc = machine.ADC(machine.Pin(bus["pin"]))
    if hasattr(adc, "atten"):
        adc.atten(machine.ADC.ATTN_11DB)  # the whole range that an ESP32 measures
    return adc


def _onewire(bus, machine):
    import onewire

    return onewire.OneWire(machine.Pin(bus["pin"]))


def _pin(bus, machine):
    pull = machine.Pin.PULL_UP if bus.get("pull_up") else None
    return machine.Pin(bus["pin"], machine.Pin.IN, pull)


_MAKERS = {"i2c": _i2c, "uart": _uart, "adc": _adc, "onewire": _onewire, "pin": _pin}
