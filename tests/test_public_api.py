"""Every op is whole: one word finds its function, implementations, oracle, tests and bench case."""

import inspect
from pathlib import Path

import pytest

import jagged
from jagged import testing

ROOT = Path(__file__).parent.parent
OPS = sorted(jagged.ops.__all__)


def test_the_public_names() -> None:
    assert sorted(jagged.__all__) == ["BucketedBias", "HSTUMask", "JaggedTensor", "modules", "ops"]
    assert OPS == [
        "dense_add",
        "dense_bmm",
        "from_padded",
        "hstu_attention",
        "jagged_bmm",
        "layer_norm",
        "mean",
        "norm_mul_dropout",
        "padded_add",
        "row_add",
        "softmax",
        "sum",
        "to_padded",
        "token_layer_norm",
    ]


@pytest.mark.parametrize("op", OPS)
def test_an_op_has_all_its_parts(op: str) -> None:
    for folder in ("jagged/ops", "jagged/eager", "jagged/kernels"):
        assert (ROOT / folder / f"{op}.py").exists() or (ROOT / folder / op).is_dir()
    assert hasattr(testing, f"{op}_oracle")
    assert list((ROOT / "tests/ops").glob(f"test_{op}*.py"))
    assert f'"{op}"' in (ROOT / "bench/cases.py").read_text()
    for page in ("README.md", "CHANGELOG.md"):
        assert f"`{op}`" in (ROOT / page).read_text(), f"{page} does not name {op}"


@pytest.mark.parametrize("op", OPS)
def test_an_op_documents_itself(op: str) -> None:
    function = getattr(jagged.ops, op)
    text = inspect.getdoc(function) or ""
    for heading in ("Args:", "Returns:", "Raises:"):
        assert heading in text, f"{op} has no {heading}"
    for argument in inspect.signature(function).parameters:
        assert f"{argument}" in text, f"{op} does not document {argument}"
    assert "empty row" in text.lower(), f"{op} does not say what an empty row gives"


@pytest.mark.parametrize("layer", sorted(jagged.modules.__all__))
def test_a_layer_documents_itself(layer: str) -> None:
    text = inspect.getdoc(getattr(jagged.modules, layer)) or ""
    assert len(text.split()) > 15, f"{layer} needs a docstring"
