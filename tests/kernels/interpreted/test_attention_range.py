"""Gradients of attention whose scores have gradients near the end of float16."""

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
