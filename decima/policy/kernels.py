"""Compiled code of the agent: observations to graphs, and graphs to decisions on a CPU.

``act`` is the same network as ``encoder.py`` and ``policy.py``, in one compiled loop: for a
network this small the calls of a tensor library would cost several times the arithmetic. The tests hold the two
together. All arrays are those of ``features.Graphs``. What is compiled is kept on disk; this file calls no
compiled code of another file.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["act", "build", "build_size", "select"]

compiled: Any = numba.njit(cache=True, nogil=True)
#: Sums may be taken in any order, which lets the compiler use vectors.
reordering: Any = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})

# How limits are chosen; the order of PolicyConfig.limit.
INPUT, OUTPUTS, STAGE, NONE = 0, 1, 2, 3

# Rows of Observation.jobs and Observation.stages.
JOB_FIRST, JOB_EXECUTORS, JOB_NEXT = 1, 2, 5
STAGE_NUMBER, STAGE_JOB, NUM_TASKS, REMAINING, UNCLAIMED, RUNNING, FINISHED = 0, 1, 2, 3, 4, 5, 6
READY_RANK, SCHEDULABLE = 7, 8

# Features, in the order of config.FEATURE_NAMES; those of useful_executors come last.
UNCLAIMED_TASKS, REMAINING_TASKS, MEAN_TASK_MS, UNCLAIMED_WORK_MS, REMAINING_WORK_MS = 0, 1, 2, 3, 4
EXECUTORS, OFFERED, LOCAL, RUNNING_EXECUTORS, JOB_WORK_MS = 5, 6, 7, 8, 9
READY, NEXT, SHARE, LASTING, USEFUL = 10, 11, 12, 13, 14


# Observations to graphs.


@compiled
def build_size(jobs, stages, first_message, keep_finished):
    """At most this many stages and messages."""
    size = 0
    for place in range(stages.shape[1]):
        size += keep_finished or stages[FINISHED, place] < stages[NUM_TASKS, place]
    messages = 0
    for job in range(jobs.shape[1]):
        messages += first_message[jobs[0, job] + 1] - first_message[jobs[0, job]]
    return size, messages


@compiled
def _scaled(value, scale, log):
    return math.log1p(value / scale) if log else value / scale


@compiled
def build(
    jobs,
    stages,
    mean_task_ms,
    useful_executors,
    lasting_ms,
    first_message,
    all_messages,
    offered,
    source,
    num_executors,
    feature_names,
    feature_scales,
    feature_logs,
    num_stage_features,
    keep_finished,
    limit_kind,
    all_limits,
    num_limits,
    can_wait,
    features,
    job_features,
    stage_job,
    unfinished,
    place_of,
    low,
    high,
    messages,
):
    """Fill the arrays of one graph; returns the number of messages and of different answers."""
    num_jobs, num_stages = jobs.shape[1], stages.shape[1]
    most = float(num_executors)
    job_work, unclaimed_work = np.zeros(num_jobs), np.zeros(num_jobs)
    for place in range(num_stages):
        job, mean_ms = stages[STAGE_JOB, place], mean_task_ms[stages[STAGE_NUMBER, place]]
        job_work[job] += stages[REMAINING, place] * mean_ms
        unclaimed_work[job] += stages[UNCLAIMED, place] * mean_ms
    values = np.zeros(USEFUL + useful_executors.shape[1])
    values[OFFERED] = offered
    values[SHARE] = num_executors / max(num_jobs, 1)
    kept = np.full(num_stages, -1, dtype=np.int32)
    count = 0
    choices = 0
    for job in range(num_jobs):
        executors = jobs[JOB_EXECUTORS, job]
        held = max(executors - offered if job == source else executors, 0)
        values[EXECUTORS] = executors
        values[LOCAL] = 1.0 if job == source else -1.0
        values[JOB_WORK_MS] = job_work[job]
        values[LASTING] = min(unclaimed_work[job] / lasting_ms, most) if lasting_ms > 0 else most
        values[USEFUL:] = useful_executors[jobs[0, job]]
        for k in range(num_stage_features, feature_names.size):
            value = _scaled(values[feature_names[k]], feature_scales[k], feature_logs[k])
            job_features[job, k - num_stage_features] = value
        end = jobs[JOB_FIRST, job + 1] if job + 1 < num_jobs else num_stages
        for place in range(jobs[JOB_FIRST, job], end):
            is_finished = stages[FINISHED, place] >= stages[NUM_TASKS, place]
            if is_finished and not keep_finished:
                continue
            kept[place] = count
            unclaimed, remaining = stages[UNCLAIMED, place], stages[REMAINING, place]
            mean_ms = mean_task_ms[stages[STAGE_NUMBER, place]]
            values[UNCLAIMED_TASKS] = unclaimed
            values[REMAINING_TASKS] = remaining
            values[MEAN_TASK_MS] = mean_ms
            values[UNCLAIMED_WORK_MS] = unclaimed * mean_ms
            values[REMAINING_WORK_MS] = remaining * mean_ms
            values[RUNNING_EXECUTORS] = stages[RUNNING, place]
            values[READY] = 1.0 if stages[READY_RANK, place] >= 0 else -1.0
            values[NEXT] = 1.0 if jobs[JOB_NEXT, job] == place else -1.0
            for k in range(num_stage_features):
                features[count, k] = _scaled(values[feature_names[k]], feature_scales[k], feature_logs[k])
            stage_job[count] = job
            unfinished[count] = not is_finished
            place_of[count] = place
            lowest = stages[RUNNING, place] if limit_kind == STAGE else held
            low[count] = lowest
            high[count] = lowest
            if stages[SCHEDULABLE, place]:
                highest = num_executors if all_limits else lowest + min(offered, unclaimed)
                if limit_kind == OUTPUTS:
                    highest = min(highest, num_limits)
                high[count] = max(highest, lowest)
                low[count] -= can_wait and highest > lowest
                choices += min(high[count] - lowest, 1) if limit_kind == NONE else high[count] - low[count]
            count += 1
    # Step by step over all jobs, so that the network sees many stages at once.
    num_steps = 0
    for job in range(num_jobs):
        for m in range(first_message[jobs[0, job]], first_message[jobs[0, job] + 1]):
            num_steps = max(num_steps, all_messages[m, 0] + 1)
    next_row = np.zeros(num_steps + 1, dtype=np.int64)
    for job in range(num_jobs):
        for m in range(first_message[jobs[0, job]], first_message[jobs[0, job] + 1]):
            if kept[jobs[JOB_FIRST, job] + all_messages[m, 1]] >= 0:
                next_row[all_messages[m, 0] + 1] += 1
    for step in range(num_steps):
        next_row[step + 1] += next_row[step]
    num_messages = next_row[num_steps]
    for job in range(num_jobs):
        first = jobs[JOB_FIRST, job]
        for m in range(first_message[jobs[0, job]], first_message[jobs[0, job] + 1]):
            step, receiver = all_messages[m, 0], kept[first + all_messages[m, 1]]
            if receiver >= 0:  # then its children are not finished either
                row = next_row[step]
                next_row[step] += 1
                messages[row, 0] = step
                messages[row, 1] = receiver
                messages[row, 2] = kept[first + all_messages[m, 2]]
    return num_messages, choices


@compiled
def select(chosen, first, first_new, rows, out):
    """Copy the rows of the chosen graphs, one graph after the other."""
    for i in range(chosen.size):
        start = first[chosen[i]]
        for row in range(first_new[i + 1] - first_new[i]):
            out[first_new[i] + row] = rows[start + row]


# The network.


@reordering
def _dense(x, num_rows, out, weights, slope):
    """One layer on some rows; ``slope`` 1 is no activation.

    ``weights`` are [inputs + 1, outputs], the last row is the bias. Several rows and inputs at a time spare loads
    and stores. Plain ``range`` everywhere: where the compiler cannot see that an index is not negative, it does not
    use vectors.
    """
    num_in, num_out = weights.shape[0] - 1, weights.shape[1]
    blocks = num_rows // 4
    pairs = num_in // 2
    for block in range(blocks):
        x4, out4 = x[4 * block : 4 * block + 4], out[4 * block : 4 * block + 4]
        for j in range(num_out):
            value = weights[num_in, j]
            out4[0, j] = value
            out4[1, j] = value
            out4[2, j] = value
            out4[3, j] = value
        for pair in range(pairs):
            k = 2 * pair
            x0, x1, x2, x3 = x4[0, k], x4[1, k], x4[2, k], x4[3, k]
            y0, y1, y2, y3 = x4[0, k + 1], x4[1, k + 1], x4[2, k + 1], x4[3, k + 1]
            for j in range(num_out):
                v, w = weights[k, j], weights[k + 1, j]
                out4[0, j] += x0 * v + y0 * w
                out4[1, j] += x1 * v + y1 * w
                out4[2, j] += x2 * v + y2 * w
                out4[3, j] += x3 * v + y3 * w
        for k in range(2 * pairs, num_in):
            x0, x1, x2, x3 = x4[0, k], x4[1, k], x4[2, k], x4[3, k]
            for j in range(num_out):
                v = weights[k, j]
                out4[0, j] += x0 * v
                out4[1, j] += x1 * v
                out4[2, j] += x2 * v
                out4[3, j] += x3 * v
    for row in range(4 * blocks, num_rows):
        for j in range(num_out):
            out[row, j] = weights[num_in, j]
        for pair in range(pairs):
            k = 2 * pair
            x0, y0 = x[row, k], x[row, k + 1]
            for j in range(num_out):
                out[row, j] += x0 * weights[k, j] + y0 * weights[k + 1, j]
        for k in range(2 * pairs, num_in):
            x0 = x[row, k]
            for j in range(num_out):
                out[row, j] += x0 * weights[k, j]
    if slope != 1.0:
        for row in range(num_rows):
            for j in range(num_out):
                out[row, j] = max(out[row, j], np.float32(0.0)) + slope * min(out[row, j], np.float32(0.0))


@compiled
def _network(net, x, num_rows, out, weights, first_layer, layers, slope, last_slope, here, there):
    """A whole network on some rows; ``layers`` [L, 3] are inputs, outputs, offset of the weights."""
    first, last = first_layer[net], first_layer[net + 1] - 1
    source, target = x, here
    for layer in range(first, last + 1):
        num_in, num_out, offset = layers[layer]
        matrix = weights[offset : offset + (num_in + 1) * num_out].reshape(num_in + 1, num_out)
        if layer == last:
            _dense(source, num_rows, out, matrix, last_slope)
        else:
            _dense(source, num_rows, target, matrix, slope)
            source = target
            target = there if (layer - first) % 2 == 0 else here


@reordering
def _copy(source, row, width, target, to, column):
    for k in range(width):
        target[to, column + k] = source[row, k]


@reordering
def _add(source, row, width, target, to):
    for k in range(width):
        target[to, k] += source[row, k]


@reordering
def _clear(target, row, width):
    for k in range(width):
        target[row, k] = 0.0


@compiled
def _pick(scores, count, uniform, greedy):
    """A place and its log-probability: the largest score, or by the uniform number."""
    top = scores[0]
    best = 0
    for i in range(1, count):
        if scores[i] > top:
            top = scores[i]
            best = i
    total = 0.0
    for i in range(count):
        total += math.exp(scores[i] - top)
    if not greedy:
        threshold = uniform * total
        running = 0.0
        best = 0  # scores that are no numbers choose something too
        for i in range(count):
            weight = math.exp(scores[i] - top)
            running += weight
            if weight > 0.0:
                best = i  # the last possible one, should rounding leave the sum below the threshold
                if running > threshold:
                    break
    return best, scores[best] - top - math.log(total)


@reordering
def act(
    first_stage,
    first_job,
    first_message,
    features,
    job_features,
    stage_job,
    unfinished,
    low,
    high,
    messages,
    weights,
    first_layer,
    layers,
    nets,
    width,
    slope,
    last_slope,
    shortcut,
    limit_kind,
    limit_scale,
    uniforms,
    greedy,
    median_limit,
    out_stage,
    out_count,
    out_log_probability,
):
    """Decide in each graph: fills the stage (place in the graph), the executors beyond ``low``, the log-probability.

    ``nets`` are the numbers of the nine networks in the order of ``PolicyConfig.layers``, -1 where there is none.
    A stage of -1: no stage may be chosen.
    """
    widest = 1
    for layer in range(layers.shape[0]):
        widest = max(widest, layers[layer, 0], layers[layer, 1])
    widest = (widest + 15) // 16 * 16  # rows begin where vectors do
    rows, most_jobs, most_messages = 1, 1, 1
    for graph in range(first_stage.size - 1):
        rows = max(rows, first_stage[graph + 1] - first_stage[graph])
        most_jobs = max(most_jobs, first_job[graph + 1] - first_job[graph])
        most_messages = max(most_messages, first_message[graph + 1] - first_message[graph])
    most_stages = rows
    for stage in range(low.size):
        rows = max(rows, high[stage] - low[stage])
    columns = max(width, 1)
    here, there = np.empty((rows, widest), np.float32), np.empty((rows, widest), np.float32)
    x, result = np.empty((rows, widest), np.float32), np.empty((rows, widest), np.float32)
    embedding = np.empty((most_stages, columns), np.float32)
    sent = np.empty((most_stages, columns), np.float32)
    is_sent = np.empty(most_stages, np.bool_)
    stages = np.empty(max(most_stages, most_messages), np.int32)
    job_embedding = np.empty((most_jobs, columns), np.float32)
    world = np.empty((1, columns), np.float32)
    scores = np.empty(rows, np.float32)
    one = np.float32(1.0)
    stage_extra = features.shape[1] if shortcut else 0
    job_extra = job_features.shape[1] if shortcut else 0

    for graph in range(first_stage.size - 1):
        base, num_stages = first_stage[graph], first_stage[graph + 1] - first_stage[graph]
        base_job, num_jobs = first_job[graph], first_job[graph + 1] - first_job[graph]

        if width:
            _network(
                nets[0], features[base : base + num_stages], num_stages, embedding, weights, first_layer, layers,
                slope, last_slope, here, there,
            )  # fmt: skip
            is_sent[:num_stages] = False

            # Messages come step by step, and in a step receiver by receiver.
            at, end = first_message[graph], first_message[graph + 1]
            while at < end:
                stop = at
                num_senders = 0
                while stop < end and messages[stop, 0] == messages[at, 0]:
                    sender = messages[stop, 2]
                    if not is_sent[sender]:
                        is_sent[sender] = True
                        stages[num_senders] = sender
                        _copy(embedding, sender, width, x, num_senders, 0)
                        num_senders += 1
                    stop += 1
                _network(
                    nets[1], x, num_senders, result, weights, first_layer, layers,
                    slope, last_slope, here, there,
                )  # fmt: skip
                for k in range(num_senders):
                    _copy(result, k, width, sent, stages[k], 0)
                num_receivers = 0
                while at < stop:
                    receiver = messages[at, 1]
                    _clear(x, num_receivers, width)
                    while at < stop and messages[at, 1] == receiver:
                        _add(sent, messages[at, 2], width, x, num_receivers)
                        at += 1
                    stages[num_receivers] = receiver
                    num_receivers += 1
                if nets[2] >= 0:
                    _network(
                        nets[2], x, num_receivers, result, weights, first_layer, layers,
                        slope, last_slope, here, there,
                    )  # fmt: skip
                else:
                    for k in range(num_receivers):
                        _copy(x, k, width, result, k, 0)
                for k in range(num_receivers):
                    _add(result, k, width, embedding, stages[k])
                    is_sent[stages[k]] = False

            num_unfinished = 0
            for stage in range(num_stages):
                if unfinished[base + stage]:
                    _copy(features, base + stage, stage_extra, x, num_unfinished, 0)
                    _copy(embedding, stage, width, x, num_unfinished, stage_extra)
                    stages[num_unfinished] = stage
                    num_unfinished += 1
            _network(
                nets[3],
                x,
                num_unfinished,
                result,
                weights,
                first_layer,
                layers,
                slope,
                last_slope,
                here,
                there,
            )
            for job in range(num_jobs):
                _clear(x, job, width)
            for k in range(num_unfinished):
                _add(result, k, width, x, stage_job[base + stages[k]])
            if nets[4] >= 0:
                _network(
                    nets[4], x, num_jobs, job_embedding, weights, first_layer, layers,
                    slope, last_slope, here, there,
                )  # fmt: skip
            else:
                for job in range(num_jobs):
                    _copy(x, job, width, job_embedding, job, 0)
            _network(
                nets[5], job_embedding, num_jobs, result, weights, first_layer, layers,
                slope, last_slope, here, there,
            )  # fmt: skip
            _clear(x, 0, width)
            for job in range(num_jobs):
                _add(result, job, width, x, 0)
            if nets[6] >= 0:
                _network(nets[6], x, 1, world, weights, first_layer, layers, slope, last_slope, here, there)
            else:
                _copy(x, 0, width, world, 0, 0)

        num_choices = 0
        for stage in range(num_stages):
            if high[base + stage] > low[base + stage]:
                _copy(features, base + stage, stage_extra, x, num_choices, 0)
                if width:
                    _copy(embedding, stage, width, x, num_choices, stage_extra)
                    after = stage_extra + width
                    _copy(job_embedding, stage_job[base + stage], width, x, num_choices, after)
                    _copy(world, 0, width, x, num_choices, after + width)
                stages[num_choices] = stage
                num_choices += 1
        if num_choices == 0:
            out_stage[graph] = -1
            continue
        _network(nets[7], x, num_choices, result, weights, first_layer, layers, slope, one, here, there)
        for k in range(num_choices):
            scores[k] = result[k, 0]
        choice, log_probability = _pick(scores, num_choices, uniforms[graph, 0], greedy)
        stage = stages[choice]
        job = stage_job[base + stage]
        out_stage[graph] = stage

        lowest = low[base + stage]
        num_limits = high[base + stage] - lowest
        if limit_kind == NONE or num_limits == 1:
            out_count[graph] = num_limits
            out_log_probability[graph] = log_probability
            continue
        filled = 0
        if limit_kind == STAGE:
            _copy(features, base + stage, stage_extra, x, 0, 0)
            filled = stage_extra
            if width:
                _copy(embedding, stage, width, x, 0, filled)
                filled += width
        else:
            _copy(job_features, base_job + job, job_extra, x, 0, 0)
            filled = job_extra
        if width:
            _copy(job_embedding, job, width, x, 0, filled)
            _copy(world, 0, width, x, 0, filled + width)
            filled += 2 * width
        if limit_kind == OUTPUTS:
            _network(nets[8], x, 1, result, weights, first_layer, layers, slope, one, here, there)
            for k in range(num_limits):
                scores[k] = result[0, lowest + k]
        else:
            for k in range(1, num_limits):
                _copy(x, 0, filled, x, k, 0)
            for k in range(num_limits):
                x[k, filled] = np.float32(lowest + k + 1) / limit_scale
            _network(nets[8], x, num_limits, result, weights, first_layer, layers, slope, one, here, there)
            for k in range(num_limits):
                scores[k] = result[k, 0]
        uniform = 0.5 if greedy else uniforms[graph, 1]
        count, limit_log_probability = _pick(scores, num_limits, uniform, greedy and not median_limit)
        out_count[graph] = count + 1
        out_log_probability[graph] = log_probability + limit_log_probability
