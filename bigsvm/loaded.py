"""When this process loaded bigsvm: an upgrade may put other files in its place before all modules are loaded."""

from __future__ import annotations

import os
import time

LOADED_AT = time.time_ns()
WRITTEN_AT = os.stat(__file__).st_mtime_ns if os.path.exists(__file__) else 0
"""When this file was written, in ns; 0 where there is none, as in an archive."""
