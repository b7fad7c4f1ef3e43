"""The fbgemm-named functions against fbgemm itself, and its kernels replaced by ours."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import fbgemm_gpu  # noqa: F401

from jagged import JaggedTensor, ops
from jagged.interop import fbgemm
from jagged.interop.fbgemm_dispatch import install_fbgemm_kernels
from jagged.testing import random_jagged

LENGTHS = [3, 0, 1, 4, 0]
ROWS, LONGEST = 5, 4
OFFSETS_DTYPES = [torch.int32, torch.int64]


def inputs(*trailing: int, dtype: torch.dtype = torch.int64) -> tuple[Tensor, Tensor]:
    x = random_jagged(LENGTHS, *trailing, offsets_dtype=dtype)
    return x.values, x.offsets


def dense(*shape: int) -> Tensor:
    return torch.randn(*shape)


# Name, what it is called with for a bound of N, and which arguments get gradients.
CASES: dict[str, Callable[[int, torch.dtype], list[Any]]] = {
    "jagged_to_padded_dense": lambda n, t: [(i := inputs(3, dtype=t))[0], [i[1]], [n], 0.5],
    "jagged_2d_to_dense": lambda n, t: [*inputs(3, dtype=t), n],
    "jagged_1d_to_dense": lambda n, t: [*inputs(dtype=t), n, 2],
    "dense_to_jagged": lambda n, t: [dense(ROWS, n, 3), [inputs(dtype=t)[1]], sum(LENGTHS)],
    "jagged_dense_elementwise_add_jagged_output": lambda n, t: [
        (i := inputs(3, dtype=t))[0],
        [i[1]],
        dense(ROWS, n, 3),
    ],
    "jagged_dense_dense_elementwise_add_jagged_output": lambda n, t: [
        (i := inputs(3, dtype=t))[0],
        [i[1]],
        dense(ROWS, n, 3),
        dense(ROWS, n, 3),
    ],
    "jagged_softmax": lambda n, t: [*inputs(3, dtype=t), n],
    "jagged_jagged_bmm": lambda n, t: [inputs(3)[0], torch.randn(8, 2), inputs(dtype=t)[1], n],
    "jagged_dense_bmm": lambda n, t: [*inputs(3, dtype=t), dense(ROWS, 3, 2), n],
}


def results(function: Callable[..., Any], arguments: list[Any]) -> list[Tensor]:
    """The values and the gradients of every floating argument, for a fixed upstream gradient."""
    leaves = [
        a.clone().requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a
        for a in arguments
    ]
    out = function(*leaves)
    values = out[0] if isinstance(out, (tuple, list)) else out
    weights = torch.linspace(-1, 1, values.numel()).reshape(values.shape)
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    return [values, *torch.autograd.grad((values * weights).sum(), wanted)]


def zero_what_fbgemm_leaves(name: str, bound: int, found: list[Tensor]) -> list[Tensor]:
    """fbgemm's softmax leaves elements past the bound uninitialised, result and gradient."""
    if name != "jagged_softmax":
        return found
    position = torch.cat([torch.arange(n) for n in LENGTHS])[:, None]
    return [torch.where(position < bound, one, 0) for one in found]


@pytest.mark.parametrize("offsets_dtype", OFFSETS_DTYPES)
@pytest.mark.parametrize("bound", [LONGEST // 2, LONGEST, 2 * LONGEST])
@pytest.mark.parametrize("name", CASES)
def test_functions_agree_with_fbgemm(name: str, bound: int, offsets_dtype: torch.dtype) -> None:
    arguments = CASES[name](bound, offsets_dtype)
    got = results(getattr(fbgemm, name), arguments)
    want = results(getattr(torch.ops.fbgemm, name), arguments)
    want = zero_what_fbgemm_leaves(name, bound, want)
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered:UserWarning")
@pytest.mark.parametrize("bound", [2, 4, 8])
def test_dense_output_addition_agrees_with_fbgemm(bound: int) -> None:
    values, offsets = inputs(3)
    arguments = [values, [offsets], dense(ROWS, bound, 3)]
    got = results(fbgemm.jagged_dense_elementwise_add, arguments)
    want = results(torch.ops.fbgemm.jagged_dense_elementwise_add, arguments)
    with install_fbgemm_kernels(cuda=False, cpu=True):
        replaced = results(torch.ops.fbgemm.jagged_dense_elementwise_add, arguments)
    for ours, through, theirs in zip(got, replaced, want, strict=True):
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(through, theirs)


@pytest.mark.parametrize("bound", [LONGEST // 2, LONGEST, 2 * LONGEST])
@pytest.mark.parametrize("name", CASES)
def test_installed_kernels_give_the_same(name: str, bound: int) -> None:
    arguments = CASES[name](bound, torch.int64)
    operator = getattr(torch.ops.fbgemm, name)
    want = zero_what_fbgemm_leaves(name, bound, results(operator, arguments))
    with install_fbgemm_kernels(cuda=False, cpu=True):
        got = results(operator, arguments)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_installed_kernels_run_and_are_given_back() -> None:
    """float64, which fbgemm refuses and this library takes, tells whose kernel runs."""
    values, offsets = inputs(3)
    values = values.double()
    with pytest.raises(RuntimeError, match="not implemented for 'Double'"):
        torch.ops.fbgemm.jagged_softmax(values, offsets, 4)
    with install_fbgemm_kernels(cuda=False, cpu=True) as installed:
        assert "jagged_softmax_forward on CPU" in installed.replaced
        assert "installed" in repr(installed)
        assert torch.ops.fbgemm.jagged_softmax(values, offsets, 4)[0].dtype == torch.float64
        with pytest.raises(RuntimeError, match="replaced already"):
            install_fbgemm_kernels(cuda=False, cpu=True)
    installed.uninstall()
    with pytest.raises(RuntimeError, match="not implemented for 'Double'"):
        torch.ops.fbgemm.jagged_softmax(values, offsets, 4)


def test_what_has_no_op_here_goes_on_to_fbgemm() -> None:
    values = torch.randn(8, 2)
    nested = [torch.tensor([0, 2, 3]), torch.tensor([0, 3, 5, 8])]
    whole, offsets = torch.arange(8)[:, None], [torch.tensor([0, 3, 8])]
    added = torch.ones(2, 5, 1, dtype=torch.int64)
    pad = torch.ops.fbgemm.jagged_to_padded_dense
    add = torch.ops.fbgemm.jagged_dense_elementwise_add
    want = pad(values, nested, [2, 3]), add(whole, offsets, added)
    with install_fbgemm_kernels(cuda=False, cpu=True):
        assert torch.equal(pad(values, nested, [2, 3]), want[0])
        assert torch.equal(add(whole, offsets, added), want[1])


def test_installed_kernels_take_any_strides_and_empty_widths() -> None:
    _, offsets = inputs()
    strided = torch.randn(3, 8).t()
    want = torch.ops.fbgemm.jagged_to_padded_dense(strided.contiguous(), [offsets], [4])
    with install_fbgemm_kernels(cuda=False, cpu=True):
        got = torch.ops.fbgemm.jagged_to_padded_dense(strided, [offsets], [4])
        empty = torch.ops.fbgemm.jagged_to_padded_dense(torch.zeros(8, 0), [offsets], [4])
        large = torch.ops.fbgemm.jagged_to_padded_dense(torch.ones(8, 1), [offsets], [70_000])
    assert torch.equal(got, want)
    assert empty.shape == (5, 4, 0)
    assert int(large.sum()) == 8


@pytest.mark.parametrize("name", CASES)
def test_functions_take_any_strides(name: str) -> None:
    arguments = CASES[name](LONGEST, torch.int64)
    function = getattr(fbgemm, name)
    for want, got in zip(
        results(function, arguments),
        results(lambda *args: function(*map(interleaved, args)), arguments),
        strict=True,
    ):
        assert torch.equal(want, got)


def interleaved(x: Any) -> Any:
    """A view with stride 2 in its last dimension."""
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        return x
    view = torch.stack([x, x], -1)[..., 0]
    assert view.stride(-1) == 2
    return view


def test_installed_kernels_compile() -> None:
    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def pooled(values: Tensor, offsets: Tensor) -> Tensor:
        weights, _ = torch.ops.fbgemm.jagged_softmax(values, offsets, 4)
        padded = torch.ops.fbgemm.jagged_to_padded_dense(weights * values, [offsets], [4])
        return padded.sum(1)

    values, offsets = inputs(3)
    want = results(pooled, [values, offsets])
    with install_fbgemm_kernels(cuda=False, cpu=True):
        got = results(pooled, [values, offsets])
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_has_no_function_has_another_way() -> None:
    """As the module's docstring says."""
    (values, offsets), peer = inputs(3), torch.ops.fbgemm
    x = JaggedTensor(values, offsets)
    lengths, total = x.lengths(), values.shape[0]
    pairs = []
    y = dense(ROWS, LONGEST - 1, 3)
    product = values * ops.from_padded(y, offsets, total)
    pairs.append((product, peer.jagged_dense_elementwise_mul(values, [offsets], y)[0]))
    rows = torch.tensor([3, 0, 3])
    pairs.append((x.select(rows).values, peer.jagged_index_select(values, lengths, rows)[0]))
    v = dense(ROWS, LONGEST)
    weighted = ops.jagged_bmm(ops.from_padded(v, offsets, total)[:, None], values, offsets)
    pairs.append((weighted[:, 0], peer.batched_dense_vec_jagged_2d_mul(v, values, offsets)))
    numbers = values[:, 0].contiguous()
    one = JaggedTensor(numbers, offsets)
    pairs.append((ops.sum(numbers, offsets), peer.segment_sum_csr(1, offsets, numbers)))
    first = one.split(torch.full((ROWS,), 2))[0].values
    pairs.append((first, peer.jagged_1d_to_truncated_values(numbers, lengths, 2)))
    rest = one.split(torch.ones_like(lengths))[1]
    sliced = peer.jagged_slice(numbers, lengths, lengths.clamp(max=1), LONGEST)[0]
    pairs.append((rest.values, sliced))
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


def test_what_is_refused() -> None:
    values, offsets = inputs(3)
    with pytest.raises(ValueError, match=r"a list of one tensor .* got a tensor"):
        fbgemm.jagged_to_padded_dense(values, offsets, [4])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 2 entries"):
        fbgemm.jagged_to_padded_dense(values, [offsets, offsets], [4])
    with pytest.raises(ValueError, match="total_L must not be negative"):
        fbgemm.dense_to_jagged(dense(ROWS, 4, 3), [offsets], -1)
    with pytest.raises(RuntimeError, match="no kernel for no device to replace"):
        install_fbgemm_kernels(cuda=False, cpu=False)
