"""The client SDK: publishers and subscribers of a cloud, over MQTT by paho.

A KeyboardInterrupt in one of their methods may leave a lock taken, for which `close` then waits for ever. A program
that is to end well at Ctrl-C calls them on another thread than its main one, or has a handler (`signal.signal`) only
set a variable, which it looks at between calls with time-outs.
"""

from .disk_outbox import DiskOutbox
from .errors import (
    ClientError,
    Closed,
    ConnectionRefused,
    NotGranted,
    NotStored,
    OutboxFailed,
    OutboxFull,
    OutboxInUse,
    PublicationDropped,
    PublicationRefused,
    PublicationTooLarge,
    RequestRefused,
    ServerUnreachable,
    TimedOut,
)
from .handle import Handle
from .notification import Notification
from .outbox import Outbox
from .publisher import Publisher
from .receipt import Receipt
from .subscriber import Subscriber

__all__ = [
    "ClientError",
    "Closed",
    "ConnectionRefused",
    "DiskOutbox",
    "Handle",
    "NotGranted",
    "NotStored",
    "Notification",
    "Outbox",
    "OutboxFailed",
    "OutboxFull",
    "OutboxInUse",
    "PublicationDropped",
    "PublicationRefused",
    "PublicationTooLarge",
    "Publisher",
    "Receipt",
    "RequestRefused",
    "ServerUnreachable",
    "Subscriber",
    "TimedOut",
]
