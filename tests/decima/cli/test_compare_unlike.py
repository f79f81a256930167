"""``decima compare`` where a policy is out of its training distribution."""

import shlex
import shutil
from pathlib import Path

from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.evaluation import DEFAULT_SCHEDULERS
from decima.policy.files import load_policy
from decima.policy.save import save_policy
from decima.policy.shipped import SHIPPED
from tests.cases import cases
from tests.decima.cli.commands import SAVED, Compare, assert_one_line_error, assert_same_again, results, succeeded

QUICK = ("--jobs", "2", "--seeds", "1", "--training", "1", "--processes", "1")
#: Options of a setting out of distribution for all shipped policies.
UNLIKE = ("--executors", "5", "--moving-delay", "100", *QUICK)
RULES = DEFAULT_SCHEDULERS.removesuffix(",decima").split(",")
POLICY = "embedded-batch"
WHY = "a moving delay of 100 s, trained on 2"


def notices(done: Result) -> list[str]:
    return [line for line in done.stdout.splitlines() if "out of its training distribution" in line]


def left_out(done: Result) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("decima is left out")]


def test_by_default_decima_is_left_out_where_no_network_was_trained_and_one_line_says_so(run: Compare) -> None:
    done = succeeded(run(*SAVED, base=UNLIKE))
    assert list(results()["schedulers"]) == RULES
    assert left_out(done) == [
        "decima is left out: no shipped network was trained for such jobs on such a cluster. To train one: decima "
        "train --config batch --set cluster.executors=5 --set cluster.moving_delay=100 --set workload.jobs=2 --out DIR."
    ]
    assert_same_again(Path("r.json"), "--processes", "1", "--out", "elsewhere")


def test_decima_without_a_policy_is_a_rule_where_no_network_was_trained(run: Compare) -> None:
    done = succeeded(run(*SAVED, "--schedulers", "decima,srpt-tuned", base=UNLIKE))
    assert "decima: the rule srpt-tuned, as no shipped network was trained" in done.stdout
    both = [results()["schedulers"][name]["mean_jct_s"] for name in ("decima", "srpt-tuned")]
    assert both[0] == both[1]


def test_a_named_policy_is_compared_with_a_warning(run: Compare) -> None:
    shutil.copy(SHIPPED[POLICY], "mine.npz")
    for name in ("decima:mine.npz", "decima:mine.npz,guard=off"):
        done = succeeded(run(*SAVED, "--schedulers", f"fair,{name}", base=UNLIKE))
        outside = results()["schedulers"][name]["outside_training"]
        assert WHY in outside
        assert "outside_training" not in results()["schedulers"]["fair"]
        met = "; ".join(outside)
        assert notices(done) == [f"{name} may do badly here, its policy is out of its training distribution: {met}."]


def test_a_checkpoint_is_seen_too(run: Compare, tmp_path: Path) -> None:
    shutil.copy(SHIPPED[POLICY], tmp_path / "mine.npz")
    done = succeeded(run(*SAVED, "--checkpoint", "mine.npz", base=UNLIKE))
    assert [line.partition(",")[0] for line in notices(done)] == ["decima may do badly here"]
    assert results()["schedulers"]["decima"]["policy"] == "mine.npz"


def test_policies_that_do_not_say_are_not_judged(run: Compare, shipped: dict[str, Path]) -> None:
    done = succeeded(run(*SAVED, "--schedulers", f"decima:{POLICY}", base=UNLIKE))
    assert notices(done) == []
    assert results()["schedulers"][f"decima:{POLICY}"]["outside_training"] == []


def test_a_policy_that_says_what_means_nothing_is_told_in_one_line(run: Compare, policy: Path) -> None:
    save_policy(policy, load_policy(policy), {"trained_on": {"arrivals": "trickle"}})
    for options in (("--checkpoint", str(policy)), ("--schedulers", f"decima:{policy}")):
        assert_one_line_error(
            run(*options), f"{policy}: about.trained_on: arrivals: expected 'batch', 'stream' or 'both', got 'trickle'"
        )


@cases(
    "options, settings",
    ("--arrivals poisson --interval 10 --moving-delay 0.5 --semantics trace --executors 1000 --jobs 7",
     "--config stream --set cluster.executors=1000 --set cluster.moving_delay=0.5 --set cluster.semantics=trace "
     "--set workload.interval=10 --workload tiny.json"),
    ("--executors 1000 --jobs 3",
     "--config batch --set cluster.executors=1000 --set workload.jobs=3 --workload tiny.json"),
    ("--classes 2x0.5,3x1 --jobs 2 --arrivals poisson --interval 9 --drift 2:5",
     "--config packing --set cluster.classes=2x0.5,3x1 --set workload.interval=9 "
     "--set workload.memory_demand=own --set workload.drift=2:5 --workload tiny.json"),
    ids=["stream", "batch", "classes"],
)  # fmt: skip
def test_the_command_that_trains_one_is_of_these_jobs_and_this_cluster(
    run: Compare, options: str, settings: str
) -> None:
    few = "--seeds 1 --training 1 --processes 1 --workload tiny.json"
    [line] = left_out(succeeded(run(base=(*few.split(), *options.split()))))
    assert line.endswith(f"decima train {settings} --out DIR.")


def test_the_command_that_trains_one_works(run: Compare) -> None:
    [line] = left_out(run(base=UNLIKE))
    words = shlex.split(line.partition("To train one: decima ")[2].removesuffix("."))
    few = (
        "iterations=1",
        "behaviour_cloning=null",
        "validation.sequences=1",
        "episodes.sequences=1",
        "episodes.per_sequence=2",
        "update.epochs=1",
    )
    succeeded(CliRunner().invoke(cli, [*words, "--workers", "1", *(word for each in few for word in ("--set", each))]))
    done = succeeded(run("--schedulers", "decima", "--checkpoint", "DIR/policy.npz", base=UNLIKE))
    assert notices(done) == []
