"""How a jagged tensor prints: its rows, the way a person reads them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jagged.layout import JaggedTensor

_MOST_ROWS = 6
_MOST_ELEMENTS = 6


def describe(x: "JaggedTensor") -> str:
    """`JaggedTensor(3 rows, 4 elements, ...)` followed by a line a row."""
    if not isinstance(x.values, Tensor) or not isinstance(x.offsets, Tensor):
        return f"JaggedTensor(values={x.values!r}, offsets={x.offsets!r})"
    trailing = "".join(f" x {size}" for size in x.values.shape[1:])
    head = f"{len(x)} rows, %s elements{trailing}, {x.values.dtype}, {x.values.device}".replace(
        "torch.", ""
    )
    if x.max_length is not None:
        head += f", max_length={x.max_length}"
    if isinstance(x.weights, Tensor):
        head += f", weights {x.weights.dtype}".replace("torch.", "")
    if not _readable(x.values) or not _readable(x.offsets):
        return f"JaggedTensor({head % '?'})"
    half = _MOST_ROWS // 2
    shown = list(range(len(x)))
    if hidden := max(len(x) - _MOST_ROWS, 0):
        shown = [*range(half), *range(len(x) - half, len(x))]
    index = torch.tensor(shown, dtype=torch.int64, device=x.offsets.device)
    starts, ends = x.offsets[index].tolist(), x.offsets[index + 1].tolist()
    lines = [f"JaggedTensor({head % x.offsets[-1].item()}"]
    for place, (row, start, end) in enumerate(zip(shown, starts, ends, strict=True)):
        if hidden and place == half:
            lines.append(f"  ... {hidden} more rows ...")
        lines.append(f"  {row}: {_row(x.values[start:end].detach())}")
    return "\n".join(lines) + ")"


def _readable(tensor: Tensor) -> bool:
    """False for tensors without storage to print: meta tensors and torch.compile's fakes."""
    return tensor.device.type != "meta" and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _row(row: Tensor) -> str:
    shown = row[:_MOST_ELEMENTS]
    text = ", ".join(_element(element) for element in shown.tolist())
    rest = row.shape[0] - shown.shape[0]
    return f"[{text}{f', ... {rest} more' if rest else ''}]"


def _element(element: object) -> str:
    if isinstance(element, list):
        inner = [_element(part) for part in element[:_MOST_ELEMENTS]]
        return "[" + ", ".join(inner) + (", ...]" if len(element) > _MOST_ELEMENTS else "]")
    return f"{element:.4g}" if isinstance(element, float) else str(element)
