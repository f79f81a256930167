"""Compiled: from graphs to decisions on a CPU.

The same network as ``encoder.py`` and ``policy.py``, in one compiled loop: for a network this small the calls of a
tensor library would cost several times the arithmetic. The tests hold the two together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import NONE, OUTPUTS, STAGE
from decima.policy.compiled.layers import apply_layer
from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["PARTS", "SLOPE", "Network", "act", "pick"]

#: Of the leaky ReLU below 0, as in the published code.
SLOPE = 0.2

#: The parts of a network, the heads behind all others.
PARTS = (
    "stage_input",
    "message",
    "attention",
    "aggregate",
    "job_summary",
    "job_aggregate",
    "global_summary",
    "global_aggregate",
    "stage_head",
    "limit_head",
)
# NumPy's integers: for each of Python's own ones, ``_apply`` would be compiled anew.
STAGE_INPUT, MESSAGE, ATTENTION, AGGREGATE, JOB_SUMMARY, JOB_AGGREGATE = np.arange(6)
GLOBAL_SUMMARY, GLOBAL_AGGREGATE, STAGE_HEAD, LIMIT_HEAD = np.arange(6, len(PARTS))
ONE = np.int64(1)


class Network(NamedTuple):
    """A policy, as compiled code wants it."""

    weights: NDArray[np.float32]
    """Layer by layer, inputs x outputs, the bias behind them."""
    layers: NDArray[np.int64]
    """[layers, 3] inputs, outputs, offset of the weights."""
    first_layer: NDArray[np.int64]
    """[11] where the layers of each of ``PARTS`` begin; one that has none changes nothing."""
    width: int
    """Of embeddings; 0 if there are none."""
    slope: np.float32
    """Of the activation below 0."""
    embedding_slope: np.float32
    """Behind the last layer of what embeds; 1 is no activation."""
    shortcut: bool
    """Whether features are used beside embeddings."""
    limit_kind: int
    limit_scale: np.float32
    rule_column: int
    """Of the stage features, how near a stage is to what the rule would choose: times its weight it is added to the
    scores."""
    rule_weight: np.float32
    rule_limit_column: int
    """Of the job features, the limit that the rule would choose."""
    rule_limit_scale: np.float32
    """What that was divided by."""
    rule_limit_weight: np.float32
    """What is taken from the score of a limit that is ``limit_scale`` executors away from it."""
    median_limit: bool
    """Whether the limit that is chosen without random numbers is the median, not the likeliest."""


class _Room(NamedTuple):
    """Room for what is computed of one graph at a time."""

    x: NDArray[np.float32]
    """Inputs of a part, one row for each stage, job or limit; ``result`` is for what comes out."""
    result: NDArray[np.float32]
    between: NDArray[np.float32]
    """[2, ...] between layers, in turn."""
    embedding: NDArray[np.float32]
    """Of stages; then of jobs and of the cluster."""
    job_embedding: NDArray[np.float32]
    cluster: NDArray[np.float32]
    sent: NDArray[np.float32]
    """What each stage says to its parents."""
    is_sent: NDArray[np.bool_]
    rows: NDArray[np.int32]
    """The stage that a row of ``x`` is about, as messages go."""
    score: NDArray[np.float32]
    """Of each stage that may be chosen."""


@compiled
def act(graphs, network, uniforms, greedy, guarded_low, guarded_high):
    """Decide in each of B graphs.

    Args:
        graphs: ``features.Graphs``.
        network: :class:`Network`.
        uniforms: float64 [B, 2], to draw stage and limit with; [B, 4] with a guard.
        greedy: draw nothing.
        guarded_low: int32 [S]; as ``graphs.low``, where a guard acts; empty without one.
        guarded_high: int32 [S]; likewise.

    Returns:
        The arrays of ``actor.Choices``.

    Raises:
        ValueError: the graphs do not fit together, or not the network.
    """
    size = graphs.first_stage.size - 1
    stage, limit = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    log_probability, guarded = np.zeros(size, np.float32), np.zeros(size, np.bool_)
    _check(graphs, network, uniforms, guarded_low, guarded_high)
    room = _make_room(graphs, network)
    for graph in range(size):
        if network.width:
            _embed_stages(graphs, graph, network, room)
            _embed_jobs(graphs, graph, network, room)
        _score_stages(graphs, graph, network, room)
        row, chosen, log_of_both = _choose(
            graphs, graph, graphs.low, graphs.high, network, room, uniforms[graph, :2], greedy
        )
        if row >= 0 and guarded_low.size and not guarded_low[row] < chosen <= guarded_high[row]:
            own_row, own_chosen, own_log = row, chosen, log_of_both
            row, chosen, log_of_both = _choose(
                graphs, graph, guarded_low, guarded_high, network, room, uniforms[graph, 2:4], greedy
            )
            guarded[graph] = row >= 0
            if row < 0:  # the guard leaves nothing
                row, chosen, log_of_both = own_row, own_chosen, own_log
        if row >= 0:
            stage[graph], limit[graph], log_probability[graph] = graphs.place[row], chosen, log_of_both
    return stage, limit, log_probability, guarded


@inner
def _check(graphs, network, uniforms, guarded_low, guarded_high):
    """Refuse numbers that point outside of an array: compiled code would follow them."""
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
        raise ValueError("the arrays of graphs do not fit together, or not the network")
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
        raise ValueError("a graph has a stage of no job, a message of no stage, or a limit without an output")


@inner
def _is_split(first, size, end):
    """Whether ``end`` rows are split into so many parts, each behind the one before."""
    if size < 0 or len(first) != size + 1 or first[0] != 0 or first[size] != end:
        return False
    for part in range(size):  # noqa: SIM110  # Numba compiles no generator expression
        if first[part] > first[part + 1]:
            return False
    return True


@inner(arrays=True)
def _make_room(graphs, network):
    """Each part of the network has a row for every stage, job, message or limit, or a single one."""
    widest = 1
    for layer in range(network.layers.shape[0]):
        widest = max(widest, network.layers[layer, 0], network.layers[layer, 1])
    widest = (widest + 15) // 16 * 16  # rows begin where vectors do
    stages, jobs, messages = 1, 1, 1
    for graph in range(graphs.first_stage.size - 1):
        stages = max(stages, graphs.first_stage[graph + 1] - graphs.first_stage[graph])
        jobs = max(jobs, graphs.first_job[graph + 1] - graphs.first_job[graph])
        messages = max(messages, graphs.first_message[graph + 1] - graphs.first_message[graph])
    rows = max(stages, jobs)  # a job may have no stage left
    for stage in range(graphs.low.size):
        rows = max(rows, graphs.high[stage] - graphs.low[stage])
    if network.first_layer[ATTENTION] < network.first_layer[ATTENTION + 1]:
        rows = max(rows, messages)
    width = max(network.width, 1)
    return _Room(
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
def _embed_stages(graphs, graph, network, room):
    """Messages come step by step, and in a step receiver by receiver."""
    base = graphs.first_stage[graph]
    num_stages = graphs.first_stage[graph + 1] - base
    features = graphs.features[base : base + num_stages]
    _apply(network, STAGE_INPUT, features, num_stages, room.embedding, room.between)
    room.is_sent[:num_stages] = False
    at, end = graphs.first_message[graph], graphs.first_message[graph + 1]
    while at < end:
        stop = at
        while stop < end and graphs.messages[stop, 0] == graphs.messages[at, 0]:
            stop += 1
        _send(graphs.messages[at:stop], network, room)
        _receive(graphs.messages[at:stop], network, room)
        at = stop


@inner
def _send(messages, network, room):
    """Each sender says something, however many hear it."""
    count = _find_senders(messages, room.is_sent, room.rows)
    _take(room.embedding, room.rows, count, network.width, room.x, 0)
    _apply(network, MESSAGE, room.x, count, room.result, room.between)
    _put(room.result, count, network.width, room.sent, room.rows)


@inner
def _find_senders(messages, is_sent, senders):
    """Those that have something new to say; fills them in, and returns how many they are."""
    count = 0
    for message in range(messages.shape[0]):
        sender = messages[message, 2]
        if not is_sent[sender]:
            is_sent[sender] = True
            senders[count] = sender
            count += 1
    return count


@inner
def _receive(messages, network, room):
    """What its children say changes a stage's embedding, so that it has something new to say itself."""
    if network.first_layer[ATTENTION] < network.first_layer[ATTENTION + 1]:
        _attend(messages, network, room)
        count = _weigh(messages, room.sent, room.result, network.width, room.x, room.rows)
    else:
        count = _add_up(messages, room.sent, network.width, room.x, room.rows)
    _apply(network, AGGREGATE, room.x, count, room.result, room.between)
    _add(room.result, count, network.width, room.embedding, room.rows)
    for k in range(count):
        room.is_sent[room.rows[k]] = False


@inner
def _add_up(messages, sent, width, sums, receivers):
    """Sums over what each receiver hears; fills in both, and returns how many receivers there are."""
    count = 0
    for message in range(messages.shape[0]):
        if message == 0 or messages[message, 1] != messages[message - 1, 1]:
            receivers[count] = messages[message, 1]
            sums[count, :width] = 0.0
            count += 1
        for k in range(width):
            sums[count - 1, k] += sent[messages[message, 2], k]
    return count


@inner
def _attend(messages, network, room):
    """How much each receiver attends to each of its senders, before a softmax; into the first column of ``result``."""
    count = messages.shape[0]
    _take(room.embedding, messages[:, 1], count, network.width, room.x, 0)
    _take(room.sent, messages[:, 2], count, network.width, room.x, network.width)
    _apply(network, ATTENTION, room.x, count, room.result, room.between)


@inner
def _weigh(messages, sent, scores, width, means, receivers):
    """As ``_add_up``, but means of what each receiver hears, with weights that are the softmax of scores."""
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
def _embed_jobs(graphs, graph, network, room):
    """Jobs from what is left of their stages, and the cluster from the jobs."""
    stages = slice(graphs.first_stage[graph], graphs.first_stage[graph + 1])
    num_jobs, width = graphs.first_job[graph + 1] - graphs.first_job[graph], network.width
    raw = graphs.features.shape[1] if network.shortcut else 0
    rows = np.flatnonzero(graphs.unfinished[stages])
    _take(graphs.features[stages], rows, rows.size, raw, room.x, 0)
    _take(room.embedding, rows, rows.size, width, room.x, raw)
    _apply(network, JOB_SUMMARY, room.x, rows.size, room.result, room.between)
    room.x[:num_jobs, :width] = 0.0
    _add(room.result, rows.size, width, room.x, graphs.stage_job[stages][rows])
    _apply(network, JOB_AGGREGATE, room.x, num_jobs, room.job_embedding, room.between)
    _apply(network, GLOBAL_SUMMARY, room.job_embedding, num_jobs, room.result, room.between)
    room.x[0, :width] = 0.0
    _add(room.result, num_jobs, width, room.x, np.zeros(num_jobs, np.int64))
    _apply(network, GLOBAL_AGGREGATE, room.x, ONE, room.cluster, room.between)


# Choices.


@inner(arrays=True)
def _score_stages(graphs, graph, network, room):
    """Fill in the scores of the stages of the graph that may be chosen."""
    stages = slice(graphs.first_stage[graph], graphs.first_stage[graph + 1])
    rows = np.flatnonzero(graphs.high[stages] > graphs.low[stages])
    _describe_stages(graphs, graph, rows, network, room)
    _apply(network, STAGE_HEAD, room.x, rows.size, room.result, room.between)
    for k in range(rows.size):
        score = room.result[k, 0]
        if network.rule_weight:
            score += network.rule_weight * graphs.features[stages][rows[k], network.rule_column]
        room.score[rows[k]] = score


@inner(arrays=True)
def _choose(graphs, graph, low, high, network, room, uniforms, greedy):
    """Choose a stage and its limit, of those that ``low`` and ``high`` allow.

    Returns:
        The stage's row in all graphs, -1 if none may be chosen; the limit; the logarithm of their probability.
    """
    first = graphs.first_stage[graph]
    stages = slice(first, graphs.first_stage[graph + 1])
    rows = np.flatnonzero(high[stages] > low[stages])
    if rows.size == 0:
        return -1, 0, 0.0
    choice, log_probability = pick(room.score[rows], uniforms[0], greedy)
    row = first + rows[choice]
    limit, log_of_limit = high[row], 0.0
    if network.limit_kind != NONE and high[row] - low[row] > 1:
        limit, log_of_limit = _choose_limit(
            graphs, graph, row, low[row], high[row], network, room, uniforms[1], greedy
        )
    return row, limit, log_probability + log_of_limit


@inner(arrays=True)
def _describe_stages(graphs, graph, rows, network, room):
    """What is known of these stages, into the rows of ``x``; returns how much of each."""
    stages = slice(graphs.first_stage[graph], graphs.first_stage[graph + 1])
    count, filled = rows.size, 0
    if network.shortcut:
        _take(graphs.features[stages], rows, count, graphs.features.shape[1], room.x, 0)
        filled = graphs.features.shape[1]
    _take(room.embedding, rows, count, network.width, room.x, filled)
    filled += network.width
    return _describe_jobs(graphs.stage_job[stages][rows], network, room, filled)


@inner(arrays=True)
def _describe_jobs(jobs, network, room, filled):
    """Behind that the embeddings of these jobs and of the cluster."""
    _take(room.job_embedding, jobs, jobs.size, network.width, room.x, filled)
    _take(room.cluster, np.zeros_like(jobs), jobs.size, network.width, room.x, filled + network.width)
    return filled + 2 * network.width


@inner(arrays=True)
def _choose_limit(graphs, graph, row, lowest, highest, network, room, uniform, greedy):
    """One of the limits ``lowest + 1 .. highest`` of a stage, and the logarithm of its probability."""
    num_limits = highest - lowest
    if network.limit_kind == STAGE:
        only = np.array([row - graphs.first_stage[graph]])
        filled = _describe_stages(graphs, graph, only, network, room)
    else:
        filled = graphs.job_features.shape[1] if network.shortcut else 0
        job = graphs.stage_job[row : row + 1]
        _take(graphs.job_features[graphs.first_job[graph] :], job, 1, filled, room.x, 0)
        filled = _describe_jobs(job, network, room, filled)
    scores = np.empty(num_limits, np.float32)
    if network.limit_kind == OUTPUTS:
        _apply(network, LIMIT_HEAD, room.x, ONE, room.result, room.between)
        for k in range(num_limits):
            scores[k] = room.result[0, lowest + k]
    else:
        _repeat_with_limits(room.x, filled, lowest, num_limits, network.limit_scale)
        _apply(network, LIMIT_HEAD, room.x, num_limits, room.result, room.between)
        for k in range(num_limits):
            scores[k] = room.result[k, 0]
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
    """The first row once for each limit, which comes behind it."""
    for k in range(1, num_limits):
        for column in range(filled):
            x[k, column] = x[0, column]
    for k in range(num_limits):
        x[k, filled] = np.float32(lowest + k + 1) / scale


@compiled(_nrt=False)
def pick(scores, uniform, greedy):
    """A place and its log-probability: the largest score, or by the uniform number.

    Raises:
        ValueError: there are no scores.
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
        best = 0  # scores that are no numbers choose something too
        for i in range(scores.size):
            weight = math.exp(scores[i] - top)
            running += weight
            if weight > 0.0:
                best = i  # the last possible one, should rounding leave the sum below the threshold
                if running > threshold:
                    break
    return best, scores[best] - top - math.log(total)


# Layers.


@inner
def _apply(network, part, x, num_rows, out, between):
    """One part of the network, on some rows."""
    first, end = network.first_layer[part], network.first_layer[part + 1]
    if first == end:
        _check_room(out, num_rows, network.width)
        for row in range(num_rows):
            for place in range(network.width):
                out[row, place] = x[row, place]
    for layer in range(first, end):
        num_in, num_out, offset = network.layers[layer]
        matrix = network.weights[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
        source = x if layer == first else between[(layer - first) % 2]
        if layer + 1 < end:
            apply_layer(source, num_rows, between[(layer - first + 1) % 2], matrix, network.slope)
        else:
            is_score = part >= STAGE_HEAD or part == ATTENTION
            apply_layer(
                source, num_rows, out, matrix, np.float32(1.0) if is_score else network.embedding_slope
            )


# Rows.


@inner
def _check_room(target, num_rows, num_columns):
    if target.shape[0] < num_rows or target.shape[1] < num_columns:
        raise ValueError("a buffer has fewer rows or columns than are written")


@inner(fastmath=ANY_ORDER)
def _take(source, rows, count, width, target, column):
    """Copy such rows of the source to the first ones of the target, from a column on."""
    _check_room(target, count, column + width)
    for k in range(count):
        for place in range(width):
            target[k, column + place] = source[rows[k], place]


@inner(fastmath=ANY_ORDER)
def _put(source, count, width, target, rows):
    """Copy the first rows of the source to such rows of the target."""
    for k in range(count):
        for place in range(width):
            target[rows[k], place] = source[k, place]


@inner(fastmath=ANY_ORDER)
def _add(source, count, width, target, rows):
    """Add the first rows of the source to such rows of the target."""
    for k in range(count):
        for place in range(width):
            target[rows[k], place] += source[k, place]
