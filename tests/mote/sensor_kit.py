"""Sensors on fake buses that keep to their datasheets. Runs on MicroPython, too: the drivers are tried on it there.

What a real device answers with a NACK raises OSError, as `machine.I2C` does. What a datasheet forbids or leaves open
raises ProtocolError, which no driver may swallow.
"""

ENODEV = 19
ETIMEDOUT = 110
TICKS_PERIOD = 1 << 30
BUS_TIMEOUT_US = 50_000
I2C_BYTE_US = 90  # 100 kHz


class ProtocolError(AssertionError):
    """What the datasheet does not allow."""


class FakeClock:
    """MicroPython's `time` for sensors; it begins just before its ticks wrap."""

    def __init__(self, start_ms: int = TICKS_PERIOD - 700) -> None:
        self.us = start_ms * 1000
        self.slept_ms = 0

    def ticks_ms(self) -> int:
        return self.us // 1000 % TICKS_PERIOD

    def ticks_diff(self, later: int, earlier: int) -> int:
        half = TICKS_PERIOD // 2
        return (later - earlier + half) % TICKS_PERIOD - half

    def sleep_ms(self, ms: int) -> None:
        if ms < 0:
            raise ProtocolError(f"a sleep of {ms} ms")
        self.slept_ms += ms
        self.us += ms * 1000

    def passes(self, ms: int) -> None:
        """Time that somebody else took."""
        self.us += ms * 1000


def crc8(data: bytes) -> int:
    """Sensirion's, bit by bit as a polynomial division; written apart from the driver's."""
    register = 0xFF
    for byte in data:
        for bit in range(7, -1, -1):
            top = (register >> 7) ^ (byte >> bit & 1)
            register = (register << 1 & 0xFF) ^ (0x31 if top else 0)
    return register


def words(*numbers: int) -> bytes:
    """Words as Sensirion's sensors send them, each with its CRC."""
    out = b""
    for number in numbers:
        pair = bytes([number >> 8, number & 0xFF])
        out += pair + bytes([crc8(pair)])
    return out


class FakeI2c:
    """An I2C bus as `machine.I2C` shows it, with what can go wrong on it."""

    def __init__(self, clock: FakeClock, devices: dict) -> None:
        self.clock = clock
        self.devices = devices
        self.log: list = []
        self.is_stuck = False
        self.corrupt: dict = {}
        """Position in each answer: what it is XORed with."""
        self.short = -1
        """How many bytes of each answer arrive; -1 for all."""
        self.flaky = None
        """A function of the number of the read that says whether its first byte is damaged."""
        self.reads = 0

    def writeto(self, address: int, data: bytes) -> int:
        device = self._device(address, len(data))
        self.log.append(("w", address, bytes(data)))
        device.write(bytes(data))
        return len(data)

    def readfrom_into(self, address: int, buffer: bytearray) -> None:
        device = self._device(address, len(buffer))
        self._receive(address, buffer, device.read(len(buffer)))

    def writeto_mem(self, address: int, register: int, data: bytes) -> None:
        self.writeto(address, bytes([register]) + bytes(data))

    def readfrom_mem_into(self, address: int, register: int, buffer: bytearray) -> None:
        self._device(address, 1).write(bytes([register]))
        self._device(address, len(buffer))
        self._receive(address, buffer, self.devices[address].read(len(buffer)))

    def _receive(self, address: int, buffer: bytearray, data: bytes) -> None:
        sent = bytearray(data)
        for at, mask in self.corrupt.items():
            if at < len(sent):
                sent[at] ^= mask
        self.reads += 1
        if self.flaky and self.flaky(self.reads):
            sent[0] ^= 0x10
        count = len(sent) if self.short < 0 else min(self.short, len(sent))
        for i in range(count):
            buffer[i] = sent[i]
        self.log.append(("r", address, bytes(sent)))

    def _device(self, address: int, count: int):
        if self.is_stuck:
            self.clock.us += BUS_TIMEOUT_US
            raise OSError(ETIMEDOUT)
        self.clock.us += (count + 1) * I2C_BYTE_US
        if address not in self.devices:
            raise OSError(ENODEV)
        return self.devices[address]


class Device:
    """An I2C device that is busy for a while after a command, and then does not acknowledge."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.busy_until_us = 0
        self.answer = None

    def require_idle(self) -> None:
        if self.clock.us < self.busy_until_us:
            raise OSError(ENODEV)

    def busy(self, us: int) -> None:
        self.busy_until_us = self.clock.us + us

    def read(self, count: int) -> bytes:
        self.require_idle()
        if self.answer is None:
            raise OSError(ENODEV)
        answer, self.answer = self.answer, None
        if count > len(answer):
            raise ProtocolError(f"{count} bytes asked for, {len(answer)} are there")
        return answer[:count]


class Sht3xDevice(Device):
    """SHT3x-DIS, version 7, tables 4, 9 and 14: single shot at high repeatability takes 15 ms, a reset 1.5 ms."""

    def __init__(self, clock: FakeClock, answer: bytes) -> None:
        Device.__init__(self, clock)
        self.measured = answer

    def write(self, data: bytes) -> None:
        self.require_idle()
        if data == b"\x30\xa2":
            self.answer = None
            self.busy(1500)
        elif data == b"\x24\x00":
            self.answer = self.measured
            self.busy(15000)
        else:
            raise ProtocolError("SHT3x has no command " + repr(data))


class Sht4xDevice(Device):
    """SHT4x, version 6, tables 5 and 7: high precision takes 8.3 ms, a reset 1 ms."""

    def __init__(self, clock: FakeClock, answer: bytes) -> None:
        Device.__init__(self, clock)
        self.measured = answer

    def write(self, data: bytes) -> None:
        self.require_idle()
        if data == b"\x94":
            self.answer = None
            self.busy(1000)
        elif data == b"\xfd":
            self.answer = self.measured
            self.busy(8300)
        else:
            raise ProtocolError("SHT4x has no command " + repr(data))


class Scd4xDevice(Device):
    """SCD4x, version 1.4, chapter 3: what is allowed while it measures, and a buffer that reading empties."""

    INTERVAL_US = 5_000_000

    def __init__(self, clock: FakeClock, answer: bytes, is_running: bool = False) -> None:
        Device.__init__(self, clock)
        self.measured = answer
        self.is_running = is_running
        self.is_silent = False  # measures no more, and yet answers
        self.next_us = clock.us + self.INTERVAL_US
        self.is_ready = False

    def write(self, data: bytes) -> None:
        command = data[0] << 8 | data[1]
        if command == 0x36F6:
            raise OSError(ENODEV)  # wake_up is never acknowledged
        self.require_idle()
        self.measure()
        if len(data) != 2:
            raise ProtocolError("SCD4x commands that take no arguments have two bytes")
        self.answer = None
        if command == 0xE4B8:
            self.answer = words(0x8006 if self.is_ready else 0x8000)
            self.busy(1000)
        elif command == 0xEC05:
            if self.is_ready:
                self.answer = self.measured
            self.is_ready = False
            self.busy(1000)
        elif command == 0x3F86:
            self.is_running = False
            self.busy(500_000)
        elif self.is_running:
            raise ProtocolError(f"SCD4x refuses 0x{command:04x} while it measures periodically")
        elif command == 0x21B1:
            self.is_running = True
            self.next_us = self.clock.us + self.INTERVAL_US
        elif command == 0x219D:
            self.busy(5_000_000)
            self.is_ready = True
        else:
            raise ProtocolError(f"SCD4x has no command 0x{command:04x}")

    def measure(self) -> None:
        while self.is_running and self.clock.us >= self.next_us:
            self.next_us += self.INTERVAL_US
            self.is_ready = not self.is_silent


class Sps30Device(Device):
    """SPS30, version 1.0, chapter 6: starts from idle only, ready each second, settled 30 s after the start."""

    def __init__(self, clock: FakeClock, answer: bytes, is_running: bool = False) -> None:
        Device.__init__(self, clock)
        self.measured = answer
        self.is_running = is_running
        self.started_us = self.read_us = clock.us

    def write(self, data: bytes) -> None:
        self.require_idle()
        command = data[0] << 8 | data[1]
        if command == 0xD304:
            self.is_running = False
            self.busy(100_000)
        elif command == 0x0010:
            if self.is_running or data[2:] != b"\x03\x00\xac":
                raise ProtocolError("SPS30 starts from idle, with a format and its CRC: " + repr(data))
            self.is_running = True
            self.started_us = self.read_us = self.clock.us
            self.busy(20_000)
        elif command == 0x0202:
            self.answer = words(1 if self.is_ready() else 0)
        elif command == 0x0300:
            settled = self.clock.us - self.started_us >= 30_000_000
            if self.is_ready():
                self.answer = self.measured if settled else words(*[0x4479, 0xC000] * 10)  # 999
            self.read_us = self.clock.us
        else:
            raise ProtocolError(f"SPS30 has no command 0x{command:04x}")

    def is_ready(self) -> bool:
        return self.is_running and self.clock.us - self.read_us >= 1_000_000


class Bme280Device(Device):
    """BME280, DS002, chapters 4 and 5: registers; forced mode measures once and sleeps; nothing is checksummed."""

    WRITABLE = (0xE0, 0xF2, 0xF4, 0xF5)
    SKIPPED = b"\x80\x00\x00\x80\x00\x00\x80\x00"

    def __init__(self, clock: FakeClock, calibration: bytes, data: bytes, chip_id: int = 0x60) -> None:
        Device.__init__(self, clock)
        self.registers = bytearray(256)
        self.registers[0xD0] = chip_id
        self.registers[0x88:0xA2] = calibration[:26]
        self.registers[0xE1:0xE8] = calibration[26:]
        self.registers[0xF7:0xFF] = self.SKIPPED
        self.measured = data
        self.pointer = -1
        self.humidity_setting = 0
        self.copied_us = clock.us + 2000
        self.done_us = -1
        self.is_slow = False

    def write(self, data: bytes) -> None:
        self.update()
        self.pointer = data[0]
        if len(data) == 2:
            self.set(data[0], data[1])
        elif len(data) > 2:
            raise ProtocolError("one register at a time")

    def set(self, register: int, value: int) -> None:
        if register not in self.WRITABLE:
            raise ProtocolError(f"register 0x{register:02x} cannot be written")
        if self.clock.us < self.copied_us:
            raise ProtocolError("written before the calibration was there")
        if register == 0xE0 and value == 0xB6:
            self.registers[0xF2:0xF6] = bytes(4)
            self.registers[0xF7:0xFF] = self.SKIPPED
            self.humidity_setting = 0
            self.copied_us = self.clock.us + 2000
            return
        self.registers[register] = value
        if register == 0xF4:
            self.humidity_setting = self.registers[0xF2] & 7
            if value & 3 in (1, 2):
                self.done_us = self.clock.us + (1_000_000 if self.is_slow else 9300)

    def update(self) -> None:
        if 0 <= self.done_us <= self.clock.us:
            self.done_us = -1
            control = self.registers[0xF4]
            data = bytearray(self.measured)
            if not control >> 2 & 7:
                data[0:3] = self.SKIPPED[:3]
            if not control >> 5:
                data[3:6] = self.SKIPPED[:3]
            if not self.humidity_setting:
                data[6:8] = self.SKIPPED[6:]
            self.registers[0xF7:0xFF] = data
            self.registers[0xF4] = control & 0xFC
        copying = self.clock.us < self.copied_us
        self.registers[0xF3] = (8 if self.done_us >= 0 else 0) | (1 if copying else 0)

    def read(self, count: int) -> bytes:
        self.update()
        if self.pointer < 0:
            raise ProtocolError("no register was chosen")
        calibration = self.pointer in (0x88, 0xE1)
        if calibration and self.clock.us < self.copied_us:
            raise ProtocolError("calibration read while it is copied")
        return bytes(self.registers[self.pointer : self.pointer + count])


class FakeOneWire:
    """A `onewire.OneWire` with one DS18B20 on it (19-7487): reset, ROM command, function command, in this order."""

    def __init__(self, clock: FakeClock, rom: bytes, scratchpad: bytes) -> None:
        self.clock = clock
        self.rom = rom
        self.measured = scratchpad
        self.scratchpad = bytes([0x50, 0x05, 0x4B, 0x46, 0x7F, 0xFF, 0x0C, 0x10, 0x1C])  # as at power on
        self.is_there = True
        self.is_held_low = False
        self.loses_power = False
        self.corrupt: dict = {}
        self.done_us = -1
        self.expects = "reset"
        self.address = b""
        self.position = 0

    def reset(self) -> bool:
        self.clock.us += 1000
        self.expects = "rom"
        return self.is_held_low or self.is_there

    def writebyte(self, byte: int) -> None:
        self.clock.us += 600
        if self.is_held_low or not self.is_there:
            return
        if self.expects == "rom":
            self.expects = {0xCC: "function", 0x55: "address"}.get(byte, "error")
            self.address = b""
        elif self.expects == "address":
            self.address += bytes([byte])
            if len(self.address) == 8:
                self.expects = "function" if self.address == self.rom else "nothing"
        elif self.expects == "function":
            self.function(byte)
        elif self.expects != "nothing":
            raise ProtocolError(f"0x{byte:02x} where {self.expects} was expected")

    def function(self, byte: int) -> None:
        self.expects = "error"
        if byte == 0x44:
            self.done_us = self.clock.us + 750_000
        elif byte == 0xBE:
            if 0 <= self.done_us <= self.clock.us and not self.loses_power:
                self.scratchpad = self.measured
            self.position = 0
            self.expects = "read"
        else:
            raise ProtocolError(f"DS18B20 has no function 0x{byte:02x}")

    def readbyte(self) -> int:
        self.clock.us += 600
        if self.is_held_low:
            return 0
        if self.expects != "read":
            return 0xFF
        byte = self.scratchpad[self.position] ^ self.corrupt.get(self.position, 0)
        self.position += 1
        return byte


class FakeUart:
    """A `machine.UART` with a PMS5003 on it (data manual 2.3): streams until it is told to wait for questions."""

    BYTE_US = 1042  # 9600 8N1

    def __init__(self, clock: FakeClock, frame: bytes) -> None:
        self.clock = clock
        self.frame = frame
        self.is_passive = False
        self.is_dead = False
        self.woke_us = clock.us
        self.streamed_us = clock.us
        self.pending: list = []  # (when, byte)
        self.corrupt: dict = {}
        self.short = -1
        self.noise = b""
        self.questions = 0

    def write(self, data: bytes) -> int:
        self.clock.us += len(data) * self.BYTE_US
        if len(data) != 7 or data[:2] != b"BM" or sum(data[:5]) != data[5] << 8 | data[6]:
            raise ProtocolError("no command of a PMS5003: " + repr(data))
        if self.is_dead:
            return len(data)
        if data[2] == 0xE4:
            self.woke_us = self.clock.us
            self.is_passive = False
        elif data[2] == 0xE1:
            self.is_passive = data[4] == 0
            self.send(b"BM\x00\x04\xe1\x00\x01\x74")
        elif data[2] == 0xE2:
            if not self.is_passive:
                raise ProtocolError("asked while it streams")
            self.questions += 1
            self.send(self.noise + self.measured())
        return len(data)

    def measured(self) -> bytes:
        """Nonsense with a good checksum until the fan has settled."""
        frame = bytearray(self.frame)
        if self.clock.us - self.woke_us < 30_000_000:
            frame[4:28] = b"\x03" * 24
            total = sum(frame[:30])
            frame[30:32] = bytes([total >> 8, total & 0xFF])
        for at, mask in self.corrupt.items():
            frame[at] ^= mask
        return bytes(frame if self.short < 0 else frame[: self.short])

    def send(self, data: bytes) -> None:
        at = self.clock.us + 40_000
        for byte in data:
            at += self.BYTE_US
            self.pending.append((at, byte))

    def any(self) -> int:
        self.clock.us += 10
        while not self.is_passive and not self.is_dead and self.clock.us - self.streamed_us >= 800_000:
            self.streamed_us += 800_000
            self.send(self.measured())
        self.pending = self.pending[-4096:]
        return len([1 for when, _ in self.pending if when <= self.clock.us])

    def readinto(self, buffer: bytearray):
        count = min(self.any(), len(buffer))
        if not count:
            return None
        for i in range(count):
            buffer[i] = self.pending[i][1]
        self.pending = self.pending[count:]
        return count


class FakeAdc:
    """A `machine.ADC` that reads the given numbers, over and over."""

    def __init__(self, *reads: int) -> None:
        self.reads = reads
        self.position = 0

    def read_u16(self) -> int:
        self.position += 1
        return self.reads[(self.position - 1) % len(self.reads)]


class FakePin:
    """A `machine.Pin` whose level a test drives; both edges interrupt."""

    IRQ_RISING = 1
    IRQ_FALLING = 2

    def __init__(self, clock: FakeClock, level: int = 0) -> None:
        self.clock = clock
        self.level = level
        self.handler = None

    def value(self) -> int:
        return self.level

    def irq(self, handler, trigger: int) -> None:
        if trigger != self.IRQ_RISING | self.IRQ_FALLING:
            raise ProtocolError("both edges are needed")
        self.handler = handler

    def drive(self, level: int, hold_ms: int) -> None:
        """Sets the level, and lets it hold for a while."""
        if level != self.level:
            self.level = level
            if self.handler:
                self.handler(self)
        self.clock.passes(hold_ms)


# Recorded dialogues, and examples of datasheets. Each is a fact about the device, with where it was seen.

# A BME280 as recorded in the tests of bme280-rs (C. Mattera): registers 0x88..0xA1 and 0xE1..0xE7, 0xF7..0xFE,
# and what they mean: 27.33 degrees, 1012.33016 hPa, 34.854492 %.
BME280_CALIBRATION = (
    b"\xb1\x6f\x2e\x6a\x32\x00\xe2\x8f\x0a\xd7\xd0\x0b\x75\x1f\xc5\xff\xf9\xff\xac\x26\x0a\xd8\xbd\x10\x00\x4b"
    b"\x77\x01\x00\x12\x20\x03\x1e"
)
BME280_DATA = b"\x4f\x50\x00\x84\x47\x00\x60\x02"
BME280_VALUES = [2733, 3485, 101233]

# An SHT31 as recorded in the tests of senlib: 22.15 degrees, 42.92 %.
SHT31_ANSWERS = (
    (bytes([98, 60, 181, 109, 223, 190]), [2215, 4292]),
    (bytes([98, 44, 246, 110, 48, 124]), [2211, 4304]),
    (bytes([98, 50, 170, 110, 68, 64]), [2213, 4307]),
)

# The SCD4x datasheet's own example: 500 ppm, 25 degrees, 37 %.
SCD4X_ANSWER = b"\x01\xf4\x33\x66\x67\xa2\x5e\xb9\x3c"
SCD4X_VALUES = [500, 2500, 3700]

# An SPS30 as recorded by PyPMS (over UART; the same singles, big-endian): 6.97, 9.09, 10.48 (PM4) and 10.75.
SPS30_SINGLES = bytes.fromhex("40df03da411162ae41279e32412c107e")
SPS30_ANSWER = words(*[SPS30_SINGLES[i] << 8 | SPS30_SINGLES[i + 1] for i in range(0, 16, 2)])
SPS30_VALUES = [7, 9, 11]

# A PMS5003 as shown in the README of RT-Thread's pmsxx package: PM1 4, PM2.5 5, PM10 8 (atmospheric; 3, 4, 7 standard).
PMS5003_FRAME = bytes.fromhex("424d001c000300040007000400050008031b00f9001b0006000300039a0002a2")
PMS5003_VALUES = [4, 5, 8]

# The example of Maxim's application note 27: an address that ends in its CRC.
DALLAS_EXAMPLE = b"\x02\x1c\xb8\x01\x00\x00\x00\xa2"

# DS18B20 scratchpads as Linux showed them in w1_slave: 31.375, 10.0625, 10.9375 and 23.1875 degrees.
DS18B20_SCRATCHPADS = (
    (b"\xf6\x01\x4b\x46\x7f\xff\x0a\x10\xeb", [3138]),
    (b"\xa1\x00\x4b\x46\x7f\xff\x0f\x10\xe4", [1006]),
    (b"\xaf\x00\x4b\x46\x7f\xff\x01\x10\x81", [1094]),
    (b"\x73\x01\x4b\x46\x7f\xff\x0d\x10\x41", [2319]),
)
DS18B20_ROM = b"\x28\x01\x02\x03\x04\x05\x06\x9e"
