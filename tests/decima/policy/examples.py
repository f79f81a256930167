"""Policy configurations of every kind, random policies, and observations for them."""

from dataclasses import replace

import numpy as np
import torch

from decima.policy import Actor, Featurizer, FewJobs, Graphs, Policy
from decima.policy.config import PolicyConfig
from decima.policy.presets import DECIMA_SIM_POLICY, PAPER_POLICY, PRESETS, SHORTCUT_POLICY
from simulator import PAPER, Cluster, ClusterConfig, Decision, ExecutorClass, Observation, Semantics
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations, random_dag


def changed(config: PolicyConfig, **changes: object) -> PolicyConfig:
    return PolicyConfig.model_validate({**config.model_dump(), **changes})


#: Policy configurations that together have every value of every setting.
VARIANTS: dict[str, PolicyConfig] = {
    **PRESETS,
    "outputs": changed(PAPER_POLICY, limit="outputs", num_limits=7),
    "few-outputs": changed(SHORTCUT_POLICY, limit="outputs", num_limits=3),
    "stage-limits": changed(PAPER_POLICY, limit="stage", all_limits=False),
    "stage-limits-with-shortcut": changed(SHORTCUT_POLICY, limit="stage"),
    "no-limits": changed(PAPER_POLICY, limit="none"),
    "no-graph": changed(SHORTCUT_POLICY, graph=False),
    "no-graph-outputs": changed(SHORTCUT_POLICY, graph=False, limit="outputs"),
    "no-graph-stage-limits": changed(SHORTCUT_POLICY, graph=False, limit="stage"),
    "no-aggregate": changed(PAPER_POLICY, aggregate=False),
    "no-summary-aggregate": changed(SHORTCUT_POLICY, summary_aggregate=False),
    "activated": changed(PAPER_POLICY, activate_embeddings=True),
    "distinct-limits": changed(PAPER_POLICY, all_limits=False),
    "finished": changed(PAPER_POLICY, finished_stages=True),
    "one-layer": changed(PAPER_POLICY, hidden=(), head_hidden=()),
    "attention": changed(PAPER_POLICY, encoder="attention"),
    "attention-in-published-order": changed(DECIMA_SIM_POLICY, encoder="attention", aggregate=False),
    "odd-widths": changed(DECIMA_SIM_POLICY, embedding=5, hidden=(7,), head_hidden=(3, 9), limit_scale=3.0),
}


def policy_of(config: PolicyConfig, seed: int = 0) -> Policy:
    """Return a policy as after training: with biases."""
    policy = Policy(config, seed)
    with torch.no_grad():
        random = torch.Generator().manual_seed(seed)
        for _, _, layer in policy.layers():
            layer.bias += 0.1 * torch.randn(layer.bias.shape, generator=random)
    return policy


def two_networks(at_most: int = 2) -> Actor:
    """Return a policy with a second network, which may wait, for few jobs."""
    many, few = (policy_of(SHORTCUT_POLICY.model_copy(update={"wait": wait}), seed=2 + wait) for wait in (False, True))
    actor = Actor(many.config, many.arrays)
    actor.few_jobs = FewJobs(at_most, Actor(few.config, few.arrays))
    return actor


def random_sequence(random: np.random.Generator, max_jobs: int = 4, max_stages: int = 9) -> JobSequence:
    """Return jobs of all shapes and stage orders, some of which arrive later."""
    profiles = [_random_job(random, max_stages) for _ in range(random.integers(1, max_jobs + 1))]
    arrival_ms = np.sort(random.choice([0.0, 0.0, 300.0, 1000.0], len(profiles)))
    return JobSequence(tuple(profiles), arrival_ms, seed=int(random.integers(1000)))


def _random_job(random: np.random.Generator, max_stages: int) -> JobProfile:
    num_stages = int(random.integers(1, max_stages + 1))
    number = random.permutation(num_stages)
    stages = [
        StageProfile(
            int(random.integers(1, 7)),
            TaskDurations.constant(*random.uniform(1, 500, 1), first_ms=600),
            memory=float(random.choice([0.25, 0.5, 1.0])),
        )
        for _ in range(num_stages)
    ]
    return JobProfile("job", tuple(stages), number[random_dag(num_stages, random)])


def episode(
    random: np.random.Generator,
    sequence: JobSequence | None = None,
    semantics: Semantics = PAPER,
    max_executors: int = 8,
) -> list[Observation]:
    """Return the observations of an episode with random decisions."""
    sequence = random_sequence(random) if sequence is None else sequence
    classes = [ExecutorClass(int(random.integers(1, max_executors + 1)))]
    if max_executors > 1 and random.random() < 0.5:
        classes.insert(0, ExecutorClass(int(random.integers(1, max_executors)), memory=0.5))
    config = ClusterConfig(executor_classes=tuple(classes), moving_delay_ms=150, semantics=semantics)
    cluster = Cluster(config, sequence)
    seen = []
    while not cluster.done:
        observation = cluster.observe()
        if not observation.num_schedulable:
            cluster.decide(None)
            continue
        seen.append(observation.copy())
        stage = int(random.choice(np.flatnonzero(observation.schedulable)))
        held = observation.held(int(observation.stage_job[stage]))
        cluster.decide(Decision(stage, held + int(random.integers(1, observation.offered + 1))))
    return seen


def graphs_of(config: PolicyConfig, seen: list[Observation]) -> list[Graphs]:
    """Return the graphs of observations of one episode in which the policy has a choice."""
    featurizer = Featurizer(config)
    graphs = [featurizer.graph(observation) for observation in seen]
    return [graph for graph in graphs if (graph.high > graph.low).any()]


def probabilities(policy: Policy, graph: Graphs) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the probabilities of stages, and of limits for each valid stage, in float64."""
    with torch.no_grad():
        stages, limits = policy.probabilities(graph)
    return stages.double().numpy(), [each.double().numpy() for each in limits]


def reordered(observation: Observation, jobs: np.ndarray, number: list[np.ndarray]) -> tuple[Observation, np.ndarray]:
    """Return the same cluster with permuted jobs and stages.

    Args:
        observation: observation of any cluster.
        jobs: the live jobs in their new order.
        number: for each live job in the old order, the new index of each stage.

    Returns:
        The observation, and the old index of each of its stages.
    """
    firsts = observation.job_first_stage
    profiles, places = [], []
    for job in jobs:
        profile = observation.profiles[job]
        back = np.argsort(number[job])
        profiles.append(JobProfile(profile.name, tuple(profile.stages[at] for at in back), number[job][profile.edges]))
        places.append(firsts[job] + back)
    from_ = np.concatenate(places)
    new_jobs, new_stages = observation.jobs[jobs], observation.stages[from_]
    sizes = np.array([len(each) for each in places])
    new_jobs["id"] = np.arange(jobs.size)
    new_jobs["first_stage"] = np.cumsum(sizes) - sizes
    next_stage = new_jobs["next_stage"]
    new_jobs["next_stage"] = np.where(next_stage >= 0, np.argsort(from_)[next_stage], -1)
    new_stages["job"] = np.repeat(np.arange(jobs.size), sizes)
    return replace(
        observation,
        source=int(np.flatnonzero(jobs == observation.source)[0]) if observation.source >= 0 else -1,
        jobs=new_jobs,
        stages=new_stages,
        profiles=tuple(profiles),
    ), from_
