"""With the real torchrec; its own import warns about things of its own."""

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrec.fx.tracer import Tracer
    from torchrec.modules.embedding_configs import EmbeddingConfig
    from torchrec.modules.embedding_modules import EmbeddingCollection
    from torchrec.sparse import jagged_tensor as torchrec

from jagged import JaggedTensor, ops
from jagged.interop.torchrec import from_torchrec, to_keyed, to_torchrec
from jagged.modules import SumPooling
from jagged.testing import random_jagged


def test_offsets_and_weights_are_shared_and_gradients_flow() -> None:
    values = torch.randn(3, 2, requires_grad=True)
    offsets, ids = torch.tensor([0, 2, 2, 3]), torch.tensor([7, 8, 9])
    x = from_torchrec(torchrec.JaggedTensor(values=values, offsets=offsets, weights=ids))
    assert isinstance(x, JaggedTensor)
    assert x.values is values
    assert x.offsets is offsets
    assert x.weights is ids
    back = to_torchrec(x)
    assert back.offsets() is offsets
    assert back.weights() is ids
    back.values().sum().backward()
    assert values.grad is not None


@pytest.mark.parametrize(
    ("dtype", "offsets_dtype"),
    [(torch.int32, torch.int32), (torch.int64, torch.int64), (torch.int16, torch.int64)],
)
def test_offsets_of_lengths(dtype: torch.dtype, offsets_dtype: torch.dtype) -> None:
    lengths = torch.tensor([2, 0, 1], dtype=dtype)
    x = from_torchrec(torchrec.JaggedTensor(values=torch.randn(3), lengths=lengths), max_length=2)
    assert isinstance(x, JaggedTensor)
    assert x.offsets.tolist() == [0, 2, 2, 3]
    assert x.offsets.dtype == offsets_dtype
    assert x.max_length == 2


def test_the_empty_tensor_of_torchrec_has_offsets_of_no_entry() -> None:
    x = from_torchrec(torchrec.JaggedTensor.empty())
    assert isinstance(x, JaggedTensor)
    assert x.offsets.tolist() == [0]
    assert len(x) == 0


def test_keys_become_tensors_in_their_order() -> None:
    keyed = torchrec.KeyedJaggedTensor(
        keys=["item", "tag"],
        values=torch.arange(6),
        lengths=torch.tensor([2, 0, 1, 3], dtype=torch.int32),
        weights=torch.arange(6.0) * 10,
    )
    parts = from_torchrec(keyed)
    assert isinstance(parts, dict)
    assert list(parts) == ["item", "tag"]
    assert [row.tolist() for row in parts["item"].rows()] == [[0, 1], []]
    assert [row.tolist() for row in parts["tag"].rows()] == [[2], [3, 4, 5]]
    assert parts["tag"].offsets.dtype == torch.int32
    assert parts["tag"].values.data_ptr() == keyed.values()[2:].data_ptr()
    weights = parts["tag"].weights
    assert weights is not None
    assert weights.tolist() == [20, 30, 40, 50]
    again = to_keyed(parts)
    assert again.keys() == ["item", "tag"]
    assert again.values().tolist() == keyed.values().tolist()
    assert again.lengths().tolist() == keyed.lengths().tolist()
    assert again.lengths().dtype == torch.int32
    assert again.weights().tolist() == keyed.weights().tolist()


def test_keys_may_have_batches_of_their_own() -> None:
    keyed = torchrec.KeyedJaggedTensor(
        keys=["a", "b"],
        values=torch.arange(5),
        lengths=torch.tensor([1, 2, 2]),
        stride_per_key_per_rank=[[2], [1]],
    )
    parts = from_torchrec(keyed)
    assert isinstance(parts, dict)
    assert [len(part) for part in parts.values()] == [2, 1]
    assert parts["b"].values.tolist() == [3, 4]


def test_a_batch_of_no_rows() -> None:
    keyed = torchrec.KeyedJaggedTensor(
        keys=["a", "b"], values=torch.zeros(0).long(), lengths=torch.zeros(0).long()
    )
    parts = from_torchrec(keyed)
    assert isinstance(parts, dict)
    assert [part.offsets.tolist() for part in parts.values()] == [[0], [0]]


def test_a_tail_stays_behind() -> None:
    """torchrec splits all values by the lengths of the keys: there is no room for more."""
    a = JaggedTensor(torch.tensor([5, 6, 7]), torch.tensor([0, 1, 1]), weights=torch.ones(3))
    b = JaggedTensor(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 3]), weights=torch.zeros(3))
    keyed = to_keyed({"a": a, "b": b})
    assert keyed.values().tolist() == [5, 1, 2, 3]
    assert keyed.weights().tolist() == [1, 0, 0, 0]
    assert keyed.to_dict()["b"].values().tolist() == [1, 2, 3]
    assert to_keyed({"a": a}, trim=False).values().tolist() == [5, 0, 0]
    padded = torchrec.KeyedJaggedTensor(
        keys=["a", "b"],
        values=torch.arange(9),
        lengths=torch.tensor([1, 2, 2, 0]),
        weights=torch.arange(9.0),
    )
    parts = from_torchrec(padded)
    assert isinstance(parts, dict)
    assert [part.values.tolist() for part in parts.values()] == [[0, 1, 2], [3, 4]]


def test_an_embedding_collection_feeds_a_layer_and_learns() -> None:
    table = EmbeddingConfig(name="t", embedding_dim=4, num_embeddings=10, feature_names=["item"])
    collection = EmbeddingCollection(tables=[table], need_indices=True)
    keyed = torchrec.KeyedJaggedTensor(
        keys=["item"],
        values=torch.tensor([1, 2, 3]),
        lengths=torch.tensor([2, 0, 1], dtype=torch.int32),
    )
    parts = from_torchrec(collection(keyed))
    assert isinstance(parts, dict)
    item = parts["item"]
    assert item.weights is not None
    assert item.weights.tolist() == [1, 2, 3]
    item.values.sum().backward()
    grad = next(collection.parameters()).grad
    assert grad is not None
    assert grad.sum(1).tolist() == [0, 4, 4, 4, 0, 0, 0, 0, 0, 0]


def test_a_model_that_a_train_pipeline_traces() -> None:
    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pooling = SumPooling()

        def forward(self, batch: torchrec.KeyedJaggedTensor) -> torch.Tensor:
            clicks = from_torchrec(batch, max_length=9)["clicks"]  # type: ignore[index]
            pooled: torch.Tensor = self.pooling(clicks.with_values(clicks.values * 2))
            return pooled

    model = Pooled()
    graph = Tracer(leaf_modules=["SumPooling"]).trace(model)
    batch = torchrec.KeyedJaggedTensor(
        keys=["clicks"], values=torch.arange(1.0, 6.0), lengths=torch.tensor([2, 0, 3])
    )
    got = torch.fx.GraphModule(model, graph)(batch)
    assert got.tolist() == [6.0, 0.0, 24.0]
    assert torch.equal(got, model(batch))


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="source must be a torchrec JaggedTensor"):
        from_torchrec(torch.zeros(2))
    with pytest.raises(TypeError, match=r"source must be .* got Tensor under 'a'"):
        from_torchrec({"a": torch.zeros(2)})
    for wrong in (torch.zeros(2), [random_jagged([1])]):
        with pytest.raises(TypeError, match="must be a JaggedTensor or a mapping of them, got "):
            to_torchrec(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="features must be a mapping of JaggedTensors, got "):
            to_keyed(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features must hold at least one feature"):
        to_keyed({})
    ids, floats = random_jagged([1]).to(dtype=torch.int64), random_jagged([1])
    with pytest.raises(TypeError, match="must have the dtype of"):
        to_keyed({"a": ids, "b": floats})
    features = {"a": random_jagged([1, 2]), "b": random_jagged([1])}
    with pytest.raises(ValueError, match=r"same number of rows, got \{'a': 2, 'b': 1\}"):
        to_keyed(features)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_and_what_follows_compile_in_one_graph(dtype: torch.dtype) -> None:
    table = torch.randn(9, 4)

    def pool(source: torchrec.KeyedJaggedTensor) -> torch.Tensor:
        features = from_torchrec(source)
        assert isinstance(features, dict)
        return torch.cat([ops.sum(table[x.values], x.offsets) for x in features.values()], 1)

    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    for lengths in ([2, 0, 3, 4], [1, 2, 5, 0, 0, 1]):
        source = torchrec.KeyedJaggedTensor(
            keys=["a", "b"],
            values=torch.arange(9)[: sum(lengths)],
            lengths=torch.tensor(lengths, dtype=dtype),
        )
        torch.testing.assert_close(compiled(source), pool(source))
