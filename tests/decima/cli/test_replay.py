"""The command ``decima replay``."""

from pathlib import Path

from click.testing import CliRunner, Result

from decima.cli.main import cli
from tests.decima.cli.commands import assert_one_line_error
from tests.simulator.parity import test_cluster, test_grid
from tests.simulator.parity.damage import Shared, write

WEIGHTS = "reference/decima-sim-20000.npz"


def replay(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["replay", *map(str, words)])


def test_all_recorded_episodes_match(shared: Shared) -> None:
    """Episodes of the published simulator, its trained agent, and the published DeepRM code."""
    paths = []
    for folder, count in (("decima-sim", 97), ("decima-sim-agent", 15), ("deeprm", 25)):
        found = sorted(shared(f"parity/{folder}").glob("*.json.gz"))
        assert len(found) == count
        paths += found
    result = replay("--weights", shared(WEIGHTS), *paths)
    matching, largest = result.output.splitlines()
    assert matching == "137 of 137 episodes match"
    assert float(largest.removeprefix("largest difference between probabilities: ")) <= 1e-4
    assert result.exit_code == 0


def test_recordings_of_clusters_and_grids_are_replayed_in_one_go(tmp_path: Path) -> None:
    wrong = {**test_cluster.recording(), "makespan_ms": 58}, {**test_grid.recording(), "done": False}
    episodes = [*wrong, test_cluster.recording(), test_grid.recording()]
    paths = [write(tmp_path / f"{number}.json.gz", episode) for number, episode in enumerate(episodes)]
    result = replay(*paths)
    assert result.stdout.splitlines() == [
        f"{paths[0]}: makespan: 57 ms, recorded 58 ms",
        f"{paths[1]}: after 12 actions: the recording is not over, the replay is over",
        "2 of 4 episodes match",
    ]
    assert result.exit_code == 1
    right = replay(*paths[2:])
    assert (right.output, right.exit_code) == ("2 of 2 episodes match\n", 0)


def test_after_bad_files_the_others_are_replayed(tmp_path: Path) -> None:
    agent = test_cluster.recording()
    agent["decisions"][0]["stage_probabilities"] = [1.0]
    (tmp_path / "text.json").write_text("no recording")
    (tmp_path / "grid.json").write_text('{"jobs_in": []}')
    paths = [tmp_path / "missing.json", tmp_path / "text.json", tmp_path / "grid.json", tmp_path]
    paths += [write(tmp_path / "agent.json", agent), write(tmp_path / "good.json", test_cluster.recording())]
    result = replay(*paths)
    *lines, summary = result.stdout.splitlines()
    told = ["cannot be read: No such file", "Invalid JSON", "params: Field required"]
    told += ["cannot be read: Is a dir", "recorded from a trained agent"]
    for path, line, expected in zip(paths, lines, told, strict=False):
        assert line.startswith(f"{path}: {expected}")
    assert (len(lines), summary) == (5, "1 of 6 episodes match")
    assert result.exit_code == 1


def test_weights_are_a_policy_file(tmp_path: Path) -> None:
    good = write(tmp_path / "good.json", test_cluster.recording())
    assert_one_line_error(replay("--weights", good, good), "good.json: not a policy, or truncated")
