"""No tensor of an update stays on the CPU if another device is requested; tested with a simulated GPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from decima.learning.loop import POLICY
from decima.policy.encoder import DenseLayers
from decima.policy.policy import Policy
from decima.settings import TrainingError
from tests.decima.learning.examples import Runs, assert_same_run

GPU = torch.device("cuda:0")
#: Methods that accept tensors of several devices; the first tensor keeps its device.
CROSSING = ("copy_", "_has_compatible_shallow_copy_type")


def is_there(tensor: object) -> bool:
    return getattr(tensor, "pretended", False)


class PretendedGpu(TorchFunctionMode):
    """Tensors that report a GPU as their device, and refuse operations with tensors on another device.

    Computations run on the CPU. As on a real GPU, tensors without dimensions may be on any device.
    """

    sent = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunction():
            tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
            there = [is_there(each) for each in tensors]
            if name == "__get__" and func == Tensor.device.__get__:
                return GPU if there[0] else func(*args)
            if name in CROSSING:
                return func(*args, **kwargs)
            if name == "__set__":  # such as that of new weights in place of old ones
                func(*args, **kwargs)
                tensors[0].pretended = there[-1]
                return None
            if func is Tensor.cpu:
                return args[0].clone()
            if func is Tensor.to:
                wanted = [torch.device(each) for each in (*args[1:], *kwargs.values()) if self._is_device(each)]
                here = [torch.device("cpu") if self._is_device(each) else each for each in args]
                moved = func(*here, **{key: each for key, each in kwargs.items() if key != "device"})
                moved = moved.view_as(moved) if moved is args[0] else moved
                # Without a device, the last tensor decides: the one to move, or one that it is to match.
                moved.pretended = wanted[0].type == "cuda" if wanted else there[-1]
                self.sent += moved.pretended
                return moved
            if func in (Tensor.numpy, Tensor.__array__) and there[0]:
                raise RuntimeError("a tensor on the GPU has no array")
            on_gpu = any(there)
            if on_gpu and any(each.dim() and not is_there(each) for each in tensors):
                raise RuntimeError(f"{name}: tensors on two devices")
            if self._is_device(kwargs.get("device")):
                on_gpu = torch.device(kwargs.pop("device")).type == "cuda"
            result = func(*args, **kwargs)
            if on_gpu:
                tree_map(self._mark, result)
            return result

    @staticmethod
    def _is_device(value: object) -> bool:
        return isinstance(value, torch.device) or (isinstance(value, str) and value.startswith(("cuda", "cpu")))

    @staticmethod
    def _mark(value: object) -> None:
        if isinstance(value, Tensor):
            value.pretended = True


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedGpu]:
    def deepcopy(own: nn.Parameter, memo: dict[int, Any]) -> nn.Parameter:
        copied = nn.Parameter(own.detach().clone())
        copied.pretended = is_there(own)
        return memo.setdefault(id(own), copied)

    monkeypatch.setattr(nn.Parameter, "__deepcopy__", deepcopy)
    monkeypatch.setattr("decima.learning.loop.check_device", lambda name: name)
    with PretendedGpu() as mode:
        yield mode


WAYS = [("cluster", "ppo"), ("cluster", "reinforce"), ("grid", "reinforce"), ("grid", "a2c")]


@pytest.mark.parametrize(("kind", "algorithm"), WAYS)
def test_a_training_leaves_no_tensor_behind(
    kind: str, algorithm: str, tmp_path: Path, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        DenseLayers, "is_compiled", lambda self, inputs: False
    )  # on the CPU, too: compiled code rounds differently
    runs = Runs(kind, tmp_path)
    config = runs.config(iterations=2, update={"algorithm": algorithm})
    runs.train(config, "cpu")
    assert not gpu.sent
    runs.train(config, "gpu", device="cuda:0")
    assert gpu.sent
    if kind == "cluster":  # the same sums, so the same bits
        assert_same_run(tmp_path / "cpu", tmp_path / "gpu")
    else:
        assert (tmp_path / "gpu" / POLICY).exists()


def test_one_that_is_left_behind_is_noticed(tmp_path: Path, gpu: PretendedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Policy, "_move", lambda self, array: torch.from_numpy(array))
    runs = Runs("cluster", tmp_path)
    with pytest.raises(RuntimeError, match="index_select: tensors on two devices"):
        runs.train(runs.config(iterations=1), device="cuda:0")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cude", "CPU"])
@pytest.mark.parametrize("kind", ["cluster", "grid"])
def test_a_device_that_is_not_there_is_refused_before_any_work(kind: str, device: str, tmp_path: Path) -> None:
    runs = Runs(kind, tmp_path)
    with pytest.raises(TrainingError, match=f"^there is no device {device} here$"):
        runs.trainer(runs.config(), device=device)
    assert not (tmp_path / "out").exists()
