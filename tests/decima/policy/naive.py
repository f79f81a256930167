"""The network of Decima (SIGCOMM 2019, sections 5.1 and 5.2) as a direct implementation of its equations.

One observation, one stage at a time, recursion instead of message passing, NumPy in double precision: slow, and short
enough to be compared with the paper by reading.
"""

import math
from functools import cache

import numpy as np

from decima.policy import Feature, Policy
from decima.policy.scheduler import COST_EXPONENTS, LASTING_MOVES
from simulator import Observation
from simulator.cluster.alone import useful_executors

Vector = np.ndarray


def covers(kind: np.void, need: np.void) -> bool:
    return bool(need["cpu"] <= kind["cpu"] and need["memory"] <= kind["memory"])


def share(seen: Observation, need: np.void) -> float:
    """Return the share of the cluster's executors that are at least as large."""
    return float(sum(kind["executors"] for kind in seen.classes if covers(kind, need)) / seen.num_executors)


def log_ratio(value: float, unit: float) -> float:
    """Return the logarithm of a ratio of times of at least 1e-3 ms, within its bounds."""
    return max(-12.0, min(12.0, math.log(max(value, 1e-3) / max(unit, 1e-3))))


class NaiveNetwork:
    """Probabilities of a policy for one observation.

    Attributes:
        stages: index in the observation -> probability of each stage that may be chosen.
        limits: index -> probability of each limit.
    """

    def __init__(self, policy: Policy, observation: Observation) -> None:
        self.config, self.seen = policy.config, observation
        self.weights: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for name, _, layer in policy.layers():
            arrays = (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())
            self.weights.setdefault(name, []).append(arrays)
        self.values = cache(self.values_of)
        self.embedding = cache(self.embedding_of)
        jobs = range(observation.jobs.size)
        self.y = [self.job_embedding(job) for job in jobs]
        self.z = self.net("global_aggregate", self.add_up([self.net("global_summary", y) for y in self.y]))
        allowed = [place for place in range(observation.stages.size) if self.allowed_limits(place)]
        scores = softmax([self.stage_score(place) for place in allowed])
        self.stages = dict(zip(allowed, scores, strict=True))
        self.limits = {place: self.limit_probabilities(place) for place in allowed}

    # Inputs: features.

    def feature(self, feature: Feature, job: int, place: int | None = None) -> float:
        value = self.values(job, place)[feature.name] / feature.scale
        return math.log(1 + value) if feature.log else value

    def values_of(self, job: int, place: int | None) -> dict[str, float]:
        """Return the values of all features by name."""
        seen = self.seen
        values = {
            "job_executors": float(seen.job_executors[job]),
            "offered_executors": float(seen.offered),
            "local": 1.0 if job == seen.source else -1.0,
            "job_work_ms": sum(seen.remaining_tasks[each] * seen.mean_task_ms[each] for each in self.unfinished(job)),
            "share_executors": seen.num_executors / seen.jobs.size,
        }
        lasting_ms = LASTING_MOVES * seen.config.moving_delay_ms
        here = self.unfinished(job)
        work_ms = {each: seen.unclaimed_tasks[each] * seen.mean_task_ms[each] for each in here}
        own = seen.classes[seen.executor_class]
        fitting_ms = sum(work_ms[each] for each in here if covers(own, seen.stages[each]))
        values["lasting_executors"] = min(fitting_ms / lasting_ms, seen.num_executors)
        values["fitting_share"] = fitting_ms / max(sum(work_ms.values()), 1e-12)
        values["larger_share"] = share(seen, own)
        claimed = sum(seen.remaining_tasks[each] - seen.unclaimed_tasks[each] for each in here)
        at_work = sum(seen.running_executors[seen.stages_of(job)])
        values["busy_executors"] = min(at_work + claimed, max(seen.held(job), 0))
        profile = seen.profiles[job]
        for name, thrift in zip(("thrifty_executors", "fast_executors"), COST_EXPONENTS, strict=True):
            values[name] = useful_executors(profile, seen.config, thrift)
        values["stream"] = 1.0 if np.ptp(seen.job_arrival_ms) > 0 else -1.0
        values["live_jobs"] = float(seen.jobs.size)
        work = [
            sum(seen.remaining_tasks[each] * seen.mean_task_ms[each] for each in self.unfinished(other))
            for other in range(seen.jobs.size)
        ]
        typical_ms = float(np.exp(np.mean(np.log([each for each in work if each > 0])))) if any(work) else 1.0
        alone_ms = typical_ms / max(seen.num_executors, 1)
        path_ms = max([self.height_ms(each) for each in here], default=0.0)
        values["delay_size"] = seen.config.moving_delay_ms / alone_ms
        values["job_size"] = log_ratio(work[job], typical_ms)
        values["job_width"] = log_ratio(work[job], path_ms)
        done_ms = float(seen.stages["finished_ms"][seen.stages_of(job)].sum())
        values["done_share"] = done_ms / max(done_ms + work[job], 1e-3)
        values["unclaimed_share"] = sum(work_ms.values()) / max(work[job], 1e-3)
        if place is not None:
            height_ms = self.height_ms(place)
            values["task_size"] = log_ratio(seen.mean_task_ms[place], alone_ms)
            values["path_size"] = log_ratio(height_ms, alone_ms)
            values["path_share"] = height_ms / max(path_ms, 1e-3)
            values["job_share"] = seen.unclaimed_tasks[place] * seen.mean_task_ms[place] / max(work[job], 1e-3)
            mean, left, unclaimed = (seen.mean_task_ms[place], seen.remaining_tasks[place], seen.unclaimed_tasks[place])
            values |= {"unclaimed_tasks": unclaimed, "remaining_tasks": left, "mean_task_ms": mean}
            values |= {"unclaimed_work_ms": unclaimed * mean, "remaining_work_ms": left * mean}
            values |= {"running_executors": seen.running_executors[place]}
            values |= {"ready": 1.0 if seen.ready_rank[place] >= 0 else -1.0}
            values |= {"delay_tasks": seen.config.moving_delay_ms / max(mean, 1.0)}
            need = seen.stages[place]
            for name in ("cpu", "memory"):
                values[f"unused_{name}"] = (own[name] - need[name]) / (seen.classes[name].max() or 1.0)
            others = [kind for kind in range(len(seen.classes)) if kind != seen.executor_class]
            waiting = [seen.classes[kind]["free"] for kind in others if covers(seen.classes[kind], need)]
            values |= {"covering_share": share(seen, need), "free_covering_executors": sum(waiting)}
            values |= {"next": 1.0 if seen.next_stage[job] == place else -1.0}
        return values

    def height_ms(self, place: int) -> float:
        job = int(self.seen.stage_job[place])
        return float(self.seen.profiles[job].height_ms[place - self.seen.stages_of(job).start])

    def stage_features(self, place: int) -> Vector:
        job = int(self.seen.stage_job[place])
        return np.array([self.feature(feature, job, place) for feature in self.config.stage_features])

    def job_features(self, job: int) -> Vector:
        return np.array([self.feature(feature, job) for feature in self.config.job_features])

    def unfinished(self, job: int) -> list[int]:
        stages = self.seen.stages_of(job)
        return [
            place
            for place in range(stages.start, stages.stop)
            if self.seen.finished_tasks[place] < self.seen.num_tasks[place]
        ]

    def children(self, place: int) -> list[int]:
        job = int(self.seen.stage_job[place])
        first = int(self.seen.job_first_stage[job])
        edges = self.seen.profiles[job].edges
        return [first + int(child) for parent, child in edges if first + int(parent) == place]

    # Network: embeddings and probabilities.

    def net(self, name: str, x: Vector) -> Vector:
        """Apply a network by name; the identity if the policy has no such network."""
        layers = self.weights.get(name, [])
        for number, (weight, bias) in enumerate(layers, start=1):
            x = weight @ x + bias
            embeds = self.config.activate_embeddings and not name.endswith(("_head", "attention"))
            if number < len(layers) or embeds:
                x = np.where(x > 0, x, 0.2 * x)
        return x

    def embedding_of(self, place: int) -> Vector:
        """e_v = g(sum over children u of f(e_u)) + x_v; without children the sum is left out.

        With attention each f(e_u) is weighted by the softmax over the children of a(x_v, f(e_u)).
        """
        e = self.net("stage_input", self.stage_features(place))
        children = self.children(place)
        if not children:
            return e
        said = [self.net("message", self.embedding(child)) for child in children]
        if self.config.encoder == "attention":
            weights = softmax([self.net("attention", np.concatenate([e, each]))[0] for each in said])
            return e + self.net("aggregate", sum(weight * each for weight, each in zip(weights, said, strict=True)))
        return e + self.net("aggregate", self.add_up(said))

    def add_up(self, terms: list[Vector]) -> Vector:
        """Return the sum, divided by the root of the number of terms if the policy's sums are."""
        return sum(terms) / (math.sqrt(max(len(terms), 1)) if self.config.root_sums else 1.0)

    def seen_of(self, place: int) -> Vector:
        shortcut = [self.stage_features(place)] if self.config.shortcut else []
        return np.concatenate([*shortcut, self.embedding(place)])

    def job_embedding(self, job: int) -> Vector:
        """Return the job embeddings y_i."""
        parts = [self.net("job_summary", self.seen_of(place)) for place in self.unfinished(job)]
        return self.net("job_aggregate", self.add_up(parts))

    def stage_score(self, place: int) -> float:
        """Return the stage scores q(e_v, y_i, z)."""
        job = int(self.seen.stage_job[place])
        return float(self.net("stage_head", np.concatenate([self.seen_of(place), self.y[job], self.z]))[0])

    def allowed_limits(self, place: int) -> range:
        job = int(self.seen.stage_job[place])
        held = self.seen.held(job)
        asked_again = self.seen.config.semantics.offer_idle_executors and not self.seen.last_call
        least = held if self.config.wait and asked_again else held + 1
        if not self.seen.schedulable[place]:
            return range(0)
        if self.config.all_limits:
            return range(least, self.seen.num_executors + 1)
        return range(least, held + min(self.seen.offered, int(self.seen.unclaimed_tasks[place])) + 1)

    def limit_probabilities(self, place: int) -> Vector:
        """Return the probabilities of limits: the softmax of w(y_i, z, l) over the limits l."""
        job = int(self.seen.stage_job[place])
        shortcut = [self.job_features(job)] if self.config.shortcut else []
        scores = []
        for limit in self.allowed_limits(place):
            scaled = limit / self.config.limit_scale
            scaled = math.log1p(scaled) if self.config.log_limits else scaled
            inputs = np.concatenate([*shortcut, self.y[job], self.z, [scaled]])
            scores.append(float(self.net("limit_head", inputs)[0]))
        return softmax(scores)


def softmax(scores: list[float]) -> Vector:
    weights = np.exp(np.array(scores) - max(scores, default=0.0))
    return weights / weights.sum()
