"""One case an op: its inputs, its meaning, its work, its contenders and its shapes."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import baselines, operands, oracles, work
from bench import baselines_attention as attention
from bench import baselines_dense as dense
from bench import shapes as s
from bench.contenders import Contender, Prepare
from bench.inputs import Inputs, Operands
from bench.oracles import Kind, Meaning
from bench.ours import ours
from bench.shapes import Shape

ELEMENTS, ROWS, SHARED = Kind.ELEMENTS, Kind.ROWS, Kind.SHARED


@dataclass(frozen=True)
class Case:
    """Everything that is measured of one op; the first shape is the one of `--quick`."""

    op: str
    operands: Operands
    result: Callable[[Inputs], tuple[int, ...]]
    meaning: Meaning
    work: work.WorkOf
    baselines: tuple[Contender, ...]
    shapes: tuple[Shape, ...]
    small: Shape = s.SMALL
    call: Shape = s.CALL

    @property
    def contenders(self) -> tuple[Contender, ...]:
        return (*ours(self.op), *self.baselines)

    def meaning_of(self, contender: Contender) -> Meaning:
        """What the contender computes: the op, or the other mathematics it is labelled with."""
        if contender.mathematics == "softmax":
            return dataclasses.replace(self.meaning, formula=oracles.softmax_attention)
        return self.meaning


def _plain(provider: str, prepare: Prepare, **options: Any) -> Contender:
    return Contender(provider, prepare, **options)


def _compile(prepare: Prepare) -> Contender:
    return Contender("torch-compile", prepare, compiled=True)


def _scalar(inputs: Inputs) -> bool:
    return inputs.shape.features is None


_VALUES = {"values": ELEMENTS}
_VALUES_AND_DENSE = {"values": ELEMENTS, "dense": ROWS}

_POOLED = (*s.STANDARD, *s.SHORT, *s.TRITON, s.CELLS, s.SEQUENCE, s.EMPTY, s.SLOW_PATH)
_NORMED = (*s.STANDARD, *s.SHORT, *s.TRITON, s.SEQUENCE, s.EMPTY)
_ADDED = (*s.STANDARD, s.SHORT[0], s.SHORT[1], s.SEQUENCE, s.EMPTY, s.SLOW_PATH)
_CONVERTED = (*_ADDED, s.CELLS)
_PRODUCTS = (*s.STANDARD, *s.RECOMMENDERS_BMM, s.EMPTY)
_ATTENTION = (
    *s.ATTENTION_TARGETS,
    *s.ATTENTION_LENGTHS,
    *s.ATTENTION_FEATURES,
    *s.ATTENTION_RECOMMENDERS,
)

_CASES = (
    Case(
        "sum",
        operands.values,
        operands.by_row,
        Meaning(_VALUES, ROWS, oracles.row_sum),
        work.reduction,
        (
            _plain("fbgemm", baselines.fbgemm_sum),
            _plain("fbgemm-csr", baselines.fbgemm_csr, backward=False, fits=_scalar),
            _plain("torch-segment_reduce", baselines.segment_sum),
            _plain("torch-padded", baselines.padded_sum),
            _plain("torch-njt", baselines.nested_sum),
            _compile(baselines.compiled_sum),
        ),
        _POOLED,
    ),
    Case(
        "mean",
        operands.values,
        operands.by_row,
        Meaning(_VALUES, ROWS, oracles.row_mean),
        work.reduction,
        (
            _plain("torch-segment_reduce", baselines.segment_mean),
            _plain("torch-padded", baselines.padded_mean),
            _plain("torch-njt", baselines.nested_mean),
            _compile(baselines.compiled_mean),
        ),
        _POOLED,
    ),
    Case(
        "softmax",
        operands.values,
        operands.by_element,
        Meaning(_VALUES, ELEMENTS, oracles.softmax),
        work.softmax,
        (
            _plain("fbgemm", baselines.fbgemm_softmax),
            _plain("torch-segment_reduce", baselines.segment_softmax),
            _plain("torch-padded", baselines.padded_softmax),
            _plain("torch-njt", baselines.nested_softmax),
            _compile(baselines.compiled_softmax),
        ),
        _POOLED,
    ),
    Case(
        "layer_norm",
        operands.values,
        operands.by_element,
        Meaning(_VALUES, ELEMENTS, oracles.layer_norm),
        work.layer_norm,
        (
            _plain("torch-segment_reduce", baselines.segment_layer_norm),
            _plain("torch-padded", baselines.padded_layer_norm),
            _plain("torch-njt", baselines.nested_layer_norm),
            _compile(baselines.compiled_layer_norm),
        ),
        _NORMED,
    ),
    Case(
        "token_layer_norm",
        operands.affine,
        operands.by_element,
        Meaning(
            {"values": ELEMENTS, "weight": SHARED, "bias": SHARED},
            ELEMENTS,
            oracles.token_layer_norm,
        ),
        work.token_layer_norm,
        (
            _plain("torch-layer_norm", baselines.torch_token_layer_norm),
            _compile(baselines.compiled_token_layer_norm),
        ),
        _NORMED,
    ),
    Case(
        "norm_mul_dropout",
        operands.gated,
        operands.by_gate,
        Meaning(
            {"values": ELEMENTS, "u": ELEMENTS, "weight": SHARED, "bias": SHARED},
            ELEMENTS,
            oracles.norm_mul_dropout,
        ),
        work.norm_mul_dropout,
        (
            _plain("torch-layer_norm", baselines.torch_norm_mul_dropout),
            _compile(baselines.compiled_norm_mul_dropout),
        ),
        (*s.LAYERS, *s.STANDARD, s.SEQUENCE),
    ),
    Case(
        "dense_add",
        operands.with_cells,
        operands.by_element,
        Meaning(_VALUES_AND_DENSE, ELEMENTS, oracles.dense_add, oracles.padded_cells),
        work.dense_add,
        (
            _plain("fbgemm", dense.fbgemm_dense_add),
            _plain("torch-index", dense.index_dense_add),
            # Backward there is nothing to do for it, so nothing to time.
            _plain("torch-padded", dense.padded_dense_add, backward=False),
            _plain("torch-njt", dense.nested_dense_add),
            _compile(dense.compiled_dense_add),
        ),
        _ADDED,
    ),
    Case(
        "padded_add",
        operands.with_cells,
        operands.by_cell,
        Meaning(_VALUES_AND_DENSE, ROWS, oracles.padded_add, oracles.padded_cells),
        work.padded_add,
        (
            _plain("fbgemm", dense.fbgemm_padded_add),
            _plain("torch-index", dense.index_padded_add),
            _compile(dense.compiled_padded_add),
        ),
        _ADDED,
    ),
    Case(
        "row_add",
        operands.with_rows,
        operands.by_element,
        Meaning(_VALUES_AND_DENSE, ELEMENTS, oracles.row_add),
        work.row_add,
        (
            _plain("torch-index", dense.index_row_add),
            _plain("torch-njt", dense.nested_row_add),
            _compile(dense.compiled_row_add),
        ),
        _ADDED,
    ),
    Case(
        "to_padded",
        operands.values,
        operands.by_cell,
        Meaning(_VALUES, ROWS, oracles.to_padded, oracles.padded_cells),
        work.to_padded,
        (
            _plain("fbgemm", dense.fbgemm_to_padded),
            _plain("torch-index", dense.index_to_padded),
            _plain("torch-njt", dense.nested_to_padded),
            _compile(dense.compiled_to_padded),
        ),
        _CONVERTED,
    ),
    Case(
        "from_padded",
        operands.cells,
        operands.by_element,
        Meaning({"dense": ROWS}, ELEMENTS, oracles.from_padded, oracles.padded_cells),
        work.from_padded,
        (
            _plain("fbgemm", dense.fbgemm_from_padded),
            _plain("torch-index", dense.index_from_padded),
            _compile(dense.compiled_from_padded),
        ),
        _CONVERTED,
    ),
    Case(
        "dense_bmm",
        operands.matrices,
        operands.by_column,
        Meaning(
            {"values": ELEMENTS, "dense": ROWS, "bias": ROWS},
            ELEMENTS,
            oracles.dense_bmm,
            oracles.product_cells,
        ),
        work.dense_bmm,
        (
            _plain("fbgemm", dense.fbgemm_dense_bmm),
            _plain("torch-padded", dense.padded_dense_bmm),
            _plain("torch-njt", dense.nested_dense_bmm),
            _compile(dense.compiled_dense_bmm),
            _plain(
                "torch-grouped_mm",
                dense.grouped_dense_bmm,
                backward=False,
                cuda_only=True,
                fits=dense.fits_grouped,
            ),
        ),
        (*_PRODUCTS, *s.RECOMMENDERS_BIAS),
    ),
    Case(
        "jagged_bmm",
        operands.pair,
        operands.by_matrix,
        Meaning({"x": ELEMENTS, "y": ELEMENTS}, ROWS, oracles.jagged_bmm, oracles.product_cells),
        work.jagged_bmm,
        (
            _plain("fbgemm", dense.fbgemm_jagged_bmm),
            _plain("torch-padded", dense.padded_jagged_bmm),
            _plain("torch-njt", dense.nested_jagged_bmm),
            _compile(dense.compiled_jagged_bmm),
        ),
        _PRODUCTS,
    ),
    Case(
        "hstu_attention",
        operands.heads,
        operands.like_v,
        Meaning(
            {
                "q": ELEMENTS,
                "k": ELEMENTS,
                "v": ELEMENTS,
                "position_table": SHARED,
                "time_table": SHARED,
            },
            ELEMENTS,
            oracles.hstu_attention,
            oracles.attention_cells,
        ),
        work.hstu_attention,
        (
            _plain("torch-padded", attention.padded_attention),
            _compile(attention.compiled_attention),
            _plain(
                "torch-varlen (softmax)",
                attention.varlen,
                cuda_only=True,
                mathematics="softmax",
                fits=attention.fits_varlen,
            ),
        ),
        _ATTENTION,
        s.ATTENTION_SMALL,
        s.ATTENTION_CALL,
    ),
)
CASES = {case.op: case for case in _CASES}
