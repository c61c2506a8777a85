"""Runs before main.py at every start: which set of library files it takes."""

import sys

if "lib" not in sys.path and "/lib" not in sys.path:
    sys.path.append("lib")

import spinney_boot  # found by the path above

spinney_boot.start()
