import pytest
import torch

import jagged
from tests.ops.tables import TABLES, Table

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_truth_tables(table: Table, device: torch.device) -> None:
    """Equal elements share equally."""
    values, offsets = table.tensors(device)
    out = jagged.ops.softmax(torch.where(values.isnan(), values, 3.0), offsets)
    shares = torch.tensor(table.shares, device=device)
    expected = shares.reshape(-1, *(1,) * len(table.shape)).expand_as(values)
    torch.testing.assert_close(out, expected)


def test_features_are_independent(device: torch.device) -> None:
    log = torch.tensor([[1.0, 1], [2, 1], [5, 1]], device=device).log()
    out = jagged.ops.softmax(log, torch.tensor([0, 2, 3], device=device))
    torch.testing.assert_close(out.cpu(), torch.tensor([[1 / 3, 1 / 2], [2 / 3, 1 / 2], [1, 1]]))


def test_large_numbers_do_not_overflow(device: torch.device) -> None:
    values = torch.tensor([1e30, -1e30, 3e38, 3e38, -3e38], device=device)
    out = jagged.ops.softmax(values, torch.tensor([0, 2, 4, 5], device=device))
    assert out.tolist() == [1, 0, 0.5, 0.5, 1]


def test_very_negative_rows_do_not_underflow(device: torch.device) -> None:
    """A peer's kernel takes the maximum over its padding zeros: below -104 it divides by 0."""
    values = torch.full((3,), -1e4, device=device)
    out = jagged.ops.softmax(values, torch.tensor([0, 1, 3], device=device))
    assert out.tolist() == [1, 0.5, 0.5]


def test_special_numbers_stay_in_their_row_and_feature(device: torch.device) -> None:
    values = torch.tensor(
        [[0.0, 0.0], [NAN, 0.0], [0.0, INF], [0.0, 0.0], [-INF, 1.0], [0.0, -INF], [5.0, 1.0]],
        device=device,
        requires_grad=True,
    )
    out = jagged.ops.softmax(values, torch.tensor([0, 2, 4, 6, 7], device=device))
    expected = torch.tensor(
        [[NAN, 0.5], [NAN, 0.5], [0.5, NAN], [0.5, NAN], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    )
    torch.testing.assert_close(out.detach().cpu(), expected, equal_nan=True)
    out.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad.cpu().isnan(), expected.isnan())


def test_a_row_of_minus_infinity_is_nan_as_in_torch(device: torch.device) -> None:
    values = torch.tensor([-INF, -INF, 1.0], device=device)
    out = jagged.ops.softmax(values, torch.tensor([0, 2, 3], device=device))
    torch.testing.assert_close(out.cpu(), torch.tensor([NAN, NAN, 1.0]), equal_nan=True)


def test_what_max_length_cuts_off_is_zero(device: torch.device) -> None:
    """fbgemm leaves uninitialised memory there, in the result and in the gradient."""
    values = torch.tensor([1.0, 1.0, NAN, INF, 2.0], device=device, requires_grad=True)
    out = jagged.ops.softmax(values, torch.tensor([0, 4, 5], device=device), max_length=2)
    assert out.tolist() == [0.5, 0.5, 0, 0, 1]
    incoming = torch.tensor([1.0, 0.0, NAN, INF, 1.0], device=device)
    (grad,) = torch.autograd.grad(out, values, incoming)
    assert grad.tolist() == [0.25, -0.25, 0, 0, 0]
