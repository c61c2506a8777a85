from __future__ import annotations

import time
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import mqtt_codec as codec
from spinney.mqtt_codec import (
    ConnAck,
    Decoder,
    MqttError,
    Packet,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    UnsubAck,
    Will,
)

LIMIT = 2000

ids = st.integers(1, codec.MAX_ID)
topics = st.text(st.characters(exclude_characters="+#\0", codec="utf-8"), min_size=1, max_size=30)
payloads = st.binary(max_size=300)


def server_bytes(packet: Packet) -> bytes:
    """What a server sends."""
    match packet:
        case ConnAck(present, code):
            return bytes((0x20, 2, present, code))
        case Publish(topic, payload, qos, number, dup, retain):
            return codec.publish(codec.topic_bytes(topic), payload, number, qos=qos, dup=dup, retain=retain)
        case PubAck(number):
            return codec.puback(number)
        case SubAck(number, codes):
            return b"\x90" + codec.length(2 + len(codes)) + number.to_bytes(2, "big") + bytes(codes)
        case UnsubAck(number):
            return b"\xb0\x02" + number.to_bytes(2, "big")
        case PingResp():
            return b"\xd0\x00"


packets = st.one_of(
    st.builds(ConnAck, st.booleans(), st.integers(0, 5)),
    st.builds(Publish, topics, payloads, st.just(0), st.just(0), st.just(False), st.booleans(), st.just(7)),
    st.builds(Publish, topics, payloads, st.just(1), ids, st.booleans(), st.booleans(), st.just(7)),
    st.builds(PubAck, ids),
    st.builds(SubAck, ids, st.lists(st.sampled_from([0, 1, 2, 128]), min_size=1, max_size=200).map(tuple)),
    st.builds(UnsubAck, ids),
    st.builds(PingResp),
)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(packets, max_size=8), st.lists(st.integers(0, 5000), max_size=20))
def test_packets_come_out_the_same_wherever_the_bytes_are_split(sent: list[Packet], cuts: list[int]) -> None:
    decoder = Decoder(max_packet_bytes=LIMIT, connection=7)
    stream = b"".join(map(server_bytes, sent))
    assert [packet for chunk in chunks(stream, cuts) for packet in decoder.feed(chunk)] == sent
    assert decoder.held == 0


@given(st.lists(packets, min_size=1, max_size=3))
def test_byte_by_byte_each_packet_comes_with_its_last_byte(sent: list[Packet]) -> None:
    decoder = Decoder(max_packet_bytes=LIMIT, connection=7)
    for packet in sent:
        *before, last = server_bytes(packet)
        assert not any(decoder.feed(bytes((byte,))) for byte in before)
        assert decoder.feed(bytes((last,))) == [packet]


@given(st.lists(st.binary(max_size=400), max_size=20))
def test_any_bytes_give_packets_or_an_error_and_little_is_held(blocks: list[bytes]) -> None:
    decoder = Decoder(max_packet_bytes=LIMIT)
    with suppress(MqttError):
        for block in blocks:
            decoder.feed(block)
            assert decoder.held <= LIMIT + 5


@given(st.lists(packets, min_size=1, max_size=4), st.integers(0, 5000), st.integers(0, 255))
def test_a_changed_byte_gives_packets_or_an_error(sent: list[Packet], place: int, value: int) -> None:
    stream = bytearray(b"".join(map(server_bytes, sent)))
    stream[place % len(stream)] = value
    with suppress(MqttError):
        Decoder(max_packet_bytes=LIMIT).feed(bytes(stream))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"\x34\x07\x00\x01a\x00\x01xy", "QoS", id="QoS 2"),
        pytest.param(b"\x36\x07\x00\x01a\x00\x01xy", "QoS", id="QoS 3"),
        pytest.param(b"\x38\x05\x00\x01axy", "QoS", id="DUP with QoS 0"),
        pytest.param(b"\x32\x05\x00\x01a\x00\x00", "id 0", id="message with id 0"),
        pytest.param(b"\x32\x04\x00\x01a\x00", "ends within", id="message without its id"),
        pytest.param(b"\x30\x03\x00\x09a", "ends within", id="topic longer than the packet"),
        pytest.param(b"\x30\x01\x00", "ends within", id="no topic"),
        pytest.param(b"\x30\x03\x00\x01\xff", "UTF-8", id="topic not UTF-8"),
        pytest.param(b"\x30\x02\x00\x00", "not a topic", id="empty topic"),
        pytest.param(b"\x30\x03\x00\x01#", "not a topic", id="wildcard in a topic"),
        pytest.param(b"\x30\x03\x00\x01\x00", "not a topic", id="null in a topic"),
        pytest.param(b"\x40\x02\x00\x00", "id 0", id="PUBACK with id 0"),
        pytest.param(b"\x40\x03\x00\x01\x00", "no packet", id="PUBACK of MQTT 5"),
        pytest.param(b"\x50\x02\x00\x01", "no packet", id="PUBREC"),
        pytest.param(b"\x20\x02\x02\x00", "no packet", id="CONNACK with unknown flags"),
        pytest.param(b"\x90\x03\x00\x01\x07", "codes", id="SUBACK with an unknown code"),
        pytest.param(b"\x90\x02\x00\x01", "no packet", id="SUBACK without codes"),
        pytest.param(b"\x00\x00", "no packet", id="type 0"),
        pytest.param(b"\x10\x00", "no packet", id="CONNECT from a server"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", "more than four", id="length of five bytes"),
        pytest.param(b"\x30\xd1\x0f", "at most 2000", id="longer than taken, before its body"),
    ],
)
def test_what_no_server_may_send_is_an_error_that_says_so(data: bytes, why: str) -> None:
    with pytest.raises(MqttError, match=why):
        Decoder(max_packet_bytes=LIMIT).feed(data)


def test_a_large_packet_is_gathered_without_looking_at_it_each_time() -> None:
    decoder = Decoder()
    payload = b"x" * 4_000_000
    stream = codec.publish(codec.topic_bytes("a"), payload, 1, qos=1)
    began = time.process_time()
    found = [packet for at in range(0, len(stream), 1000) for packet in decoder.feed(stream[at : at + 1000])]
    assert [len(packet.payload) for packet in found if isinstance(packet, Publish)] == [len(payload)]
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_the_lengths_of_the_standard(value: int, encoded: str) -> None:
    assert codec.length(value).hex() == encoded


def test_a_packet_longer_than_the_standard_allows_is_refused() -> None:
    with pytest.raises(MqttError, match="268435455"):
        codec.length(268_435_456)


def test_connect_says_all_that_it_is_given() -> None:
    packet = codec.connect(
        "me",
        clean=True,
        keepalive_seconds=30,
        user="u",
        password="p",
        will=Will("w", b"gone", qos=1, retain=True),
    )
    assert packet == (
        b"\x10\x1d\x00\x04MQTT\x04"
        + bytes((0b1110_1110,))
        + b"\x00\x1e\x00\x02me\x00\x01w\x00\x04gone\x00\x01u\x00\x01p"
    )


def test_subscribe_and_unsubscribe_carry_their_filters() -> None:
    assert codec.subscribe(5, {"a/+": 1, "b": 0}) == b"\x82\x0c\x00\x05\x00\x03a/+\x01\x00\x01b\x00"
    assert codec.unsubscribe(6, ["a/+"]) == b"\xa2\x07\x00\x06\x00\x03a/+"


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b", "\ud800", "x" * 65_536])
def test_what_cannot_be_a_topic_is_refused(topic: str) -> None:
    with pytest.raises(MqttError):
        codec.topic_bytes(topic)
