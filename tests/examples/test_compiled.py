"""The whole model under torch.compile: one graph, compiled once, for batches of any shape."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from examples.recommender.data import Rows
from examples.recommender.model import NextItemModel, hstu_encoder
from examples.recommender.settings import Settings
from jagged import JaggedTensor
from jagged.modules import HSTUConfig, HSTUStack

NUM_ITEMS = 50
SETTINGS = Settings(
    width=16,
    layers=1,
    heads=2,
    max_length=20,
    token_budget=500,
    negatives=7,
    dropout=0.0,
    input_dropout=0.0,
)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield
    torch._dynamo.reset()


def batches() -> Iterator[JaggedTensor]:
    """No two sizes alike: the compiler would take them for one."""
    lengths = torch.randint(1, 21, (40,))
    items, following = torch.randint(NUM_ITEMS, (2, int(lengths.sum())))
    rows = Rows(JaggedTensor.from_lengths(items, lengths, weights=following))
    for number in (5, 9, 14):
        batch = rows.take(range(number))
        yield JaggedTensor(batch.values, batch.offsets, 20, batch.weights)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "full", "horizon": 3, "repeat_bias": True},
        {"loss": "in-batch", "layer": "production"},
    ],
    ids=str,
)
def test_the_recommender_in_one_graph(changes: dict[str, object]) -> None:
    settings = dataclasses.replace(SETTINGS, **changes)  # type: ignore[arg-type]
    model = NextItemModel(hstu_encoder(settings), torch.randint(1, 9, (NUM_ITEMS,)), settings)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in batches():
        found = []
        negatives = None if settings.loss == "full" else torch.arange(7)
        for function in (model, compiled):
            model.zero_grad()
            loss = function(batch, negatives)
            loss.backward()
            found.append([loss.detach(), *(p.grad for p in model.parameters())])
        torch.testing.assert_close(found[1], found[0])


def test_a_stack_in_one_graph() -> None:
    config = HSTUConfig.research(
        embedding_dim=16,
        num_heads=2,
        attention_dim=8,
        hidden_dim=8,
        max_length=20,
        num_layers=2,
        dropout=0.0,
        window=(0, 4),
    )
    stack = HSTUStack(config)
    compiled = torch.compile(stack, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in batches():
        total = batch.values.shape[0]
        targets = batch.lengths() // 3
        times = torch.randint(1000, (total,)).sort().values
        found = []
        for function in (stack, compiled):
            torch.manual_seed(1)
            x = torch.randn(total, 16, requires_grad=True)
            out = function(batch.with_values(x), targets, times)
            stack.zero_grad()
            (out.values * torch.randn(total, 16)).sum().backward()
            found.append([out.values.detach(), x.grad, *(p.grad for p in stack.parameters())])
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_row_surgery_in_one_graph(dtype: torch.dtype) -> None:
    def surgery(values: torch.Tensor, lengths: torch.Tensor) -> list[JaggedTensor]:
        rows = JaggedTensor.from_lengths(values * 2, lengths, max_length=9)
        back = JaggedTensor.from_padded(rows.to_padded(), lengths, total=values.shape[0])
        return [rows, back, rows.select(torch.arange(2), total=5), rows.concat([rows, rows])]

    compiled = torch.compile(surgery, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in ([3, 2, 4], [1, 5], [7, 1, 1, 2]):
        given = torch.randn(sum(lengths)), torch.tensor(lengths, dtype=dtype)
        for ours, plain in zip(compiled(*given), surgery(*given), strict=True):
            assert ours.offsets.dtype == plain.offsets.dtype
            torch.testing.assert_close(ours.values, plain.values)
            assert torch.equal(ours.offsets, plain.offsets)
