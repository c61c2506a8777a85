"""MQTT 3.1.1 for the cloud's own processes: QoS 0 and 1, small and quick."""

from .client import MqttClient
from .codec import MqttError, Publish, Will
from .link import MqttRefused

__all__ = ["MqttClient", "MqttError", "MqttRefused", "Publish", "Will"]
