import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from decima.evaluation.grid import evaluate
from decima.learning.grid import train as train_module
from decima.learning.grid.config import DeepRMConfig
from decima.learning.grid.rollout import GridEpisodes, roll_out
from decima.learning.grid.train import CLONING_SEED, VALIDATION_SEED, GridTraining
from decima.learning.metrics import GRID_METRICS
from decima.policy.grid import VALIDATED, GridActor, GridView, build_actor, build_network, load_network, save_network
from decima.schedulers.grid import GridScheduler, ShortestJobFirst, play
from decima.settings import TrainingError
from simulator.grid import Grid
from tests.cases import cases
from tests.decima.learning.cluster.examples import merged
from tests.decima.learning.grid.examples import dense, mean_of_others, small
from workloads import DISTRIBUTIONS, JobDistribution, RandomStream, random_stream
from workloads.errors import PolicyFileError

#: Steps of plain gradient descent, so that a weight's change is its gradient.
DESCENT = {"learning_rate": 1.0, "final_learning_rate": 1.0, "critic_learning_rate": 1.0}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[DeepRMConfig], GridTraining]]:
    """Create trainings with started workers."""
    with ExitStack() as stack:
        number = itertools.count()
        yield lambda config: stack.enter_context(GridTraining(config, tmp_path / f"run-{next(number)}").started())


Start = Callable[[DeepRMConfig], GridTraining]


def groups(learner: GridTraining) -> list[Grid]:
    """Return the episodes of an iteration by pass."""
    episodes, result = learner.config.episodes, []
    for first in range(0, len(learner._jobs), episodes.at_once):
        sets = learner._jobs[first : first + episodes.at_once]
        result.append(Grid(learner._grid, sets[np.repeat(np.arange(len(sets)), episodes.per_set)]))
    return result


def returns_of(run: GridEpisodes, episode: int, discount: float) -> list[float]:
    """Return the return of each action of one episode."""
    clock, rewards = run.clock[:, episode], run.rewards[:, episode]
    return [
        sum(discount ** (clock[later] - clock[step]) * rewards[later] for later in range(step, len(rewards)))
        for step in range(len(rewards))
    ]


def advantages(run: GridEpisodes, config: DeepRMConfig) -> np.ndarray:
    """Compute returns minus baselines [S, N], episode by episode."""
    per_set, update = config.episodes.per_set, config.update
    number = run.rewards.shape[1]
    returns = [returns_of(run, episode, update.discount) for episode in range(number)]
    by_step = np.transpose(returns)
    if update.baseline == "time":
        return by_step - mean_of_others(by_step, run.clock, per_set)
    means = np.mean(np.reshape(returns, (-1, per_set, len(run.rewards))), axis=1)
    return by_step - np.repeat(means, per_set, axis=0).T


def watched(grid: Grid, actor: GridActor) -> tuple[GridEpisodes, list[Tensor]]:
    """Return a run, and the pictures of all episodes before each step."""
    pictures, step = [], grid.step

    def look_and_step(actions: np.ndarray) -> np.ndarray:
        pictures.append(torch.from_numpy(grid.pictures.copy()))
        return step(actions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "step", look_and_step)
        return roll_out(grid, actor.decide, actor.mask), pictures


def choices_of(run: GridEpisodes) -> tuple[GridView, np.ndarray]:
    """Return the views of all steps as one, and the actions there."""
    return GridView.concatenate(run.choices), chosen(run.actions, run)


def chosen(values: np.ndarray, run: GridEpisodes) -> np.ndarray:
    """Return the values [S, N] at all choices."""
    return np.array([values[step, episode] for step, view in enumerate(run.choices) for episode in view.episode])


def scores_of(network: nn.Module, choices: GridView) -> Tensor:
    """Return log-probabilities, float64."""
    scores = dense(network, torch.from_numpy(choices.pictures))
    if choices.allowed is not None:
        scores = scores.masked_fill(~torch.from_numpy(choices.allowed), -torch.inf)
    return scores.log_softmax(dim=1)


def policy_losses(network: nn.Module, run: GridEpisodes, advantages: np.ndarray, entropy: float) -> list[Tensor]:
    """Return the loss of each sample; advantages are those of all episodes, [S, N]."""
    losses = []
    choices, actions = choices_of(run)
    for scores, action, gain in zip(scores_of(network, choices), actions, chosen(advantages, run), strict=True):
        possible = scores[scores > -torch.inf]
        losses.append(-scores[action] * gain + entropy * (possible.exp() * possible).sum())
    return losses


def described(learner: GridTraining) -> dict[str, list[Tensor]]:
    return {
        name: [parameter.detach().clone() for parameter in network.parameters()]
        for name, network in learner.networks.items()
    }


def assert_descended(learner: GridTraining, name: str, before: list[Tensor], loss: Tensor) -> None:
    """Assert that the change of the network's weights is minus the gradient of this loss at the old weights."""
    expected = torch.autograd.grad(loss, before)
    for was, now, gradient in zip(before, learner.networks[name].parameters(), expected, strict=True):
        torch.testing.assert_close(was.detach() - now.detach(), gradient, rtol=1e-3, atol=2e-5)
        assert gradient.abs().max() > 1e-3


def descending(start: Start, config: DeepRMConfig) -> tuple[GridTraining, dict[str, nn.Module]]:
    """Return a training with plain gradient descent, and copies of its networks."""
    learner = start(config)
    before = {}
    for name, network in learner.networks.items():
        learner.optimisers[name] = torch.optim.SGD(network.parameters(), lr=1.0)
        for parameter in network.parameters():
            parameter.data.normal_(std=0.1, generator=torch.Generator().manual_seed(parameter.numel()))
        before[name] = build_network(learner._grid, network[-1].out_features, config.network)
        before[name].load_state_dict(network.state_dict())
    return learner, before


@pytest.mark.parametrize("at_once", [1, 2, 3])
@cases(
    "changes",
    {},
    {"update": {"baseline": "action", "normalise": True, "entropy": 0.0}},
    {"update": {"discount": 0.9, "entropy": 0.3}, "episodes": {"mask": "all"}},
    {"update": {"normalise": True}, "episodes": {"mask": "bookable"}, "grid": {"machines": 2}},
    ids=["default", "public code", "discounted", "machines"],
)
def test_reinforce_follows_the_gradient_of_its_advantages(changes: dict[str, Any], at_once: int, start: Start) -> None:
    """The gradient equals a slow computation, sample by sample."""
    config = small(**merged(changes, {"update": DESCENT, "episodes": {"at_once": at_once, "per_set": 2}}))
    learner, before = descending(start, config)
    actor = GridActor(before["actor"], random_stream(config.seed, RandomStream.POLICY, 0), mask=config.episodes.mask)
    losses, totals = [], []
    for grid in groups(learner):
        run = roll_out(grid, actor.decide, actor.mask)
        totals += run.rewards.sum(axis=0).tolist()
        found = advantages(run, config)
        if config.update.normalise:
            found /= np.std(chosen(found, run))
        losses += policy_losses(before["actor"], run, found, config.update.entropy)
    measured = learner.learn(0)
    assert (measured["samples"], measured["return"]) == (len(losses), pytest.approx(np.mean(totals)))
    assert measured["return_best"] == pytest.approx(
        np.mean([max(pair) for pair in zip(totals[::2], totals[1::2], strict=True)])
    )
    assert_descended(learner, "actor", [*before["actor"].parameters()], sum(losses) / len(losses))


@pytest.mark.parametrize("td_steps", [1, 4, 1000])
@pytest.mark.parametrize("baseline", ["none", "time"])
@pytest.mark.parametrize("normalise", [False, True])
def test_actor_and_critic_follow_their_gradients(normalise: bool, baseline: str, td_steps: int, start: Start) -> None:
    """The critic bootstraps after a few actions, and learns from all states in one step."""
    discount = 0.8
    update = {"algorithm": "a2c", "td_steps": td_steps, "discount": discount, "critic_minibatch": 10**6}
    update |= {"normalise": normalise, "baseline": baseline}
    config = small(update={**DESCENT, **update}, episodes={"at_once": 3})
    learner, before = descending(start, config)
    (grid,) = groups(learner)
    run, pictures = watched(grid, GridActor(before["actor"], random_stream(config.seed, RandomStream.POLICY, 0)))
    live = [np.flatnonzero(clock < run.clock[-1]) for clock in run.clock[:-1]]
    values = [dense(before["critic"], seen)[:, 0] for seen in pictures]
    expected = np.zeros(run.clock.shape)
    for row, value, episodes in zip(expected, values, live, strict=False):
        row[episodes] = value.detach().numpy()[episodes] * learner._value_scale
    returns = np.zeros(run.rewards.shape)
    for step, episode in np.ndindex(returns.shape):
        end = min(step + td_steps, len(returns))
        passed = run.clock[step : end + 1, episode] - run.clock[step, episode]
        rewards = [*run.rewards[step:end, episode], expected[end, episode]]
        returns[step, episode] = (discount**passed * rewards).sum()
    errors = torch.cat(
        [
            torch.from_numpy(row[episodes] / learner._value_scale) - value[episodes]
            for row, value, episodes in zip(returns, values, live, strict=True)
        ]
    )
    found = returns - expected[:-1]
    if baseline == "time":
        found = found - mean_of_others(found, run.clock, config.episodes.per_set)
    if normalise:
        found = found / np.std(chosen(found, run))
    losses = policy_losses(before["actor"], run, found, config.update.entropy)
    measured = learner.learn(0)
    assert measured["steps"] == 1
    assert measured["samples"] == len(losses) < errors.numel()
    critic_loss = errors.square().mean()
    assert measured["critic_loss"] == pytest.approx(critic_loss.item(), rel=1e-4)
    assert_descended(learner, "critic", [*before["critic"].parameters()], critic_loss)
    assert_descended(learner, "actor", [*before["actor"].parameters()], sum(losses) / len(losses))


@pytest.mark.parametrize(("step", "steps"), [("iteration", 1), ("group", 3)])
def test_a_gradient_step_for_all_sets_or_for_each_group(step: str, steps: int, start: Start) -> None:
    config = small(update={"step": step}, episodes={"sets": 3, "at_once": 1})
    assert start(config).learn(0)["steps"] == steps


def test_the_critic_passes_over_all_states_in_minibatches(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    update = {"algorithm": "a2c", "critic_epochs": 2, "critic_minibatch": 7}
    learner = start(small(update=update, episodes={"at_once": 3}))
    parts: list[int] = []

    def noted(network: nn.Module, optimiser: Any, *, count: int) -> float:
        if network is learner.networks["critic"]:
            parts.append(count)
        return 0.0

    monkeypatch.setattr("decima.learning.grid.train.take_step", noted)
    learner.learn(0)
    epoch = parts[: len(parts) // 2]
    assert parts == epoch * 2
    assert len(epoch) > 2
    assert set(epoch[:-1]) == {7}


@pytest.mark.parametrize("algorithm", ["reinforce", "a2c"])
def test_sets_without_jobs_teach_nothing_and_do_no_harm(algorithm: str, start: Start) -> None:
    changes = {"update": {"algorithm": algorithm, "normalise": True}, "episodes": {"sets": 6, "at_once": 1}}
    learner = start(small(jobs={"load": 0.3, "steps": 4}, **changes))
    assert 0 < np.count_nonzero(learner._jobs.num_jobs == 0) < 6
    assert learner.learn(0).keys() <= GRID_METRICS.keys()
    learner._jobs = learner._jobs[learner._jobs.num_jobs == 0]
    before = described(learner)
    measured = learner.learn(1)
    assert measured["samples"] == 0
    assert "slowdown" not in measured
    weights = described(learner)["actor"]
    assert all(torch.equal(*pair) for pair in zip(weights, before["actor"], strict=True))


@pytest.mark.parametrize("fresh", [False, True])
def test_jobs_are_the_same_in_all_iterations_or_always_new(
    monkeypatch: pytest.MonkeyPatch, fresh: bool, start: Start
) -> None:
    met: list[bytes] = []

    def spy(grid: Grid, *others: Any, **options: Any) -> GridEpisodes:
        met.append(grid.jobs.enter.tobytes() + grid.jobs.duration.tobytes())
        return roll_out(grid, *others, **options)

    monkeypatch.setattr(train_module, "roll_out", spy)
    learner = start(small(episodes={"fresh": fresh, "at_once": 3}))
    for iteration in range(3):
        learner.learn(iteration)
    assert len(set(met)) == (3 if fresh else 1)


def test_rates_fall_and_cloning_leaves_no_gradient(start: Start) -> None:
    update = {"learning_rate": 0.04, "final_learning_rate": 0.01, "algorithm": "a2c"}
    learner = start(small(iterations=2, update=update))
    assert [learner.learn(iteration)["learning_rate"] for iteration in (0, 1)] == pytest.approx([0.04, 0.02])
    rates = {name: each.param_groups[0]["lr"] for name, each in learner.optimisers.items()}
    assert rates == pytest.approx({"actor": 0.02, "critic": 0.001 / 2})
    learner = start(small(behaviour_cloning={"sets": 5, "epochs": 1}))
    assert list(learner._clone(0))
    assert all(parameter.grad is None for parameter in learner.networks["actor"].parameters())


@pytest.fixture
def one_server(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One unit, jobs of one step and of five: shortest job first is optimal, as on any single server."""
    jobs = JobDistribution(slots=1, short=(1, 1), long=(5, 5), short_share=0.7, dominant=(1, 1), other=(1, 1))
    monkeypatch.setitem(DISTRIBUTIONS, "coarse", jobs)
    return {
        "iterations": 60,
        "grid": {"units": 1, "slot_width": 1, "visible_jobs": 3, "horizon": 6, "max_steps": 200},
        "jobs": {"distribution": "coarse", "load": 1.0, "steps": 12},
        "network": {"hidden": [8]},
        "episodes": {"sets": 16, "per_set": 8, "at_once": 16, "fresh": True},
        "update": {
            "optimiser": "adam", "learning_rate": 0.03, "final_learning_rate": 0.01, "critic_learning_rate": 0.03,
            "td_steps": 100, "entropy": 0.0, "normalise": True,
        },
    }  # fmt: skip


def slowdowns(learner: GridTraining, *schedulers: GridScheduler) -> list[np.ndarray]:
    """Return the sums over the jobs of 200 held-out sets."""
    jobs = learner.config.jobs.draw(learner._grid, 200, 77)
    return [np.nansum(play(Grid(learner._grid, jobs), scheduler).slowdown(), axis=1) for scheduler in schedulers]


@pytest.mark.parametrize("algorithm", ["reinforce", "a2c"])
def test_both_algorithms_find_the_best_policy_of_a_single_server(
    one_server: dict[str, Any], algorithm: str, start: Start
) -> None:
    """The policy improves on the initial policy (paired t above 6)."""
    config = small(**merged(one_server, {"seed": 1, "update": {"algorithm": algorithm}}))
    learner = start(config)
    best, untrained = slowdowns(
        learner, ShortestJobFirst(), GridActor(learner.networks["actor"], np.random.default_rng(1))
    )
    for iteration in range(config.iterations):
        learner.learn(iteration)
    (trained,) = slowdowns(learner, GridActor(learner.networks["actor"]))
    gained = untrained - trained
    assert gained.mean() / (gained.std(ddof=1) / np.sqrt(len(gained))) > 6
    assert untrained.mean() > 1.15 * best.mean()
    assert trained.mean() < 1.03 * best.mean()


@pytest.mark.parametrize("mask", ["startable", "all"])
def test_behaviour_cloning_makes_the_choices_of_a_heuristic_likely(
    one_server: dict[str, Any], mask: Any, start: Start
) -> None:
    cloning = {"sets": 60, "epochs": 40, "learning_rate": 0.02, "minibatch": 64}
    learner = start(small(**merged(one_server, {"episodes": {"mask": mask}, "behaviour_cloning": cloning})))
    jobs = learner.config.jobs.draw(learner._grid, 60, CLONING_SEED + learner.config.seed)
    heuristic = ShortestJobFirst()
    run = roll_out(Grid(learner._grid, jobs), lambda grid, view: heuristic(grid), mask)
    choices, actions = choices_of(run)

    @torch.no_grad()
    def agreement() -> float:
        """Return the mean probability of the choices of shortest job first."""
        scores = scores_of(learner.networks["actor"], choices).exp()
        return float(scores.gather(1, torch.from_numpy(actions)[:, None]).mean())

    assert agreement() < 0.6
    assert len(list(learner._clone(0))) == 40
    assert agreement() > 0.9
    best, cloned = slowdowns(learner, ShortestJobFirst(), GridActor(learner.networks["actor"], mask=mask))
    assert cloned.mean() < 1.05 * best.mean()


def test_trainings_that_cannot_begin(tmp_path: Path) -> None:
    rare = {"load": 0.01, "steps": 1}
    with pytest.raises(TrainingError, match="the training sets have no jobs"):
        GridTraining(small(jobs=rare), tmp_path / "out")
    with pytest.raises(TrainingError, match="the validation sets have no jobs"):
        GridTraining(small(jobs=rare, episodes={"sets": 2000}, validation={"sets": 1}), tmp_path / "out")
    config = small()
    save_network(tmp_path / "other.npz", build_actor(config.policy), config.policy, {})
    with pytest.raises(PolicyFileError, match=r"other\.npz: a network for pictures of 20 x 61 and 3 actions"):
        GridTraining(small(start=str(tmp_path / "other.npz"), network={"hidden": [5]}), tmp_path / "run")


def test_the_results_are_those_of_the_policy_that_is_kept(tmp_path: Path) -> None:
    config = small()
    result = GridTraining(config, tmp_path / "out").run()
    network, policy = load_network(result.policy_file)
    assert policy == config.policy
    grid = config.grid
    sets = config.jobs.draw(grid, config.validation.sets, VALIDATION_SEED + config.seed)
    actor = GridActor(network, random_stream(config.seed, RandomStream.POLICY, VALIDATED))
    runs = evaluate(grid, sets, {"again": actor})
    slowdown = float(np.average(runs["slowdown"], weights=runs["jobs"]))
    assert slowdown == result.results["deeprm"]["slowdown"]
    heuristics = [measures["slowdown"] for name, measures in result.results.items() if name != "deeprm"]
    assert result.improvement == pytest.approx(1 - slowdown / min(heuristics))


def test_what_is_rewarded_is_what_is_compared(tmp_path: Path) -> None:
    config = small(iterations=1, grid={"objective": "completion"})
    result = GridTraining(config, tmp_path / "out").run()
    values = {name: measures["completion"] for name, measures in result.results.items()}
    reference = min(value for name, value in values.items() if name != "deeprm")
    assert result.improvement == pytest.approx((reference - values["deeprm"]) / abs(reference))
