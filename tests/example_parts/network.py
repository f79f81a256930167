"""Custom encoder and heads."""

import torch
from torch import Tensor, nn

from decima.policy import Embeddings, Encoder, GraphTensors, LimitHead, PolicyConfig, StageHead


class MeanEncoder(Encoder):
    """No message passing: stage embeddings from features, job and cluster embeddings as means."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.lift = nn.Linear(len(config.stage_features), config.embedding)

    def forward(self, graphs: GraphTensors) -> Embeddings:
        stages = torch.tanh(self.lift(graphs.features))
        jobs = mean(stages, graphs.stage_job, len(graphs.job_features))
        return Embeddings(stages, jobs, mean(jobs, graphs.job_graph, graphs.num_graphs))


def mean(rows: Tensor, group: Tensor, size: int) -> Tensor:
    """Return the mean of the rows of each group; 0 for empty groups."""
    total = rows.new_zeros(size, rows.shape[1]).index_add(0, group, rows)
    count = rows.new_zeros(size).index_add(0, group, rows.new_ones(len(rows)))
    return total / count.clamp_min(1)[:, None]


class LayersHead(StageHead):
    """Equal to the built-in head."""

    def __init__(self, config: PolicyConfig, width: int) -> None:
        super().__init__(config, width)
        widths = [width, *config.head_hidden, 1]
        self.linear = nn.ModuleList(nn.Linear(*widths[at : at + 2]) for at in range(len(widths) - 1))

    def forward(self, inputs: Tensor) -> Tensor:
        *most, last = self.linear
        for layer in most:
            inputs = nn.functional.leaky_relu(layer(inputs), 0.2)
        return last(inputs)[:, 0]  # type: ignore[no-any-return]


class ParabolaHead(LimitHead):
    """Each job has a best limit; scores fall with the squared distance from it."""

    def __init__(self, config: PolicyConfig, width: int) -> None:
        super().__init__(config, width)
        self.best = nn.Linear(width, 1)

    def forward(self, inputs: Tensor, rows: Tensor, limits: Tensor) -> Tensor:
        away = limits / self.config.limit_scale - self.best(inputs)[rows, 0]
        return -away.square()
