"""Draws firmware/docs/*.svg, how each sensor is wired to a board: `python -m spinney_tools.make_wiring`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parents[2] / "firmware" / "docs"

WIDTH = 560
TOP = 84
ROW = 34
BOARD = (24, 150)
SENSOR = (386, 150)
BOARD_EDGE = BOARD[0] + BOARD[1]
MIDDLE = (BOARD_EDGE + SENSOR[0]) // 2

STYLE = """
    text { font: 14px system-ui, sans-serif; fill: #1c2421 }
    .title { font-weight: 600; font-size: 16px }
    .note { font-size: 13px; fill: #4a5751 }
    .paper { fill: #fbfcfa; stroke: #d5ddd7 }
    .box { fill: #e8f0e9; stroke: #6f8a78 }
    .part { fill: #fbfcfa; stroke: #1c2421; stroke-width: 1.5 }
    .wire { fill: none; stroke-width: 2.5; stroke-linecap: round }
    .power { stroke: #c0392b } .ground { stroke: #55605a } .clock { stroke: #b07d00 } .data { stroke: #1f6fb2 }
    .dot.power { fill: #c0392b } .dot.ground { fill: #55605a } .dot.clock { fill: #b07d00 } .dot.data { fill: #1f6fb2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6ece8 }
      .note { fill: #a9b6ae }
      .paper { fill: #151a17; stroke: #38423c }
      .box { fill: #223029; stroke: #7d9a88 }
      .part { fill: #151a17; stroke: #e6ece8 }
      .power { stroke: #ff7a6b } .ground { stroke: #a9b6ae } .clock { stroke: #f0c14b } .data { stroke: #6db8f2 }
      .dot.power { fill: #ff7a6b } .dot.ground { fill: #a9b6ae } .dot.clock { fill: #f0c14b }
      .dot.data { fill: #6db8f2 }
    }
"""


@dataclass(frozen=True)
class Wire:
    """One row: a pin of the board, a pin of the sensor, or both; `kind` is power, ground, clock or data."""

    board: str
    sensor: str
    kind: str


@dataclass(frozen=True)
class Resistor:
    """Between two rows, at `x`."""

    first: int
    second: int
    label: str
    x: int = MIDDLE


@dataclass(frozen=True)
class Wiring:
    """One picture."""

    name: str
    wires: tuple[Wire, ...]
    notes: tuple[str, ...]
    resistors: tuple[Resistor, ...] = ()


def _i2c(name: str, *notes: str) -> Wiring:
    wires = (
        Wire("3V3", "VCC", "power"),
        Wire("GND", "GND", "ground"),
        Wire("GPIO 22 (SCL)", "SCL", "clock"),
        Wire("GPIO 21 (SDA)", "SDA", "data"),
    )
    return Wiring(name, wires, notes)


PULL_UPS_ON_MODULE = "Modules have pull-ups; a bare chip needs 10 kΩ from SCL and SDA to 3V3."

WIRINGS = {
    "bme280": _i2c("BME280", "Address 0x76; SDO at 3V3: 0x77. CSB at 3V3 for I2C.", PULL_UPS_ON_MODULE),
    "sht3x": _i2c("SHT30, 31, 35", "Address 0x44; ADDR at 3V3: 0x45.", PULL_UPS_ON_MODULE),
    "sht4x": _i2c("SHT40, 41, 45", "Address 0x44; other order codes 0x45, 0x46.", PULL_UPS_ON_MODULE),
    "scd4x": _i2c("SCD40, SCD41", "Address 0x62. Peaks of 205 mA: a supply that gives them.", PULL_UPS_ON_MODULE),
    "sps30": Wiring(
        "SPS30",
        (
            Wire("3V3", "", "power"),
            Wire("GPIO 21 (SDA)", "2  RX, SDA", "data"),
            Wire("GPIO 22 (SCL)", "3  TX, SCL", "clock"),
            Wire("5V", "1  VDD", "power"),
            Wire("GND", "4  SEL", "ground"),
            Wire("GND", "5  GND", "ground"),
        ),
        ("SEL at ground chooses I2C, address 0x69.", "Two pull-ups of 10 kΩ; wires of less than 10 cm."),
        (Resistor(0, 1, "10 kΩ", MIDDLE - 40), Resistor(0, 2, "10 kΩ", MIDDLE + 40)),
    ),
    "pms5003": Wiring(
        "PMS5003",
        (
            Wire("5V", "1  VCC", "power"),
            Wire("GND", "2  GND", "ground"),
            Wire("3V3", "3  SET", "power"),
            Wire("GPIO 17 (TX)", "4  RX", "clock"),
            Wire("GPIO 16 (RX)", "5  TX", "data"),
        ),
        ("The fan needs 5 V; the signals are 3.3 V.", "Pins 6 to 8 stay open."),
    ),
    "ds18b20": Wiring(
        "DS18B20",
        (
            Wire("3V3", "3  VDD", "power"),
            Wire("GPIO 4", "2  DQ", "data"),
            Wire("GND", "1  GND", "ground"),
        ),
        ("One resistor for all sensors on the wire.", "Not powered by the data wire: VDD must be connected."),
        (Resistor(0, 1, "4.7 kΩ"),),
    ),
    "adc": Wiring(
        "analogue sensor",
        (
            Wire("3V3", "VCC", "power"),
            Wire("GPIO 34 (ADC1)", "OUT", "data"),
            Wire("GND", "GND", "ground"),
        ),
        ("OUT must stay within 0 and 3.3 V.", "ESP32: a pin of ADC1 (32 to 39); ADC2 is shared with Wi-Fi."),
    ),
    "digital": Wiring(
        "contact or pulse",
        (
            Wire("GPIO 27", "1", "data"),
            Wire("GND", "2", "ground"),
        ),
        ("With the board's own pull-up: pull_up in its bus, active = 0.", "A long wire wants 4.7 kΩ to 3V3, too."),
    ),
    "battery": Wiring(
        "lithium cell",
        (
            Wire("", "+", "power"),
            Wire("GPIO 35 (ADC1)", "", "data"),
            Wire("GND", "-", "ground"),
        ),
        ("above and below are the upper and the lower resistor.", "The cell also feeds the board by its own input."),
        (Resistor(0, 1, "100 kΩ"), Resistor(1, 2, "100 kΩ")),
    ),
}


def svg(wiring: Wiring) -> str:
    """The picture as SVG: the board on the left, the sensor on the right, a row for each wire."""
    rows = len(wiring.wires)
    box_height = ROW * (rows - 1) + 40
    height = TOP + box_height - 20 + 28 + 22 * len(wiring.notes)
    title = f"{wiring.name} at an ESP32"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(title)}</title>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        *_box(*BOARD, "ESP32", box_height),
        *_box(*SENSOR, wiring.name, box_height),
    ]
    for row, wire in enumerate(wiring.wires):
        parts += _wire(row, wire)
    for resistor in wiring.resistors:
        parts += _resistor(resistor, wiring)
    bottom = TOP + box_height - 20 + 28
    for i, note in enumerate(wiring.notes):
        parts.append(f'  <text class="note" x="{BOARD[0]}" y="{bottom + 22 * i}">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _box(x: int, width: int, name: str, height: int) -> list[str]:
    return [
        f'  <rect class="box" x="{x}" y="{TOP - 20}" width="{width}" height="{height}" rx="8"/>',
        f'  <text class="title" x="{x + width // 2}" y="{TOP - 34}" text-anchor="middle">{escape(name)}</text>',
    ]


def _y(row: int) -> int:
    return TOP + ROW * row


def _wire(row: int, wire: Wire) -> list[str]:
    y = _y(row)
    left = BOARD_EDGE if wire.board else MIDDLE
    right = SENSOR[0] if wire.sensor else MIDDLE + (0 if wire.board and row else 40)
    parts = [f'  <path class="wire {wire.kind}" d="M{left} {y} H{right}"/>']
    if wire.board:
        parts.append(f'  <text x="{BOARD_EDGE - 10}" y="{y + 5}" text-anchor="end">{escape(wire.board)}</text>')
        parts.append(f'  <circle class="dot {wire.kind}" cx="{BOARD_EDGE}" cy="{y}" r="4"/>')
    if wire.sensor:
        parts.append(f'  <text x="{SENSOR[0] + 10}" y="{y + 5}">{escape(wire.sensor)}</text>')
        parts.append(f'  <circle class="dot {wire.kind}" cx="{SENSOR[0]}" cy="{y}" r="4"/>')
    return parts


def _resistor(resistor: Resistor, wiring: Wiring) -> list[str]:
    """Its lead has the colour of the row above; where it crosses other rows it has no dot."""
    x, first, second = resistor.x, _y(resistor.first), _y(resistor.second)
    body = first + 8
    kinds = [wiring.wires[row].kind for row in (resistor.first, resistor.second)]
    return [
        f'  <path class="wire {kinds[0]}" d="M{x} {first} V{body}"/>',
        f'  <path class="wire {kinds[1]}" d="M{x} {body + 18} V{second}"/>',
        f'  <rect class="part" x="{x - 5}" y="{body}" width="10" height="18"/>',
        f'  <text class="note" x="{x + 10}" y="{body + 14}">{escape(resistor.label)}</text>',
        f'  <circle class="dot {kinds[0]}" cx="{x}" cy="{first}" r="3.5"/>',
        f'  <circle class="dot {kinds[1]}" cx="{x}" cy="{second}" r="3.5"/>',
    ]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for driver, wiring in WIRINGS.items():
        (FOLDER / f"{driver}.svg").write_text(svg(wiring), encoding="utf-8")


if __name__ == "__main__":
    main()
