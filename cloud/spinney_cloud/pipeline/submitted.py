"""What spark-submit runs for `spinney pipeline` (see cloud/spark-submit.sh)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python has put this folder first on the path, and its modules have names that others have, too
    sys.path.remove(str(Path(__file__).parent))
    sys.exit(importlib.import_module("spinney_cloud.pipeline.command").main(sys.argv[1:]))
