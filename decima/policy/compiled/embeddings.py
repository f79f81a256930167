"""Compiled: embeddings of stages, jobs and cluster, by message passing in the DAGs of jobs.

The embeddings of a job and its stages depend only on its DAG and the features of its stages. Jobs of the same profile
that wait in a queue are alike; of many jobs, only distinct ones are embedded.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.layers import (
    AGGREGATE,
    ATTENTION,
    GLOBAL_AGGREGATE,
    GLOBAL_SUMMARY,
    JOB_AGGREGATE,
    JOB_SUMMARY,
    MESSAGE,
    ONE,
    STAGE_INPUT,
    add_row,
    add_rows,
    apply_part,
    copy_row,
    divide_row,
    put_rows,
    take_rows,
)
from simulator.compiled import inner

__all__ = ["Buffers", "embed", "make_buffers"]

#: Start value of keys.
SEED = np.uint64(0x243F6A8885A308D3)
#: Factors below 2**32, so that no product is too large for 64 bits.
FACTORS = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77)
SHIFT, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
#: Bits of a number in a key, for numbers below 2**21.
BITS = np.uint64(21)
#: Number of stages from which on alike jobs are found, and largest share of distinct jobs for which this is faster.
LARGE, MOST_DISTINCT = 256, 0.8


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
    summary: NDArray[np.float32]
    """Summary of each job, a summand of the cluster embedding."""
    sent: NDArray[np.float32]
    """Message of each stage to its parents; valid where ``is_sent``."""
    is_sent: NDArray[np.bool_]
    rows: NDArray[np.int32]
    """Stage of each row of ``x``, during message passing and in the stage head."""
    score: NDArray[np.float32]
    """Score of each stage that may be chosen."""
    candidate_score: NDArray[np.float32]
    """Scores of these stages, without gaps."""


@inner(arrays=True)
def make_buffers(graphs, network):
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
        np.empty((jobs, width), np.float32),
        np.empty((stages, width), np.float32),
        np.empty(stages, np.bool_),
        np.empty(max(stages, messages), np.int32),
        np.empty(stages, np.float32),
        np.empty(stages, np.float32),
    )


@inner(arrays=True)
def embed(graphs, graph, network, buffers):
    """Compute the embeddings of a graph's stages, of its jobs and of the cluster."""
    stages = slice(graphs.first_stage[graph], graphs.first_stage[graph + 1])
    num_jobs = graphs.first_job[graph + 1] - graphs.first_job[graph]
    messages = graphs.messages[graphs.first_message[graph] : graphs.first_message[graph + 1]]
    seen = graphs.features[stages], graphs.stage_job[stages], graphs.unfinished[stages], messages
    embeddings = buffers.embedding, buffers.job_embedding, buffers.summary
    if len(seen[0]) < LARGE or not _embed_distinct(seen, num_jobs, network, buffers, embeddings):
        _embed_jobs(seen, num_jobs, network, buffers, embeddings)
    for k in range(network.width):
        buffers.x[0, k] = 0.0
    for job in range(num_jobs):
        add_row(buffers.summary, job, network.width, buffers.x, 0)
    if network.root_sums:
        divide_row(buffers.x, 0, network.width, num_jobs)
    apply_part(network, GLOBAL_AGGREGATE, buffers.x, ONE, buffers.cluster, buffers.between)


# Jobs that are alike.


@inner(arrays=True)
def _embed_distinct(seen, num_jobs, network, buffers, embeddings):
    """Embed one of several jobs that are alike, and copy its embeddings; arguments as in ``_embed_jobs``.

    Returns:
        False if nothing is embedded, as it would not be faster.
    """
    features, stage_job, unfinished, messages = seen
    num_stages, width = len(stage_job), network.width
    keys, first = np.empty(num_jobs, np.uint64), np.empty(num_jobs + 1, np.int64)
    if not _find_keys(features.view(np.uint32), stage_job, unfinished, messages, keys, first):
        return False
    key_index, distinct = np.empty(num_jobs, np.int32), np.empty(num_jobs, np.int32)
    num_distinct = _number_keys(keys, key_index, distinct)
    if num_distinct > MOST_DISTINCT * num_jobs:
        return False

    # The graph of the distinct jobs.
    stages, begin = np.empty(num_stages, np.int32), np.empty(num_distinct, np.int64)
    row_of, its_job, its_unfinished = (
        np.empty(num_stages, np.int32),
        np.empty(num_stages, np.int32),
        np.empty(num_stages, np.bool_),
    )
    count, num_messages = 0, 0
    for k in range(num_distinct):
        begin[k] = count
        for stage in range(first[distinct[k]], first[distinct[k] + 1]):
            stages[count], row_of[stage] = stage, count
            its_job[count], its_unfinished[count] = k, unfinished[stage]
            count += 1
    its_features, its_messages = (
        np.empty((count, features.shape[1]), np.float32),
        np.empty((len(messages), 3), np.int32),
    )
    take_rows(features, stages, count, features.shape[1], its_features, 0)
    for message in range(len(messages)):
        receiver, sender = messages[message, 1], messages[message, 2]
        job = stage_job[receiver]
        if distinct[key_index[job]] == job:
            its_messages[num_messages, 0] = messages[message, 0]
            its_messages[num_messages, 1], its_messages[num_messages, 2] = row_of[receiver], row_of[sender]
            num_messages += 1

    rows = np.empty((count, width), np.float32)
    jobs, summaries = np.empty((num_distinct, width), np.float32), np.empty((num_distinct, width), np.float32)
    of_distinct = its_features, its_job[:count], its_unfinished[:count], its_messages[:num_messages]
    _embed_jobs(of_distinct, num_distinct, network, buffers, (rows, jobs, summaries))
    embedding, job_embedding, summary = embeddings
    for job in range(num_jobs):
        copy_row(jobs, key_index[job], width, job_embedding, job, 0)
        copy_row(summaries, key_index[job], width, summary, job, 0)
        for stage in range(first[job], first[job + 1]):
            copy_row(rows, begin[key_index[job]] + stage - first[job], width, embedding, stage, 0)
    return True


@inner(arrays=True)
def _number_keys(keys, key_index, distinct):
    """Number the distinct keys in order of appearance, and return how many there are.

    Args:
        keys: uint64 [J].
        key_index: int32 [J], filled in: number of each key.
        distinct: int32 [J], filled in: index of the first key with each number.
    """
    size = 2
    while size < 2 * len(keys):
        size *= 2
    table, num_distinct = np.zeros(size, np.int32), 0  # number + 1 of the key in each slot; 0 for none
    for k in range(len(keys)):
        slot = np.int64(keys[k] % np.uint64(size))
        while table[slot] > 0 and keys[distinct[table[slot] - 1]] != keys[k]:
            slot = (slot + 1) % size
        if table[slot] == 0:
            distinct[num_distinct] = k
            num_distinct += 1
            table[slot] = num_distinct
        key_index[k] = table[slot] - 1
    return num_distinct


@inner
def _find_keys(bits, stage_job, unfinished, messages, keys, first):
    """Compute the key of each job from everything that its embeddings depend on, and its first stage.

    Args:
        bits: uint32 [S, F], features of stages.
        keys: uint64 [J], filled in.
        first: int64 [J + 1], filled in.

    Returns:
        False if there are no such keys, as stages are not sorted by job, or jobs exchange messages.
    """
    num_columns, num_jobs, job = bits.shape[1], len(keys), 0
    first[0] = 0
    for index in range(num_jobs):
        keys[index] = SEED
    for stage in range(len(stage_job)):
        if stage_job[stage] < job:
            return False
        while job < stage_job[stage]:
            job += 1
            first[job] = stage
        key = SEED
        for column in range(0, num_columns - 1, 2):
            pair = np.uint64(bits[stage, column]) | np.uint64(bits[stage, column + 1]) << SHIFT
            key = _mix(key, pair)
        last = np.uint64(bits[stage, num_columns - 1]) << np.uint64(1) | np.uint64(unfinished[stage])
        keys[job] = _mix(keys[job], _mix(key, last))
    while job < num_jobs:
        job += 1
        first[job] = len(stage_job)
    for message in range(len(messages)):
        step, receiver, sender = messages[message]
        job = stage_job[receiver]
        if stage_job[sender] != job:
            return False
        of_stages = np.uint64(receiver - first[job]) << BITS | np.uint64(sender - first[job])
        keys[job] = _mix(keys[job], np.uint64(step) << (BITS + BITS) | of_stages)
    return True


@inner
def _mix(key, bits):
    """Return a key that depends on all bits of a key and a number."""
    key = key ^ bits
    low, high = (key & LOW) * FACTORS[0], (key >> SHIFT) * FACTORS[1]
    return low ^ (high << SHIFT | high >> SHIFT)


# Message passing.


@inner
def _embed_jobs(seen, num_jobs, network, buffers, embeddings):
    """Embed stages by message passing, and jobs as sums over their unfinished stages.

    Args:
        seen: features, ``stage_job``, ``unfinished`` and ``messages`` of one graph, see ``Graphs``.
        num_jobs: number of jobs.
        embeddings: arrays for the embeddings of stages and of jobs, and for the summaries of jobs.
    """
    features, stage_job, unfinished, messages = seen
    embedding, job_embedding, summary = embeddings
    width = network.width
    apply_part(network, STAGE_INPUT, features, len(features), embedding, buffers.between)
    for stage in range(len(features)):
        buffers.is_sent[stage] = False
    at, end = 0, len(messages)
    while at < end:
        stop = at
        while stop < end and messages[stop, 0] == messages[at, 0]:
            stop += 1
        _send(messages[at:stop], network, buffers, embedding)
        _receive(messages[at:stop], network, buffers, embedding)
        at = stop
    raw, count = features.shape[1] if network.shortcut else 0, 0
    for stage in range(len(features)):
        if unfinished[stage]:
            buffers.rows[count] = stage
            count += 1
    take_rows(features, buffers.rows, count, raw, buffers.x, 0)
    take_rows(embedding, buffers.rows, count, width, buffers.x, raw)
    apply_part(network, JOB_SUMMARY, buffers.x, count, buffers.result, buffers.between)
    for job in range(num_jobs):
        for k in range(width):
            buffers.x[job, k] = 0.0
    for k in range(count):
        add_row(buffers.result, k, width, buffers.x, stage_job[buffers.rows[k]])
    if network.root_sums:
        begin = 0
        for k in range(1, count + 1):
            if k == count or stage_job[buffers.rows[k]] != stage_job[buffers.rows[begin]]:
                divide_row(buffers.x, stage_job[buffers.rows[begin]], width, k - begin)
                begin = k
    apply_part(network, JOB_AGGREGATE, buffers.x, num_jobs, job_embedding, buffers.between)
    apply_part(network, GLOBAL_SUMMARY, job_embedding, num_jobs, summary, buffers.between)


@inner
def _send(messages, network, buffers, embedding):
    """Compute the message of each sender, once for all its receivers."""
    count = _find_senders(messages, buffers.is_sent, buffers.rows)
    take_rows(embedding, buffers.rows, count, network.width, buffers.x, 0)
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
def _receive(messages, network, buffers, embedding):
    """Aggregate the messages of each receiver's children, and add the result to the receiver's embedding."""
    if network.first_layer[ATTENTION] < network.first_layer[ATTENTION + 1]:
        _attend(messages, network, buffers, embedding)
        count = _weigh(messages, buffers.sent, buffers.result, network.width, buffers.x, buffers.rows)
    else:
        count = _add_up(messages, buffers.sent, network.width, network.root_sums, buffers.x, buffers.rows)
    apply_part(network, AGGREGATE, buffers.x, count, buffers.result, buffers.between)
    add_rows(buffers.result, count, network.width, embedding, buffers.rows)
    for k in range(count):
        buffers.is_sent[buffers.rows[k]] = False


@inner
def _add_up(messages, sent, width, root_sums, sums, receivers):
    """Sum the messages to each receiver; fill in ``receivers`` and ``sums``, and return the number of receivers."""
    count, begin = 0, 0
    for message in range(messages.shape[0]):
        if message == 0 or messages[message, 1] != messages[message - 1, 1]:
            if root_sums and count:
                divide_row(sums, count - 1, width, message - begin)
            begin = message
            receivers[count] = messages[message, 1]
            for k in range(width):
                sums[count, k] = 0.0
            count += 1
        add_row(sent, messages[message, 2], width, sums, count - 1)
    if root_sums and count:
        divide_row(sums, count - 1, width, messages.shape[0] - begin)
    return count


@inner
def _attend(messages, network, buffers, embedding):
    """Compute the attention score of each message, in the first column of ``buffers.result``."""
    count = messages.shape[0]
    take_rows(embedding, messages[:, 1], count, network.width, buffers.x, 0)
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
        for k in range(width):
            means[count, k] = 0.0
        for message in range(at, stop):
            weight = np.float32(math.exp(scores[message, 0] - top) / total)
            for k in range(width):
                means[count, k] += weight * sent[messages[message, 2], k]
        count += 1
        at = stop
    return count
