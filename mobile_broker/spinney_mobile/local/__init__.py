"""Local life: an MQTT port for publishers and subscribers around this broker: the cloud's topics, without the cloud."""

from .port import LocalPort
from .subscriptions import LocalSubscriptions

__all__ = ["LocalPort", "LocalSubscriptions"]
