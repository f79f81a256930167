"""DeepRM's rules in slow, plain Python for one episode, without cached values."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.grid import GridConfig

#: A job as a tuple: step in which it enters, duration, demand of each resource.
Written = tuple[int, int, tuple[int, ...]]


@dataclass(eq=False)
class NaiveJob:
    number: int
    enter: int
    duration: int
    demand: tuple[int, ...]
    start: int = -1
    machine: int = -1
    colour: int = 0
    dropped: bool = False

    @property
    def finish(self) -> int:
        return self.start + self.duration


@dataclass
class Naive:
    """One episode of jobs, ordered by arrival, in ``steps`` steps."""

    config: GridConfig
    written: Sequence[Written]
    steps: int
    clock: int = 0
    since_arrival: int = 0
    done: bool = False
    running: list[NaiveJob] = field(default_factory=list)
    """Running jobs in order of booking."""
    backlog: list[NaiveJob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = [NaiveJob(number, *job) for number, job in enumerate(self.written)]
        self.slots: list[NaiveJob | None] = [None] * self.config.visible_jobs
        first = 0 if self.config.semantics.first_step else 1
        self.to_come = [job for job in self.jobs if job.enter >= first]
        self._arrive()

    def step(self, action: int) -> tuple[str, float]:
        """Return the outcome of the action, and the reward."""
        if self.done:
            return "over", 0.0
        outcome = self._choose(action)
        return outcome, 0.0 if outcome == "booked" else self._pass_time()

    def free(self, machine: int, time: int, resource: int) -> int:
        booked = (job for job in self.jobs if job.machine == machine and job.start <= time < job.finish)
        return self.config.units - sum(job.demand[resource] for job in booked)

    def offset(self, job: NaiveJob, machine: int) -> int | None:
        """Return the first step from which the job fits."""
        last = self.config.horizon if self.config.semantics.last_row else self.config.horizon - 1
        for offset in range(last - job.duration + 1):
            if all(
                self.free(machine, self.clock + offset + step, resource) >= demand
                for step in range(job.duration)
                for resource, demand in enumerate(job.demand)
            ):
                return offset
        return None

    def in_system(self) -> list[NaiveJob]:
        return [*self.running, *filter(None, self.slots), *self.backlog]

    def _choose(self, action: int) -> str:
        if action == self.config.machines * self.config.visible_jobs:
            return "void"
        machine, slot = divmod(action, self.config.visible_jobs)
        job = self.slots[slot]
        if job is None:
            return "empty"
        offset = self.offset(job, machine)
        if offset is None:
            return "no room"
        shown = {other.colour for other in self.jobs if other.finish > self.clock}
        job.colour = next((colour for colour in range(1, 40) if colour not in shown), 39)
        job.machine, job.start = machine, self.clock + offset
        self.running.append(job)
        self.slots[slot] = self.backlog.pop(0) if self.backlog else None
        return "booked"

    def _pass_time(self) -> float:
        before = self._reward()
        self.clock += 1
        if self.config.semantics.prompt_leaving:
            self.running = [job for job in self.running if job.finish > self.clock]
        else:
            for job in self.running:
                if job.finish <= self.clock:
                    self.running.remove(job)  # like the public code
        self.since_arrival = min(10, self.since_arrival + 1)
        self.done = self._is_over()
        if not self.done:
            self._arrive()
        return before if self.config.semantics.reward_passed_step else self._reward()

    def _is_over(self) -> bool:
        none_enters_any_more = self.clock >= self.steps
        if not self.config.drain:
            return none_enters_any_more
        if self.config.max_steps is not None and self.clock > self.config.max_steps:
            return True
        if self.config.semantics.ends_early:
            none_enters_any_more = not self.to_come
        return none_enters_any_more and not self.in_system()

    def _arrive(self) -> None:
        while self.to_come and self.to_come[0].enter == self.clock:
            job = self.to_come.pop(0)
            self.since_arrival = 0
            if None in self.slots:
                self.slots[self.slots.index(None)] = job
            elif len(self.backlog) < self.config.backlog:
                self.backlog.append(job)
            else:
                job.dropped = True

    def _reward(self) -> float:
        config = self.config
        weighted = [(job, (config.machine_weights or (1.0,) * config.machines)[job.machine]) for job in self.running]
        weighted += [(job, config.queue_weight) for job in self.slots if job]
        weighted += [(job, config.backlog_weight) for job in self.backlog]
        by_duration = config.objective == "slowdown"
        return -sum(weight / (job.duration if by_duration else 1) for job, weight in weighted)

    def picture(self) -> list[list[float]]:
        """Return the picture row by row."""
        return [self._row(row) for row in range(self.config.horizon)]

    def _row(self, row: int) -> list[float]:
        config = self.config
        cells: list[float] = []
        for resource in range(config.num_resources):
            for machine in range(config.machines):
                cells += self._cluster(row, machine, resource)
            for job in self.slots:
                units = job.demand[resource] if job and row < job.duration else 0
                cells += [1.0] * units + [0.0] * (config.slot_width - units)
        columns = -(-config.backlog // config.horizon)
        cells += [float(row * columns + column < len(self.backlog)) for column in range(columns)]
        if config.arrival_column:
            coloured = config.picture == "coloured"
            cells.append(self.since_arrival / 10 if coloured else float(row < self.since_arrival))
        return cells

    def _cluster(self, row: int, machine: int, resource: int) -> list[float]:
        """Return the units by job; as rows only fill up, jobs are side by side in order of booking."""
        time = self.clock + row
        cells: list[float] = []
        for job in self.running:
            if job.machine == machine and job.start <= time < job.finish:
                shade = job.colour / 40 if self.config.picture == "coloured" else 1.0
                cells += [shade] * job.demand[resource]
        return cells + [0.0] * (self.config.units - len(cells))
