"""Servers as fixtures."""

from __future__ import annotations

from server_fixtures import mosquitto, mqtt_server, nats, pytest_collection_modifyitems

__all__ = ["mosquitto", "mqtt_server", "nats", "pytest_collection_modifyitems"]
