"""The broker as a service of systemd."""

from .install import Plan, UnitError, has_systemd, plan, unit, write

__all__ = ["Plan", "UnitError", "has_systemd", "plan", "unit", "write"]
