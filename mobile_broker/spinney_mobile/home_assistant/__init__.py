"""Sensors for Home Assistant: its MQTT discovery, and readings as they come."""

from .bridge import HomeAssistant

__all__ = ["HomeAssistant"]
