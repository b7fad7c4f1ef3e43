"""What every layer promises, whatever it computes."""

import copy
import io
import pickle
import random

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from jagged import JaggedTensor, modules
from jagged.interop.nested import to_nested
from jagged.testing import random_jagged
from tests.modules.catalogue import CASES, NAMES, SHAPE, Batch, Case, call, is_jagged

LENGTHS = [3, 0, 5, 1]
every_layer = pytest.mark.parametrize("case", CASES, ids=NAMES)


def gradients(layer: nn.Module, batch: Batch, kept: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The first `kept` entries of the result, and the gradients of a random sum of them."""
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in batch.leaves().items()}
    parameters = dict(layer.named_parameters())
    out = call(layer, batch.with_leaves(leaves))
    generator = torch.Generator().manual_seed(9)
    weight = torch.randn(kept, *out.shape[1:], generator=generator, dtype=torch.float64)
    (out[:kept] * weight.to(out.dtype)).sum().backward()
    found = {**leaves, **parameters}
    return out.detach(), {name: t.grad for name, t in found.items() if t.grad is not None}


@every_layer
def test_what_the_tail_holds_reaches_no_result_and_no_gradient(case: Case) -> None:
    layer, total = case.layer(torch.float64), sum(LENGTHS)
    plain = case.batch(LENGTHS, torch.float64)
    kept = total if is_jagged(layer, plain) else len(LENGTHS)
    want, want_grads = gradients(layer, plain, kept)
    layer.zero_grad()
    out, grads = gradients(layer, case.batch(LENGTHS, torch.float64, tail=3), kept)
    torch.testing.assert_close(out[:kept], want, rtol=1e-12, atol=1e-12)
    assert (out[kept:] == 0).all()
    assert grads.keys() == want_grads.keys()
    for name, grad in want_grads.items():
        torch.testing.assert_close(grads[name][: grad.shape[0]], grad, rtol=1e-10, atol=1e-12)
        assert (grads[name][grad.shape[0] :] == 0).all(), name


@every_layer
def test_a_nan_gradient_of_the_tail_reaches_nothing(case: Case) -> None:
    layer, total = case.layer(), sum(LENGTHS)
    batch = case.batch(LENGTHS, tail=3)
    if not is_jagged(layer, batch):
        return  # one entry a row: such a result has no tail
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in batch.leaves().items()}
    out = call(layer, batch.with_leaves(leaves))
    grad = torch.ones_like(out)
    grad[total:] = torch.nan
    out.backward(grad)
    for name, tensor in {**leaves, **dict(layer.named_parameters())}.items():
        assert tensor.grad is not None, name
        assert tensor.grad.isfinite().all(), name


@every_layer
@pytest.mark.parametrize("lengths", [[], [0, 0], [0, 4, 0]], ids=["B=0", "T=0", "empty-rows"])
@pytest.mark.parametrize("tail", [0, 2])
def test_batches_without_rows_or_elements(case: Case, lengths: list[int], tail: int) -> None:
    layer = case.layer()
    batch = case.batch(lengths, tail=tail)
    jagged = is_jagged(layer, batch)
    kept = sum(lengths) if jagged else len(lengths)
    out, grads = gradients(layer, batch, kept)
    assert out.shape[0] == (sum(lengths) + tail if jagged else len(lengths))
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads.values())
    if sum(lengths) == 0 and "padded" not in case.name:  # there the result is `dense`
        assert (out == 0).all()
        assert all((grad == 0).all() for grad in grads.values())


@every_layer
def test_a_row_does_not_depend_on_the_rows_beside_it(case: Case) -> None:
    layer = case.layer(torch.float64)
    batch = case.batch(LENGTHS, torch.float64)
    jagged, out = is_jagged(layer, batch), call(layer, batch)
    bounds = batch.arguments["x"].offsets.tolist() if jagged else list(range(len(LENGTHS) + 1))
    for index in range(len(LENGTHS)):
        alone = call(layer, batch.row(index))
        rows = out[bounds[index] : bounds[index + 1]]
        torch.testing.assert_close(alone, rows, rtol=1e-12, atol=1e-12)

    # Other values in all rows but the third leave the third as it is, bit by bit.
    other = case.batch(LENGTHS, torch.float64, seed=50)
    mixed = {}
    for name, leaf in batch.leaves().items():
        per_row = batch.kinds[name] == "row"
        third = slice(2, 3) if per_row else slice(3, 8)
        mixed[name] = other.leaves()[name].clone()
        mixed[name][third] = leaf[third]
    third = slice(bounds[2], bounds[3])
    assert torch.equal(call(layer, batch.with_leaves(mixed))[third], out[third])


@every_layer
def test_what_is_no_jagged_tensor(case: Case) -> None:
    layer, batch = case.layer(), case.batch(LENGTHS)
    x = batch.arguments["x"]
    for got, name in (
        (x.values, r"torch\.Tensor"),
        ((x.values, x.offsets), "tuple"),
        (to_nested(x), "a nested tensor"),
        (random.Random(), r"random\.Random"),
        (None, "NoneType"),
    ):
        message = rf"x must be a jagged\.JaggedTensor, got {name}: build .*\(values, offsets\)"
        with pytest.raises(TypeError, match=message):
            layer(**{**batch.arguments, "x": got})


def test_attention_of_what_does_not_fit() -> None:
    layer = modules.HSTUAttention(modules.HSTUConfig.production(**SHAPE))
    q, v = random_jagged(LENGTHS, 2, 3), random_jagged(LENGTHS, 2, 4)
    for arguments, name in (
        ((q.values, q, v), "q"),
        ((q, q.values, v), "k"),
        ((q, q, v.values), "v"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be a jagged"):
            layer(*arguments)
    with pytest.raises(ValueError, match=r"v must have as many rows as q \(4\), got 2"):
        layer(q, q, random_jagged([4, 5], 2, 4))


@every_layer
def test_shapes_without_memory(case: Case) -> None:
    """On the meta device, where one asks for sizes and counts operations."""
    layer, batch = case.layer(), case.batch(LENGTHS, tail=1)
    want = call(layer, batch)
    arguments = {name: value.to("meta") for name, value in batch.arguments.items()}
    out = call(layer.to("meta"), Batch(arguments, batch.kinds))
    assert out.is_meta
    assert (out.shape, out.dtype) == (want.shape, want.dtype)


@every_layer
def test_int32_offsets(case: Case) -> None:
    layer = case.layer()
    wide = case.batch(LENGTHS, tail=1)
    narrow = case.batch(LENGTHS, tail=1, offsets_dtype=torch.int32)
    assert torch.equal(call(layer, narrow), call(layer, wide))


@every_layer
def test_autocast(case: Case) -> None:
    """float32 parameters, bfloat16 products: near the float32 result, gradients in float32."""
    layer, batch = case.layer(), case.batch(LENGTHS, tail=2)
    kept = sum(LENGTHS) if is_jagged(layer, batch) else len(LENGTHS)
    want, want_grads = gradients(layer, batch, kept)
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out, grads = gradients(layer, batch, kept)
    assert out.isfinite().all()
    assert (out.float() - want).norm() <= 0.02 * want.norm()
    assert grads.keys() == want_grads.keys()
    for name, grad in grads.items():
        assert grad.dtype == want_grads[name].dtype, name
        error = (grad - want_grads[name]).norm()
        assert error <= 0.1 * want_grads[name].norm() + 1e-6, f"{name}: {error}"


@every_layer
def test_bfloat16_values_under_autocast(case: Case) -> None:
    """What a product of an earlier layer hands on, beside float32 parameters."""
    layer, batch = case.layer(), case.batch(LENGTHS)
    want = call(layer, batch)
    narrow = {
        name: leaf.to(torch.bfloat16) if batch.kinds[name] == "jagged" else leaf
        for name, leaf in batch.leaves().items()
    }
    with torch.autocast("cpu", torch.bfloat16):
        out = call(layer, batch.with_leaves(narrow))
    assert (out.float() - want).norm() <= 0.05 * want.norm()


@every_layer
def test_gradients_of_any_subset(case: Case) -> None:
    """One tensor that requires a gradient gets the one it gets beside all others."""
    layer, batch = case.layer(torch.float64), case.batch(LENGTHS, torch.float64)
    kept = sum(LENGTHS) if is_jagged(layer, batch) else len(LENGTHS)
    _, want = gradients(layer, batch, kept)
    layer.zero_grad()
    layer.requires_grad_(False)
    for name in want:
        leaves = {key: leaf.clone() for key, leaf in batch.leaves().items()}
        only = leaves.get(name)
        if only is None:
            only = layer.get_parameter(name)
        only.requires_grad_(True)
        out = call(layer, batch.with_leaves(leaves))
        generator = torch.Generator().manual_seed(9)
        weight = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        (grad,) = torch.autograd.grad((out * weight).sum(), only)
        torch.testing.assert_close(grad, want[name], rtol=1e-12, atol=1e-12)
        only.requires_grad_(False)


@every_layer
def test_compiles_once_for_all_lengths(case: Case) -> None:
    graphs, first = [], 0

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    layer = case.layer()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=count)
    # No two sizes of the first batch are equal: torch would take them for one and the same.
    for lengths in ([3, 0, 5, 2, 1, 4, 0, 2, 6], [7, 1, 6], [2, 2, 8, 0, 4, 5]):
        batch = case.batch(lengths, tail=2)
        kept = sum(lengths) if is_jagged(layer, batch) else len(lengths)
        want, want_grads = gradients(layer, batch, kept)
        layer.zero_grad()
        out, grads = gradients(compiled, batch, kept)
        layer.zero_grad()
        first = first or len(graphs)  # torch starts over inside the first call for some layers
        assert len(graphs) == first
        torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-6)
        by_name = {name.removeprefix("_orig_mod."): grad for name, grad in grads.items()}
        assert by_name.keys() == want_grads.keys()
        for name, grad in want_grads.items():
            torch.testing.assert_close(by_name[name], grad, rtol=1e-4, atol=1e-5)


@every_layer
def test_exports_for_any_numbers_of_rows_and_elements(case: Case) -> None:
    layer = case.layer().eval()
    batch = case.batch([3, 0, 5, 2, 1, 4], tail=2)
    any_size = {0: Dim.DYNAMIC}
    free = {
        name: [any_size, any_size] if isinstance(value, JaggedTensor) else any_size
        for name, value in batch.arguments.items()
    }
    exported = torch.export.export(
        layer, (), batch.arguments, dynamic_shapes=free, strict=False
    ).module()
    for lengths in ([7, 1, 6], [2, 2, 8, 0, 4, 5, 1]):
        batch = case.batch(lengths)
        torch.testing.assert_close(call(exported, batch), call(layer, batch))


@every_layer
def test_copies_compute_the_same(case: Case) -> None:
    layer, batch = case.layer(), case.batch(LENGTHS)
    want = call(layer, batch)
    assert torch.equal(call(copy.deepcopy(layer), batch), want)
    assert torch.equal(call(pickle.loads(pickle.dumps(layer)), batch), want)

    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = case.layer()
    for parameter in fresh.parameters():
        nn.init.constant_(parameter, 7.0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(call(fresh, batch), want)


@every_layer
def test_float64_is_as_float32(case: Case) -> None:
    single, double = case.layer(), case.layer(torch.float64)
    out = call(single, case.batch(LENGTHS))
    want = call(double, case.batch(LENGTHS, torch.float64))
    assert want.dtype == torch.float64
    torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=1e-5)


@every_layer
def test_reset_parameters_repeats_the_initial_values(case: Case) -> None:
    layer = case.layer()
    if not hasattr(layer, "reset_parameters"):
        assert list(layer.parameters()) == []
        return
    torch.manual_seed(5)
    layer.reset_parameters()
    first = {name: value.clone() for name, value in layer.state_dict().items()}
    for parameter in layer.parameters():
        nn.init.constant_(parameter, torch.nan)
    torch.manual_seed(5)
    layer.reset_parameters()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, first[name]), name


def test_a_layer_is_built_where_it_is_told() -> None:
    config = modules.HSTUConfig.research(
        embedding_dim=4, num_heads=2, attention_dim=2, hidden_dim=2, max_length=5, norm_affine=True
    )
    place = {"device": "meta", "dtype": torch.float16}
    layers = [
        modules.AttentionPooling(4, **place),
        modules.JaggedLayerNorm(4, **place),
        modules.TokenLayerNorm(4, **place),
        modules.HeadLayerNorm(4, **place),
        modules.JaggedLinear(4, 3, **place),
        modules.PerRowLinear(4, 3, 2, **place),
        modules.PositionEncoder(4, 3, **place),
        modules.TimestampEncoder(4, 3, **place),
        modules.RelativeBias(4, **place),
        modules.HSTUAttention(config, **place),
        modules.HSTULayer(config, **place),
        modules.HSTUStack(config, **place),
    ]
    for layer in layers:
        parameters = dict(layer.named_parameters())
        assert parameters, type(layer).__name__
        for name, parameter in parameters.items():
            assert (parameter.device.type, parameter.dtype) == ("meta", torch.float16), name
