"""The data directory of a command that works beside a running cloud: found as `spinney cloud` itself finds it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .configuration import Configuration, configure


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """`--data` and `--config`."""
    parser.add_argument("--data", metavar="DIR", help="the cloud's data directory (default: as for spinney cloud)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the cloud's configuration file")


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The configuration that these options choose; ConfigurationError if it does not hold."""
    return configure({"data": options.data}, os.environ, options.config)
