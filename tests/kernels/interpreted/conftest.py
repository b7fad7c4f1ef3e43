"""Triton's interpreter, made complete before the first kernel runs."""

import pytest

from tests.kernels import interpreter

interpreter.install()


def pytest_configure(config: pytest.Config) -> None:
    for warning in interpreter.WARNINGS:
        config.addinivalue_line("filterwarnings", f"ignore:{warning}")
