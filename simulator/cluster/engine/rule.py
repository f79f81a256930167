"""Call a compiled rule of a scheduler from compiled code, so that an episode needs no Python between decisions.

A rule is a function that decides on rows of an observation, with this signature:

    choose(jobs, stages, source, offered, num_executors, constants) -> (stage, limit)

``jobs`` and ``stages`` are rows of the types ``observation.JOB`` and ``STAGE``, ``constants`` float64 parameters of the
scheduler; for the other numbers see ``Observation``. Stage -1 leaves the offered executors idle. The engine gets the
address of the machine code, as it must not depend on a higher package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype
from numpy.typing import NDArray

from simulator.cluster.observation import JOB, STAGE

_ARGUMENTS = (
    types.Array(from_dtype(JOB), 1, "C"),
    types.Array(from_dtype(STAGE), 1, "C"),
    *[types.int64] * 3,
    types.Array(types.float64, 1, "C"),
)
_RESULT = types.UniTuple(types.int64, 2)


class CompiledRule(NamedTuple):
    """A rule for the engine.

    Attributes:
        address: address of its machine code; 0: there is no rule.
        constants: float64 [constants], parameters of the scheduler.
    """

    address: int
    constants: NDArray[np.float64]


#: No rule: the caller decides.
NO_RULE = CompiledRule(0, np.zeros(0))


def compiled_rule(choose: Callable[..., Any], constants: NDArray[np.float64]) -> CompiledRule:
    """Return a function of the module ``simulator.compiled`` as a rule; without a compiler there is none."""
    if not hasattr(choose, "overloads"):  # NUMBA_DISABLE_JIT
        return NO_RULE
    if _ARGUMENTS not in choose.overloads:
        choose.compile(_ARGUMENTS)  # type: ignore[attr-defined]
    code = choose.overloads[_ARGUMENTS]
    if code.signature.return_type != _RESULT:
        raise TypeError(f"a rule must return a stage and a limit, got {code.signature.return_type}")
    return CompiledRule(code.library.get_pointer_to_function(code.fndesc.llvm_func_name), constants)


def _call(
    typingctx: Any,
    address: Any,
    jobs: Any,
    stages: Any,
    source: Any,
    offered: Any,
    num_executors: Any,
    constants: Any,
) -> Any:
    """Call the rule at an address; return stage and limit, or stage -2 if the rule raises an error."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        convention = context.call_conv
        kind = convention.get_function_type(_RESULT, _ARGUMENTS)
        function = builder.inttoptr(values[0], kind.as_pointer())
        result = cgutils.alloca_once(builder, kind.args[0].pointee)
        error = cgutils.alloca_once(builder, kind.args[1].pointee)
        arguments = context.get_arg_packer(_ARGUMENTS).as_arguments(builder, values[1:])
        status = builder.call(function, [result, error, *arguments])
        chosen = context.get_returned_value(builder, _RESULT, builder.load(result))
        failed = builder.icmp_signed("!=", status, ir.Constant(status.type, 0))
        stage = builder.select(failed, ir.Constant(ir.IntType(64), -2), builder.extract_value(chosen, 0))
        return builder.insert_value(chosen, stage, 0)

    return _RESULT(address, *_ARGUMENTS), make


#: ``_call`` for compiled code, without its first argument.
call: Any = intrinsic(_call)
