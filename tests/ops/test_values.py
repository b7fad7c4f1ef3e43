"""Every op against its oracle: values, gradients of every subset of operands, odd shapes, tails."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.battery import (
    CASES,
    JAGGED_CASES,
    LENGTHS,
    WIDE_CASES,
    Make,
    OpCase,
    assert_near,
    gradients,
    oracle_gradients,
    outgoing,
    subsets,
    widest,
)

ODD_BATCHES = {
    "no rows": [],
    "one empty row": [0],
    "all rows empty": [0, 0, 0],
    "empty at both ends": [0, 3, 0, 0, 1, 0],
    "one element": [1],
    "one long row": [40],
    "long beside short": [1, 0, 70, 1, 2],
}


LIMITED = [
    case
    for case in CASES
    if "max_length" in case.make(Make([1], torch.device("cpu")))
    or case.op in ("dense_add", "padded_add", "from_padded")
]


def check(case: OpCase, make: Make) -> None:
    """The result, and the gradients alone and together, are the oracle's."""
    arguments = case.make(make)
    out = case.call(arguments)
    grad = outgoing(case, out, make)
    expected, expected_grads = oracle_gradients(case, arguments, grad)
    assert_near(out, expected)
    for names in subsets(case.operands):
        again, grads = gradients(case, arguments, grad, names)
        assert torch.equal(again, out)
        for name in names:
            assert_near(grads[name], expected_grads[name])


@pytest.mark.parametrize("case", CASES, ids=str)
@given(
    lengths=LENGTHS,
    tail=st.sampled_from([0, 3]),
    offsets_dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 100),
)
def test_any_batch(
    case: OpCase,
    device: torch.device,
    lengths: list[int],
    tail: int,
    offsets_dtype: torch.dtype,
    seed: int,
) -> None:
    check(case, Make(lengths, device, widest(device), offsets_dtype, tail, seed))


@pytest.mark.parametrize("offsets_dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("tail", [0, 2], ids=["full", "tail"])
@pytest.mark.parametrize("batch", ODD_BATCHES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_odd_batches(
    case: OpCase, batch: str, tail: int, offsets_dtype: torch.dtype, device: torch.device
) -> None:
    check(case, Make(ODD_BATCHES[batch], device, widest(device), offsets_dtype, tail))


@pytest.mark.parametrize("case", JAGGED_CASES, ids=str)
def test_the_tail_is_never_read_and_holds_zeros(case: OpCase, device: torch.device) -> None:
    """Also with a NaN in the incoming gradient there: the peers leak it into every weight."""
    make = Make([2, 0, 3], device, widest(device), tail=4)
    arguments = case.make(make)
    out = case.call(arguments)
    result, grads = gradients(case, arguments, outgoing(case, out, make), case.operands)
    assert bool(result.isfinite().all())
    if case.result == "elements":
        assert not result[-4:].any()
    for name, grad in grads.items():
        assert bool(grad.isfinite().all()), name
        if name in case.ragged:
            assert not grad[-4:].any(), name


@pytest.mark.parametrize("case", WIDE_CASES, ids=str)
def test_zero_sizes(case: OpCase, device: torch.device) -> None:
    """Operands cut to width 0: results of the right shape, with gradients."""
    make = Make([2, 0, 1], device, widest(device))
    arguments = case.make(make)
    for name in case.operands:
        per_head = case.label == "by_head" and name in case.shared
        if not per_head and (name != "bias" or case.op != "dense_bmm"):
            arguments[name] = arguments[name][..., :0]
    if case.op == "dense_bmm":
        arguments["dense"] = make.dense(make.rows, 0, 5)
    grad = outgoing(case, case.call(arguments), make)
    expected, expected_grads = oracle_gradients(case, arguments, grad)
    out, grads = gradients(case, arguments, grad, case.operands)
    assert_near(out, expected)
    for name in case.operands:
        assert_near(grads[name], expected_grads[name])


@pytest.mark.parametrize("case", LIMITED, ids=str)
def test_a_limit_of_zero(case: OpCase, device: torch.device) -> None:
    """max_length = 0, or a dense operand without places."""
    make = Make([2, 0, 1], device, widest(device), tail=1)
    arguments = case.make(make)
    if "max_length" in arguments:
        arguments["max_length"] = 0
    else:
        arguments["dense"] = arguments["dense"][:, :0]
    grad = outgoing(case, case.call(arguments), make)
    expected, expected_grads = oracle_gradients(case, arguments, grad)
    out, grads = gradients(case, arguments, grad, case.operands)
    assert_near(out, expected)
    for name in case.operands:
        assert_near(grads[name], expected_grads[name])
