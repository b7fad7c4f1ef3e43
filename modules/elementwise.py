"""Layers without parameters: softmax over the row, sums with dense tensors, dropout."""

from typing import Literal

from torch import Tensor, nn

from jagged import checks, ops
from jagged.layout import JaggedTensor
from jagged.modules._rows import check_jagged, is_element, promote, zero_tail


class JaggedSoftmax(nn.Module):
    """Softmax over the elements of each row, for every feature.

    `out[i, j] = exp(x[i, j]) / sum_k exp(x[i, k])`, computed with the row's maximum subtracted.

    Args:
        max_length: where every row stops: elements at or past it give 0. None takes whole rows.

    Takes and returns a jagged tensor with values [T, ...].
    """

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__()
        checks.optional_length("max_length", max_length)
        self.max_length = max_length

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        check_jagged("x", x)
        return x.with_values(ops.softmax(x.values, x.offsets, self.max_length))

    def extra_repr(self) -> str:
        return "" if self.max_length is None else f"max_length={self.max_length}"


class JaggedDenseAdd(nn.Module):
    """Add a dense tensor element by element: `out[i, j] = x[i, j] + dense[i, j]`.

    Args:
        result: "jagged" returns rows as long as those of x, elements at or past N unchanged;
            "padded" returns a tensor of the shape of `dense`, its padding cells those of `dense`,
            elements of x at or past N dropped.

    Shapes: values [T, ...] and dense [B, N, ...], of one dtype; under autocast they may differ, and
    the result has the wider of the two.
    """

    def __init__(self, result: Literal["jagged", "padded"] = "jagged") -> None:
        super().__init__()
        if result not in ("jagged", "padded"):
            raise ValueError(f'result must be "jagged" or "padded", got {result!r}')
        self.result = result

    def forward(self, x: JaggedTensor, dense: Tensor) -> JaggedTensor | Tensor:
        check_jagged("x", x)
        checks.tensor("dense", dense)
        values, dense = promote(x.values, dense)
        if self.result == "padded":
            return ops.padded_add(values, x.offsets, dense)
        return x.with_values(ops.dense_add(values, x.offsets, dense))

    def extra_repr(self) -> str:
        return f"result={self.result!r}"


class JaggedRowAdd(nn.Module):
    """Add one dense vector to all elements of a row: `out[i, j] = x[i, j] + dense[i]`.

    Shapes: values [T, ...] and dense [B, ...], of one dtype; under autocast they may differ, and
    the result has the wider of the two.
    """

    def forward(self, x: JaggedTensor, dense: Tensor) -> JaggedTensor:
        check_jagged("x", x)
        checks.tensor("dense", dense)
        values, dense = promote(x.values, dense)
        return x.with_values(ops.row_add(values, x.offsets, dense))


class JaggedDropout(nn.Module):
    """Dropout of single numbers (Srivastava et al., JMLR 2014).

    In training `out = x * m / (1 - p)`, where m is 0 with probability p, else 1. In evaluation the
    values pass unchanged. The capacity tail of the result is 0 in both modes.

    Args:
        p: the probability of a zero, 0 <= p < 1.

    Takes and returns a jagged tensor with values [T, ...].
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        checks.probability("p", p)
        self.p = p

    def forward(self, x: JaggedTensor) -> JaggedTensor:
        check_jagged("x", x)
        values = nn.functional.dropout(x.values, self.p, self.training)
        return x.with_values(zero_tail(values, is_element(x)))

    def extra_repr(self) -> str:
        return f"p={self.p}"
