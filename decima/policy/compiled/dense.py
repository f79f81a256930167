"""Compiled: dense layers with gradients, as one operation of PyTorch's autograd on a CPU.

Most of an update is spent on such layers. With PyTorch's own operations, which read and write all rows between any two
layers, an update takes 1.5 times as long. Here a block of rows goes through all layers while it is in the processor's
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from decima.outputs import uninterrupted
from decima.policy.compiled.layers import apply_layer
from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["CompiledLayers", "differentiate", "evaluate"]

#: Number of rows that go through all layers before the next rows.
BLOCK = 512
#: Number of rows whose gradients are added before their sum is stored.
TERMS = 8
#: Slope of a layer without activation.
LINEAR = np.float32(1.0)
#: Type of loop indices: unsigned indices cannot count from the end of an array, so loops are compiled to vectors.
UNSIGNED = np.uint64


class CompiledLayers(torch.autograd.Function):
    """Outputs of dense layers, float32 [n, outputs], differentiable in the inputs and in weights and biases."""

    @staticmethod
    def forward(context: Any, slope: float, activate_last: bool, num_inputs: int, *tensors: Tensor) -> Tensor:
        """Return the outputs of the last layer.

        Args:
            slope: slope of the activation (leaky ReLU) below 0.
            activate_last: whether an activation follows the last layer.
            num_inputs: number of input tensors.
            tensors: inputs, float32 [n, ..], which are concatenated; and of each layer the weight,
                float32 [outputs, inputs], and the bias, float32 [outputs].
        """
        inputs, (weights, layers) = tensors[:num_inputs], _pack(tensors[num_inputs:])
        slopes = np.full(len(layers), slope, np.float32)
        if not activate_last:
            slopes[-1] = LINEAR
        joined = inputs[0].contiguous() if num_inputs == 1 else torch.cat(inputs, dim=1)
        outputs = evaluate(joined.numpy(), weights, layers, slopes)
        context.save_for_backward(joined)
        context.widths = [tensor.shape[1] for tensor in inputs]
        context.compiled = outputs, weights, layers, slopes
        last = outputs[outputs.size - len(joined) * layers[-1, 1] :].reshape(len(joined), layers[-1, 1])
        # The backward pass needs the outputs of activations, which other code may overwrite.
        return torch.from_numpy(last.copy() if activate_last else last)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the inputs, and of weight and bias of each layer."""
        outputs, weights, layers, slopes = context.compiled
        (joined,), widths = context.saved_tensors, context.widths
        is_needed = context.needs_input_grad[3 : 3 + len(widths)]
        # Inputs without a gradient, such as features, usually come first.
        first = next((index for index, needs in enumerate(is_needed) if needs), len(widths))
        # Numba cannot pass on the exception of a Ctrl-C that arrives while it runs inside autograd.
        with uninterrupted():
            of_inputs, of_weights = differentiate(
                joined.numpy(),
                outputs,
                weights,
                layers,
                slopes,
                gradient.contiguous().numpy(),
                sum(widths[:first]),
            )
        columns = torch.split(torch.from_numpy(of_inputs), widths[first:], dim=1)
        gradients: list[Tensor] = []
        for num_in, num_out, offset in layers.tolist():
            of_layer = of_weights[offset : offset + (num_in + 1) * num_out].reshape(-1, num_out)
            gradients += [torch.from_numpy(of_layer[:-1].T), torch.from_numpy(of_layer[-1])]
        return None, None, None, *[None] * first, *columns, *gradients


def _pack(parameters: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and layers as in ``layers.NetworkArrays``."""
    arrays, layers, offset = [], [], 0
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        arrays += [weight.detach().numpy().T.reshape(-1), bias.detach().numpy()]
        layers.append((weight.shape[1], weight.shape[0], offset))
        offset += weight.numel() + bias.numel()
    return np.concatenate(arrays), np.array(layers)


@compiled
def evaluate(inputs, weights, layers, slopes):
    """Forward pass: compute the outputs of all layers.

    Args:
        inputs: float32 [n, inputs].
        weights: float32, each layer's matrix [inputs, outputs], flat, followed by its bias.
        layers: int64 [layers, 3], number of inputs, number of outputs, offset in ``weights``.
        slopes: float32 [layers], slope below 0 of the activation after each layer; 1 is no activation.

    Returns:
        Flat outputs, one layer after the other, each float32 [n, outputs].
    """
    num_rows = len(inputs)
    outputs = np.empty(num_rows * layers[:, 1].sum(), np.float32)
    for begin in range(0, num_rows, BLOCK):
        end, x, at = min(begin + BLOCK, num_rows), inputs, 0
        for layer in range(len(layers)):
            num_in, num_out, offset = layers[layer]
            matrix = weights[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
            out = outputs[at : at + num_rows * num_out].reshape(num_rows, num_out)
            apply_layer(x[begin:end], end - begin, out[begin:end], matrix, slopes[layer])
            x, at = out, at + num_rows * num_out
    return outputs


@compiled
def differentiate(inputs, outputs, weights, layers, slopes, gradient, first):
    """Backward pass: compute the gradients of inputs and weights.

    Args:
        inputs, weights, layers, slopes: arguments of ``evaluate``.
        outputs: result of ``evaluate``.
        gradient: float32 [n, outputs], gradient of the outputs of the last layer.
        first: first input whose gradient is needed.

    Returns:
        Gradient of the inputs from ``first`` on, float32 [n, inputs - first]; gradient of ``weights``, float32.
    """
    num_rows, widest = len(inputs), max(layers[:, 0].max(), layers[:, 1].max())
    of_inputs = np.empty((num_rows, layers[0, 0] - first), np.float32)
    total, turned = np.zeros(weights.size), _turn(weights, layers, first)
    # Gradients of a block, used alternately; one more row for zeros, see ``_add_products``.
    buffers = np.empty((2, (BLOCK + 1) * widest), np.float32)
    products, sums = np.empty(widest * widest, np.float32), np.empty(widest, np.float32)
    for begin in range(0, num_rows, BLOCK):
        end, at = min(begin + BLOCK, num_rows), outputs.size
        count = end - begin
        after = buffers[0, : (count + 1) * gradient.shape[1]].reshape(count + 1, gradient.shape[1])
        after[:count] = gradient[begin:end]
        for step in range(len(layers)):
            layer = len(layers) - 1 - step
            num_in, num_out, offset = layers[layer]
            at -= num_rows * num_out
            out = outputs[at : at + num_rows * num_out].reshape(num_rows, num_out)
            if slopes[layer] != LINEAR:
                _multiply_slope(out[begin:end], slopes[layer], after)
            x = inputs
            if layer > 0:
                x = outputs[at - num_rows * num_in : at].reshape(num_rows, num_in)
            of_layer = total[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
            product = products[: num_in * num_out].reshape(num_in, num_out)
            _add_products(x[begin:end], after, product, sums[:num_out], of_layer)
            width = num_in if layer > 0 else num_in - first
            matrix = turned[layer, : (num_out + 1) * width].reshape(num_out + 1, width)
            if layer > 0:
                before = buffers[(step + 1) % 2, : (count + 1) * num_in].reshape(count + 1, num_in)
                apply_layer(after, count, before, matrix, LINEAR)
                after = before
            else:
                apply_layer(after, count, of_inputs[begin:end], matrix, LINEAR)
    return of_inputs, total.astype(np.float32)


@inner(arrays=True)
def _turn(weights, layers, first):
    """Return the transposed matrix of each layer, [outputs, inputs], flat, followed by zeros for a bias.

    The matrix of the first layer has the inputs from ``first`` on.
    """
    most = 0
    for layer in range(len(layers)):
        most = max(most, (layers[layer, 1] + 1) * layers[layer, 0])
    turned = np.zeros((len(layers), most), np.float32)
    for layer in range(len(layers)):
        num_in, num_out, offset = layers[layer]
        begin = first if layer == 0 else 0
        for i in range(begin, num_in):
            for o in range(num_out):
                turned[layer, o * (num_in - begin) + i - begin] = weights[offset + i * num_out + o]
    return turned


@inner(fastmath=ANY_ORDER)
def _multiply_slope(out, slope, gradient):
    """Multiply the gradient of an activation's outputs ``out`` by the activation's derivative."""
    for row in range(UNSIGNED(out.shape[0])):
        for column in range(UNSIGNED(out.shape[1])):
            gradient[row, column] *= LINEAR if out[row, column] > 0 else slope


@inner(fastmath=ANY_ORDER)
def _add_products(x, gradient, products, sums, total):
    """Add the gradients of a layer's weights and bias, [inputs + 1, outputs], to ``total``.

    Args:
        x: float32 [rows, inputs], inputs.
        gradient: float32 [rows + 1, outputs], gradient of the outputs; the last row is overwritten by zeros.
        products: float32 [inputs, outputs], buffer.
        sums: float32 [outputs], buffer.
        total: float64 [inputs + 1, outputs].
    """
    num_in, num_out, num_rows = UNSIGNED(x.shape[1]), UNSIGNED(gradient.shape[1]), x.shape[0]
    for column in range(num_out):
        gradient[num_rows, column] = sums[column] = 0
    apply_layer(x.T, x.shape[1], products, gradient, LINEAR)  # which takes the last row for the bias
    for row in range(num_in):
        for column in range(num_out):
            total[row, column] += products[row, column]
    whole = UNSIGNED(num_rows - num_rows % TERMS)
    for row in range(UNSIGNED(0), whole, UNSIGNED(TERMS)):
        for column in range(num_out):
            terms = np.float32(0)
            for k in range(UNSIGNED(TERMS)):
                terms += gradient[row + k, column]
            sums[column] += terms
    for row in range(whole, UNSIGNED(num_rows)):
        for column in range(num_out):
            sums[column] += gradient[row, column]
    for column in range(num_out):
        total[num_in, column] += sums[column]
