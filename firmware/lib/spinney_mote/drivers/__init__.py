"""The sensors that a mote knows by name; a driver is imported when it is loaded, so that a mote carries no others."""

DRIVERS = {
    "adc": "Adc",
    "battery": "Battery",
    "bme280": "Bme280",
    "digital": "Digital",
    "ds18b20": "Ds18b20",
    "pms5003": "Pms5003",
    "scd4x": "Scd4x",
    "sht3x": "Sht3x",
    "sht4x": "Sht4x",
    "sps30": "Sps30",
}


def load(driver: str):
    """The class of a driver; ValueError where there is none of that name."""
    if driver not in DRIVERS:
        raise ValueError(f"no driver {driver}; there are {', '.join(sorted(DRIVERS))}")
    module = __import__("spinney_mote.drivers." + driver, None, None, (DRIVERS[driver],))
    return getattr(module, DRIVERS[driver])
