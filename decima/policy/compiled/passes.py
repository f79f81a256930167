"""Compiled: forward and backward passes through parts of the network, and the rows of each part (``gradients.py``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import NONE, OUTPUTS
from decima.policy.compiled.layers import STAGE_HEAD, apply_layer
from simulator.compiled import ANY_ORDER, inner

__all__ = ["Pass", "Rows", "add", "find_rows", "make_pass", "run", "run_back", "take"]

#: Number of rows that go through all layers of a part before the next ones, so that their activations stay in the
#: processor's cache; over these rows, weight gradients are summed in single precision.
BLOCK = 512
#: Number of rows whose gradients are added before their sum is stored.
TERMS = 8
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
    out: NDArray[np.float32]
    """[n, outputs], outputs of the last layer; ``x`` without layers."""


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
    """Return the ``Rows`` of a batch with one choice per graph."""
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
    """Return senders, receivers, links and ends of ``Rows``."""
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
    """Allocate the ``Pass`` of a number of rows through a part."""
    first, outputs = network.first_layer[part], 0
    end = network.first_layer[part + 1]
    for layer in range(first, end):
        outputs += network.layers[layer, 1]
    x = np.empty((num_rows, network.layers[first, 0] if first < end else network.width), np.float32)
    between = np.empty(num_rows * outputs, np.float32)
    if first == end:
        return Pass(x, between, x)
    last = network.layers[end - 1, 1]
    return Pass(x, between, between[num_rows * (outputs - last) :].reshape(num_rows, last))


@inner
def _slope(network, part, layer):
    """Return the slope below 0 of the activation after a layer; 1 is no activation."""
    if layer + 1 < network.first_layer[part + 1]:
        return network.slope
    return LINEAR if part >= STAGE_HEAD else network.embedding_slope


@inner
def run(network, found, part, begin, end):
    """Forward pass of the rows ``begin`` to ``end`` of a ``Pass`` through a part."""
    for row in range(begin, end, BLOCK):
        stop, x, place = min(row + BLOCK, end), found.x, 0
        for layer in range(network.first_layer[part], network.first_layer[part + 1]):
            num_in, num_out, offset = network.layers[layer]
            matrix = network.weights[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
            size = len(found.x) * num_out
            out = found.between[place : place + size].reshape(len(found.x), num_out)
            apply_layer(x[row:stop], stop - row, out[row:stop], matrix, _slope(network, part, layer))
            x, place = out, place + size


@inner(arrays=True)
def run_back(network, found, part, begin, end, gradient, first, needed, total):
    """Backward pass: add the gradient of a part's weights to ``total``, and return the gradient of its inputs.

    Args:
        gradient: float32 [rows + 1, outputs], gradient of the outputs; overwritten. The last row is scratch space.
        first: first input whose gradient is needed.
        needed: number of inputs whose gradients are needed.

    Returns:
        float32 [rows + 1, needed], gradient of the inputs; the last row is scratch space.
    """
    start, stop = network.first_layer[part], network.first_layer[part + 1]
    if start == stop:
        return gradient
    widest, size = 1, 0
    for layer in range(start, stop):
        num_in, num_out, _ = network.layers[layer]
        widest, size = max(widest, num_in, num_out), size + (num_out + 1) * num_in
    turned, before = np.zeros(size, np.float32), np.empty((end - begin + 1, needed), np.float32)
    buffers = np.empty((2, (BLOCK + 1) * widest), np.float32)
    products, sums = np.empty(widest * widest, np.float32), np.empty(widest, np.float32)
    _turn(network, start, stop, first, needed, turned)
    for row in range(0, end - begin, BLOCK):
        count = min(BLOCK, end - begin - row)
        rows, after = slice(begin + row, begin + row + count), gradient[row : row + count + 1]
        place, at = len(found.between), 0
        for layer in range(stop - 1, start - 1, -1):
            num_in, num_out, offset = network.layers[layer]
            place -= len(found.x) * num_out
            out = found.between[place : place + len(found.x) * num_out].reshape(len(found.x), num_out)
            x, width, into = found.x, needed, before[row : row + count + 1]
            if layer > start:
                x = found.between[place - len(found.x) * num_in : place].reshape(len(found.x), num_in)
                width = num_in
                into = buffers[layer % 2, : (count + 1) * num_in].reshape(count + 1, num_in)
            slope = _slope(network, part, layer)
            if slope != LINEAR:
                _multiply_slope(out[rows], slope, after)
            of_layer = total[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
            product = products[: num_in * num_out].reshape(num_in, num_out)
            _add_products(x[rows], after, product, sums[:num_out], of_layer)
            matrix = turned[at : at + (num_out + 1) * width].reshape(num_out + 1, width)
            apply_layer(after, count, into, matrix, LINEAR)
            after, at = into, at + (num_out + 1) * width
    return before


@inner
def _turn(network, start, stop, first, needed, turned):
    """Fill in the transposed weights of layers, with zero biases, from the last layer to the first."""
    at = 0
    for layer in range(stop - 1, start - 1, -1):
        num_in, num_out, offset = network.layers[layer]
        from_, width = (first, needed) if layer == start else (0, num_in)
        for column in range(num_out):
            for place in range(width):
                turned[at + column * width + place] = network.weights[
                    offset + (from_ + place) * num_out + column
                ]
        at += (num_out + 1) * width


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
        gradient: float32 [rows + 1, outputs], gradient of the outputs.
        products: float32 [inputs, outputs], scratch space.
        sums: float32 [outputs], scratch space.
        total: float64 [inputs + 1, outputs].
    """
    num_in, num_out, num_rows = UNSIGNED(x.shape[1]), UNSIGNED(gradient.shape[1]), x.shape[0]
    for column in range(num_out):  # ``apply_layer`` takes the last row for the bias
        sums[column], gradient[num_rows, column] = gradient[num_rows, column], 0
    apply_layer(x.T, x.shape[1], products, gradient, LINEAR)
    for column in range(num_out):
        gradient[num_rows, column], sums[column] = sums[column], 0
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
