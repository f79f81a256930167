"""One layer of a network, for any number of rows and any width."""

import signal

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from decima.policy.compiled import dense
from decima.policy.compiled.layers import apply_layer
from simulator.compiled import compiled
from tests.cases import cases

SLOPE = 0.2


@compiled
def layer(x, num_rows, out, weights, slope):  # type: ignore[no-untyped-def]
    """Call ``apply_layer``, which only compiled code can call."""
    apply_layer(x, num_rows, out, weights, slope)


def drawn(num_in: int, num_out: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return ten rows of inputs, more than needed, and weights."""
    random = np.random.default_rng(seed)
    x, weights = random.standard_normal((10, num_in + 3)), random.standard_normal((num_in + 1, num_out))
    return x.astype(np.float32), weights.astype(np.float32)


@given(
    num_in=st.integers(0, 40),
    num_out=st.integers(1, 50),
    num_rows=st.integers(0, 10),
    slope=st.sampled_from([SLOPE, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_a_product_and_an_activation(num_in: int, num_out: int, num_rows: int, slope: float, seed: int) -> None:
    x, weights = drawn(num_in, num_out, seed)
    out = np.full((11, num_out + 2), 7, np.float32)
    layer(x, num_rows, out, weights, np.float32(slope))
    sums = x[:num_rows, :num_in].astype(np.float64) @ weights[:-1] + weights[-1]
    expected = np.full((11, num_out + 2), 7.0)
    expected[:num_rows, :num_out] = np.where(sums > 0, sums, slope * sums)
    np.testing.assert_allclose(out, expected, atol=1e-4)


@pytest.mark.parametrize("num_out", [1, 8, 16, 35])
def test_a_row_does_not_depend_on_which_others_there_are(num_out: int) -> None:
    """Outputs are equal bit for bit: decisions must not depend on other episodes in the same batch."""
    x, weights = drawn(19, num_out)
    together = np.empty((10, num_out), np.float32)
    layer(x, 10, together, weights, np.float32(SLOPE))
    for row in range(10):
        alone = np.empty((1, num_out), np.float32)
        layer(x[row : row + 1], 1, alone, weights, np.float32(SLOPE))
        np.testing.assert_array_equal(alone[0], together[row])


@pytest.mark.parametrize("num_out", [1, 8, 16])
def test_what_is_no_number_stays_none(num_out: int) -> None:
    x, weights = drawn(4, num_out)
    x[1, 2] = np.nan
    out = np.empty((5, num_out), np.float32)
    layer(x, 5, out, weights, np.float32(SLOPE))
    assert np.isnan(out[1]).all()
    assert np.isfinite(out[[0, 2, 3, 4]]).all()


@pytest.mark.parametrize("num_out", [1, 8, 16])
@cases("of, rows, columns", ("x", 4, 7), ("x", 5, 3), ("out", 4, 16), ("out", 5, 0), ("weights", 0, 0))
def test_arrays_that_are_too_small_are_refused(num_out: int, of: str, rows: int, columns: int) -> None:
    """A block is written through unchecked pointers, so sizes are checked before."""
    x, weights = drawn(4, num_out)
    arrays = {"x": x, "out": np.zeros((5, num_out), np.float32), "weights": weights}
    arrays[of] = np.ascontiguousarray(arrays[of][:rows, : columns or None if of == "weights" else columns])
    with pytest.raises(ValueError, match="a layer has"):
        layer(arrays["x"], 5, arrays["out"], arrays["weights"], np.float32(SLOPE))


def test_ctrl_c_waits_for_the_end_of_a_compiled_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba turns a KeyboardInterrupt during such a call into a SystemError, or crashes."""
    complete, differentiate = [], dense.differentiate

    def interrupted(*arrays: np.ndarray) -> object:
        signal.raise_signal(signal.SIGINT)
        gradients = differentiate(*arrays)
        complete.append(True)
        return gradients

    inputs, bias = torch.ones(3, 4, requires_grad=True), torch.ones(2, requires_grad=True)
    loss = dense.CompiledLayers.apply(0.2, True, 1, inputs, torch.ones(2, 4), bias).sum()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(dense, "differentiate", interrupted)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert complete
