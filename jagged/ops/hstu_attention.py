"""HSTU attention: pointwise SiLU attention inside each row, with the masks of recommenders.

Symbols: B rows, T elements (capacity included), H heads, D features of q and k, V of v, n the
length of a row.
"""

from typing import Any

import torch
from torch import Tensor

from jagged import checks
from jagged.attention import BucketedBias, HSTUMask
from jagged.ops._library import needs_gradient, operator, record, unit_last_stride

_CAUSAL = HSTUMask()
_NO_BIAS = BucketedBias()


def hstu_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    *,
    max_length: int,
    scale: float | Tensor,
    alpha: float | None = None,
    mask: HSTUMask = _CAUSAL,
    num_targets: Tensor | None = None,
    bias: BucketedBias | None = None,
) -> Tensor:
    """Attention with SiLU in place of softmax, in every row for itself.

    Per head::

        S = alpha * q kᵀ + bias
        P = silu(S) * M * scale          no normalisation over the keys
        O = P v

    Args:
        q, k: [T, H, D], float32, bfloat16, float16 (float64 on the CPU); stride(-1) == 1, any other
            strides: the views that `split` makes of one projection need no copy.
        v: [T, H, V], dtype and device of `q`; V may differ from D. Both may be any number, up to
            256 on a GPU.
        offsets: [B + 1], int32 or int64, on the device of `q`.
        max_length: an upper bound of the row lengths; 0 is legal. Of a longer row the first
            `max_length` elements attend to one another, under the mask of the whole row; its other
            elements give 0 and get gradient 0.
        scale: a constant of the model, e.g. 1 / its longest row; or [T], one factor an element as
            query, in the dtype of `q`, or float32 beside a 16-bit `q`. It gets no gradient.
        alpha: the factor of q kᵀ; None for 1 / sqrt(D).
        mask: which keys a query sees: causal always, a window, context. `HSTUMask.picture` draws
            it.
        num_targets: [B], int32 or int64: how many elements at the end of a row are targets,
            which see the history and themselves, and which nobody else sees. Taken as 0..n.
        bias: relative position and time bias, for all heads; its tables get gradients.

    Returns:
        [T, H, V] in the dtype of `v`; 0 past `offsets[-1]`, where nothing is read. An empty row has
        no elements and so no result. Scores and sums are float32 (float64 for float64); P is
        rounded to the dtype of `v` before the second product, in the gradient of `v` as well.
        Deterministic, but for the gradients of the tables of `bias` on a GPU. The rows beside a row
        do not enter its result: how it is scaled, padded and cut depends on that row alone. A NaN
        or inf may spread over its row, never to another.

    Raises:
        TypeError, ValueError: an argument has a wrong dtype, rank, shape, stride or device;
            `max_length` is negative or beyond the position table; `scale` requires a gradient.

    Example:
        >>> x = torch.ones(5, 1, 1)
        >>> out = jagged.ops.hstu_attention(
        ...     x, x, x, torch.tensor([0, 2, 2, 5]), max_length=3, scale=1 / 4, alpha=1.0
        ... )
        >>> [round(number, 5) for number in out.flatten().tolist()]
        [0.18276, 0.36553, 0.18276, 0.36553, 0.54829]

    Source: Zhai et al., "Actions Speak Louder than Words", arXiv 2402.17152, equation 2; masks as
    in the implementation published with it.
    """
    _check_operands(q, k, v, offsets)
    checks.length("max_length", max_length)
    scale_per_query = None
    if isinstance(scale, Tensor):
        _check_scale_per_query(scale, q)
        scale_per_query = scale
        scale = 1.0
    elif isinstance(scale, bool) or not checks.is_number(scale):
        raise TypeError(
            "scale must be a number or a tensor [T], "
            f"got {type(scale).__name__}: use 1 / the model's longest row"
        )
    if alpha is None:
        alpha = float(max(q.shape[2], 1) ** -0.5)
    elif isinstance(alpha, bool) or not checks.is_number(alpha):
        raise TypeError(
            "alpha must be a Python number, or None for 1 / sqrt(D), "
            f"got {type(alpha).__name__}: multiply q by a tensor"
        )
    if not isinstance(mask, HSTUMask):
        raise TypeError(f"mask must be a jagged.HSTUMask, got {type(mask).__name__}")
    if num_targets is not None:
        _check_integer("num_targets", num_targets, (torch.int32, torch.int64), q)
        checks.shape("num_targets", num_targets, (offsets.shape[0] - 1,), "[B]")
    divisor = 1.0  # read from nowhere: torch.compile reads no number that two checkpoints share
    if bias is None:
        bias = _NO_BIAS
    else:
        _check_bias(bias, q, max_length)
        divisor = float(bias.divisor)
    # float() makes torch.compile read a factor here: one that two calls share (a default, a layer
    # used twice) and that is first read inside `apply` cannot be traced a second time.
    arguments = (
        q,
        k,
        v,
        offsets,
        max_length,
        float(scale),
        scale_per_query,
        float(alpha),
        mask.window,
        mask.contextual,
        mask.min_full,
        num_targets,
        bias.position_table,
        bias.time_table,
        bias.timestamps if bias.time_table is not None else None,
        bias.bucket,
        divisor,
    )
    if needs_gradient(q, k, v, bias.position_table, bias.time_table):
        return record(_HstuAttention, *arguments)
    out: Tensor = _forward(*arguments)
    return out


def _check_operands(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor) -> None:
    checks.ragged("q", q, 3)
    checks.floating("q", q)
    checks.offsets(offsets, q, "q")
    checks.operand("k", k, "q", q)
    checks.operand("v", v, "q", q)
    checks.shape("k", k, q.shape, "[T, H, D] of q")
    if v.shape != q.shape:
        checks.shape("v", v, (*q.shape[:2], None), "[T, H, V], T and H of q,")


def _check_scale_per_query(scale: Tensor, q: Tensor) -> None:
    if scale.requires_grad:
        raise ValueError("scale gets no gradient, and this one requires it: pass scale.detach()")
    checks.same_device("scale", scale, "q", q)
    checks.parameter_dtype("scale", scale, "q", q)
    checks.shape("scale", scale, (q.shape[0],), "[T]")
    checks.last_stride("scale", scale)


def _check_bias(bias: BucketedBias, q: Tensor, max_length: int) -> None:
    if not isinstance(bias, BucketedBias):
        raise TypeError(f"bias must be a jagged.BucketedBias, got {type(bias).__name__}")
    for name in ("position_table", "time_table"):
        table: Tensor | None = getattr(bias, name)
        if table is not None:
            checks.same_device(name, table, "q", q)
            checks.parameter_dtype(name, table, "q", q)
            checks.last_stride(name, table)
    if bias.position_table is not None:
        longest = (bias.position_table.shape[0] + 1) // 2
        if max_length > longest:
            raise ValueError(
                f"max_length must not exceed the N = {longest} of position_table [2 * N - 1], "
                f"got {max_length}: give max_length <= {longest}, or make a longer table"
            )
    if bias.timestamps is not None and bias.time_table is not None:
        _check_integer("timestamps", bias.timestamps, (torch.int64,), q)
        checks.shape("timestamps", bias.timestamps, (q.shape[0],), "[T]")


def _check_integer(name: str, value: Tensor, dtypes: tuple[torch.dtype, ...], q: Tensor) -> None:
    checks.tensor(name, value)
    checks.same_device(name, value, "q", q)
    if value.dtype not in dtypes:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(
            f"{name} must be {wanted}, got {value.dtype}: convert with {name}.to(torch.int64)"
        )
    checks.last_stride(name, value)


# From here on the arguments come in the order of `_forward`.
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor offsets, SymInt max_length, float scale,"
    " Tensor? scale_per_query, float alpha, int window, int contextual, int min_full,"
    " Tensor? num_targets, Tensor? position_table, Tensor? time_table, Tensor? timestamps,"
    " str bucket, float divisor"
)


class _HstuAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        ctx.save_for_backward(*arguments[:4], arguments[6], *arguments[11:15])
        ctx.numbers = arguments[4:6], arguments[7:11], arguments[15:]
        out: Tensor = _forward(*arguments)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *operands, scale_per_query, targets, position_table, time_table, times = ctx.saved_tensors
        sizes, factors, ending = ctx.numbers
        need_q, need_k, need_v = ctx.needs_input_grad[:3]
        need_position, need_time = ctx.needs_input_grad[12:14]
        dq, dk, dv, dposition, dtime = _backward(
            unit_last_stride(grads[0]),
            *operands,
            *sizes,
            scale_per_query,
            *factors,
            targets,
            position_table,
            time_table,
            times,
            *ending,
            need_q,
            need_k or need_v,
            need_position or need_time,
        )
        return (
            dq if need_q else None,
            dk if need_k else None,
            dv if need_v else None,
            *(None,) * 9,
            dposition if need_position else None,
            dtime if need_time else None,
            *(None,) * 3,
        )


@operator(f"hstu_attention_forward({_ARGUMENTS}) -> Tensor")
def _forward(q: Tensor, k: Tensor, v: Tensor, *_others: Any) -> Tensor:
    return v.new_empty(v.shape)


@operator(
    f"hstu_attention_backward(Tensor grad, {_ARGUMENTS}, bool need_q, bool need_kv, bool need_bias)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
def _backward(
    _grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *_, position_table, time_table, _, _, _, need_q, need_kv, need_bias = others

    def table_gradient(table: Tensor | None) -> Tensor:
        return q.new_empty(0) if table is None or not need_bias else table.new_empty(table.shape)

    return (
        q.new_empty(q.shape if need_q else 0),
        k.new_empty(k.shape if need_kv else 0),
        v.new_empty(v.shape if need_kv else 0),
        table_gradient(position_table),
        table_gradient(time_table),
    )
