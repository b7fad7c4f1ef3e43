"""The HSTU layers against a padded dense layer in float64, and what they promise besides."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import jagged
from jagged import JaggedTensor, modules
from jagged.modules import HSTUConfig, HSTULayer, HSTUStack, hstu
from jagged.testing import random_jagged
from tests.modules.catalogue import randomised
from tests.modules.dense_hstu import dense_hstu

LENGTHS = [7, 0, 9, 1, 4]
TARGETS = [2, 0, 3, 1, 0]
SHAPE: dict[str, Any] = {
    "embedding_dim": 6,
    "num_heads": 2,
    "attention_dim": 3,
    "hidden_dim": 5,
    "max_length": 11,
    "dropout": 0.0,
}
research, production = HSTUConfig.research, HSTUConfig.production
CONFIGS = {
    "research": research(**SHAPE),
    "research-position-only": research(**SHAPE, time_buckets=0),
    "research-time-only": research(**SHAPE, position_bias=False, time_bucket="sqrt"),
    "research-affine-contextual": research(**SHAPE, norm_affine=True, contextual=2, window=3),
    "production": production(**SHAPE),
    "production-group-norm": production(**SHAPE, group_norm=True),
    "production-gate-only": production(**SHAPE, concat_u=False, output_bias=True),
    "production-mask": production(**SHAPE, window=2, contextual=2, min_full=1, group_norm=True),
    "production-constants": production(**SHAPE, scale=0.5, alpha=0.7, eps=1e-2),
    "production-with-bias": production(**SHAPE, position_bias=True, time_buckets=8),
}


def batch(config: HSTUConfig, tail: int = 0) -> tuple[JaggedTensor, torch.Tensor | None]:
    x = random_jagged(LENGTHS, config.embedding_dim, dtype=torch.float64, tail=tail)
    times = None
    if config.time_buckets > 0:
        times = torch.randint(0, 4000, (x.values.shape[0],)).cumsum(0)
    return x, times


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize("targets", [None, TARGETS], ids=["history", "targets"])
def test_against_the_dense_layer(name: str, targets: list[int] | None) -> None:
    config = CONFIGS[name]
    layer = randomised(HSTULayer(config).double())
    x, times = batch(config)
    x.values.requires_grad_()
    parameters = dict(layer.named_parameters())
    rows = x.rows()
    want = torch.cat(
        dense_hstu(
            config, parameters, rows, targets, None if times is None else times.split(LENGTHS)
        )
    )
    out = layer(x, None if targets is None else torch.tensor(targets), times).values
    torch.testing.assert_close(out, want, rtol=1e-9, atol=1e-9)
    # The layer does something: without the residual the result is not small.
    assert (want - x.values).abs().mean() > 0.1

    weight = torch.randn_like(want)
    inputs = {"x": x.values, **parameters}
    grads = torch.autograd.grad((out * weight).sum(), list(inputs.values()))
    want_grads = torch.autograd.grad((want * weight).sum(), list(inputs.values()))
    for key, grad, want_grad in zip(inputs, grads, want_grads, strict=True):
        torch.testing.assert_close(
            grad, want_grad, rtol=1e-8, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}"
        )
        assert want_grad.abs().max() > 0, key


def test_a_stack_is_its_layers_with_their_windows() -> None:
    config = production(**SHAPE, num_layers=3, window=(1, 4, 0))
    stack = randomised(HSTUStack(config).double())
    x, _ = batch(config)
    rows = x.rows()
    for index, window in enumerate((1, 4, 0)):
        layer = dict(stack.layers[index].named_parameters())
        single = dataclasses.replace(config, window=window, num_layers=1)
        rows = dense_hstu(single, layer, rows, TARGETS)
    torch.testing.assert_close(
        stack(x, torch.tensor(TARGETS)).values, torch.cat(rows), rtol=1e-9, atol=1e-9
    )


def test_a_stack_clears_the_tail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over memory that its other layers save; what is in between stays finite elsewhere."""
    cleared = []

    def spy(values: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        cleared.append(values)
        return torch.where(valid[:, None], values, 0)

    monkeypatch.setattr(hstu, "zero_tail", spy)
    config = research(**SHAPE, num_layers=3)
    stack = randomised(HSTUStack(config).double())
    x, times = batch(config, tail=2)
    out = stack(x, None, times)
    assert len(cleared) == 1
    assert cleared[0][:-2].isfinite().all()
    assert cleared[0][-2:].isnan().all()
    assert (out.values[-2:] == 0).all()


def test_attention_by_hand() -> None:
    """The numbers of the contract: q = k = v = 1, rows of 2, 0 and 3."""
    config = HSTUConfig(
        embedding_dim=1, num_heads=1, attention_dim=1, hidden_dim=1, max_length=4, alpha=1.0
    )
    ones = JaggedTensor(torch.ones(5, 1, 1), torch.tensor([0, 2, 2, 5]))
    attention = modules.HSTUAttention(config)
    out = attention(ones, ones, ones)
    assert out.offsets is ones.offsets
    want = torch.tensor([0.18276, 0.36553, 0.18276, 0.36553, 0.54829])
    torch.testing.assert_close(out.values.flatten(), want, rtol=1e-4, atol=1e-5)
    out = attention(ones, ones, ones, torch.tensor([1, 0, 2]))
    want = torch.tensor([0.18276, 0.36553, 0.18276, 0.36553, 0.36553])
    torch.testing.assert_close(out.values.flatten(), want, rtol=1e-4, atol=1e-5)


def test_targets_are_scored_one_by_one() -> None:
    """Each candidate behind the history gets what it gets alone, in any order."""
    layer = randomised(HSTULayer(CONFIGS["production"]).double())
    history, candidates = torch.randn(5, 6).double(), torch.randn(3, 6).double()

    def scores(order: list[int]) -> torch.Tensor:
        x = JaggedTensor.from_rows([torch.cat([history, candidates[order]])])
        result: torch.Tensor = layer(x, torch.tensor([len(order)])).values[5:]
        return result

    together = scores([0, 1, 2])
    torch.testing.assert_close(scores([2, 0, 1]), together[[2, 0, 1]])
    for index in range(3):
        torch.testing.assert_close(scores([index]), together[index : index + 1])


def test_the_scale_is_a_constant_of_the_model() -> None:
    """A row's result is the same beside a longer row and under another max_length of the batch."""
    layer = randomised(HSTULayer(CONFIGS["production"]).double())
    row, longer = torch.randn(3, 6).double(), torch.randn(9, 6).double()
    alone = layer(JaggedTensor.from_rows([row])).values
    beside = layer(JaggedTensor.from_rows([row, longer])).values[:3]
    torch.testing.assert_close(alone, beside)
    assert layer.attention.scale == 1 / 11


def test_the_longest_row_comes_from_the_batch_else_from_the_config() -> None:
    x = random_jagged([3, 2], 6)
    unknown = JaggedTensor(x.values, x.offsets)
    layer = HSTULayer(CONFIGS["production"])
    torch.testing.assert_close(layer(unknown).values, layer(x).values)
    config = dataclasses.replace(CONFIGS["production"], max_length=None, scale=0.1)
    layer = HSTULayer(config)
    layer(x)
    message = (
        "max_length must be known, got a jagged tensor without it: give it to the constructor of "
        r"JaggedTensor, or once for all to HSTUConfig\(max_length=...\)"
    )
    with pytest.raises(ValueError, match=message):
        layer(unknown)
    q = unknown.with_values(torch.randn(5, 2, 3))
    with pytest.raises(ValueError, match=message):
        layer.attention(q, q, q)


def test_dropout_is_on_what_the_output_reads() -> None:
    """Its mean is the evaluation's result, it differs by call, and a seed repeats it."""
    config = dataclasses.replace(CONFIGS["production"], dropout=0.4)
    layer = randomised(HSTULayer(config))
    x = random_jagged([4, 2], 6)
    layer.eval()
    want = layer(x).values.detach()
    layer.train()
    torch.manual_seed(1)
    first, second = layer(x).values, layer(x).values
    torch.manual_seed(1)
    assert torch.equal(layer(x).values, first)
    assert not torch.equal(first, second)
    with torch.no_grad():
        draws = torch.stack([layer(x).values for _ in range(1500)])
    error = (draws.mean(0) - want).abs() / (draws.std(0) / 1500**0.5)
    assert error.max() < 5.0  # standard errors of 36 means
    assert torch.equal(layer.eval()(x).values, want)


@pytest.mark.parametrize("name", ["research", "production"])
def test_u_q_k_and_v_are_views_of_one_product(name: str) -> None:
    layer = HSTULayer(CONFIGS[name])
    u, q, k, v = layer.project(torch.randn(5, 6))
    storage = q.untyped_storage().data_ptr()
    assert all(part.untyped_storage().data_ptr() == storage for part in (u, k, v))
    assert q.shape == (5, 2, 3)
    assert v.shape == (5, 2, 5)
    assert q.stride() == k.stride() == (32, 3, 1)
    assert v.stride() == (32, 5, 1)


@pytest.mark.parametrize("name", ["research", "production-group-norm"])
def test_autocast_runs_attention_in_bfloat16_and_the_residual_in_float32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    attention = jagged.ops.hstu_attention

    def spy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append((q.dtype, k.dtype, v.dtype))
        return attention(q, k, v, *args, **kwargs)

    monkeypatch.setattr(jagged.ops, "hstu_attention", spy)
    config = dataclasses.replace(CONFIGS[name], num_layers=2)
    stack = randomised(HSTUStack(config))
    x, times = batch(config)
    x = x.to(dtype=torch.float32)
    want = stack(x, torch.tensor(TARGETS), times).values
    with torch.autocast("cpu", torch.bfloat16):
        out = stack(x, torch.tensor(TARGETS), times).values
    assert seen == [(torch.float32,) * 3] * 2 + [(torch.bfloat16,) * 3] * 2
    assert out.dtype == torch.float32
    assert 0 < (out - want).norm() < 0.03 * (want - x.values).norm()


def test_autocast_casts_what_the_attention_gets() -> None:
    attention = modules.HSTUAttention(CONFIGS["production"])
    q, k = random_jagged(LENGTHS, 2, 3), random_jagged(LENGTHS, 2, 3, seed=1)
    v = random_jagged(LENGTHS, 2, 5, seed=2)
    want = attention(q, k, v).values
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(q, k.to(dtype=torch.bfloat16), v).values
    assert out.dtype == torch.bfloat16
    assert (out.float() - want).norm() < 0.02 * want.norm()


def test_a_bfloat16_model() -> None:
    for name in ("research", "production-group-norm"):
        layer = randomised(HSTULayer(CONFIGS[name]))
        x, times = batch(CONFIGS[name])
        want = layer(x.to(dtype=torch.float32), None, times).values
        layer = layer.to(torch.bfloat16)
        out = layer(x.to(dtype=torch.bfloat16), None, times).values
        assert out.dtype == torch.bfloat16
        assert (out.float() - want).norm() < 0.03 * want.norm()
        out.float().square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_checkpointed_layers_compile_in_one_graph() -> None:
    config = HSTUConfig.production(
        embedding_dim=8, num_heads=1, attention_dim=4, hidden_dim=4, max_length=9, num_layers=2
    )
    stack = HSTUStack(config).eval()

    def run(x: JaggedTensor) -> Tensor:
        for layer in stack.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x.values

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    for lengths in ([3, 0, 5, 2], [7, 1, 6]):
        x = random_jagged(lengths, 8)
        torch.testing.assert_close(compiled(x), run(x))


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # the backend's own
@pytest.mark.slow
def test_compiles_with_inductor() -> None:
    torch._dynamo.reset()
    layer = randomised(HSTULayer(CONFIGS["research"]))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for lengths in ([3, 0, 5], [8, 2, 1, 6]):
        x = random_jagged(lengths, 6, tail=2)
        times = torch.arange(x.values.shape[0]) * 1000
        want, out = layer(x, None, times).values, compiled(x, None, times).values
        torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)
        parameters = list(layer.parameters())
        want_grads = torch.autograd.grad(want.square().sum(), parameters)
        grads = torch.autograd.grad(out.square().sum(), parameters)
        for grad, want_grad in zip(grads, want_grads, strict=True):
            torch.testing.assert_close(grad, want_grad, rtol=1e-4, atol=1e-4)


def test_names_of_the_state() -> None:
    """Checkpoints depend on these."""
    affine = ["norm.weight", "norm.bias", "output_norm.weight", "output_norm.bias"]
    assert {n: tuple(p.shape) for n, p in HSTULayer(CONFIGS["research"]).state_dict().items()} == {
        "projection.weight": (32, 6),
        "attention.bias.position_table": (21,),
        "attention.bias.time_table": (129,),
        "output.weight": (6, 10),
        "output.bias": (6,),
    }
    names = ["projection.weight", "projection.bias", "output.weight", *affine]
    layer = HSTULayer(CONFIGS["production"])
    assert sorted(layer.state_dict()) == sorted(names)
    assert layer.state_dict()["output.weight"].shape == (6, 30)
    stack = HSTUStack(production(**SHAPE, num_layers=2))
    assert sorted(stack.state_dict()) == sorted(f"layers.{i}.{n}" for i in (0, 1) for n in names)
    assert list(modules.HSTUAttention(CONFIGS["research"]).state_dict()) == [
        "bias.position_table",
        "bias.time_table",
    ]


def test_initial_values() -> None:
    shape = {**SHAPE, "embedding_dim": 64, "attention_dim": 32, "hidden_dim": 32}
    layer = HSTULayer(research(**shape))
    assert layer.projection.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.attention.bias is not None
    assert layer.attention.bias.time_table is not None
    assert layer.attention.bias.time_table.std().item() == pytest.approx(0.02, rel=0.3)
    layer = HSTULayer(production(**shape))
    bound = (6 / (64 + 256)) ** 0.5
    assert 0.99 * bound < layer.projection.weight.abs().max() <= bound
    assert (layer.projection.bias == 0).all()
    bound = (6 / (64 + 192)) ** 0.5
    assert 0.99 * bound < layer.output.weight.abs().max() <= bound
    assert layer.norm.weight is not None
    assert (layer.norm.weight == 1).all()


def test_messages() -> None:
    x = random_jagged([3, 2], 6)
    times = torch.zeros(5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"x.values must have shape \[T, embedding_dim\]"):
        HSTULayer(CONFIGS["production"])(random_jagged([3], 5))
    with pytest.raises(ValueError, match=r"with a time_table: .* time_buckets=0 in HSTUConfig"):
        HSTULayer(CONFIGS["research"])(x)
    with pytest.raises(
        ValueError, match="timestamps must not be given to HSTU without a time bias"
    ):
        HSTULayer(CONFIGS["production"])(x, timestamps=times)
    with pytest.raises(ValueError, match=r"timestamps must not be given .* without a time table"):
        HSTULayer(CONFIGS["research-position-only"])(x, timestamps=times)
    with pytest.raises(ValueError, match="num_targets"):
        HSTULayer(CONFIGS["production"])(x, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(
        ValueError, match=r"window must be one int for a single layer, got \(1, 2\)"
    ):
        HSTULayer(production(**SHAPE, num_layers=2, window=(1, 2)))
    long = random_jagged([12], 6)
    with pytest.raises(ValueError, match="max_length"):
        HSTULayer(CONFIGS["research"])(long, timestamps=torch.arange(12))


def test_repr() -> None:
    text = repr(HSTUStack(production(**{**SHAPE, "dropout": 0.3}, num_layers=2, window=(4, 0))))
    assert "6, num_heads=2, attention_dim=3, hidden_dim=5, activation='u', concat_u=True" in text
    assert "dropout=0.3" in text
    assert "scale=0.09091, alpha=1/sqrt(D), window=4, contextual=0, min_full=0" in text
    assert "alpha=1, window=0" in repr(HSTULayer(CONFIGS["research"]))
    assert "RelativeBias(11, position=True, num_buckets=128, bucket='log', divisor=0.301)" in repr(
        HSTULayer(CONFIGS["research"])
    )
