"""The whole mote put together from its configuration and its board."""

import time

import spinney_boot

from . import kept, programs, wiring
from .board import Board
from .clock import Clock
from .config import parse
from .labels import Labels
from .life import Life
from .ota import Ota
from .radio import Radio
from .samples import Sample
from .store import Store
from .table import Table


def machine_of_programs():
    """The native one where the port can make it, or was given it compiled for its processor."""
    try:
        from .vm_viper import run
    except (ImportError, SyntaxError, ValueError):  # ValueError: an .mpy for another processor
        from .vm import run
    return run


def assemble(machine, watchdog, files, text, ticks=time) -> Life:
    """All but the radio. `files` is the state's folder, `text` that of config.json, `ticks` MicroPython's `time`."""
    config = parse(text)
    board = Board(machine, ticks, watchdog)
    if config.watchdog_s:
        board.watch(config.watchdog_s)
    memory = board.rtc_memory()
    store = Store(files, memory, board.rtc_bytes)
    clock = Clock(ticks.ticks_ms, ticks.ticks_diff, None if memory is None else board.rtc_ms)
    sensors = wiring.sensors(config, machine, ticks)
    attributes = [attribute for sensor in sensors for attribute in sensor.attributes]
    rows = [(one.name, one.p, one.q, one.low, one.high) for one in attributes]
    table = Table(len(rows), programs.layout(rows), config.table_bytes)
    scales = [(one.p, one.q) for one in attributes]
    labels = Labels(table, kept.Events(config.ring_bytes, clock), machine_of_programs(), scales)
    sample = Sample([(one.low, one.high) for one in attributes], 0)
    ota = Ota(files, _bytes_of(config.ota_key), spinney_boot.running)
    return Life(config, board, store, clock, sensors, sample, labels, ota)


def switch_on(life: Life, bluetooth, ticks=time) -> None:
    """The radio of a mote that has begun. Waking from sleep does not let others pair; a start does."""
    config = life.config
    life.switch_on(
        Radio(
            bluetooth,
            life,
            life.store,
            ticks.ticks_ms,
            bonded_writes=config.bonded_writes,
            passkey=None if config.passkey < 0 else config.passkey,
            pairing_s=0 if life.is_woken else config.pairing_s,
        )
    )


def run(machine, watchdog, files) -> None:
    """What main.py runs; it never ends."""
    import bluetooth

    life = assemble(machine, watchdog, files, spinney_boot.Files("").read(spinney_boot.CONFIG))
    life.begin()
    for problem in life.errors:
        print(problem)
    switch_on(life, bluetooth)
    life.run(time.sleep_ms)


def _bytes_of(digits: str) -> bytes:
    return bytes([int(digits[at : at + 2], 16) for at in range(0, len(digits), 2)])
