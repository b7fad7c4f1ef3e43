"""What a trace sees of the calls of a model, and that its cases can be made again."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

import jagged
from jagged import BucketedBias, HSTUMask, ops
from jagged.ops import _library
from jagged.tuning import operands, trace
from jagged.tuning.cases import Case, default_cases, read_cases, write_cases
from jagged.tuning.configs import length_bits
from jagged.tuning.operands import Shape
from jagged.tuning.tracing import READERS

OFFSETS = torch.tensor([0, 3, 3, 8])


def calls_every_op(dtype: torch.dtype = torch.float32) -> None:
    values, width = torch.randn(8, 6, dtype=dtype), 6
    weight = torch.ones(width, dtype=dtype)
    matrices = torch.randn(3, width, 4, dtype=dtype)
    ops.sum(values, OFFSETS)
    ops.mean(values, OFFSETS)
    ops.softmax(values, OFFSETS, max_length=4)
    ops.layer_norm(values, OFFSETS)
    ops.layer_norm(values, OFFSETS, weight, weight)
    ops.token_layer_norm(values, weight, weight, offsets=OFFSETS)
    ops.token_layer_norm(values)
    heads = values.unflatten(1, (2, 3))
    ops.norm_mul_dropout(heads, heads, concat=True, dropout=0.1, offsets=OFFSETS)
    ops.norm_mul_dropout(values, values, weight, weight, silu=True)
    ops.dense_add(values, OFFSETS, torch.randn(3, 5, width, dtype=dtype))
    ops.padded_add(values, OFFSETS, torch.randn(3, 5, width, dtype=dtype))
    ops.row_add(values, OFFSETS, torch.randn(3, width, dtype=dtype))
    ops.dense_bmm(values, OFFSETS, matrices, torch.randn(3, 4, dtype=dtype))
    ops.jagged_bmm(values, values[:, :2].contiguous(), OFFSETS)
    ops.to_padded(values, OFFSETS, 5)
    ops.from_padded(torch.randn(3, 5, width, dtype=dtype), OFFSETS, 8)
    q = torch.randn(8, 2, 6, dtype=dtype)
    v = torch.randn(8, 2, 4, dtype=dtype)
    bias = BucketedBias(torch.randn(9), torch.randn(11), torch.arange(8))
    mask = HSTUMask(window=2)
    ops.hstu_attention(q, q, v, OFFSETS, max_length=5, scale=1.0, mask=mask, bias=bias)


def traced(path: Path) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in read_cases(path):
        found.setdefault(case.op, []).append(case)
    return found


def test_every_op_is_seen(tmp_path: Path) -> None:
    with trace(tmp_path / "calls.json"):
        calls_every_op()
    found = traced(tmp_path / "calls.json")
    assert set(found) == set(READERS) == set(operands.OPS)
    assert found["sum"] == [Case("sum", Shape(3, 2, 6), torch.float32, backward=False)]
    assert found["softmax"][0].options == {"max_length": 4}
    assert [case.options for case in found["layer_norm"]] == [{"plain": 1}, {}]
    assert found["token_layer_norm"][1].shape == Shape(8, 1, 6)
    gated = [(case.shape, case.options) for case in found["norm_mul_dropout"]]
    by_head = Shape(3, 2, 3, heads=2), {"plain": 1, "concat": 1, "dropout": 10}
    assert gated == [by_head, (Shape(8, 1, 6), {"silu": 1})]
    assert found["dense_bmm"][0].shape == Shape(3, 2, 6, columns=4)
    assert found["dense_bmm"][0].options == {"bias": 1}
    assert found["jagged_bmm"][0].shape == Shape(3, 2, 6, columns=2)
    for op in ("dense_add", "padded_add", "to_padded", "from_padded"):
        assert found[op][0].shape == Shape(3, 2, 6, longest=5)
    attention = found["hstu_attention"][0]
    assert attention.shape == Shape(3, 2, 6, columns=4, heads=2, longest=5)
    assert attention.options == {"window": 2, "position": 1, "time": 1}


@pytest.mark.parametrize(("dropout", "percent"), [(0.001, 1), (0.25, 25), (0.999, 99)])
def test_a_dropout_is_traced_in_whole_percent(dropout: float, percent: int, tmp_path: Path) -> None:
    values = torch.randn(8, 6)
    with trace(tmp_path / "calls.json"):
        ops.norm_mul_dropout(values, values, dropout=dropout)
    (case,) = read_cases(tmp_path / "calls.json")
    assert case.options == {"plain": 1, "dropout": percent}
    case.arguments("backward", "meta")


def test_the_cases_of_a_trace_can_be_made_again(tmp_path: Path) -> None:
    with trace(tmp_path / "calls.json"):
        calls_every_op()
    for case in read_cases(tmp_path / "calls.json"):
        for direction in ("forward", "backward"):
            args = case.arguments(direction, "meta")
            assert any(isinstance(arg, Tensor) for arg in args)


def test_calls_are_counted_by_what_decides_the_config(tmp_path: Path) -> None:
    with trace(tmp_path / "calls.json"):
        for total in (91, 100, 181, 182):
            values = torch.randn(total, 8, requires_grad=total == 100)
            out = ops.sum(values, torch.tensor([0, total]))
            if total == 100:
                out.sum().backward()
    (first, second) = read_cases(tmp_path / "calls.json")
    assert (first.shape, first.calls, first.backward) == (Shape(1, 181, 8), 3, True)
    assert (second.shape, second.calls) == (Shape(1, 182, 8), 1)


@pytest.mark.parametrize(("rows", "total"), [(3, 5), (3, 17), (1000, 1420), (7, 635), (5, 4)])
def test_a_case_is_tuned_at_the_point_that_the_call_asks(
    rows: int, total: int, tmp_path: Path
) -> None:
    offsets = torch.full((rows + 1,), total)
    offsets[0] = 0
    with trace(tmp_path / "calls.json"):
        ops.sum(torch.randn(total, 2), offsets)
    (case,) = read_cases(tmp_path / "calls.json")
    assert length_bits(case.shape.total, rows) == length_bits(total, rows)


def test_scales_of_queries_are_seen(tmp_path: Path) -> None:
    q = torch.randn(8, 2, 6)
    with trace(tmp_path / "calls.json"):
        ops.hstu_attention(q, q, q, OFFSETS, max_length=5, scale=torch.ones(8))
    (case,) = read_cases(tmp_path / "calls.json")
    assert case.options == {"scales": 1}
    assert case.arguments("forward", "meta")[6].shape == (case.shape.total,)
    assert case.arguments("backward", "meta")[7].shape == (case.shape.total,)


def test_a_trace_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = []
    for path in (tmp_path, tmp_path / "file" / "calls.json"):
        with pytest.raises(OSError, match=r"calls\.json|is a folder"), trace(path):
            ran.append(path)
    assert (ran, _library.observers) == ([], [])


def test_a_trace_is_written_where_it_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with trace("traces/today/calls.json"):
        os.chdir("/")
    assert read_cases(tmp_path / "traces" / "today" / "calls.json") == []


def test_what_launches_nothing_is_left_out(tmp_path: Path) -> None:
    with trace(tmp_path / "calls.json"):
        ops.sum(torch.randn(0, 8), torch.tensor([0, 0]))
        ops.sum(torch.randn(3, 0), torch.tensor([0, 3]))
    assert read_cases(tmp_path / "calls.json") == []


def test_a_compiled_model_is_seen(tmp_path: Path) -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def model(values: Tensor) -> Tensor:
        return ops.sum(values, OFFSETS) * 2

    with trace(tmp_path / "calls.json"):
        model(torch.randn(8, 6))
    assert [case.op for case in read_cases(tmp_path / "calls.json")] == ["sum"]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with trace(tmp_path / "calls.json"):
            ops.sum(torch.randn(8, 6), OFFSETS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert _library.observers == []
    assert len(read_cases(tmp_path / "calls.json")) == 1
    before = (tmp_path / "calls.json").read_text()
    ops.sum(torch.randn(8, 6), OFFSETS)
    assert (tmp_path / "calls.json").read_text() == before


def test_layers_are_seen(tmp_path: Path) -> None:
    x = jagged.JaggedTensor(torch.randn(8, 6), OFFSETS)
    with trace(tmp_path / "calls.json"):
        jagged.modules.MeanPooling()(x)
    assert [case.op for case in read_cases(tmp_path / "calls.json")] == ["mean"]


def test_cases_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text('{"cases": [{"op": "sum", "rows": 4, "length": 9}]}')
    assert read_cases(path) == [Case("sum", Shape(4, 9))]
    cases = [case for op in operands.OPS for case in default_cases(op, "full")]
    write_cases(path, cases)
    assert read_cases(path) == cases


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r'must hold \{"cases"'),
        ({"cases": [{"op": "add"}]}, "case 0: op must be one of dense_add"),
        ({"cases": [{"op": "sum", "dtype": "small"}]}, "'small' is no dtype"),
        ({"cases": [{"op": "sum", "rows": 4, "depth": 9}]}, "case 0: .*depth"),
        ({"cases": [{"op": "sum", "rows": 4}]}, "case 0: .*length"),
        ({"cases": [{"op": "sum", "rows": 0, "length": 1}]}, "case 0: rows must be at least 1"),
        (
            {"cases": [{"op": "sum", "rows": 1.5, "length": 1}]},
            r"rows must be a whole number, got 1\.5",
        ),
        (
            {"cases": [{"op": "sum", "rows": 4, "length": 1, "columns": -1}]},
            "case 0: columns must be at least 0, got -1",
        ),
        ({"cases": [["sum"]]}, r"case 0 must be an object with op, rows and length, got \['sum'\]"),
        ({"cases": [{"op": "sum", "dtype": 16}]}, "case 0: 16 is no dtype"),
        (
            {"cases": [{"op": "sum", "rows": 4, "length": 1, "options": ["plain"]}]},
            r"case 0: options must be numbers by name, got \['plain'\]",
        ),
        (
            {"cases": [{"op": "sum", "rows": 4, "length": 1, "calls": "9"}]},
            "case 0: calls must be a number, backward true or false, got",
        ),
    ],
)
def test_what_is_no_case_is_an_error(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read_cases(path)


def test_what_is_no_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text("softmax 4 9")
    with pytest.raises(ValueError, match=r"cases\.json is no JSON: Expecting value: line 1"):
        read_cases(path)


def test_what_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_bytes(b'{"cases": ["\xff"]}')
    with pytest.raises(ValueError, match=r"cases\.json is no JSON: .*utf-8"):
        read_cases(path)
