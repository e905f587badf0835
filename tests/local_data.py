"""The folder of data sets that some tests read, and that no checkout has: see CONTRIBUTING.md."""

import os
from pathlib import Path

LOCAL_DATA = Path(os.environ.get("DEEPSIMPLEX_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
