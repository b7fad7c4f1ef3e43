"""The interpreter and the offline compiler need processes of their own (see test_processes.py)."""

import os

import pytest

SWITCH = "JAGGED_KERNEL_TESTS"  # "interpreted" or "compiled", set by test_processes.py

PROCESSES = {
    "interpreted": f"{SWITCH}=interpreted TRITON_INTERPRET=1",
    "compiled": f"{SWITCH}=compiled",
}

collect_ignore = [folder for folder in PROCESSES if os.environ.get(SWITCH) != folder]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share of the tests that JAGGED_KERNEL_SHARE names: "1/4" is every fourth, from 1."""
    for item in items:
        folder = item.path.parent.name
        if folder in collect_ignore and item.path.parent.parent.name == "kernels":
            raise pytest.UsageError(f"{folder} tests need: {PROCESSES[folder]} pytest {item.path}")
    share, _, shares = os.environ.get("JAGGED_KERNEL_SHARE", "0/1").partition("/")
    kept = items[int(share) :: int(shares)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
