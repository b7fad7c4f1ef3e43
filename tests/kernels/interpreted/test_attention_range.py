"""Attention near the ends of formats: gradients in float16, and sizes beyond 32 bits."""

import pytest
import torch

from jagged.eager import hstu_attention as eager
from jagged.kernels import hstu_attention
from jagged.tuning.configs import Config
from tests.kernels.cases_hstu_attention import SHORT, SMALL

SCALE, ALPHA = 0.1, 0.25


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("factors", [False, True])
def test_float16_gradients_have_the_range_of_float16(
    short: bool, factors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dS is 33,000 here: twice that is beyond 65,504."""
    fewest = {**SHORT.constants, "ROWS": 1 if short else 1000}
    for table in (hstu_attention.BACKWARD_SHORT, hstu_attention.BACKWARD_CAUSAL):
        config = Config(SHORT.settings, SHORT.form, fewest)
        monkeypatch.setattr(table, "pick", lambda *_, config=config: config)
    for table in (hstu_attention.DQ, hstu_attention.DKV):
        monkeypatch.setattr(table, "pick", lambda *_: SMALL)
    q, k, v, grad = (
        torch.full((2, 1, 16), x, dtype=torch.float16) for x in (1.0, 0.01, 80.0, 50.0)
    )
    offsets = torch.tensor([0, 2])
    scales = torch.ones(2, dtype=torch.float16) if factors else None
    rest = SCALE, scales, ALPHA, 0, 0, 0, None, None, None, None, "log", 1.0, True, True, False
    found = hstu_attention.backward(grad, q, k, v, offsets, 2, *rest)
    wide = [x.double() for x in (grad, q, k, v)]
    exact = eager.backward(*wide, offsets, 2, *rest)
    for ours, right in zip(found[:3], exact[:3], strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=5e-3, atol=1e-3)


def test_numbers_beyond_any_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no numbers of 32 bits, or leave them when something is added."""
    config = Config(SHORT.settings, SHORT.form, {**SHORT.constants, "ROWS": 1000})
    for table in (hstu_attention.FORWARD_SHORT, hstu_attention.BACKWARD_SHORT):
        monkeypatch.setattr(table, "pick", lambda *_: config)
    for table in (hstu_attention.FORWARD_MASKED, hstu_attention.DQ, hstu_attention.DKV):
        monkeypatch.setattr(table, "pick", lambda *_: SMALL)
    q, k, v, grad = (torch.randn(40, 1, 16) for _ in range(4))
    args = q, k, v, torch.tensor([0, 37, 37, 40]), 2**63 - 1, 0.5, None, ALPHA, 2**40, 3
    rest = 2**31, torch.tensor([2, 0, 1]), None, None, None, "log", 1.0
    found = hstu_attention.forward(*args, *rest)
    gradients = hstu_attention.backward(grad, *args, *rest, True, True, False)
    wide = [x.double() for x in (grad, q, k, v)]
    exact = eager.forward(*wide[1:], *args[3:], *rest)
    exact_gradients = eager.backward(*wide, *args[3:], *rest, True, True, False)
    for ours, right in zip((found, *gradients), (exact, *exact_gradients), strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-4, atol=1e-4)
