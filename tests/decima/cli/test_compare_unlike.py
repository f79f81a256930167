"""``decima compare`` where a policy is out of its training distribution."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.evaluation import DEFAULT_SCHEDULERS
from decima.learning.cluster.config import read_config
from decima.policy.distribution import read_trained_on
from decima.policy.files import load_actor, load_policy
from decima.policy.save import save_policy
from decima.policy.shipped import SHIPPED
from decima.show.left_out import CHANGED, RECIPES
from tests.cases import cases
from tests.decima.cli.commands import SAVED, Compare, assert_one_line_error, assert_same_again, results, succeeded

QUICK = ("--jobs", "2", "--seeds", "1", "--training", "1", "--processes", "1")
#: Options of a setting out of distribution for all shipped policies.
UNLIKE = ("--executors", "5", "--moving-delay", "100", *QUICK)
RULES = DEFAULT_SCHEDULERS.removesuffix(",decima").split(",")
MET = read_trained_on(SHIPPED["general"])
WHY = (
    f"a moving delay of 100 s, trained on {MET.moving_delay_s.low:.0f} to {MET.moving_delay_s.high:.0f}" if MET else ""
)


def notices(done: Result) -> list[str]:
    return [line for line in done.stdout.splitlines() if "out of its training distribution" in line]


def test_by_default_a_policy_that_does_not_fit_is_left_out_and_one_line_says_so(run: Compare) -> None:
    done = succeeded(run(*SAVED, base=UNLIKE))
    assert list(results()["schedulers"]) == RULES
    assert results()["left_out"] == [{"scheduler": "decima:general", "outside_training": [WHY]}]
    assert notices(done) == [
        f"decima is left out, its policy general is out of its training distribution: {WHY}. To train one that fits: "
        "decima train --config general --set start=general --set behaviour_cloning=null --set iterations=40 "
        "--set 'settings.sources=[tpch]' --set settings.durations=1 --set settings.tasks=1 --set settings.batches=1 "
        "--set settings.batch_jobs=2 --set settings.executors=5 --set settings.moving_delay=100 "
        "--set settings.job_error=0 --set settings.stage_error=0 --set settings.task_count_error=0 "
        "--set settings.unknown=0 --set settings.task_failures=0 --set settings.losses_per_hour=0 "
        "--set settings.straggler_share=0 --set validation.cells=1 --set validation.sequences=20 --out DIR. "
        "To see it all the same: --schedulers fair,decima."
    ]
    assert_same_again(Path("r.json"), "--processes", "1", "--out", "elsewhere")


def test_a_named_policy_is_compared_with_a_warning(run: Compare) -> None:
    shutil.copy(SHIPPED["general"], "mine.npz")
    for name in ("decima", "decima:mine.npz", "decima,guard=off", "decima:mine.npz,guard=off"):
        done = succeeded(run(*SAVED, "--schedulers", f"fair,{name}", base=UNLIKE))
        assert results()["left_out"] == []
        assert results()["schedulers"][name]["outside_training"] == [WHY]
        assert "outside_training" not in results()["schedulers"]["fair"]
        assert notices(done) == [f"{name} may do badly here, its policy is out of its training distribution: {WHY}."]


def test_a_checkpoint_is_seen_too(run: Compare, tmp_path: Path) -> None:
    shutil.copy(SHIPPED["general"], tmp_path / "mine.npz")
    done = succeeded(run(*SAVED, "--checkpoint", "mine.npz", base=UNLIKE))
    assert [line.partition(",")[0] for line in notices(done)] == ["decima may do badly here"]
    assert results()["schedulers"]["decima"]["policy"] == "mine.npz"


def test_policies_that_fit_or_do_not_say_are_not_judged(run: Compare, shipped: dict[str, Path]) -> None:
    done = succeeded(run(*SAVED, base=QUICK))
    assert notices(done) == results()["left_out"] == []
    assert results()["schedulers"]["decima"]["outside_training"] == []
    done = succeeded(run(*SAVED, base=UNLIKE))
    assert notices(done) == []
    assert "decima" in results()["schedulers"]


def test_a_policy_that_says_what_means_nothing_is_told_in_one_line(run: Compare, policy: Path) -> None:
    save_policy(policy, load_policy(policy), {"trained_on": {"arrivals": "trickle"}})
    for options in (("--checkpoint", str(policy)), ("--schedulers", f"decima:{policy}")):
        assert_one_line_error(
            run(*options), f"{policy}: about.trained_on: arrivals: expected 'batch', 'stream' or 'both', got 'trickle'"
        )


@cases(
    "options, settings",
    ("--arrivals poisson --interval 10 --moving-delay 0.5 --semantics trace --executors 1000 --jobs 7",
     "executors=1000 moving_delay=0.5 batches=0 semantics=trace"),
    ("--executors 1000 --jobs 3",
     "batches=1 batch_jobs=3 job_error=0 stage_error=0 task_count_error=0 unknown=0 losses_per_hour=0 "
     "task_failures=0 straggler_share=0"),
    ("--executors 1000 --job-error 1.5 --unknown 0.25", "executors=1000 job_error=1.5 unknown=0.25"),
    ("--executors 20 --task-failures 0.05 --executor-lifetime 100 --lost-output --stragglers 0.1:3",
     "losses_per_hour=36 lost_output=1 task_failures=0.05 straggler_share=0.1 straggler_factor=3"),
    ("--executors 20 --task-failures 0.05 --executor-lifetime 100 --executor-return never",
     "losses_per_hour=36 executor_return=1000000000"),
    ids=["stream", "batch", "errors", "faults", "never"],
)  # fmt: skip
def test_the_command_that_trains_one_is_of_these_jobs_and_this_cluster(
    run: Compare, options: str, settings: str
) -> None:
    few = "--seeds 1 --training 1 --processes 1 --workload tiny.json"
    [line] = notices(run(base=(*few.split(), *options.split())))
    found = set(re.findall(r"--set '?(?:settings|cluster)\.(\S+?)'? ", line))
    assert found >= {"sources=[tiny.json]", *settings.split()}
    assert ("--arrivals" in options) == any(each.startswith("load=") for each in found)
    assert ("--stragglers" in options) == any(each.startswith("straggler_factor=") for each in found)


def test_the_command_that_trains_one_where_executors_differ(run: Compare) -> None:
    classes = ("--workload", "tpch", "--classes", "2x0.5,3x1")
    [line] = notices(run(base=(*classes, *QUICK)))
    assert "5 executors, trained on 200" in line
    assert "--config packing --set cluster.classes=2x0.5,3x1 " in line
    memory = "--set workload.arrivals=batch --set workload.jobs=2 --set workload.memory_demand=own"
    assert f"{memory} --set policy.preset=packing-told " in line
    assert "--set behaviour_cloning=null --workload tpch --out DIR." in line
    stream = ("--arrivals", "poisson", "--interval", "9", "--jobs", "3", "--drift", "2:5")
    [line] = notices(run(base=(*classes, *QUICK, *stream)))
    assert " --set workload.drift=2:5 " in line


def test_the_command_that_trains_one_works(run: Compare) -> None:
    [line] = notices(run(base=UNLIKE))
    words = shlex.split(line.partition("fits: decima ")[2].partition(". To see")[0])
    few = ("iterations=1", "validation.sequences=1", "episodes.sequences=1", "update.epochs=1")
    done = succeeded(CliRunner().invoke(cli, [*words, *(word for each in few for word in ("--set", each))]))
    done = succeeded(run("--schedulers", "decima", "--checkpoint", "DIR/policy.npz", base=UNLIKE))
    assert notices(done) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_the_recipe_of_a_policy_that_ships_makes_such_policies(name: str) -> None:
    assert read_config(RECIPES[name], CHANGED.get(name, ())).policy.build() == load_actor(SHIPPED[name]).config
