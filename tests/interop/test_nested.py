import pytest
import torch

from jagged import JaggedTensor
from jagged.interop.nested import from_nested, to_nested
from jagged.testing import random_jagged

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")


def test_from_nested_shares_memory_and_passes_the_bound_on() -> None:
    values = torch.randn(6, 2)
    offsets = torch.tensor([0, 2, 2, 6])
    nested = torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=4)
    x = from_nested(nested)
    assert x.values.data_ptr() == values.data_ptr()
    assert x.offsets is offsets
    assert x.max_length == 4


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_that_do_not_start_at_zero_are_rebased(dtype: torch.dtype) -> None:
    values = torch.arange(8.0)[:, None]
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([2, 4, 8], dtype=dtype))
    x = from_nested(nested)
    assert x.offsets.tolist() == [0, 2, 6]
    assert x.offsets.dtype == dtype
    assert x.values.flatten().tolist() == [2, 3, 4, 5, 6, 7]
    assert x.values.data_ptr() == values[2:].data_ptr()


def test_holes_are_compacted_with_gradients() -> None:
    values = torch.arange(6.0)[:, None].requires_grad_()
    nested = torch.nested.nested_tensor_from_jagged(
        values, torch.tensor([0, 3, 6]), lengths=torch.tensor([1, 2])
    )
    x = from_nested(nested)
    assert [row.flatten().tolist() for row in x.rows()] == [[0], [3, 4]]
    x.values.sum().backward()
    assert values.grad is not None
    assert values.grad.flatten().tolist() == [1, 0, 0, 1, 1, 0]


def test_there_and_back_keeps_rows_offsets_and_gradients() -> None:
    x = random_jagged([2, 0, 3], 2)
    values = x.values.clone().requires_grad_()
    nested = to_nested(x.with_values(values))
    assert nested.offsets() is x.offsets
    assert nested.values().data_ptr() == values.data_ptr()
    back = from_nested(nested)
    assert torch.equal(back.values, values)
    assert back.max_length == 3
    (back.values * 2).sum().backward()
    assert values.grad is not None
    assert (values.grad == 2).all()


def test_to_nested_cuts_the_tail() -> None:
    nested = to_nested(random_jagged([2, 1], 3, tail=4))
    assert nested.values().shape == (3, 3)
    assert nested.values().isfinite().all()


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match=r"layout torch\.jagged"):
        from_nested(torch.zeros(3))
    nested = to_nested(JaggedTensor(torch.zeros(3, 2, 2), torch.tensor([0, 1, 3]))).transpose(1, 2)
    with pytest.raises(ValueError, match="ragged in dimension 1, got dimension 2"):
        from_nested(nested)
