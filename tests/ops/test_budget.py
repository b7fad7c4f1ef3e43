"""The error budget itself: what it accepts and, more to the point, what it does not."""

import pytest
import torch

from jagged.testing import assert_accurate

EXACT = torch.randn(50, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
PLAIN = EXACT.to(torch.bfloat16)


def test_plain_torch_passes_and_twice_its_error_too() -> None:
    assert_accurate(PLAIN, EXACT, PLAIN)
    off = EXACT + 2 * (PLAIN.double() - EXACT)
    assert_accurate(off.float(), EXACT, PLAIN.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_zeros_do_not_pass(dtype: torch.dtype) -> None:
    """With the peers' inputs, of the size of 0.01, they pass the peers' tolerance."""
    small = EXACT * 0.01
    with pytest.raises(AssertionError, match="in norm, allowed"):
        assert_accurate(torch.zeros(50, 8, dtype=dtype), small, small.to(dtype))


def test_one_wrong_element_is_named() -> None:
    wrong = PLAIN.clone()
    wrong[7, 3] += 0.05
    with pytest.raises(AssertionError, match=r"grad: element \[7, 3\] is .* expected .* allowed"):
        assert_accurate(wrong, EXACT, PLAIN, name="grad")


def test_the_magnitude_is_that_of_the_row() -> None:
    """An error that is fine in a row of large numbers is not in a row of small ones."""
    exact = torch.ones(2, 4, dtype=torch.float64)
    exact[1] = 1000
    for row, passes in ((0, False), (1, True)):
        off = exact.float()
        off[row, 0] += 1e-4
        if passes:
            assert_accurate(off, exact, exact.float())
        else:
            with pytest.raises(AssertionError, match=r"element \[0, 0\]"):
                assert_accurate(off, exact, exact.float())


def test_a_factor_scales_the_budget() -> None:
    exact = torch.ones(10, dtype=torch.float64)
    off = exact.float() + 2.6 * torch.finfo(torch.float32).eps
    with pytest.raises(AssertionError, match="in norm"):
        assert_accurate(off, exact, exact.float())
    assert_accurate(off, exact, exact.float(), factor=3)


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_special_numbers(special: float) -> None:
    exact = EXACT.clone()
    exact[3, 2] = special
    assert_accurate(exact.to(torch.bfloat16), exact, exact.to(torch.bfloat16))
    with pytest.raises(AssertionError, match=r"element \[3, 2\]"):
        assert_accurate(PLAIN, exact, exact.to(torch.bfloat16))
    with pytest.raises(AssertionError, match=r"element \[3, 2\]"):
        assert_accurate(exact.to(torch.bfloat16), EXACT, PLAIN)
    other = exact.to(torch.bfloat16)
    other[3, 2] = torch.nan if special != torch.nan and special == special else 1.0
    with pytest.raises(AssertionError, match=r"element \[3, 2\]"):
        assert_accurate(other, exact, exact.to(torch.bfloat16))


def test_an_overflow_that_the_dtype_has() -> None:
    exact = torch.tensor([1.0, 70_000.0], dtype=torch.float64)
    assert_accurate(exact.half(), exact, exact.half())


def test_shapes_and_dtypes() -> None:
    with pytest.raises(AssertionError, match="shape"):
        assert_accurate(PLAIN[:1], EXACT, PLAIN)
    with pytest.raises(AssertionError, match="plain has shape"):
        assert_accurate(PLAIN, EXACT, PLAIN[:1])
    with pytest.raises(AssertionError, match=r"dtype torch\.float32, expected torch\.bfloat16"):
        assert_accurate(PLAIN.float(), EXACT, PLAIN)
    with pytest.raises(AssertionError, match=r"the exact result is torch\.bfloat16, not float64"):
        assert_accurate(PLAIN, PLAIN, PLAIN)
    with pytest.raises(AssertionError, match="is not"):
        assert_accurate(torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 3]))
    assert_accurate(PLAIN[:0], EXACT[:0], PLAIN[:0])
