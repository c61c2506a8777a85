"""MQTT 3.1.1 for the cloud's own processes: QoS 0 and 1, small and quick."""

from spinney.mqtt_codec import MqttError, Publish, Will

from .client import MqttClient
from .link import MqttRefused

__all__ = ["MqttClient", "MqttError", "MqttRefused", "Publish", "Will"]
