import pytest
import torch
from torch.nn import functional

import jagged
from jagged.testing import row_slices
from tests.ops.battery import assert_near, widest


def test_by_hand(device: torch.device) -> None:
    """One mean and variance a row: (1, 3 | 5, 7) has mean 4 and variance 5, (2, 2) variance 0."""
    values = torch.tensor([[1.0, 3], [5, 7], [2, 2], [float("nan")] * 2], device=device)
    offsets = torch.tensor([0, 2, 2, 3], device=device)
    out = jagged.ops.layer_norm(values, offsets, eps=0.0625)
    scale = 5.0625**-0.5
    expected = [[-3 * scale, -1 * scale], [1 * scale, 3 * scale], [0, 0], [0, 0]]
    torch.testing.assert_close(out.cpu(), torch.tensor(expected))


def test_weight_and_bias_by_hand(device: torch.device) -> None:
    values = torch.tensor([[1.0, 3.0], [7.0, 7.0]], device=device)
    offsets = torch.tensor([0, 1, 1, 2], device=device)
    weight, bias = torch.tensor([[2.0, 10.0], [0.5, -1.0]], device=device)
    out = jagged.ops.layer_norm(values[:1], offsets[:2], weight, bias, eps=0.0)
    assert out.tolist() == [[-1.5, 9.0]]
    out = jagged.ops.layer_norm(values, offsets, weight, bias)
    torch.testing.assert_close(
        out.cpu(), torch.tensor([[-1.5, 9.0], [0.5, -1.0]]), rtol=1e-4, atol=1e-4
    )


def test_against_torch_on_each_row(device: torch.device) -> None:
    values = torch.randn(12, 3, device=device, dtype=widest(device))
    offsets = torch.tensor([0, 4, 4, 5, 12], device=device)
    out = jagged.ops.layer_norm(values, offsets, eps=1e-5)
    for row in row_slices(offsets):
        if row.stop > row.start:
            assert_near(out[row], functional.layer_norm(values[row], values[row].shape))


@pytest.mark.parametrize("shift", [0.0, 100.0, 1e4])
def test_a_mean_far_from_zero(shift: float, device: torch.device) -> None:
    """The difference of two large numbers, E[x^2] - E[x]^2, would be noise."""
    values = torch.tensor([[-1.0, 1.0], [1.0, -1.0]] * 50, device=device) + shift
    out = jagged.ops.layer_norm(values, torch.tensor([0, 100], device=device), eps=0.0)
    torch.testing.assert_close(out, values - shift, rtol=1e-4, atol=1e-4)


def test_a_constant_row_without_eps_is_nan_in_that_row_only(device: torch.device) -> None:
    values = torch.tensor([[2.0], [2.0], [1.0], [3.0]], device=device)
    out = jagged.ops.layer_norm(values, torch.tensor([0, 2, 2, 4], device=device), eps=0.0)
    assert out[:2].isnan().all()
    assert out[2:].tolist() == [[-1.0], [1.0]]
