"""What a mote's battery has given, and for what: the times are the firmware's, the packets the sniffer's."""

from __future__ import annotations

from dataclasses import dataclass, field

from .sniffer import Traffic

UC_PER_MAH = 3_600_000.0
_US_PER_BYTE = 8
"""At 1 Mbit/s."""
_ADVERT_OVERHEAD_BYTES = 16
"""Preamble, access address, header, the advertiser's address and CRC."""
_DATA_OVERHEAD_BYTES = 10
_SCAN_REQUEST_BYTES = 12
"""Two addresses."""
_CHANNELS = 3
_INTER_FRAME_US = 150
"""Between two packets that belong together: Bluetooth's T_IFS."""


@dataclass(frozen=True)
class Consumption:
    """An ESP32-C3 that runs MicroPython. What is measured on a board replaces it; *chosen* is what nobody has measured.

    Sources: [1] Espressif's data sheet of the ESP32-C3 series, current consumption. [2] robdobson.com, Investigating
    ESP32-C3 Power Management, 2023. [3] Espressif's arduino-esp32, issue 5909. [4] Espressif's techpedia, BLE
    application note, performance. [5] glenn20's upy-esp32-experiments, OptimisingMicropythonBootTime: an ESP32-S3 whose
    main.py sleeps again at once, without the check of the image (which MicroPython leaves out by now) and without
    memory that a C3 has not. [6] Bosch's data sheet of the BME280. [7] The Linux kernel's defaults of BLE connections.
    """

    run_ma: float = 28.0
    """The CPU computes at 160 MHz, the radio is off: 28 [1], 26.8 [2]."""
    idle_ma: float = 20.0
    """It waits in time.sleep(), the radio is off: 20.1 [2]."""
    radio_ma: float = 25.0
    """It waits and the radio is on, between its events: 25 with the controller's modem sleep, 77 without [3]."""
    light_sleep_ma: float = 0.35
    """[2]; the chip alone 0.13 [1]."""
    deep_sleep_ma: float = 0.008
    """5 uA of the chip with its clock and RTC memory [1], 3 of a regulator: chosen."""
    boot_s: float = 0.41
    """From deep sleep to the first line of boot.py, computing [5]. MicroPython does not check the image then."""
    load_s: float = 0.2
    """The library is read from the flash and imported: chosen."""
    radio_start_s: float = 0.15
    """Controller and host start, computing: chosen."""
    read_s: float = 0.02
    """For each quantity of a sample: 9.3 ms for the three of a BME280 [6], the rest is the firmware's work: chosen."""
    tx_ma: float = 262.0
    """While it transmits: the most that BLE takes [4]."""
    rx_ma: float = 84.0
    """While it listens [1]."""
    ramp_us: float = 140.0
    """Before each packet, at the current of listening: chosen."""
    listen_us: float = 80.0
    """After an advert, beyond the 150 us in which nobody may answer: until the answer would have begun. Chosen."""
    connection_interval_s: float = 0.03
    """Motes do not ask for another than the central's: 30 to 50 ms [7]."""

    def shares(self, used: Ledger) -> dict[str, float]:
        """Microcoulombs by what they were for."""
        on_air = used.traffic
        adverts = on_air.adverts * self._advert_uc() + on_air.advert_bytes * _CHANNELS * self._bytes_uc(1, self.tx_ma)
        answers = on_air.scan_responses * self._scan_uc()
        answers += on_air.scan_response_bytes * self._bytes_uc(1, self.tx_ma)
        events = on_air.connected_s / self.connection_interval_s
        data = on_air.sent_packets * self._bytes_uc(_DATA_OVERHEAD_BYTES, self.tx_ma)
        data += on_air.sent_bytes * self._bytes_uc(1, self.tx_ma)
        data += on_air.received_packets * self._bytes_uc(_DATA_OVERHEAD_BYTES, self.rx_ma)
        data += on_air.received_bytes * self._bytes_uc(1, self.rx_ma)
        return {
            "deep sleep": used.asleep_s * self.deep_sleep_ma * 1000,
            "light sleep": used.light_sleep_s * self.light_sleep_ma * 1000,
            "starts": used.starts * (self.boot_s + self.load_s) * self.run_ma * 1000,
            "samples": used.reads * self.read_s * self.run_ma * 1000,
            "awake, radio off": used.idle_s * self.idle_ma * 1000,
            "awake, radio on": used.radio_s * self.radio_ma * 1000,
            "radio's starts": used.radio_starts * self.radio_start_s * self.run_ma * 1000,
            "adverts": adverts,
            "scan responses": answers,
            "connections": events * self._connection_event_uc() + data,
        }

    def _advert_uc(self) -> float:
        """Of one advertising event, but for its data."""
        listening = (self.ramp_us + _INTER_FRAME_US + self.listen_us) * self.rx_ma / 1000
        return _CHANNELS * (listening + self._bytes_uc(_ADVERT_OVERHEAD_BYTES, self.tx_ma))

    def _scan_uc(self) -> float:
        """The request is heard to its end, and answered."""
        heard = self._bytes_uc(_ADVERT_OVERHEAD_BYTES + _SCAN_REQUEST_BYTES, self.rx_ma)
        between = _INTER_FRAME_US * self.rx_ma / 1000
        return heard + between + self._bytes_uc(_ADVERT_OVERHEAD_BYTES, self.tx_ma)

    def _connection_event_uc(self) -> float:
        """Both sides send an empty packet."""
        empty = _DATA_OVERHEAD_BYTES
        listening = (self.ramp_us + _INTER_FRAME_US) * self.rx_ma / 1000
        return listening + self._bytes_uc(empty, self.rx_ma) + self._bytes_uc(empty, self.tx_ma)

    def _bytes_uc(self, size: int, current_ma: float) -> float:
        return size * _US_PER_BYTE * current_ma / 1000


@dataclass(slots=True)
class Ledger:
    """What a mote did."""

    asleep_s: float = 0.0
    light_sleep_s: float = 0.0
    idle_s: float = 0.0
    """Awake with the radio off..."""
    radio_s: float = 0.0
    """...and with the radio on."""
    starts: int = 0
    radio_starts: int = 0
    samples: int = 0
    reads: int = 0
    """Quantities, in all samples."""
    traffic: Traffic = field(default_factory=Traffic)


class Battery:
    """`capacity_mah`, of which `percent` is left; a mote stops at 0."""

    def __init__(self, capacity_mah: float = 1000.0, consumption: Consumption | None = None) -> None:
        self.capacity_mah = capacity_mah
        self.consumption = consumption or Consumption()
        self.ledger = Ledger()
        self._drained_uc = 0.0

    @property
    def used_mah(self) -> float:
        return (self._drained_uc + sum(self.consumption.shares(self.ledger).values())) / UC_PER_MAH

    @property
    def percent(self) -> float:
        return max(0.0, 100.0 * (1.0 - self.used_mah / self.capacity_mah))

    def drain(self, percent: float) -> None:
        """Takes so much of the capacity at once, for a test or a scenario."""
        self._drained_uc += percent / 100.0 * self.capacity_mah * UC_PER_MAH

    def millivolts(self) -> int:
        """Of one lithium cell under a light load, straight from 4.2 V to 3.3 V: what the divider's input shows."""
        return round(3300 + 9 * self.percent)
