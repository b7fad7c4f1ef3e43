"""Rows are independent: order does not matter, and nothing crosses from one row to another."""

import pytest
import torch
from torch import Tensor

from jagged.testing import row_slices
from tests.ops.battery import (
    JAGGED_CASES,
    Arguments,
    Make,
    OpCase,
    assert_near,
    gradients,
    outgoing,
    widest,
)

LENGTHS = [3, 0, 5, 2, 1, 6]
CHANGED = 2


def rows_of(case: OpCase, out: Tensor, offsets: Tensor) -> list[Tensor]:
    """What of a result belongs to each row."""
    return list(out) if case.result == "rows" else _rows(out, offsets)


def _rows(values: Tensor, offsets: Tensor) -> list[Tensor]:
    return [values[row] for row in row_slices(offsets)]


def per_row_operands(case: OpCase) -> list[str]:
    return [name for name in case.operands if name not in case.shared]


@pytest.mark.parametrize("poison", [5.0, torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("case", JAGGED_CASES, ids=str)
def test_a_row_stays_by_itself(case: OpCase, poison: float, device: torch.device) -> None:
    """Another number, a NaN or an infinity in one row leaves the others bitwise as they were."""
    make = Make(LENGTHS, device, widest(device), tail=2)
    arguments = case.make(make)
    changed = dict(arguments)
    for name in per_row_operands(case):
        changed[name] = arguments[name].clone()
        rows = _rows(changed[name], arguments["offsets"]) if name in case.ragged else changed[name]
        rows[CHANGED].reshape(-1)[0] = poison
    grad = outgoing(case, case.call(arguments), make)
    before, grads_before = gradients(case, arguments, grad, case.operands)
    after, grads_after = gradients(case, changed, grad, case.operands)
    offsets = arguments["offsets"]
    results = [(before, after, case.result == "elements")]
    results += [
        (grads_before[name], grads_after[name], name in case.ragged)
        for name in per_row_operands(case)
    ]
    for one, other, ragged in results:
        pairs = zip(
            _rows(one, offsets) if ragged else one,
            _rows(other, offsets) if ragged else other,
            strict=True,
        )
        for i, (x, y) in enumerate(pairs):
            if i != CHANGED:
                assert torch.equal(x, y), f"row {i}"
    assert not torch.equal(before, after)


@pytest.mark.parametrize("case", JAGGED_CASES, ids=str)
def test_permuted_rows_permute_the_result(case: OpCase, device: torch.device) -> None:
    order = [4, 2, 0, 5, 1, 3]
    make = Make(LENGTHS, device, widest(device))
    arguments = case.make(make)
    offsets = arguments["offsets"]
    shuffled: Arguments = dict(arguments)
    shuffled["offsets"] = Make([LENGTHS[i] for i in order], device).offsets()
    for name in per_row_operands(case):
        if name in case.ragged:
            rows = _rows(arguments[name], offsets)
            shuffled[name] = torch.cat([rows[i] for i in order])
        else:
            shuffled[name] = arguments[name][order]
    straight = rows_of(case, case.call(arguments), offsets)
    permuted = rows_of(case, case.call(shuffled), shuffled["offsets"])
    for place, row in enumerate(order):
        assert_near(permuted[place], straight[row])
