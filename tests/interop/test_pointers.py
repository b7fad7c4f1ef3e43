import pytest
import torch
from scipy.sparse import coo_array, csr_array

from jagged import JaggedTensor
from jagged.interop import pointers
from jagged.testing import random_jagged


def test_merlin() -> None:
    batch = {"item__values": torch.tensor([1, 2, 3]), "item__offsets": torch.tensor([0, 2, 3])}
    x = pointers.from_merlin(batch, "item")
    assert x.values is batch["item__values"]
    assert x.offsets is batch["item__offsets"]
    assert pointers.to_merlin(x, "item") == batch
    with pytest.raises(KeyError, match=r"user__values .* ragged columns are \['item'\]"):
        pointers.from_merlin(batch, "user")


def test_cu_seqlens() -> None:
    x = random_jagged([2, 0, 1], 4, offsets_dtype=torch.int32)
    values, cu_seqlens, longest = pointers.to_cu_seqlens(x)
    assert values is x.values
    assert cu_seqlens.data_ptr() == x.offsets.data_ptr()
    assert longest == 2
    assert pointers.from_cu_seqlens(values, cu_seqlens, longest).max_length == 2
    with pytest.raises(ValueError, match="max_length must be known"):
        pointers.to_cu_seqlens(JaggedTensor(x.values, x.offsets))
    many = JaggedTensor(torch.empty(1).expand(2**31), torch.tensor([0, 2**31]), 2**31)
    with pytest.raises(ValueError, match=r"fewer than 2\*\*31 elements .* got 2147483648: take"):
        pointers.to_cu_seqlens(many)


def test_graph_batches() -> None:
    x = random_jagged([1, 0, 3, 0, 0], 2)
    values, batch = pointers.to_batch(x)
    assert batch.tolist() == [0, 2, 2, 2]
    back = pointers.from_batch(values, batch, 5)
    assert back.offsets.tolist() == x.offsets.tolist()
    assert pointers.from_ptr(values, x.offsets).offsets is x.offsets


def test_csr() -> None:
    matrix = csr_array([[0, 5.0, 0], [0, 0, 0], [7.0, 0, 8.0]])
    x = pointers.from_csr(matrix)
    assert [row.tolist() for row in x.rows()] == [[1], [], [0, 2]]
    assert x.weights is not None
    assert x.weights.tolist() == [5, 7, 8]
    assert x.max_length == 2
    assert x.values.data_ptr() == matrix.indices.ctypes.data
    assert (pointers.to_csr(x, 3) != matrix).nnz == 0
    with pytest.raises(TypeError, match="scipy CSR matrix, got coo_array"):
        pointers.from_csr(coo_array((2, 2)))
    with pytest.raises(TypeError, match="must be integers"):
        pointers.to_csr(x.with_values(x.values.float()), 3)
    with pytest.raises(TypeError, match="must be integers"):
        pointers.to_csr(x.with_values(x.values > 0), 3)
    with pytest.raises(TypeError, match="must be integers"):
        pointers.to_csr(x.with_values(x.values + 0j), 3)
    for values in (x.values, x.values - 1):
        with pytest.raises(ValueError, match=r"x.values must be in 0..1 \(column indices\)"):
            pointers.to_csr(x.with_values(values), 2)
    assert pointers.to_csr(x.select([]), 0).shape == (0, 0)
