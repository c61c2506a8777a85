"""Acknowledgements: in the order of arrival, once each message is dealt with, and never twice for one."""

from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.arrivals import LOG, MESSAGE_BYTES, REQUESTS, Arrivals
from spinney_cloud.mqtt import Publish


def message(number, *, dup=False, connection=1, payload=None):
    return Publish("spinney/kit/pub", payload or b"%d" % number, 1, number, dup, False, connection)


class Acked:
    """The server's side: what it was told."""

    def __init__(self):
        self.ids = []
        self.connected = True

    def __call__(self, sent):
        self.ids += [sent.id] if self.connected else []
        return self.connected


@given(st.permutations(range(8)))
def test_acknowledged_in_the_order_of_arrival_whatever_is_dealt_with_first(order):
    acked = Acked()
    arrivals = Arrivals(acked)
    here = [arrivals.arrive(message(number), LOG, 0.0) for number in range(8)]
    done = set()
    for number in order:
        arrivals.done(here[number])
        done.add(number)
        first_missing = next((each for each in range(8) if each not in done), 8)
        assert acked.ids == list(range(first_missing))
    assert (len(arrivals), arrivals.bytes) == (0, 0)


def test_a_request_that_waits_holds_back_no_publication():
    acked = Acked()
    arrivals = Arrivals(acked)
    arrivals.arrive(message(1), REQUESTS, 0.0)
    arrivals.done(arrivals.arrive(message(2), LOG, 0.0))
    assert acked.ids == [2]


def test_what_comes_again_on_its_way_is_taken_once_and_acknowledged_where_it_came_last():
    acked = Acked()
    arrivals = Arrivals(acked)
    here = arrivals.arrive(message(1, payload=b"x"), LOG, 0.0)
    assert arrivals.arrive(message(7, payload=b"x", dup=True, connection=2), LOG, 1.0) is None
    arrivals.done(here)
    assert acked.ids == [7]


def test_what_says_nothing_takes_room_too():
    arrivals = Arrivals(Acked())
    here = [arrivals.arrive(message(number, payload=b""), REQUESTS, 0.0) for number in range(100)]
    assert arrivals.bytes >= 100 * MESSAGE_BYTES
    for each in here:
        arrivals.done(each)
    assert arrivals.bytes == 0


def test_two_equal_messages_that_come_again_are_both_known():
    acked = Acked()
    arrivals = Arrivals(acked)
    here = [arrivals.arrive(message(number, payload=b"x"), LOG, 0.0) for number in (1, 2)]
    for number in (8, 9):
        assert arrivals.arrive(message(number, payload=b"x", dup=True, connection=2), LOG, 1.0) is None
    for each in here:
        arrivals.done(each)
    assert sorted(acked.ids) == [8, 9]


def test_two_equal_messages_that_are_both_new_are_two():
    arrivals = Arrivals(Acked())
    assert arrivals.arrive(message(1, payload=b"x"), LOG, 0.0) is not None
    assert arrivals.arrive(message(2, payload=b"x"), LOG, 0.0) is not None


def test_what_comes_again_though_it_is_stored_is_acknowledged_and_not_stored_again():
    acked = Acked()
    arrivals = Arrivals(acked)
    here = arrivals.arrive(message(1), LOG, 0.0)
    acked.connected = False
    arrivals.done(here)
    acked.connected = True
    assert arrivals.arrive(message(1, dup=True, connection=2), LOG, 1.0) is None
    assert acked.ids == [1]
    assert arrivals.arrive(message(1, dup=True, connection=2), LOG, 1.0) is not None, "it was sent again by a client"
