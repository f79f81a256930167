"""Draw commitments.png: two jobs on three executors, with every scheduling decision."""

import numpy as np
from matplotlib.figure import Figure

import decima
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations

COLOURS = {"scan": "#9fc5e8", "join": "#3d85c6", "filter": "#f6b26b"}


class Recording(decima.Scheduler):
    """Decides as fair sharing, and keeps the time of each decision."""

    def __init__(self):
        self.rule = decima.make_scheduler("fair")
        self.times_s = []

    def decide(self, observation):
        """Return the decision of fair sharing."""
        self.times_s.append(observation.time_ms / 1000)
        return self.rule.decide(observation)


def stage(name, tasks, seconds):
    """Return a stage whose tasks all take the same time."""
    return StageProfile(tasks, TaskDurations.constant(1000 * seconds), name)


report = JobProfile("report", (stage("scan", 5, 2), stage("join", 3, 1.5)), edges=np.array([(0, 1)]))
clean = JobProfile("clean", (stage("filter", 3, 1),))
jobs = JobSequence((report, clean), arrival_ms=np.zeros(2))
scheduler = Recording()
cluster = decima.ClusterConfig(num_executors=3, moving_delay_ms=500)
record = decima.run_episode(cluster, jobs, scheduler)

figure = Figure(figsize=(9, 3.4), layout="constrained")
axes = figure.add_subplot()
for task in record.tasks().itertuples():
    name = jobs.profiles[task.job].stages[task.stage].name
    start, duration = task.start_ms / 1000, (task.finish_ms - task.start_ms) / 1000
    axes.barh(task.executor, duration, left=start, height=0.8, color=COLOURS[name], edgecolor="white")
    axes.text(start + duration / 2, task.executor, f"{name} {task.task}", ha="center", va="center")
for move in record.moves().itertuples():
    depart, delay = move.depart_ms / 1000, (move.arrive_ms - move.depart_ms) / 1000
    axes.barh(move.executor, delay, left=depart, height=0.8, color="#dddddd", edgecolor="white")
    axes.text(depart + delay / 2, move.executor, "move", ha="center", va="center", fontsize=8)
for executor in (0, 1):
    axes.text(5.25, executor, "waits for\nready stage", ha="center", va="center", fontsize=8, color="#666666")
for number, time_s in enumerate(dict.fromkeys(scheduler.times_s), start=1):
    axes.axvline(time_s, color="black", linewidth=1, linestyle=":", zorder=0)
    mark = {"boxstyle": "circle,pad=0.25", "facecolor": "black"}
    axes.text(time_s, 2.75, str(number), ha="center", va="center", color="white", fontsize=9, bbox=mark)
axes.set(xlabel="Time (s)", ylabel="Executor", yticks=range(3), xlim=(-0.15, 7.65), ylim=(-0.5, 3.0))
axes.spines[["top", "right"]].set_visible(False)
figure.savefig("commitments.png", dpi=110)
