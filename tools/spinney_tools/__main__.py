"""`python -m spinney_tools` is `spinney`."""

import sys

from spinney_tools.cli import main

sys.exit(main())
