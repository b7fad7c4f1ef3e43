"""HSTU attention against numbers by hand and against its oracle; rows that stay by themselves."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import jagged
from jagged import BucketedBias, HSTUMask
from jagged.eager import _hstu_plan
from jagged.eager import hstu_attention as eager
from jagged.testing import (
    assert_accurate,
    hstu_attention_plain,
    row_slices,
)
from tests.ops.attention import CASES, AttentionCase, arguments_of_op, attention, case
from tests.ops.battery import (
    Arguments,
    Make,
    assert_near,
    gradients,
    oracle_gradients,
    outgoing,
    subsets,
    widest,
    with_gradients,
)

BATCHES = {
    "no rows": [],
    "one empty row": [0],
    "all rows empty": [0, 0, 0],
    "empty at both ends": [0, 3, 0, 0, 1, 0],
    "one element": [1],
    "one long row": [70],
    "long beside short": [1, 0, 300, 1, 40, 9],
}


def of_the_cpu(device: torch.device) -> None:
    if device.type != "cpu":
        pytest.skip("only the CPU cuts a batch in pieces")


@pytest.fixture(params=["whole", "in pieces"])
def cut(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    """The CPU's way through small batches, and with limits so small that it cuts everything."""
    if request.param == "in pieces":
        of_the_cpu(device)
        monkeypatch.setattr(eager, "_SECTION_BYTES", 2000)
        monkeypatch.setattr(eager, "_BLOCK_SCORES", 500)
        monkeypatch.setattr(_hstu_plan, "_ONE_BLOCK", 8)


@pytest.mark.parametrize("offsets_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("targets_dtype", [torch.int32, torch.int64], ids=str)
def test_numbers_by_hand(
    offsets_dtype: torch.dtype, targets_dtype: torch.dtype, device: torch.device
) -> None:
    """silu(1) / 4 = 0.18276 times the number of keys that a query sees."""
    x = torch.ones(5, 1, 1, device=device)
    offsets = torch.tensor([0, 2, 2, 5], device=device, dtype=offsets_dtype)
    out = jagged.ops.hstu_attention(x, x, x, offsets, max_length=3, scale=1 / 4, alpha=1.0)
    expected = torch.tensor([0.18276, 0.36553, 0.18276, 0.36553, 0.54829])
    torch.testing.assert_close(out.flatten().cpu(), expected, rtol=0, atol=1e-5)
    out = jagged.ops.hstu_attention(
        x,
        x,
        x,
        offsets,
        max_length=3,
        scale=1 / 4,
        alpha=1.0,
        num_targets=torch.tensor([1, 0, 2], device=device, dtype=targets_dtype),
    )
    expected = torch.tensor([0.18276, 0.36553, 0.18276, 0.36553, 0.36553])
    torch.testing.assert_close(out.flatten().cpu(), expected, rtol=0, atol=1e-5)


def test_a_pair_by_hand(device: torch.device) -> None:
    """Two elements, with a position and a time bias, and one factor a query."""
    q, k = torch.tensor([1.0, 2.0], device=device), torch.tensor([0.5, -1.0], device=device)
    v = torch.tensor([3.0, 5.0], device=device)
    bias = BucketedBias(
        position_table=torch.tensor([0.25, 0.125, 9.0], device=device),  # 1 before, itself, after
        time_table=torch.tensor([0.0, 10.0, 20.0], device=device),
        timestamps=torch.tensor([100, 107], device=device),
        bucket="sqrt",
        divisor=2.5,
    )
    out = jagged.ops.hstu_attention(
        *(x.reshape(2, 1, 1) for x in (q, k, v)),
        torch.tensor([0, 2], device=device),
        max_length=2,
        scale=torch.tensor([0.5, 2.0], device=device),
        alpha=1.0,
        bias=bias,
    )
    # Time: sqrt(107 - 100) / 2.5 is in bucket 1, sqrt(max(0, 1)) / 2.5 in bucket 0.
    silu = torch.nn.functional.silu(torch.tensor([0.5 + 0.125 + 10, 1 + 0.25 + 10, -2 + 0.125]))
    expected = [0.5 * silu[0] * 3, 2 * (silu[1] * 3 + silu[2] * 5)]
    torch.testing.assert_close(out.flatten().cpu(), torch.stack(expected))


def check(one: AttentionCase, make: Make) -> None:
    """The result and the gradients are the oracle's."""
    arguments = one.make(make)
    out = one.call(arguments)
    grad = outgoing(one, out, make)
    expected, expected_grads = oracle_gradients(one, arguments, grad)
    again, grads = gradients(one, arguments, grad, one.operands)
    assert_near(out, expected)
    assert torch.equal(again, out)
    for name in one.operands:
        assert_near(grads[name], expected_grads[name])


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("tail", [0, 2], ids=["full", "tail"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("one", CASES, ids=str)
def test_odd_batches(one: AttentionCase, batch: str, tail: int, device: torch.device) -> None:
    dtype = torch.int32 if tail else torch.int64
    check(one, Make(BATCHES[batch], device, widest(device), dtype, tail))


OPTIONS = st.fixed_dictionaries(
    {
        "heads": st.integers(1, 3),
        "features": st.sampled_from([1, 8, 25, 50]),
        "value_features": st.sampled_from([1, 8, 25, 50]),
        "mask": st.builds(
            HSTUMask,
            window=st.integers(0, 5),
            contextual=st.integers(0, 4),
            min_full=st.integers(0, 3),
        ),
        "targets": st.booleans(),
        "per_query": st.booleans(),
        "bias": st.sampled_from(["", "position", "time", "both"]),
        "bucket": st.sampled_from(["log", "sqrt"]),
        "alpha": st.sampled_from([None, 0.5]),
    }
)


@given(
    options=OPTIONS,
    lengths=st.lists(st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 40)), max_size=6),
    tail=st.sampled_from([0, 3]),
    seed=st.integers(0, 100),
)
def test_any_batch(
    options: dict[str, Any], lengths: list[int], tail: int, seed: int, device: torch.device
) -> None:
    check(case("any", **options), Make(lengths, device, widest(device), tail=tail, seed=seed))


@given(
    options=OPTIONS,
    lengths=st.lists(st.integers(0, 100), min_size=1, max_size=4),
    scores=st.integers(100, 5000),
    seed=st.integers(0, 100),
)
def test_any_batch_in_pieces(
    options: dict[str, Any], lengths: list[int], scores: int, seed: int, device: torch.device
) -> None:
    of_the_cpu(device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eager, "_SECTION_BYTES", 5000)
        patch.setattr(eager, "_BLOCK_SCORES", scores)
        patch.setattr(_hstu_plan, "_ONE_BLOCK", 16)
        check(case("any", **options), Make(lengths, device, widest(device), seed=seed))


@pytest.mark.parametrize("one", [CASES[0], CASES[8]], ids=str)
def test_each_gradient_alone(one: AttentionCase, device: torch.device) -> None:
    make = Make([3, 0, 12, 5], device, widest(device), tail=1)
    arguments = one.make(make)
    grad = outgoing(one, one.call(arguments), make)
    _, expected = gradients(one, arguments, grad, one.operands)
    for names in subsets(one.operands):
        _, grads = gradients(one, arguments, grad, names)
        for name in names:
            assert torch.equal(grads[name], expected[name]), (name, names)


def plain(
    arguments: Arguments, grad: Tensor, names: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Result and gradients of plain torch in the dtypes of the arguments."""
    leaves = with_gradients(arguments, names)
    out = hstu_attention_plain(**arguments_of_op(leaves))
    found = torch.autograd.grad(out, [leaves[name] for name in names], grad.nan_to_num(0))
    return out.detach(), dict(zip(names, found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("one", CASES, ids=str)
def test_within_the_error_budget(
    one: AttentionCase, dtype: torch.dtype, device: torch.device
) -> None:
    make = Make([3, 0, 70, 8, 300, 1], device, dtype, tail=2)
    arguments = one.make(make)
    grad = outgoing(one, one.call(arguments), make)
    out, grads = gradients(one, arguments, grad, one.operands)
    exact, exact_grads = oracle_gradients(one, arguments, grad)
    easy, easy_grads = plain(arguments, grad, one.operands)
    assert_accurate(out, exact, easy)
    for name in one.operands:
        assert_accurate(grads[name], exact_grads[name], easy_grads[name], factor=3, name=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_float32_scale_and_tables_with_16_bit_values(
    dtype: torch.dtype, device: torch.device
) -> None:
    make = Make([30, 0, 9], device, dtype)
    parts = attention(per_query=True, bias="both")(Make([30, 0, 9], device, torch.float32))
    operands = ("q", "k", "v", "position_table", "time_table")
    arguments = {
        name: value.to(dtype) if name in ("q", "k", "v") else value for name, value in parts.items()
    }
    arguments["offsets"] = make.offsets()
    one = case("", bias="both")
    grad = outgoing(one, arguments["v"], make)
    out, grads = gradients(one, arguments, grad, operands)
    exact, exact_grads = oracle_gradients(one, arguments, grad)
    easy, easy_grads = plain(arguments, grad, operands)
    assert_accurate(out, exact, easy)
    for name in operands:
        assert grads[name].dtype == arguments[name].dtype
        assert_accurate(grads[name], exact_grads[name], easy_grads[name], factor=3, name=name)


def only_rows(arguments: Arguments, rows: Sequence[int]) -> Arguments:
    """The arguments of some rows by themselves, in the order given."""
    offsets = arguments["offsets"]
    spans = [row_slices(offsets)[row] for row in rows]
    bounds = torch.tensor([0, *(span.stop - span.start for span in spans)]).cumsum(0)
    found = dict(arguments, offsets=bounds.to(offsets))
    for name in ("q", "k", "v", "timestamps", "scale"):
        if isinstance(arguments.get(name), torch.Tensor):
            found[name] = torch.cat([arguments[name][span] for span in spans])
    if "num_targets" in arguments:
        found["num_targets"] = arguments["num_targets"][list(rows)]
    return found


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "reversed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_row_does_not_depend_on_its_batch(
    one: AttentionCase, dtype: torch.dtype, alone: bool, device: torch.device
) -> None:
    """How a row is padded and cut depends on its own length alone.

    Bitwise but for one feature on the CPU, where the product of a matrix and a vector has routines
    of its own, and for a row alone on a GPU, where the mean length chooses the size of the blocks.
    """
    on_cpu = device.type == "cpu"
    if dtype == torch.float64 and not on_cpu:
        pytest.skip("no kernel computes in float64")
    lengths = [3, 9, 0, 8, 20, 1, 270, 64, 9, 33, 100, 3, 130]
    make = Make(lengths, device, dtype)
    arguments = one.make(make)
    grad = outgoing(one, one.call(arguments), make)
    rowwise = ("q", "k", "v")
    out, grads = gradients(one, arguments, grad, rowwise)
    spans = row_slices(arguments["offsets"])
    bitwise = one.label not in ("window", "targets") if on_cpu else not alone  # D or V is 1
    backwards = range(len(lengths))[::-1]
    for rows in [[row] for row in backwards] if alone else [backwards]:
        wanted = [torch.cat([x[spans[row]] for row in rows]) for x in (out, *grads.values())]
        upstream = torch.cat([grad[spans[row]] for row in rows])
        again, grads_again = gradients(one, only_rows(arguments, rows), upstream, rowwise)
        for found, want in zip((again, *grads_again.values()), wanted, strict=True):
            if bitwise:
                assert torch.equal(found, want), rows
            else:
                near = 32 * torch.finfo(dtype).eps
                torch.testing.assert_close(found, want, rtol=near, atol=near)


@pytest.mark.parametrize("poison", [5.0, torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("one", CASES, ids=str)
def test_nothing_crosses_into_another_row(
    one: AttentionCase, poison: float, device: torch.device
) -> None:
    lengths, changed = [3, 0, 5, 40, 6, 5], 2
    make = Make(lengths, device, widest(device), tail=1)
    arguments = one.make(make)
    grad = outgoing(one, one.call(arguments), make)
    rowwise = ("q", "k", "v")
    out, grads = gradients(one, arguments, grad, rowwise)
    span = row_slices(arguments["offsets"])[changed]
    other = dict(arguments)
    for name in rowwise:
        other[name] = arguments[name].clone()
        other[name][span.start] = poison
    other_out, other_grads = gradients(one, other, grad, rowwise)
    assert not torch.equal(other_out[span], out[span])
    for before, after in ((out, other_out), *((grads[n], other_grads[n]) for n in rowwise)):
        assert torch.equal(after[: span.start], before[: span.start])
        assert torch.equal(after[span.stop :], before[span.stop :])


def test_permuted_targets_permute_the_result(device: torch.device) -> None:
    """Targets see the same history and nothing of one another."""
    make = Make([12], device, widest(device))
    arguments = CASES[2].make(make)
    arguments["num_targets"] = torch.tensor([5], device=device)
    order = torch.tensor([0, 1, 2, 3, 4, 5, 6, 9, 11, 7, 8, 10], device=device)
    shuffled = {
        name: value[order] if name in ("q", "k", "v") else value
        for name, value in arguments.items()
    }
    assert_near(CASES[2].call(shuffled), CASES[2].call(arguments)[order])


def test_permuted_rows_permute_the_result(device: torch.device) -> None:
    order = [4, 2, 0, 5, 1, 3]
    lengths = [3, 0, 5, 2, 1, 6]
    arguments = CASES[8].make(Make(lengths, device, widest(device)))
    rows = row_slices(arguments["offsets"])
    index = torch.cat([torch.arange(rows[i].start, rows[i].stop) for i in order]).to(device)
    shuffled = dict(arguments, offsets=Make([lengths[i] for i in order], device).offsets())
    for name in ("q", "k", "v", "scale", "timestamps"):
        shuffled[name] = arguments[name][index]
    shuffled["num_targets"] = arguments["num_targets"][order]
    assert_near(CASES[8].call(shuffled), CASES[8].call(arguments)[index])


@pytest.mark.parametrize("beyond", [-7, 100, 2**31, -(2**40)])
def test_the_number_of_targets_is_clamped(beyond: int, device: torch.device) -> None:
    make = Make([4, 0, 9], device, widest(device))
    arguments = CASES[4].make(make)
    out = []
    for targets in ([beyond] * 3, [0, 0, 0] if beyond < 0 else [4, 0, 9]):
        arguments["num_targets"] = torch.tensor(targets, device=device)
        out.append(CASES[4].call(arguments))
    assert torch.equal(out[0], out[1])


def test_no_targets_is_zero_targets(device: torch.device) -> None:
    make = Make([4, 0, 9], device, widest(device))
    arguments = CASES[4].make(make)
    arguments["num_targets"] = torch.zeros(3, device=device, dtype=torch.int32)
    without = {name: value for name, value in arguments.items() if name != "num_targets"}
    assert torch.equal(CASES[4].call(arguments), CASES[4].call(without))


def test_a_factor_per_query_is_one_number_where_all_are_equal(device: torch.device) -> None:
    make = Make([4, 0, 9, 300], device, widest(device))
    arguments = CASES[0].make(make)
    per_query = dict(arguments, scale=torch.full_like(arguments["q"][:, 0, 0], 0.3))
    assert_near(CASES[0].call(per_query), CASES[0].call(arguments))


def test_rows_beyond_max_length(device: torch.device) -> None:
    """The elements before it are those of the whole row, as the mask is causal; the others 0."""
    make = Make([300, 2, 9], device, widest(device))
    one = case("", mask=HSTUMask(window=3))
    arguments = one.make(make)
    whole = one.call(arguments)
    cut = one.call({**arguments, "max_length": 5})
    for span in row_slices(arguments["offsets"]):
        inside = slice(span.start, min(span.start + 5, span.stop))
        assert_near(cut[inside], whole[inside])
        assert not cut[inside.stop : span.stop].any()


def test_max_length_zero(device: torch.device) -> None:
    make = Make([2, 0, 1], device, widest(device), tail=1)
    check(case("", cut=0), make)
    check(case("", cut=0, bias="both", targets=True), make)


@pytest.mark.parametrize(
    "offsets", [[0, 5, 3], [2, 4, 6], [0, 9], [0, -3, 6], [5, 0], [0, 4, 100], [-2, 8]], ids=str
)
def test_broken_offsets_stay_within_the_tensors(offsets: list[int]) -> None:
    """`validate()` names them; the CPU's way reads and writes nothing beside its tensors."""
    x = torch.randn(6, 2, 4, requires_grad=True)
    out = jagged.ops.hstu_attention(x, x, x, torch.tensor(offsets), max_length=6, scale=0.5)
    assert out.shape == (6, 2, 4)
    assert bool(out.isfinite().all())
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("features", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_no_features(features: tuple[int, int], device: torch.device) -> None:
    make = Make([2, 0, 20], device, widest(device), tail=1)
    check(case("", features=features[0], value_features=features[1], bias="position"), make)


def test_no_heads(device: torch.device) -> None:
    check(case("", heads=0), Make([2, 0, 20], device, widest(device), tail=1))
