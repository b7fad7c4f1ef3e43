"""The interpreter and the offline compiler need processes of their own (see test_processes.py)."""

import os

import pytest

SWITCH = "JAGGED_KERNEL_TESTS"  # "interpreted" or "compiled", set by test_processes.py

collect_ignore = [
    folder for folder in ("interpreted", "compiled") if os.environ.get(SWITCH) != folder
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share of the tests that JAGGED_KERNEL_SHARE names: "1/4" is every fourth, from 1."""
    share, _, shares = os.environ.get("JAGGED_KERNEL_SHARE", "0/1").partition("/")
    kept = items[int(share) :: int(shares)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
