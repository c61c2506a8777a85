"""The MQTT client of one of our processes."""

from __future__ import annotations

from typing import Any

from ..service import Endpoints
from .client import MqttClient


def mqtt_client(endpoints: Endpoints, name: str, **more: Any) -> MqttClient:
    """A client of this run's MQTT server. `more` goes to MqttClient.

    Its id begins with a secret, so that nobody else can take its session.
    """
    return MqttClient(
        endpoints.mqtt_host,
        endpoints.mqtt_port,
        f"{endpoints.mqtt_client_prefix}-{name}",
        user=endpoints.mqtt_user,
        password=endpoints.mqtt_password,
        tls=endpoints.mqtt_context(),
        **more,
    )
