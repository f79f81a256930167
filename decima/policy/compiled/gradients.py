"""Log-probabilities and entropies of choices with their gradients (backpropagation), compiled, as autograd functions.

The same network as in ``encoder.py`` and ``policy.py``, where memory limits the speed of operations on tensors. Here
activations stay in the processor's cache if callers pass few stages at a time. Tests compare both.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from decima.policy.compiled.graphs import OUTPUTS, STAGE, Graphs
from decima.policy.compiled.layers import (
    AGGREGATE,
    GLOBAL_AGGREGATE,
    GLOBAL_SUMMARY,
    JOB_AGGREGATE,
    JOB_SUMMARY,
    LIMIT_HEAD,
    MESSAGE,
    PARTS,
    STAGE_HEAD,
    STAGE_INPUT,
    Network,
)
from decima.policy.compiled.network import check_graphs
from decima.policy.compiled.passes import UNSIGNED, Pass, Rows, add, find_rows, make_pass, run, run_back, take
from simulator.compiled import ANY_ORDER, compiled, inner

__all__ = ["CompiledEvaluation", "FlatWeights", "differentiate", "evaluate"]

#: Smallest probability of a choice, as in ``policy.py``, and its logarithm.
TINY = float(np.finfo(np.float32).tiny)
SMALLEST_LOG = np.float32(math.log(TINY))


class Kept(NamedTuple):
    """Intermediate results of ``evaluate`` that ``differentiate`` needs."""

    rows: Rows
    passes: tuple[Pass, ...]
    """Activations, a ``Pass`` for each of ``layers.PARTS``."""
    logs: tuple[NDArray[np.float32], NDArray[np.float32]]
    """Log-probabilities of stages, and of limits, one for each score."""
    entropies: NDArray[np.float32]
    """[B, 2], entropies of stages and of limits, nats."""


@compiled
def evaluate(graphs, network, chosen, limit):
    """Forward pass: compute log-probability and entropy of one choice in each of B graphs.

    Args:
        graphs: ``graphs.Graphs``.
        network: ``layers.Network``, without attention.
        chosen: int64 [B], row of the chosen stage in the batch.
        limit: int32 [B], chosen limit.

    Returns:
        Log-probability, float32 [B]; entropy, float32 [B], nats; ``Kept``.

    Raises:
        ValueError: graphs and network are inconsistent, or a choice is not possible.
    """
    size, width = graphs.first_stage.size - 1, network.width
    nothing = np.empty(0, np.int32)
    check_graphs(graphs, network, np.empty((size, 2)), nothing, nothing)
    rows = find_rows(graphs, network, chosen, limit)
    num_stages, num_jobs = len(rows.stage_job), len(rows.job_graph)
    passes = (
        make_pass(network, STAGE_INPUT, num_stages),
        make_pass(network, MESSAGE, len(rows.senders)),
        make_pass(network, STAGE_INPUT, 0),
        make_pass(network, AGGREGATE, len(rows.receivers)),
        make_pass(network, JOB_SUMMARY, len(rows.unfinished)),
        make_pass(network, JOB_AGGREGATE, num_jobs),
        make_pass(network, GLOBAL_SUMMARY, num_jobs),
        make_pass(network, GLOBAL_AGGREGATE, size),
        make_pass(network, STAGE_HEAD, len(rows.candidates)),
        make_pass(network, LIMIT_HEAD, len(rows.limits)),
    )
    embedding, jobs, clusters = (
        np.zeros((num_stages, width), np.float32),
        np.zeros((num_jobs, width), np.float32),
        np.zeros((size, width), np.float32),
    )
    if width:
        _embed_stages(graphs, network, rows, passes, embedding)
        x, raw = passes[JOB_SUMMARY].x, 0
        if network.shortcut:
            raw = graphs.features.shape[1]
            take(graphs.features, rows.unfinished, x, 0)
        take(embedding, rows.unfinished, x, raw)
        run(network, passes[JOB_SUMMARY], JOB_SUMMARY, 0, len(rows.unfinished))
        x = passes[JOB_AGGREGATE].x
        x[:] = 0
        add(passes[JOB_SUMMARY].out, 0, x, rows.stage_job[rows.unfinished])
        run(network, passes[JOB_AGGREGATE], JOB_AGGREGATE, 0, num_jobs)
        jobs = passes[JOB_AGGREGATE].out
        passes[GLOBAL_SUMMARY].x[:] = jobs
        run(network, passes[GLOBAL_SUMMARY], GLOBAL_SUMMARY, 0, num_jobs)
        x = passes[GLOBAL_AGGREGATE].x
        x[:] = 0
        add(passes[GLOBAL_SUMMARY].out, 0, x, rows.job_graph)
        run(network, passes[GLOBAL_AGGREGATE], GLOBAL_AGGREGATE, 0, size)
        clusters = passes[GLOBAL_AGGREGATE].out

    of_stage = (graphs.features, embedding, jobs, clusters)
    _describe(network, rows, rows.candidates, of_stage, True, passes[STAGE_HEAD].x)
    run(network, passes[STAGE_HEAD], STAGE_HEAD, 0, len(rows.candidates))
    scores = passes[STAGE_HEAD].out.copy().reshape(-1)
    if network.rule_weight:
        for k in range(len(scores)):
            scores[k] += network.rule_weight * graphs.features[rows.candidates[k], network.rule_column]
    limit_scores = np.empty(0, np.float32)
    if len(rows.limits):
        x, is_stage = passes[LIMIT_HEAD].x, network.limit_kind == STAGE
        raw = graphs.features if is_stage else graphs.job_features
        _describe(network, rows, rows.limits, (raw, embedding, jobs, clusters), is_stage, x)
        if network.limit_kind != OUTPUTS:
            _append_limits(graphs, network, rows, chosen, x)
        run(network, passes[LIMIT_HEAD], LIMIT_HEAD, 0, len(rows.limits))
        limit_scores = passes[LIMIT_HEAD].out.copy().reshape(-1)
        if network.rule_limit_weight:
            _add_rule(graphs, network, rows, x, limit_scores)

    log_probability, entropies = np.zeros(size, np.float32), np.zeros((size, 2), np.float32)
    _choose(rows.choices[:, 0], scores, log_probability, entropies[:, 0])
    _choose(rows.choices[:, 1], limit_scores, log_probability, entropies[:, 1])
    kept = Kept(rows, passes, (scores, limit_scores), entropies)
    return log_probability, entropies[:, 0] + entropies[:, 1], kept


@compiled
def differentiate(network, kept, of_log_probability, of_entropy):
    """Backward pass: compute the gradient of the weights, float32, in the order of ``network.weights``.

    Args:
        network: network of ``evaluate``.
        kept: third result of ``evaluate``.
        of_log_probability: float32 [B], gradient of the log-probabilities.
        of_entropy: float32 [B], gradient of the entropies.
    """
    rows, passes, logs, entropies = kept
    width, total = network.width, np.zeros(network.weights.size)
    num_jobs, size = len(rows.job_graph), len(rows.choices)
    of_stages = np.zeros((len(rows.stage_job) + 1, width), np.float32)
    of_jobs = np.zeros((num_jobs + 1, width), np.float32)
    of_clusters = np.zeros((size + 1, width), np.float32)
    raw = passes[STAGE_INPUT].x.shape[1] if network.shortcut else 0
    for level in range(2):
        part = STAGE_HEAD + level
        if len(passes[part].x) == 0:
            continue
        has_stage = level == 0 or network.limit_kind == STAGE
        outputs = network.layers[network.first_layer[part + 1] - 1, 1]
        scores = np.zeros((len(passes[part].x) + 1, outputs), np.float32)
        flat = scores.reshape(-1)
        _differentiate_choices(
            rows.choices[:, level], logs[level], entropies[:, level], of_log_probability, of_entropy, flat
        )
        needed = (3 if has_stage else 2) * width
        first = raw if has_stage else passes[part].x.shape[1] - needed - (network.limit_kind != OUTPUTS)
        found = run_back(network, passes[part], part, 0, len(passes[part].x), scores, first, needed, total)
        if width:
            of_rows = rows.candidates if level == 0 else rows.limits
            _return(rows, of_rows, has_stage, found, of_stages, of_jobs, of_clusters)
    if width:
        found = run_back(
            network, passes[GLOBAL_AGGREGATE], GLOBAL_AGGREGATE, 0, size, of_clusters, 0, width, total
        )
        of_summaries = np.empty((num_jobs + 1, width), np.float32)
        take(found, rows.job_graph, of_summaries, 0)
        found = run_back(
            network, passes[GLOBAL_SUMMARY], GLOBAL_SUMMARY, 0, num_jobs, of_summaries, 0, width, total
        )
        of_jobs[:num_jobs] += found[:num_jobs]
        found = run_back(network, passes[JOB_AGGREGATE], JOB_AGGREGATE, 0, num_jobs, of_jobs, 0, width, total)
        count = len(rows.unfinished)
        of_summaries = np.empty((count + 1, width), np.float32)
        take(found, rows.stage_job[rows.unfinished], of_summaries, 0)
        found = run_back(network, passes[JOB_SUMMARY], JOB_SUMMARY, 0, count, of_summaries, raw, width, total)
        add(found, 0, of_stages, rows.unfinished)
        _embed_back(network, rows, passes, of_stages, total)
    return total.astype(np.float32)


# Embeddings of stages.


@inner(arrays=True)
def _embed_stages(graphs, network, rows, passes, embedding):
    """Compute the embeddings of stages by message passing, step by step."""
    passes[STAGE_INPUT].x[:] = graphs.features
    run(network, passes[STAGE_INPUT], STAGE_INPUT, 0, len(embedding))
    embedding[:] = passes[STAGE_INPUT].out
    heard = passes[AGGREGATE].x
    heard[:] = 0
    for step in range(len(rows.ends) - 1):
        senders, receivers, links = _of_step(rows, step)
        begin, end = rows.ends[step, 0], rows.ends[step + 1, 0]
        take(embedding, senders, passes[MESSAGE].x[begin:end], 0)
        run(network, passes[MESSAGE], MESSAGE, begin, end)
        for message in range(len(links)):
            _add_row(passes[MESSAGE].out, links[message, 0], heard, links[message, 1])
        begin, end = rows.ends[step, 1], rows.ends[step + 1, 1]
        run(network, passes[AGGREGATE], AGGREGATE, begin, end)
        add(passes[AGGREGATE].out, begin, embedding, receivers)


@inner(arrays=True)
def _embed_back(network, rows, passes, gradient, total):
    """Backward pass of message passing: add the gradients of weights to ``total``.

    Args:
        gradient: float32 [S + 1, D], gradient of the stage embeddings; overwritten.
    """
    width = network.width
    of_sent = np.zeros((len(rows.senders), width), np.float32)
    for step in range(len(rows.ends) - 2, -1, -1):
        senders, receivers, links = _of_step(rows, step)
        begin, end = rows.ends[step, 1], rows.ends[step + 1, 1]
        of_updates = np.empty((end - begin + 1, width), np.float32)
        take(gradient, receivers, of_updates, 0)
        of_heard = run_back(network, passes[AGGREGATE], AGGREGATE, begin, end, of_updates, 0, width, total)
        for message in range(len(links)):
            _add_row(of_heard, links[message, 1] - begin, of_sent, links[message, 0])
        begin, end = rows.ends[step, 0], rows.ends[step + 1, 0]
        own = np.empty((end - begin + 1, width), np.float32)
        own[: end - begin] = of_sent[begin:end]
        of_senders = run_back(network, passes[MESSAGE], MESSAGE, begin, end, own, 0, width, total)
        add(of_senders, 0, gradient, senders)
    run_back(network, passes[STAGE_INPUT], STAGE_INPUT, 0, len(rows.stage_job), gradient, 0, 0, total)


@inner(arrays=True)
def _of_step(rows, step):
    """Return the senders, receivers and links of one step of message passing."""
    begin, end = rows.ends[step], rows.ends[step + 1]
    return rows.senders[begin[0] : end[0]], rows.receivers[begin[1] : end[1]], rows.links[begin[2] : end[2]]


@inner(fastmath=ANY_ORDER)
def _add_row(source, row, target, to):
    here, there = UNSIGNED(row), UNSIGNED(to)
    for place in range(UNSIGNED(target.shape[1])):
        target[there, place] += source[here, place]


# Heads.


@inner
def _describe(network, rows, stages, sources, has_stage, x):
    """Fill in the inputs of a head for these stages: raw features, embeddings of stage, job and cluster."""
    raw, embedding, jobs, clusters = sources
    width, before = network.width, raw.shape[1] if network.shortcut else 0
    for k in range(len(stages)):
        stage = stages[k]
        job = rows.stage_job[stage]
        graph, column = rows.job_graph[job], before
        for place in range(before):
            x[k, place] = raw[stage if has_stage else job, place]
        for place in range(width if has_stage else 0):
            x[k, column + place] = embedding[stage, place]
        column += width if has_stage else 0
        for place in range(width):
            x[k, column + place] = jobs[job, place]
            x[k, column + width + place] = clusters[graph, place]


@inner
def _return(rows, stages, has_stage, gradient, of_stages, of_jobs, of_clusters):
    """Add the gradient of a head's inputs to the gradients of stage, job and cluster embeddings."""
    width = of_jobs.shape[1]
    for k in range(len(stages)):
        stage = stages[k]
        job = rows.stage_job[stage]
        graph, column = rows.job_graph[job], 0
        if has_stage:
            column = width
            for place in range(width):
                of_stages[stage, place] += gradient[k, place]
        for place in range(width):
            of_jobs[job, place] += gradient[k, column + place]
            of_clusters[graph, place] += gradient[k, column + width + place]


@inner
def _append_limits(graphs, network, rows, chosen, x):
    """Fill in the last input of the limit head: the scaled limit."""
    for graph in range(len(chosen)):
        begin, end = rows.choices[graph, 1, 0], rows.choices[graph, 1, 1]
        for k in range(begin, end):
            limit = graphs.low[chosen[graph]] + k - begin + 1
            x[k, x.shape[1] - 1] = np.float32(limit) / network.limit_scale


@inner
def _add_rule(graphs, network, rows, x, scores):
    """Subtract the penalty for the distance to the rule's limit from the scores of limits."""
    for k in range(len(scores)):
        job = rows.stage_job[rows.limits[k]]
        ruled = graphs.job_features[job, network.rule_limit_column] * (
            network.rule_limit_scale / network.limit_scale
        )
        scores[k] -= network.rule_limit_weight * abs(x[k, x.shape[1] - 1] - ruled)


@inner
def _choose(choices, scores, log_probability, entropy):
    """Softmax: replace scores by log-probabilities, add those of the choices, and fill in the entropies."""
    for graph in range(len(choices)):
        begin, end, chosen = choices[graph]
        if begin == end:
            continue
        top, sum_, expected = scores[begin], 0.0, 0.0
        for k in range(begin, end):
            top = max(top, scores[k])
        for k in range(begin, end):
            sum_ += math.exp(scores[k] - top)
        for k in range(begin, end):
            probability = math.exp(scores[k] - top) / sum_
            log = math.log(max(probability, TINY))
            expected -= probability * log
            scores[k] = log
        log_probability[graph] += scores[chosen]
        entropy[graph] = expected


@inner
def _differentiate_choices(choices, logs, entropy, of_log_probability, of_entropy, of_scores):
    """Backward pass of the softmax: fill in the gradients of the scores."""
    for graph in range(len(choices)):
        begin, end, chosen = choices[graph]
        if begin == end:
            continue
        # A probability below ``TINY`` has the logarithm of ``TINY``, a constant without gradient.
        of_log = of_log_probability[graph] if logs[chosen] > SMALLEST_LOG else np.float32(0)
        for k in range(begin, end):
            probability = math.exp(logs[k])
            of_scores[k] = -probability * (of_log + of_entropy[graph] * (logs[k] + entropy[graph]))
        of_scores[chosen] += of_log


class FlatWeights(torch.autograd.Function):
    """All weights of a network as one tensor, differentiable in weight and bias of each layer.

    The gradient of one more entry for each of ``layers.PARTS`` is the number of the part's inputs.
    """

    @staticmethod
    def forward(context: Any, network: Network, *_parameters: Tensor) -> Tensor:
        """Return the weights and one entry for each part, float32 [weights + 10].

        Args:
            network: weights, in the same order as the parameters.
        """
        context.network = network
        return torch.from_numpy(np.append(network.weights, np.zeros(len(PARTS), np.float32)))

    @staticmethod
    @once_differentiable
    def backward(context: Any, of_weights: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of weight and bias of each layer; None if a part of the network had no input."""
        network, gradients = context.network, list[Tensor | None]()
        for part, layers in enumerate(np.split(network.layers, network.first_layer[1:-1])):
            has_input = bool(of_weights[part - len(PARTS)])
            for num_in, num_out, offset in layers.tolist():
                own = of_weights[offset : offset + (num_in + 1) * num_out].view(-1, num_out)
                gradients += [own[:-1].T, own[-1]] if has_input else [None, None]
        return None, *gradients


class CompiledEvaluation(torch.autograd.Function):
    """Log-probability and entropy of choices in B observations, float32 [B], differentiable in the weights."""

    @staticmethod
    def forward(
        context: Any,
        network: Network,
        graphs: Graphs,
        rows: NDArray[np.int64],
        limit: NDArray[np.int32],
        _weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of the choices.

        Args:
            network: network with these weights.
            graphs: B observations.
            rows: int64 [B], rows of the chosen stages, see ``Graphs.rows_of``.
            limit: int32 [B], chosen limits.
        """
        log_probability, entropy, context.kept = evaluate(graphs, network, rows, limit)
        context.network = network
        return torch.from_numpy(log_probability), torch.from_numpy(entropy)

    @staticmethod
    @once_differentiable
    def backward(context: Any, of_log_probability: Tensor, of_entropy: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the weights."""
        found = differentiate(
            context.network,
            context.kept,
            of_log_probability.contiguous().numpy(),
            of_entropy.contiguous().numpy(),
        )
        num_inputs = np.array([each.x.size for each in context.kept.passes], np.float32)
        return None, None, None, None, torch.from_numpy(np.append(found, num_inputs))
