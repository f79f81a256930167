"""Compiled: inference of the graph neural network (GNN), from graphs to choices of stage and limit, on a CPU.

The same network as in ``encoder.py`` and ``policy.py``, in one compiled loop: for so small a network, calls of a tensor
library would take several times as long as the arithmetic. Tests compare both.
"""

from __future__ import annotations

import math

import numpy as np

from decima.policy.compiled.embeddings import embed, make_buffers
from decima.policy.compiled.graphs import NONE, OUTPUTS, STAGE, make_graph
from decima.policy.compiled.layers import LIMIT_HEAD, ONE, STAGE_HEAD, NetworkArrays, apply_part, copy_row
from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["check_graphs", "choose_in", "decide", "pick"]


@compiled
def decide(rows, offered, profiles, constants, spec, network, uniforms, greedy, keeps_graph):
    """Decide on one observation: features, graph, network and choice.

    Args:
        rows, offered, profiles, constants, spec: see ``graphs.build``.
        network: fields of ``layers.NetworkArrays``, as a plain tuple.
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
    graph, num_answers, guarded_low, guarded_high = make_graph(rows, offered, profiles, constants, spec)
    network = NetworkArrays(*network)
    check_graphs(graph, network, uniforms, guarded_low, guarded_high)
    row, limit, log_probability, is_guarded, job_limit = -1, 0, 0.0, False, 0
    if num_answers > 1:
        buffers = make_buffers(graph, network)
        row, limit, log_probability, is_guarded = choose_in(
            graph, 0, network, buffers, uniforms[0], greedy, guarded_low, guarded_high
        )
    elif num_answers == 1:
        row = 0
        while graph.high[row] <= graph.low[row]:
            row += 1
        limit = graph.high[row]
    if row >= 0:
        jobs, stages, _ = rows
        stage, job = stages[graph.stage_index[row]], graph.stage_job[row]
        held = jobs[job].executors - (offered[0] if job == offered[2] else 0)
        job_limit = limit + (held - stage.running_executors if network.limit_kind == STAGE else 0)
        if job_limit <= held:
            job_limit = 0
    stage_index = graph.stage_index[row] if row >= 0 else -1
    kept = graph if keeps_graph else None
    return num_answers, stage_index, limit, job_limit, log_probability, is_guarded, kept


@inner(arrays=True)
def choose_in(graphs, graph, network, buffers, uniforms, greedy, guarded_low, guarded_high):
    """Choose in one graph.

    Returns:
        Row of the stage in the batch, -1 if no stage may be chosen; limit; joint log-probability; whether the guard
        masked the first choice.
    """
    if network.width:
        embed(graphs, graph, network, buffers)
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
        and len(graphs.stage_index) == num_stages
        and len(guarded_high) == num_guarded
        and (num_guarded == 0 or num_guarded == num_stages)
        and _is_split(graphs.first_stage, size, num_stages)
        and _is_split(graphs.first_job, size, len(graphs.job_features))
        and _is_split(graphs.first_message, size, num_messages)
        and graphs.messages.shape[1] == 3
        and graphs.features.shape[1] == network.layers[0, 0]
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


# Choices.


@inner
def _find_candidates(graphs, graph, low, high, candidates):
    """List the stages of a graph that may be chosen, and return their number."""
    first, count = graphs.first_stage[graph], 0
    for stage in range(graphs.first_stage[graph + 1] - first):
        if high[first + stage] > low[first + stage]:
            candidates[count] = stage
            count += 1
    return count


@inner
def _score_stages(graphs, graph, network, buffers):
    """Compute the scores of the stages that may be chosen."""
    count = _find_candidates(graphs, graph, graphs.low, graphs.high, buffers.rows)
    for k in range(count):
        _describe_stage(graphs, graph, buffers.rows[k], network, buffers, k)
    apply_part(network, STAGE_HEAD, buffers.x, count, buffers.result, buffers.between)
    for k in range(count):
        buffers.score[buffers.rows[k]] = buffers.result[k, 0]


@inner
def _choose(graphs, graph, low, high, network, buffers, uniforms, greedy):
    """Choose a stage and a limit above ``low`` and at most ``high``.

    Returns:
        Row of the stage in the batch, -1 if no stage may be chosen; limit; joint log-probability.
    """
    count = _find_candidates(graphs, graph, low, high, buffers.rows)
    if count == 0:
        return -1, 0, 0.0
    for k in range(count):
        buffers.candidate_score[k] = buffers.score[buffers.rows[k]]
    choice, log_probability = pick(buffers.candidate_score[:count], uniforms[0], greedy)
    row = graphs.first_stage[graph] + buffers.rows[choice]
    limit, log_of_limit = high[row], 0.0
    if network.limit_kind != NONE and high[row] - low[row] > 1:
        limit, log_of_limit = _choose_limit(
            graphs, graph, row, low[row], high[row], network, buffers, uniforms[1], greedy
        )
    return row, limit, log_probability + log_of_limit


@inner
def _describe_stage(graphs, graph, stage, network, buffers, k):
    """Write the head input of a stage to row ``k`` of ``buffers.x``, and return the number of inputs."""
    row, filled = graphs.first_stage[graph] + stage, 0
    if network.shortcut:
        filled = graphs.features.shape[1]
        copy_row(graphs.features, row, filled, buffers.x, k, 0)
    copy_row(buffers.embedding, stage, network.width, buffers.x, k, filled)
    return _describe_job(graphs.stage_job[row], network, buffers, k, filled + network.width)


@inner
def _describe_job(job, network, buffers, k, filled):
    """Append the embeddings of a job and of the cluster to row ``k`` of ``buffers.x``; return the number of inputs."""
    copy_row(buffers.job_embedding, job, network.width, buffers.x, k, filled)
    copy_row(buffers.cluster, 0, network.width, buffers.x, k, filled + network.width)
    return filled + 2 * network.width


@inner(arrays=True)
def _choose_limit(graphs, graph, row, lowest, highest, network, buffers, uniform, greedy):
    """Choose one of the limits ``lowest + 1 .. highest`` of a stage; return the limit and its log-probability."""
    num_limits = highest - lowest
    if network.limit_kind == STAGE:
        filled = _describe_stage(graphs, graph, row - graphs.first_stage[graph], network, buffers, 0)
    else:
        job, filled = graphs.stage_job[row], 0
        if network.shortcut:
            filled = graphs.job_features.shape[1]
            copy_row(graphs.job_features, graphs.first_job[graph] + job, filled, buffers.x, 0, 0)
        filled = _describe_job(job, network, buffers, 0, filled)
    scores = np.empty(num_limits, np.float32)
    if network.limit_kind == OUTPUTS:
        apply_part(network, LIMIT_HEAD, buffers.x, ONE, buffers.result, buffers.between)
        for k in range(num_limits):
            scores[k] = buffers.result[0, lowest + k]
    else:
        _repeat_with_limits(buffers.x, filled, lowest, num_limits, network.limit_scale, network.log_limits)
        apply_part(network, LIMIT_HEAD, buffers.x, num_limits, buffers.result, buffers.between)
        for k in range(num_limits):
            scores[k] = buffers.result[k, 0]
    is_median = greedy and network.median_limit
    choice, log_probability = pick(scores, 0.5 if is_median else uniform, greedy and not is_median)
    return lowest + choice + 1, log_probability


@inner(fastmath=ANY_ORDER)
def _repeat_with_limits(x, filled, lowest, num_limits, scale, log_limits):
    """Repeat the first row of inputs for each limit, and append the scaled limit, or the logarithm of 1 + it."""
    for k in range(1, num_limits):
        for column in range(filled):
            x[k, column] = x[0, column]
    for k in range(num_limits):
        x[k, filled] = np.float32(lowest + k + 1) / scale
        if log_limits:
            x[k, filled] = math.log1p(x[k, filled])


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
