"""The interpreter and the offline compiler need processes of their own (see test_processes.py)."""

import os

SWITCH = "JAGGED_KERNEL_TESTS"  # "interpreted" or "compiled", set by test_processes.py

collect_ignore = [
    folder for folder in ("interpreted", "compiled") if os.environ.get(SWITCH) != folder
]
