"""The mobile broker: hears sensors, keeps the active part of the forest, and sends up what somebody asked for."""
