"""Every contender computes what the op means: a wrong baseline would be a straw man."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bench import measure
from bench.cases import CASES, Case
from bench.check import Wrong, relative_error
from bench.contenders import Contender
from bench.inputs import Inputs, Maker, make_inputs
from bench.oracles import exact
from bench.shapes import ATTENTION_FEATURES, SHORT, Shape

CPU = torch.device("cpu")
LENGTHS = torch.tensor([3, 0, 5, 1, 0, 4])

# What torch 2.13 gets wrong or refuses: listed without a time in the results.
KNOWN = {
    ("sum", "torch-njt"): "_nested_sum_backward",
    ("mean", "torch-njt"): "SymIntArrayRef",
    ("layer_norm", "torch-njt"): "SymIntArrayRef",
    # The backward pass normalises over the features instead of the row.
    ("softmax", "torch-njt"): "gradient of values",
    ("dense_add", "torch-njt"): "invalid gradient",
}


def tiny(shape: Shape, **changes: object) -> Shape:
    small = dataclasses.replace(shape, rows=6, longest=6, columns=2, features=3)
    if shape.attention is not None:
        options = dataclasses.replace(shape.attention, heads=2, value_features=4)
        small = dataclasses.replace(small, attention=options)
    return dataclasses.replace(small, **changes)  # type: ignore[arg-type]


def check(case: Case, contender: Contender, inputs: Inputs, backward: bool) -> float:
    """Prepare and hold against the oracle, as the benchmark does before it times."""
    dtype = inputs.leaves[0].dtype
    grad = Maker(dtype, CPU, 1)(*case.result(inputs))
    right = exact(case.meaning_of(contender), inputs, grad, case.result(inputs))
    with measure.quiet():
        prepared = contender.prepare(inputs.with_grad() if backward else inputs)
        run, error = measure.check(prepared, inputs, grad, right, backward)
        again = run()
    assert again is not None
    return error


EVERY = [
    pytest.param(case, contender, backward, id=f"{op}-{contender.provider}-{mode}")
    for op, case in CASES.items()
    for contender in case.contenders
    if not contender.cuda_only
    for mode, backward in (("forward", False), ("backward", True))
    if contender.backward or not backward
]


@pytest.mark.parametrize(("case", "contender", "backward"), EVERY)
def test_a_contender_agrees_with_the_oracle(
    case: Case, contender: Contender, backward: bool
) -> None:
    shape = tiny(case.small)
    if contender.provider == "fbgemm-csr":
        shape = dataclasses.replace(shape, features=None)
    inputs = make_inputs(case.operands, shape, torch.float32, CPU, LENGTHS)
    reason = KNOWN.get((case.op, contender.provider)) if backward else None
    if reason is not None:
        with pytest.raises((RuntimeError, Wrong), match=reason):
            check(case, contender, inputs, backward)
        return
    assert check(case, contender, inputs, backward) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("case", "contender", "backward"), EVERY)
def test_a_contender_agrees_in_half_precision(
    case: Case, contender: Contender, backward: bool, dtype: torch.dtype
) -> None:
    if backward and (case.op, contender.provider) in KNOWN:
        return
    shape = tiny(case.small, bias=case.op == "dense_bmm")
    if contender.provider == "fbgemm-csr":
        shape = dataclasses.replace(shape, features=None)
    inputs = make_inputs(case.operands, shape, dtype, CPU, LENGTHS)
    check(case, contender, inputs, backward)


@pytest.mark.parametrize("op", ["sum", "mean", "softmax", "to_padded", "from_padded"])
def test_contenders_take_one_number_an_element_and_int32_offsets(op: str) -> None:
    case = CASES[op]
    shape = tiny(case.small, features=None, offsets_dtype=torch.int32)
    inputs = make_inputs(case.operands, shape, torch.float32, CPU, LENGTHS)
    for contender in case.contenders:
        assert check(case, contender, inputs, backward=False) < 1e-5, contender.provider


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("shape", ATTENTION_FEATURES, ids=lambda shape: shape.name)
@pytest.mark.parametrize(
    "contender",
    [c for c in CASES["hstu_attention"].contenders if not c.cuda_only],
    ids=lambda contender: contender.provider,
)
def test_attention_contenders_know_every_feature(
    contender: Contender, shape: Shape, backward: bool
) -> None:
    case = CASES["hstu_attention"]
    inputs = make_inputs(case.operands, tiny(shape), torch.float32, CPU, LENGTHS)
    assert check(case, contender, inputs, backward) < 1e-5


def test_varlen_takes_part_only_where_it_computes_the_same_products() -> None:
    case = CASES["hstu_attention"]
    (varlen,) = (c for c in case.contenders if c.mathematics)
    assert varlen.provider == "torch-varlen (softmax)"
    fitting = {
        shape.name
        for shape in ATTENTION_FEATURES
        if varlen.fits(
            make_inputs(
                case.operands,
                dataclasses.replace(shape, rows=6, longest=6),
                torch.bfloat16,
                CPU,
                LENGTHS,
            )
        )
    }
    assert fitting == {"feature-fused", "feature-d32", "feature-d256", "feature-d8"}


def test_a_padded_attention_that_would_starve_the_others_is_refused() -> None:
    case = CASES["hstu_attention"]
    (contender,) = (c for c in case.contenders if c.provider == "torch-padded")
    inputs = make_inputs(
        case.operands, tiny(case.small, longest=2**17), torch.float32, CPU, LENGTHS
    )
    with pytest.raises(MemoryError, match="B H N N"):
        contender.prepare(inputs)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x[:-1], r"shape \[5, 3\], expected \[6, 3\]"),
        (lambda x: torch.where(x == x[2, 1], torch.nan, x), "relative error of nan"),
        (lambda x: x * 1.01, "relative error of 1.0e-02, allowed 1e-03"),
    ],
)
def test_a_wrong_result_is_refused(spoil: Callable[[Tensor], Tensor], message: str) -> None:
    right = torch.randn(6, 3, dtype=torch.float64)
    assert relative_error("result", right.float(), right, torch.float32) < 1e-6
    with pytest.raises(Wrong, match=message):
        relative_error("result", spoil(right), right, torch.float32)


def test_a_single_lost_row_of_thousands_is_refused_in_bfloat16() -> None:
    right = torch.randn(8192, 16, dtype=torch.float64)
    spoiled = right.clone()
    spoiled[77] = 0
    with pytest.raises(Wrong, match="an element that is off"):
        relative_error("result", spoiled.bfloat16(), right, torch.bfloat16)


@pytest.mark.parametrize("op", CASES)
def test_every_op_is_compared_with_torch_compile(op: str) -> None:
    (contender,) = (c for c in CASES[op].contenders if c.compiled)
    assert contender.provider == "torch-compile"
    assert any(torch.bfloat16 in shape.compiled for shape in CASES[op].shapes)


def test_shapes_are_the_same_everywhere_and_as_large_as_they_say() -> None:
    for op, case in CASES.items():
        names = [shape.name for shape in (*case.shapes, case.small, case.call)]
        assert len(set(names)) == len(names), op
        for shape in case.shapes:
            lengths = shape.lengths()
            assert torch.equal(lengths, shape.lengths())
            assert lengths.shape == (shape.rows,)
            assert int(lengths.min()) >= 0
            assert int(lengths.max()) <= shape.longest
    for shape in SHORT:
        assert 1e6 < int(shape.lengths().sum()) < 2.2e6
