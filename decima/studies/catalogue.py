"""Catalogue of all studies, each with function, help text and options of its command ``decima reproduce NAME``.

The module has no slow imports, so that ``decima --help`` is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decima.show.tables import Report


@dataclass(frozen=True)
class Option:
    """An option of a study's command, which is an argument of the study's function.

    Attributes:
        flags: flags separated by blanks, and a placeholder of the value, as in ``--loads A,B``; the first flag gives
            the default of ``name``.
        kind: type of values: a key of ``decima.cli.main.KINDS``, ``flag``, or the choices.
        multiple: whether the option may be repeated; its value is then a tuple, by default empty.
    """

    flags: str
    kind: str | tuple[str, ...]
    help: str
    default: object = None
    name: str = ""
    multiple: bool = False


@dataclass(frozen=True)
class Entry:
    """A study and its command; help texts of options document the arguments of the study's function.

    Attributes:
        run: module in ``decima.studies`` and function, such as ``single_resource:fig9a``. The function receives a
            setup and the option values, and returns an ``Outcome``.
        options: options in order; a string is a key of ``decima.cli.main.SHARED``.
        setup: module and class of the setup, which takes some of the options.
    """

    run: str
    help: str
    options: tuple[Option | str, ...]
    setup: str


def _found(place: str) -> Any:
    """Import a function or class of ``decima.studies`` from a text ``module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"decima.studies.{module}"), name)


def run_study(
    name: str,
    values: Mapping[str, Any],
    command: str = "",
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
    given: Collection[str] = (),
) -> Report:
    """Run the study ``name`` with the values of all options of its command, by argument name.

    ``given`` names the options that the user gave; ``command`` is recorded, ``tell`` shows progress.
    """
    entry, left = STUDIES[name], dict(values)
    setup = _found(entry.setup).of_options(left, command=command, tell=tell, given=frozenset(given))
    shown: Report = _found(entry.run)(setup, **left).shown(command)
    return shown


SEEDS = "--seeds --experiments"
CHECKPOINT = Option(
    "--checkpoint",
    "policy file",
    "Policy file of decima train that replaces the training of the full policy.",
)
BUSY = "Target share of time that executors are busy"
LOAD = Option("--load", "share", f"{BUSY}; sets the time between arrivals.", 0.85)
#: An option that may be repeated.
Repeated = partial(Option, multiple=True)
# Options of section 7.3 of the Decima paper: TPC-H jobs, a trace.
INTERVAL = Option("--interval", "above 0", "Mean seconds between TPC-H jobs.", 4.0, "interval_s")
WINDOW = Option("--window", "above 0", "Seconds of the trace in each experiment.", 6480.0, "window_s")
#: Executor classes of section 7.3, as the option ``--classes``.
FOUR_SIZES = "50x0.25,50x0.5,50x0.75,50x1"


def _study(run: str, help: str, *options: Option | str, executors: int = 50) -> Entry:
    """Return a study on a cluster; ``executors`` is the default number."""
    own = "instead of the study's own number"
    cluster: tuple[Option | str, ...] = (
        "workload",
        Option("--executors", "at least 1", "Executors of the cluster.", executors),
        "budget",
        Option(SEEDS, "at least 1", f"Number of experiments, {own}.", None, "num_experiments"),
        Option("--jobs", "at least 1", f"Jobs in each experiment, {own}.", None, "num_jobs"),
        Option("--seed", "seed", "Seed of the first experiment.", 0),
        *("policies", "workers"),
    )
    return Entry(run, help, (*options, *cluster), "study:Study")


def _grid(run: str, help: str, *options: Option) -> Entry:
    """Return a study on DeepRM's grid."""
    grid: tuple[Option | str, ...] = (
        "budget",
        Option("--sets", "at least 2", "Number of unseen job sets in the comparison.", 100),
        Option("--seed", "comparison seed", "Seed of the unseen job sets and of training.", 0),
        *("policies", "workers: 1"),
    )
    return Entry(run, help, (*options, *grid), "grid_study:GridStudy")


def _other(run: str, help: str, *options: Option | str) -> Entry:
    """Return a study that has all options of its own."""
    return Entry(run, help, options, "outcome:Setup")


#: Name -> study.
STUDIES: dict[str, Entry] = {
    "fig9a": _study("single_resource:fig9a", """Compare Decima with classic schedulers on batches.

        100 batches of 20 TPC-H jobs on 50 executors (Decima, Figure 9a). Uses the shipped policy; for a workload
        file it trains one, about 36 minutes of CPU time.""", CHECKPOINT),
    "fig9b": _study("single_resource:fig9b", """Compare Decima with classic schedulers on streams.

        Jobs arrive by a Poisson process that keeps executors busy for 85% of the time (Decima, Figure 9b); also shows
        one of the streams in detail (Figure 10). fig10 is the same command. About 5 minutes; for a workload file it
        trains a policy, half an hour of CPU time.""",
        Option("--load", "share", f"{BUSY}; sets the time between arrivals.  [default: 0.85]"),
        Option("--interval", "above 0",
            "Mean seconds between arrivals, instead of a load; the published code has 25.", name="interval_s"),
        CHECKPOINT),
    "fig13": _study("deep_dive:fig13", """Compare policies trained for different objectives.

        The average JCT with the moving delay, the same with moves that take no time, and the makespan (Decima,
        Figure 13). Some 100 minutes of CPU time, nearly all of it two trainings.""", CHECKPOINT),
    "fig14": _study("deep_dive:fig14", """Run the ablation study of Decima's ideas, as the load grows.

        Without parallelism control, without graph embedding, trained on unfixed sequences, trained on batches
        (Decima, Figure 14); and the networks of public re-implementations. Some 6 hours of CPU time, nearly all
        of it six trainings.""",
        Repeated("--load", "share", f"{BUSY}; may be given several times. All policies are trained at the highest.",
            (0.55, 0.65, 0.75, 0.85), "loads"),
        CHECKPOINT),
    "fig15a": _study("deep_dive:fig15a", """Compare encodings of parallelism limits by learning speed.

        As an input of one function, as separate outputs, and for single stages (Decima, Figure 15a); and the
        networks of public re-implementations. Some 2 hours of CPU time, nearly all of it five trainings.""", LOAD),
    "fig21": _study("single_resource:fig21", """Compare Decima with the best order of jobs.

        Moves are free and task durations do not vary, so that only the order of the jobs matters; searches all orders
        of 10 jobs for the best (Decima, Figure 21). Some 90 minutes of CPU time, of which 20 to 30 are a training.""",
        CHECKPOINT),
    "fig22": _study("deep_dive:fig22", """Measure the cost of not knowing task durations.

        On batches of 20 jobs (Decima, Figure 22). About 70 minutes of CPU time, nearly all of it two trainings.""",
        CHECKPOINT),
    "table2": _study("deep_dive:table2", """Measure how a policy generalises to more arrivals than in its training.

        Streams that keep executors busy for 85% of the time (Decima, Table 2). Some 2 hours of CPU time, nearly all of
        it two trainings.""", LOAD),
    "fig11a": _study("multi_resource:fig11a", """Compare Decima with schedulers that pack, on a trace.

        Windows of the trace that --workload names, on executors of four sizes, with Graphene*, Graphene, Tetris and
        weighted fair sharing tuned in each experiment (Decima, Figure 11a). About 5 minutes with the shipped
        policy; training one takes about 50 minutes of CPU time.""", WINDOW, CHECKPOINT, executors=200),
    "fig11b": _study("multi_resource:fig11b", """Compare Decima with schedulers that pack, on TPC-H jobs.

        Streams of 200 jobs whose stages need memory drawn from (0, 1], on executors of four sizes, with Graphene*,
        Graphene, Tetris and weighted fair sharing tuned in each experiment (Decima, Figure 11b). If no shipped policy
        fits, training one takes about 50 minutes of CPU time.""", INTERVAL, CHECKPOINT, executors=200),
    "fig12": _study("usage:fig12", """Show which jobs Decima completes faster than Graphene*, and on which executors.

        By the jobs' total work (Decima, Figures 12 and 20), on TPC-H jobs or a trace. fig20 is the same command. If
        no shipped policy fits, training one takes about 50 minutes of CPU time.""",
        INTERVAL, WINDOW, CHECKPOINT, executors=200),
    "fig19": _study("usage:fig19", """Show jobs, executors and memory over time, with Decima and with Graphene*.

        Of the first experiment (Decima, Figure 19), on TPC-H jobs or a trace. If no shipped policy fits, training
        one takes about 50 minutes of CPU time.""", INTERVAL, WINDOW, CHECKPOINT, executors=200),
    "table3": _study(
        "multi_resource:table3",
        """Measure how a policy generalises to more jobs and more executors than in its training.

        Streams of a trace's jobs on executors of four sizes (Decima, Table 3); --workload is a workload file without
        arrivals, from decima workload import alibaba --library. About an hour of CPU time, most of it three
        trainings.""",
        Option("--interval", "above 0", "Mean seconds between jobs in the test.", 65.0, "interval_s"), executors=200),
    "deeprm-fig4": _grid("deeprm:fig4", """Compare DeepRM with heuristics as the load grows.

        A network is trained at each load (DeepRM, Figure 4). About 70 minutes of CPU time (28 at --budget 0.4).""",
        Repeated("--load", "above 0",
            "Load in percent; may be given several times.  [default: 10, 30, .. 170, 184.5]",
            name="loads")),
    "deeprm-fig5": _grid("deeprm:fig5", """Compare networks trained for slowdown and for completion time.

        At a load of 130 % (DeepRM, Figure 5). About 15 minutes of CPU time."""),
    "deeprm-fig6": _grid("deeprm:fig6", """Show how fast DeepRM learns.

        At a load of 70 % (DeepRM, Figure 6). About 10 minutes of CPU time."""),
    "deeprm-fig7": _grid("deeprm:fig7", """Show which jobs DeepRM withholds, and which jobs gain.

        At a load of 110 % (DeepRM, Figure 7). About 7 minutes of CPU time."""),
    "cnn-fig2": _grid("successors:fig2", """Compare a convolution, the reshaped state and reward weights with DeepRM.

        On jobs at a load of 70 % (Chen, Xu and Wu, 2017, Figure 2). About 10 minutes of CPU time.""",
        Repeated("--weights A,B,C", "weights",
            "Weights alpha, beta and gamma of a reward; may be given several times.", ("1,1,2", "0.5,1,1"))),
    "cnn-fig3": _grid("successors:fig3", """Compare a network for two machines with heuristics.

        At a load of 70 % of both (Chen, Xu and Wu, 2017, Figure 3). About 8 minutes of CPU time."""),
    "a2c-tables": _grid(
        "successors:a2c_tables",
        """Compare actor-critic training with heuristics at four rates of arrival.

        Slowdown, completion and waiting time; architectures; a real log (A2cScheduler, 2020). About 25 minutes of
        CPU time.""",
        Option("--log", "file", "Also compare on this log in Standard Workload Format."),
        Option("--log-load", "above 0", "Load in percent to which the log is resampled.", 70.0)),
    "critical-path": _other("critical_path:critical_path", """Show which graph neural networks find critical paths.

        The graph neural network is trained by supervised learning to find the stage with the longest critical path,
        with and without a non-linearity after the sum over a stage's children (Decima, section 5.1 and appendix E).
        About 8 minutes of CPU time.""",
        Option(SEEDS, "at least 1", "Networks of each kind that are trained.", 5, "seeds"), "budget"),
    "benchmark": _other("benchmark:benchmark", """Measure schedulers in twelve fixed settings, and give each a score.

        Batches and streams of TPC-H jobs, random DAGs, DAGs of a trace, executors of four sizes, wrong estimates and
        faults, on seeds that nothing is trained or tuned on. The score is the geometric mean of the mean JCT relative
        to fair sharing. docs/benchmark.md has the scores of all shipped schedulers, and the sources of the published
        jobs and the trace. Some 4 minutes of CPU time for a rule.""",
        Option("--schedulers A,B,..", "text",
            "Schedulers to measure: names that 'decima schedulers' lists, or module:Class for your own.  "
            "[default: all shipped ones]", name="scheduler_names"),
        Option("--checkpoint", "policy file",
            "Policy file of decima train.  [default: in each setting the shipped policy of the most similar "
            "setting]"),
        Option("--profiles DIR", "folder",
            "Folder of the published TPC-H profiles.  [default: their settings are left out]"),
        Option("--trace", "file",
            "Workload file with the DAGs of Alibaba's trace.  [default: their setting is left out]"),
        Repeated("--settings NAME", "text",
            "Only this setting; may be given several times. A part of the settings gives no comparable score."),
        Option(SEEDS, "at least 2", "Sequences in each setting; version 1 has 20.", 20, "seeds"),
        "workers"),
}  # fmt: skip
STUDIES["fig10"], STUDIES["fig20"] = STUDIES["fig9b"], STUDIES["fig12"]
