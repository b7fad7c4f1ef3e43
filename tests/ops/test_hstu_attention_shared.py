"""What holds for every op, for hstu_attention."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.ops import test_autograd, test_compile, test_layouts, test_values
from tests.ops.attention import CASES, AttentionCase

SHARED = [
    test_autograd.test_gradcheck,
    test_autograd.test_a_second_derivative_is_an_error,
    test_autograd.test_a_second_derivative_through_the_operand,
    test_autograd.test_create_graph_gives_the_same_first_derivative,
    test_autograd.test_offsets_changed_between_forward_and_backward,
    test_autograd.test_forward_mode_is_an_error,
    test_autograd.test_gradients_accumulate,
    test_compile.test_opcheck,
    test_compile.test_the_dispatcher_and_the_direct_way_agree,
    test_compile.test_compile_with_changing_lengths,
    test_compile.test_meta_tensors,
    test_compile.test_an_op_itself_has_no_derivative,
    test_layouts.test_strided_gradients,
    test_layouts.test_results_are_new_tensors_that_may_be_changed,
    test_layouts.test_no_gradient_modes,
    test_layouts.test_autocast_changes_nothing,
    test_values.test_the_tail_is_never_read_and_holds_zeros,
]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # make_dual's own
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("check", SHARED, ids=lambda check: check.__name__)
def test_shared(check: Callable[..., None], case: AttentionCase, device: torch.device) -> None:
    takes: Any = inspect.signature(check).parameters
    check(case, **({"device": device} if "device" in takes else {}))


@pytest.mark.parametrize("layout", [test_layouts.strided, test_layouts.by_heads])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_strided_operands(
    case: AttentionCase, layout: Callable[[object], object], device: torch.device
) -> None:
    test_layouts.test_strided_operands(case, layout, device)
