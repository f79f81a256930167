"""Compiled: inference of the graph neural network (GNN), from graphs to choices of stage and limit, on a CPU.

The same network as in ``encoder.py`` and ``policy.py``, in one compiled loop: for so small a network, calls of a tensor
library would take several times as long as the arithmetic. Tests compare both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import NONE, OUTPUTS, STAGE, Graphs, make_graph
from decima.policy.compiled.layers import (
    AGGREGATE,
    ATTENTION,
    GLOBAL_AGGREGATE,
    GLOBAL_SUMMARY,
    JOB_AGGREGATE,
    JOB_SUMMARY,
    LIMIT_HEAD,
    MESSAGE,
    ONE,
    STAGE_HEAD,
    STAGE_INPUT,
    Network,
    add_row,
    add_rows,
    apply_part,
    put_rows,
    take_rows,
)
from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["act", "check_graphs", "decide", "pick"]


class Buffers(NamedTuple):
    """Preallocated arrays for the network on one graph at a time."""

    x: NDArray[np.float32]
    """Inputs of a part of the network, one row per stage, job, message or limit; ``result`` has the outputs."""
    result: NDArray[np.float32]
    between: NDArray[np.float32]
    """[2, ...], hidden layers, used alternately."""
    embedding: NDArray[np.float32]
    """Stage embeddings; the next two fields are job embeddings and the cluster embedding."""
    job_embedding: NDArray[np.float32]
    cluster: NDArray[np.float32]
    sent: NDArray[np.float32]
    """Message of each stage to its parents; valid where ``is_sent``."""
    is_sent: NDArray[np.bool_]
    rows: NDArray[np.int32]
    """Stage of each row of ``x`` during message passing."""
    score: NDArray[np.float32]
    """Score of each stage that may be chosen."""


@compiled
def decide(rows, offered, rule, profiles, constants, spec, network, uniforms, greedy, keeps_graph):
    """Decide on one observation: features, graph, network and choice.

    Args:
        rows, offered, rule, profiles, constants, spec: see ``graphs.build``.
        network: fields of ``layers.Network``, as a plain tuple.
        uniforms: float64 [1, 2], random numbers for stage and limit; [1, 4] with a guard.
        greedy: whether to take the most likely choices instead of sampling.
        keeps_graph: whether to return the graph.

    Returns:
        Number of different decisions; chosen stage, index in the observation's arrays, -1 if none may be chosen; chosen
        limit; the parallelism limit of the stage's job that follows, 0 to leave the executors idle; joint
        log-probability of the choice; whether the guard masked the first choice; ``Graphs`` or None.

    Raises:
        ValueError: the arrays are inconsistent.
    """
    graph, num_answers, guarded_low, guarded_high = make_graph(rows, offered, rule, profiles, constants, spec)
    network = Network(*network)
    check_graphs(graph, network, uniforms, guarded_low, guarded_high)
    row, limit, log_probability, is_guarded, job_limit = -1, 0, 0.0, False, 0
    if num_answers > 1:
        buffers = _make_buffers(graph, network)
        row, limit, log_probability, is_guarded = _choose_in(
            graph, 0, network, buffers, uniforms[0], greedy, guarded_low, guarded_high
        )
    elif num_answers == 1:
        row = int(np.argmax(graph.high > graph.low))
        limit = graph.high[row]
    if row >= 0:
        jobs, stages, _ = rows
        stage, job = stages[graph.place[row]], graph.stage_job[row]
        held = jobs[job].executors - (offered[0] if job == offered[2] else 0)
        job_limit = limit + (held - stage.running_executors if network.limit_kind == STAGE else 0)
        if job_limit <= held:
            job_limit = 0
    place = graph.place[row] if row >= 0 else -1
    kept = graph if keeps_graph else None
    return num_answers, place, limit, job_limit, log_probability, is_guarded, kept


@compiled
def act(graphs, network, uniforms, greedy, guarded_low, guarded_high):
    """Choose a stage and a limit in each of B graphs.

    Args:
        graphs: fields of ``graphs.Graphs``, as a plain tuple, which is unpacked faster than a named one.
        network: fields of ``layers.Network``, likewise.
        uniforms: float64 [B, 2], random numbers for stage and limit; [B, 4] with a guard.
        greedy: whether to take the most likely choices instead of sampling.
        guarded_low: int32 [S], ``graphs.low`` after the guard's mask; empty without a guard.
        guarded_high: int32 [S], ``graphs.high`` after the guard's mask; empty without a guard.

    Returns:
        The arrays of ``scheduler.Choices``.

    Raises:
        ValueError: graphs and network are inconsistent.
    """
    graphs, network = Graphs(*graphs), Network(*network)
    size = graphs.first_stage.size - 1
    stage, limit = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    log_probability, guarded = np.zeros(size, np.float32), np.zeros(size, np.bool_)
    check_graphs(graphs, network, uniforms, guarded_low, guarded_high)
    buffers = _make_buffers(graphs, network)
    for graph in range(size):
        row, chosen, log_of_both, is_guarded = _choose_in(
            graphs, graph, network, buffers, uniforms[graph], greedy, guarded_low, guarded_high
        )
        if row >= 0:
            stage[graph], limit[graph], log_probability[graph] = graphs.place[row], chosen, log_of_both
            guarded[graph] = is_guarded
    return stage, limit, log_probability, guarded


@inner(arrays=True)
def _choose_in(graphs, graph, network, buffers, uniforms, greedy, guarded_low, guarded_high):
    """Choose in one graph.

    Returns:
        Row of the stage in the batch, -1 if no stage may be chosen; limit; joint log-probability; whether the guard
        masked the first choice.
    """
    if network.width:
        _embed_stages(graphs, graph, network, buffers)
        _embed_jobs(graphs, graph, network, buffers)
    _score_stages(graphs, graph, network, buffers)
    row, limit, log_probability = _choose(
        graphs, graph, graphs.low, graphs.high, network, buffers, uniforms[:2], greedy
    )
    if row < 0 or not guarded_low.size or guarded_low[row] < limit <= guarded_high[row]:
        return row, limit, log_probability, False
    again, other_limit, other_log = _choose(
        graphs, graph, guarded_low, guarded_high, network, buffers, uniforms[2:4], greedy
    )
    if again < 0:  # the guard masks all choices
        return row, limit, log_probability, False
    return again, other_limit, other_log, True


@inner
def check_graphs(graphs, network, uniforms, guarded_low, guarded_high):
    """Raise if an index is outside of its array, which compiled code does not check."""
    size, num_stages, num_messages = len(graphs.first_stage) - 1, len(graphs.features), len(graphs.messages)
    num_guarded = len(guarded_low)
    fits = (
        len(graphs.stage_job) == len(graphs.unfinished) == len(graphs.low) == len(graphs.high) == num_stages
        and len(graphs.place) == num_stages
        and len(guarded_high) == num_guarded
        and (num_guarded == 0 or num_guarded == num_stages)
        and _is_split(graphs.first_stage, size, num_stages)
        and _is_split(graphs.first_job, size, len(graphs.job_features))
        and _is_split(graphs.first_message, size, num_messages)
        and graphs.messages.shape[1] == 3
        and graphs.features.shape[1] == network.layers[0, 0] > network.rule_column
        and graphs.job_features.shape[1] > network.rule_limit_column
        and uniforms.shape[0] >= size
        and uniforms.shape[1] >= (4 if num_guarded else 2)
    )
    if not fits:
        raise ValueError("the arrays of graphs and the network have inconsistent shapes")
    for graph in range(size):
        stages = graphs.first_stage[graph + 1] - graphs.first_stage[graph]
        jobs = graphs.first_job[graph + 1] - graphs.first_job[graph]
        for stage in range(graphs.first_stage[graph], graphs.first_stage[graph + 1]):
            fits &= 0 <= graphs.stage_job[stage] < jobs
            if network.limit_kind == OUTPUTS and graphs.low[stage] < graphs.high[stage]:
                fits &= graphs.low[stage] >= 0 and graphs.high[stage] <= network.layers[-1, 1]
        for message in range(graphs.first_message[graph], graphs.first_message[graph + 1]):
            fits &= 0 <= graphs.messages[message, 1] < stages and 0 <= graphs.messages[message, 2] < stages
    for stage in range(num_guarded):
        if guarded_low[stage] < guarded_high[stage]:
            fits &= graphs.low[stage] <= guarded_low[stage] and guarded_high[stage] <= graphs.high[stage]
    if not fits:
        raise ValueError(
            "a graph has a stage without job, a message without stage, or a limit without an output"
        )


@inner
def _is_split(first, size, end):
    """Return whether ``first`` splits ``end`` rows into ``size`` consecutive parts."""
    if size < 0 or len(first) != size + 1 or first[0] != 0 or first[size] != end:
        return False
    for part in range(size):  # noqa: SIM110  # Numba compiles no generator expression
        if first[part] > first[part + 1]:
            return False
    return True


@inner(arrays=True)
def _make_buffers(graphs, network):
    """Allocate buffers that are large enough for each of the graphs."""
    widest = 1
    for layer in range(network.layers.shape[0]):
        widest = max(widest, network.layers[layer, 0], network.layers[layer, 1])
    widest = (widest + 15) // 16 * 16  # rows are aligned to vectors
    stages, jobs, messages = 1, 1, 1
    for graph in range(graphs.first_stage.size - 1):
        stages = max(stages, graphs.first_stage[graph + 1] - graphs.first_stage[graph])
        jobs = max(jobs, graphs.first_job[graph + 1] - graphs.first_job[graph])
        messages = max(messages, graphs.first_message[graph + 1] - graphs.first_message[graph])
    rows = max(stages, jobs)  # a job may have no unfinished stage
    for stage in range(graphs.low.size):
        rows = max(rows, graphs.high[stage] - graphs.low[stage])
    if network.first_layer[ATTENTION] < network.first_layer[ATTENTION + 1]:
        rows = max(rows, messages)
    width = max(network.width, 1)
    return Buffers(
        np.empty((rows, widest), np.float32),
        np.empty((rows, widest), np.float32),
        np.empty((2, rows, widest), np.float32),
        np.empty((stages, width), np.float32),
        np.empty((jobs, width), np.float32),
        np.empty((1, width), np.float32),
        np.empty((stages, width), np.float32),
        np.empty(stages, np.bool_),
        np.empty(max(stages, messages), np.int32),
        np.empty(stages, np.float32),
    )


# Embeddings.


@inner
def _embed_stages(graphs, graph, network, buffers):
    """Embed stages by message passing, step by step."""
    base = graphs.first_stage[graph]
    num_stages = graphs.first_stage[graph + 1] - base
    features = graphs.features[base : base + num_stages]
    apply_part(network, STAGE_INPUT, features, num_stages, buffers.embedding, buffers.between)
    buffers.is_sent[:num_stages] = False
    at, end = graphs.first_message[graph], graphs.first_message[graph + 1]
    while at < end:
        stop = at
        while stop < end and graphs.messages[stop, 0] == graphs.messages[at, 0]:
            stop += 1
        _send(graphs.messages[at:stop], network, buffers)
        _receive(graphs.messages[at:stop], network, buffers)
        at = stop


@inner
def _send(messages, network, buffers):
    """Compute the message of each sender, once for all its receivers."""
    count = _find_senders(messages, buffers.is_sent, buffers.rows)
    take_rows(buffers.embedding, buffers.rows, count, network.width, buffers.x, 0)
    apply_part(network, MESSAGE, buffers.x, count, buffers.result, buffers.between)
    put_rows(buffers.result, count, network.width, buffers.sent, buffers.rows)


@inner
def _find_senders(messages, is_sent, senders):
    """List the senders whose messages are not computed yet, and return their number."""
    count = 0
    for message in range(messages.shape[0]):
        sender = messages[message, 2]
        if not is_sent[sender]:
            is_sent[sender] = True
            senders[count] = sender
            count += 1
    return count


@inner
def _receive(messages, network, buffers):
    """Aggregate the messages of each receiver's children, and add the result to the receiver's embedding."""
    if network.first_layer[ATTENTION] < network.first_layer[ATTENTION + 1]:
        _attend(messages, network, buffers)
        count = _weigh(messages, buffers.sent, buffers.result, network.width, buffers.x, buffers.rows)
    else:
        count = _add_up(messages, buffers.sent, network.width, buffers.x, buffers.rows)
    apply_part(network, AGGREGATE, buffers.x, count, buffers.result, buffers.between)
    add_rows(buffers.result, count, network.width, buffers.embedding, buffers.rows)
    for k in range(count):
        buffers.is_sent[buffers.rows[k]] = False


@inner
def _add_up(messages, sent, width, sums, receivers):
    """Sum the messages to each receiver; fill in ``receivers`` and ``sums``, and return the number of receivers."""
    count = 0
    for message in range(messages.shape[0]):
        if message == 0 or messages[message, 1] != messages[message - 1, 1]:
            receivers[count] = messages[message, 1]
            sums[count, :width] = 0.0
            count += 1
        add_row(sent, messages[message, 2], width, sums, count - 1)
    return count


@inner
def _attend(messages, network, buffers):
    """Compute the attention score of each message, in the first column of ``buffers.result``."""
    count = messages.shape[0]
    take_rows(buffers.embedding, messages[:, 1], count, network.width, buffers.x, 0)
    take_rows(buffers.sent, messages[:, 2], count, network.width, buffers.x, network.width)
    apply_part(network, ATTENTION, buffers.x, count, buffers.result, buffers.between)


@inner
def _weigh(messages, sent, scores, width, means, receivers):
    """Average the messages to each receiver, weighted by the softmax of attention scores; as ``_add_up``."""
    count, at = 0, 0
    while at < messages.shape[0]:
        stop, top = at, scores[at, 0]
        while stop < messages.shape[0] and messages[stop, 1] == messages[at, 1]:
            top = max(top, scores[stop, 0])
            stop += 1
        total = 0.0
        for message in range(at, stop):
            total += math.exp(scores[message, 0] - top)
        receivers[count] = messages[at, 1]
        means[count, :width] = 0.0
        for message in range(at, stop):
            weight = np.float32(math.exp(scores[message, 0] - top) / total)
            for k in range(width):
                means[count, k] += weight * sent[messages[message, 2], k]
        count += 1
        at = stop
    return count


@inner(arrays=True)
def _embed_jobs(graphs, graph, network, buffers):
    """Embed each job as a sum over its unfinished stages, and the cluster as a sum over its jobs."""
    stages = slice(graphs.first_stage[graph], graphs.first_stage[graph + 1])
    num_jobs, width = graphs.first_job[graph + 1] - graphs.first_job[graph], network.width
    raw = graphs.features.shape[1] if network.shortcut else 0
    rows = np.flatnonzero(graphs.unfinished[stages])
    take_rows(graphs.features[stages], rows, rows.size, raw, buffers.x, 0)
    take_rows(buffers.embedding, rows, rows.size, width, buffers.x, raw)
    apply_part(network, JOB_SUMMARY, buffers.x, rows.size, buffers.result, buffers.between)
    buffers.x[:num_jobs, :width] = 0.0
    add_rows(buffers.result, rows.size, width, buffers.x, graphs.stage_job[stages][rows])
    apply_part(network, JOB_AGGREGATE, buffers.x, num_jobs, buffers.job_embedding, buffers.between)
    apply_part(network, GLOBAL_SUMMARY, buffers.job_embedding, num_jobs, buffers.result, buffers.between)
    buffers.x[0, :width] = 0.0
    add_rows(buffers.result, num_jobs, width, buffers.x, np.zeros(num_jobs, np.int64))
    apply_part(network, GLOBAL_AGGREGATE, buffers.x, ONE, buffers.cluster, buffers.between)


# Choices.


@inner(arrays=True)
def _score_stages(graphs, graph, network, buffers):
    """Compute the scores of the stages that may be chosen."""
    first, end = graphs.first_stage[graph], graphs.first_stage[graph + 1]
    rows = np.flatnonzero(graphs.high[first:end] > graphs.low[first:end])
    _describe_stages(graphs, graph, rows, network, buffers)
    apply_part(network, STAGE_HEAD, buffers.x, rows.size, buffers.result, buffers.between)
    for k in range(rows.size):
        score = buffers.result[k, 0]
        if network.rule_weight:
            score += network.rule_weight * graphs.features[first + rows[k], network.rule_column]
        buffers.score[rows[k]] = score


@inner(arrays=True)
def _choose(graphs, graph, low, high, network, buffers, uniforms, greedy):
    """Choose a stage and a limit above ``low`` and at most ``high``.

    Returns:
        Row of the stage in the batch, -1 if no stage may be chosen; limit; joint log-probability.
    """
    first = graphs.first_stage[graph]
    stages = slice(first, graphs.first_stage[graph + 1])
    rows = np.flatnonzero(high[stages] > low[stages])
    if rows.size == 0:
        return -1, 0, 0.0
    choice, log_probability = pick(buffers.score[rows], uniforms[0], greedy)
    row = first + rows[choice]
    limit, log_of_limit = high[row], 0.0
    if network.limit_kind != NONE and high[row] - low[row] > 1:
        limit, log_of_limit = _choose_limit(
            graphs, graph, row, low[row], high[row], network, buffers, uniforms[1], greedy
        )
    return row, limit, log_probability + log_of_limit


@inner(arrays=True)
def _describe_stages(graphs, graph, rows, network, buffers):
    """Write the head inputs of the stages at ``rows`` to ``buffers.x``, and return the number of inputs."""
    stages = slice(graphs.first_stage[graph], graphs.first_stage[graph + 1])
    count, filled = rows.size, 0
    if network.shortcut:
        take_rows(graphs.features[stages], rows, count, graphs.features.shape[1], buffers.x, 0)
        filled = graphs.features.shape[1]
    take_rows(buffers.embedding, rows, count, network.width, buffers.x, filled)
    filled += network.width
    return _describe_jobs(graphs.stage_job[stages][rows], network, buffers, filled)


@inner(arrays=True)
def _describe_jobs(jobs, network, buffers, filled):
    """Append the embeddings of these jobs and of the cluster to ``buffers.x``; return the number of inputs."""
    take_rows(buffers.job_embedding, jobs, jobs.size, network.width, buffers.x, filled)
    take_rows(
        buffers.cluster, np.zeros_like(jobs), jobs.size, network.width, buffers.x, filled + network.width
    )
    return filled + 2 * network.width


@inner(arrays=True)
def _choose_limit(graphs, graph, row, lowest, highest, network, buffers, uniform, greedy):
    """Choose one of the limits ``lowest + 1 .. highest`` of a stage; return the limit and its log-probability."""
    num_limits = highest - lowest
    if network.limit_kind == STAGE:
        only = np.array([row - graphs.first_stage[graph]])
        filled = _describe_stages(graphs, graph, only, network, buffers)
    else:
        filled = graphs.job_features.shape[1] if network.shortcut else 0
        job = graphs.stage_job[row : row + 1]
        take_rows(graphs.job_features[graphs.first_job[graph] :], job, 1, filled, buffers.x, 0)
        filled = _describe_jobs(job, network, buffers, filled)
    scores = np.empty(num_limits, np.float32)
    if network.limit_kind == OUTPUTS:
        apply_part(network, LIMIT_HEAD, buffers.x, ONE, buffers.result, buffers.between)
        for k in range(num_limits):
            scores[k] = buffers.result[0, lowest + k]
    else:
        _repeat_with_limits(buffers.x, filled, lowest, num_limits, network.limit_scale)
        apply_part(network, LIMIT_HEAD, buffers.x, num_limits, buffers.result, buffers.between)
        for k in range(num_limits):
            scores[k] = buffers.result[k, 0]
    if network.rule_limit_weight:
        own = graphs.job_features[graphs.first_job[graph] + graphs.stage_job[row]]
        ruled = own[network.rule_limit_column] * network.rule_limit_scale
        for k in range(num_limits):
            away = abs(np.float32(lowest + k + 1) - ruled) / network.limit_scale
            scores[k] -= network.rule_limit_weight * away
    is_median = greedy and network.median_limit
    choice, log_probability = pick(scores, 0.5 if is_median else uniform, greedy and not is_median)
    return lowest + choice + 1, log_probability


@inner(fastmath=ANY_ORDER)
def _repeat_with_limits(x, filled, lowest, num_limits, scale):
    """Repeat the first row of inputs for each limit, and append the scaled limit."""
    for k in range(1, num_limits):
        for column in range(filled):
            x[k, column] = x[0, column]
    for k in range(num_limits):
        x[k, filled] = np.float32(lowest + k + 1) / scale


@compiled(_nrt=False)
def pick(scores, uniform, greedy):
    """Choose the largest score (greedy), or sample from the softmax; return index and log-probability.

    Raises:
        ValueError: ``scores`` is empty.
    """
    if len(scores) == 0:
        raise ValueError("there is nothing to choose from")
    top = scores[0]
    best = 0
    for i in range(1, scores.size):
        if scores[i] > top:
            top = scores[i]
            best = i
    total = 0.0
    for i in range(scores.size):
        total += math.exp(scores[i] - top)
    if not greedy:
        threshold = uniform * total
        running = 0.0
        best = 0  # if scores are NaN
        for i in range(scores.size):
            weight = math.exp(scores[i] - top)
            running += weight
            if weight > 0.0:
                best = i  # the last possible one if rounding leaves the sum below the threshold
                if running > threshold:
                    break
    return best, scores[best] - top - math.log(total)
