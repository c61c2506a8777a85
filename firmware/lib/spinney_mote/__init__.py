"""The mote's library: state filters where the readings arise. It runs on MicroPython and, unchanged, on CPython."""
