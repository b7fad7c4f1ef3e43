"""The examples in docstrings run and print what they say."""

import doctest

import pytest
import torch

import jagged
import jagged.data

PUBLIC = [
    (place.__name__ + "." + name, getattr(place, name))
    for place in (jagged, jagged.ops, jagged.modules, jagged.data)
    for name in place.__all__
    if ">>>" in (getattr(getattr(place, name), "__doc__", None) or "")
]


def test_every_op_has_an_example() -> None:
    assert {name for name, _ in PUBLIC} >= {f"jagged.ops.{op}" for op in jagged.ops.__all__}


@pytest.mark.parametrize(("name", "documented"), PUBLIC)
def test_examples(name: str, documented: object) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    finder = doctest.DocTestFinder(recurse=False)
    for example in finder.find(documented, name, globs={"torch": torch, "jagged": jagged}):
        assert runner.run(example).failed == 0
