"""Compiled: forward and backward passes through parts of the network, and the rows of each part (``gradients.py``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import NONE, OUTPUTS
from decima.policy.compiled.layers import STAGE_HEAD, apply_layer
from simulator.compiled import ANY_ORDER, inner

__all__ = ["Pass", "Rows", "add", "find_rows", "make_pass", "run", "run_back", "take"]

#: Number of rows over which weight gradients are summed in single precision.
BLOCK = 512
#: Slope of a layer without activation.
LINEAR = np.float32(1.0)
#: Type of loop indices: unsigned indices cannot count from the end of an array, so loops are compiled to vectors.
UNSIGNED = np.uint64


class Pass(NamedTuple):
    """Activations of n rows that go through one part of the network."""

    x: NDArray[np.float32]
    """[n, inputs], inputs of the first layer."""
    between: NDArray[np.float32]
    """Outputs of all layers, flat, one layer after the other, each [n, outputs]."""


class Rows(NamedTuple):
    """Rows of each part of the network: indices of stages, jobs and graphs, int64, counted over the whole batch."""

    stage_job: NDArray[np.int64]
    """[S], job of each stage."""
    job_graph: NDArray[np.int64]
    """[J], graph of each job."""
    senders: NDArray[np.int64]
    """Stages that send messages, step by step."""
    receivers: NDArray[np.int64]
    """Stages that receive messages, step by step."""
    links: NDArray[np.int64]
    """[M, 2], index into ``senders`` and index into ``receivers`` of each message, step by step."""
    ends: NDArray[np.int64]
    """[steps + 1, 3], number of senders, receivers and messages before each step."""
    unfinished: NDArray[np.int64]
    """Unfinished stages."""
    candidates: NDArray[np.int64]
    """Stages that may be chosen."""
    limits: NDArray[np.int64]
    """Stage of each row of the limit head."""
    choices: NDArray[np.int64]
    """[B, 2, 3], begin, end and chosen index among the scores of stages and of limits; all 0 without a choice."""


# Rows.


@inner(arrays=True)
def find_rows(graphs, network, chosen, limit):
    """Return the :class:`Rows` of a batch with one choice per graph."""
    size, num_stages = graphs.first_stage.size - 1, len(graphs.features)
    if not (len(chosen) == len(limit) == size):
        raise ValueError("each graph must have one choice")
    stage_job, job_graph = np.empty(num_stages, np.int64), np.empty(len(graphs.job_features), np.int64)
    candidates, num_candidates = np.empty(num_stages, np.int64), 0
    choices, num_limits, num_scores = np.zeros((size, 2, 3), np.int64), 0, 0
    is_output = network.limit_kind == OUTPUTS
    for graph in range(size):
        job_graph[graphs.first_job[graph] : graphs.first_job[graph + 1]] = graph
        row, place = chosen[graph], -1
        choices[graph, 0, 0] = num_candidates
        for stage in range(graphs.first_stage[graph], graphs.first_stage[graph + 1]):
            stage_job[stage] = graphs.first_job[graph] + graphs.stage_job[stage]
            if graphs.high[stage] > graphs.low[stage]:
                if stage == row:
                    place = num_candidates
                candidates[num_candidates] = stage
                num_candidates += 1
        choices[graph, 0, 1:] = num_candidates, place
        if place < 0 or not graphs.low[row] < limit[graph] <= graphs.high[row]:
            raise ValueError("a choice is not possible")
        num_answers = graphs.high[row] - graphs.low[row]
        if network.limit_kind != NONE and num_answers > 1:
            begin = num_scores + (graphs.low[row] if is_output else 0)
            choices[graph, 1] = begin, begin + num_answers, begin + limit[graph] - graphs.low[row] - 1
            num_limits += 1 if is_output else num_answers
            num_scores += network.layers[-1, 1] if is_output else num_answers
    limits, count = np.empty(num_limits, np.int64), 0
    for graph in range(size):
        num_answers = choices[graph, 1, 1] - choices[graph, 1, 0]
        if num_answers:
            end = count + (1 if is_output else num_answers)
            limits[count:end] = chosen[graph]
            count = end
    senders, receivers, links, ends = _find_steps(graphs)
    unfinished, valid = np.flatnonzero(graphs.unfinished), candidates[:num_candidates]
    return Rows(stage_job, job_graph, senders, receivers, links, ends, unfinished, valid, limits, choices)


@inner(arrays=True)
def _find_steps(graphs):
    """Return senders, receivers, links and ends of :class:`Rows`."""
    size, num_messages, num_steps = graphs.first_stage.size - 1, len(graphs.messages), 0
    for message in range(num_messages):
        num_steps = max(num_steps, graphs.messages[message, 0] + 1)
    senders, receivers = np.empty(num_messages, np.int64), np.empty(num_messages, np.int64)
    links, ends = np.empty((num_messages, 2), np.int64), np.zeros((num_steps + 1, 3), np.int64)
    place, at = np.full(len(graphs.features), -1), graphs.first_message.copy()
    num_senders, num_receivers, count = 0, 0, 0
    for step in range(num_steps):
        for graph in range(size):
            base, previous = graphs.first_stage[graph], -1
            message = at[graph]
            while message < graphs.first_message[graph + 1] and graphs.messages[message, 0] == step:
                receiver, sender = graphs.messages[message, 1] + base, graphs.messages[message, 2] + base
                if place[sender] < ends[step, 0]:  # it has sent nothing in this step
                    place[sender] = num_senders
                    senders[num_senders] = sender
                    num_senders += 1
                if receiver != previous:
                    receivers[num_receivers] = previous = receiver
                    num_receivers += 1
                links[count, 0], links[count, 1] = place[sender], num_receivers - 1
                count += 1
                message += 1
            at[graph] = message
        ends[step + 1, 0], ends[step + 1, 1], ends[step + 1, 2] = num_senders, num_receivers, count
    if count < num_messages:
        raise ValueError("the messages of a graph do not ascend by step")
    return senders[:num_senders], receivers[:num_receivers], links, ends


@inner(fastmath=ANY_ORDER)
def take(source, rows, target, column):
    """Gather: copy the given rows of ``source`` to the first rows of ``target``, starting at a column."""
    for k in range(len(rows)):
        row, to = UNSIGNED(rows[k]), UNSIGNED(k)
        for place in range(UNSIGNED(source.shape[1])):
            target[to, UNSIGNED(column) + place] = source[row, place]


@inner(fastmath=ANY_ORDER)
def add(source, begin, target, rows):
    """Scatter-add: add the rows of ``source`` from ``begin`` on to the given rows of ``target``."""
    for k in range(len(rows)):
        row, to = UNSIGNED(begin + k), UNSIGNED(rows[k])
        for place in range(UNSIGNED(target.shape[1])):
            target[to, place] += source[row, place]


# Parts of the network.


@inner(arrays=True)
def make_pass(network, part, num_rows):
    """Allocate the :class:`Pass` of a number of rows through a part."""
    first, outputs = network.first_layer[part], 0
    end = network.first_layer[part + 1]
    for layer in range(first, end):
        outputs += network.layers[layer, 1]
    inputs = network.layers[first, 0] if first < end else network.width
    return Pass(np.empty((num_rows, inputs), np.float32), np.empty(num_rows * outputs, np.float32))


@inner(arrays=True)
def _values(network, passes, part, layer):
    """Return the inputs of a layer, [n, inputs]; for the layer after the last, the outputs of the part."""
    found, first, start = passes[part], network.first_layer[part], 0
    if layer == first:
        return found.x
    for before in range(first, layer - 1):
        start += len(found.x) * network.layers[before, 1]
    width = network.layers[layer - 1, 1]
    return found.between[start : start + len(found.x) * width].reshape(len(found.x), width)


@inner
def _slope(network, part, layer):
    """Return the slope below 0 of the activation after a layer; 1 is no activation."""
    if layer + 1 < network.first_layer[part + 1]:
        return network.slope
    return LINEAR if part >= STAGE_HEAD else network.embedding_slope


@inner(arrays=True)
def run(network, passes, part, begin, end):
    """Forward pass of the rows ``begin`` to ``end`` through a part; return the outputs of all rows."""
    first, last = network.first_layer[part], network.first_layer[part + 1]
    for layer in range(first, last):
        num_in, num_out, offset = network.layers[layer]
        matrix = network.weights[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
        x, out = _values(network, passes, part, layer), _values(network, passes, part, layer + 1)
        apply_layer(x[begin:end], end - begin, out[begin:end], matrix, _slope(network, part, layer))
    return _values(network, passes, part, last)


@inner(arrays=True)
def run_back(network, passes, part, begin, end, gradient, first, needed, total):
    """Backward pass: add the gradient of a part's weights to ``total``, and return the gradient of its inputs.

    Args:
        gradient: float32 [rows + 1, outputs], gradient of the outputs; overwritten. The last row is scratch space.
        first: first input whose gradient is needed.
        needed: number of inputs whose gradients are needed.

    Returns:
        float32 [rows + 1, needed], gradient of the inputs; the last row is scratch space.
    """
    rows, start = end - begin, network.first_layer[part]
    for layer in range(network.first_layer[part + 1] - 1, start - 1, -1):
        num_in, num_out, offset = network.layers[layer]
        slope = _slope(network, part, layer)
        if slope != LINEAR:
            _multiply_slope(_values(network, passes, part, layer + 1)[begin:end], slope, gradient)
        x = _values(network, passes, part, layer)[begin:end]
        parameters = slice(offset, offset + (num_in + 1) * num_out)
        _add_products(x, gradient, total[parameters].reshape(num_in + 1, num_out))
        from_, count = (first, needed) if layer == start else (0, num_in)
        turned = np.zeros((num_out + 1, count), np.float32)
        weights = network.weights[parameters].reshape(num_in + 1, num_out)
        turned[:num_out] = weights[from_ : from_ + count].T
        before = np.empty((rows + 1, count), np.float32)
        apply_layer(gradient, rows, before, turned, LINEAR)
        gradient = before
    return gradient


@inner(fastmath=ANY_ORDER)
def _multiply_slope(out, slope, gradient):
    """Multiply the gradient of an activation's outputs ``out`` by the activation's derivative."""
    for row in range(UNSIGNED(out.shape[0])):
        for column in range(UNSIGNED(out.shape[1])):
            gradient[row, column] *= LINEAR if out[row, column] > 0 else slope


@inner(arrays=True)
def _add_products(x, gradient, total):
    """Add the gradients of a layer's weights and bias, [inputs + 1, outputs], to ``total``."""
    num_in, num_out, rows = x.shape[1], gradient.shape[1], x.shape[0]
    products, kept = np.empty((num_in, num_out), np.float32), np.empty(num_out, np.float32)
    for begin in range(0, rows, BLOCK):
        end = min(begin + BLOCK, rows)
        kept[:] = gradient[end]
        gradient[end] = 0  # ``apply_layer`` takes this row for the bias
        apply_layer(x[begin:end].T, num_in, products, gradient[begin : end + 1], LINEAR)
        gradient[end] = kept
        _add_block(products, gradient[begin:end], kept, total)


@inner(fastmath=ANY_ORDER)
def _add_block(products, gradient, sums, total):
    """Add ``products``, and the sum of the rows of ``gradient`` for the bias, to ``total``."""
    num_in, num_out = UNSIGNED(products.shape[0]), UNSIGNED(products.shape[1])
    for row in range(num_in):
        for column in range(num_out):
            total[row, column] += products[row, column]
    sums[:] = 0
    for row in range(UNSIGNED(gradient.shape[0])):
        for column in range(num_out):
            sums[column] += gradient[row, column]
    for column in range(num_out):
        total[num_in, column] += sums[column]
