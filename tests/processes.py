"""What the processes that tests start have in common."""

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent


def python_path() -> str:
    """PYTHONPATH from which they import the repository, and what this process finds by its own."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
