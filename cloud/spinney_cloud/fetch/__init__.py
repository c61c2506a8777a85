"""What mobile brokers hold back and still have: asked for by whoever answers about the past, into the answer alone.

A mobile broker keeps valid publications that nobody wanted (rule L1). The http process asks the coordinator which
brokers may have some (askable.py), sends them a question on `reply`, and gathers what they answer on `ann` (parts.py,
fetching.py); the gateway passes each part on to it and keeps nothing (passing.py). What came is put among the log's
records where it belongs (placing.py), and the answer says what was fetched, and from whom (result.py).

May import: the log, records, what is known of announcements, the API's errors. Nothing fetched is ever written.
"""
