"""Reads the pickles that torch.save writes as plain data and tensors, without unpickling them.

A checkpoint may come from anyone. torch.load(weights_only=True) runs no code from it, but a pickle of a few hundred
bytes can crash it or keep it busy forever: it hashes nested tuples as keys of dictionaries, follows references that
double the content with every level, and encodes text with any codec of Python. The reader here accepts what torch.save
writes for a checkpoint and nothing else. Only short strings can be referred to twice. Therefore the content cannot be
much larger than the pickle, and cannot contain itself.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

# The state of a model with a thousand layers has about a million opcodes. The names of tensors are shorter than this.
_MOST_OPCODES, _LONGEST_SHARED = 2**22, 1000

# What the opcodes push that only add a value to the stack.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "GLOBAL": lambda name: _Global(name),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"), lambda value: value),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

MakeTensor = Callable[[str, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class _Global:
    """A class or function that the pickle names, as `module name`."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """The numbers of a tensor, which lie outside the pickle under a key."""

    key: str
    numbers: int


def plain_data(pickled: bytes, make_tensor: MakeTensor) -> Any:
    """Returns the content of a pickle: None, bool, int, float, str, bytes, list, tuple, dict and tensors.

    Args:
        make_tensor: returns the fp32 tensor for the key of its numbers and its shape, or raises an error of its own.
            The shape has not been checked.

    Raises:
        ValueError, LookupError: the pickle is damaged or holds anything else.
    """
    machine = _Machine(make_tensor)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > _MOST_OPCODES:
            raise ValueError(f"a pickle of more than {_MOST_OPCODES:,} opcodes")
        machine.run(opcode.name, argument)
    (content,) = machine.stack
    return content


class _Machine:
    """The stack machine that a pickle is a program for."""

    def __init__(self, make_tensor: MakeTensor) -> None:
        self.make_tensor = make_tensor
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, opcode: str, argument: Any) -> None:
        if opcode in _VALUES:
            self.stack.append(_VALUES[opcode](argument))
            return
        match opcode:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                self.marks.append(len(self.stack))
            case "TUPLE":
                self.stack.append(tuple(self._popped(self.marks.pop())))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(self._popped(-_TUPLES[opcode])))
            case "APPEND" | "APPENDS":
                items = self._popped(self.marks.pop() if opcode == "APPENDS" else -1)
                self._innermost(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._popped(self.marks.pop() if opcode == "SETITEMS" else -2)
                self._innermost(dict).update(_pairs(items))
            case "BINPUT" | "LONG_BINPUT":
                if _can_be_shared(self.stack[-1]):
                    self.memo[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "BINPERSID":
                self.stack.append(_storage(self.stack.pop()))
            case "REDUCE":
                function, arguments = self._popped(-2)
                self.stack.append(self._call(function, arguments))
            case _:
                raise ValueError(f"the opcode {opcode}")

    def _popped(self, start: int) -> list[Any]:
        popped = self.stack[start:]
        del self.stack[start:]
        return popped

    def _innermost(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"items for what is no {kind.__name__}")
        return self.stack[-1]

    def _call(self, function: Any, arguments: Any) -> Any:
        match function, arguments:
            case _Global("collections OrderedDict"), ():
                return {}
            case _Global("_codecs encode"), (str(text), str("latin1")):
                return text.encode("latin1")
            # Storage, offset, shape, stride, requires_grad, hooks.
            case (
                _Global("torch._utils _rebuild_tensor_v2"),
                (_Storage() as storage, int(0), tuple(shape), tuple(stride), False, {} as hooks),
            ) if not hooks:
                return self._tensor(storage, shape, stride)
        raise ValueError("a call of another function or with other arguments")

    def _tensor(self, storage: _Storage, shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Tensor:
        if not all(type(number) is int for number in shape + stride):
            raise ValueError("a tensor whose shape is not made of whole numbers")
        made = self.make_tensor(storage.key, shape)
        if made.numel() != storage.numbers or made.stride() != stride:
            raise ValueError("a tensor that is only a part of its storage, or is not contiguous")
        return made


def _storage(reference: Any) -> _Storage:
    match reference:
        case ("storage", _Global("torch FloatStorage"), str(key), str(), int(numbers)):
            return _Storage(key, numbers)
    raise ValueError("a reference to something that is no fp32 storage")


def _can_be_shared(value: Any) -> bool:
    return isinstance(value, _Global) or (isinstance(value, str) and len(value) <= _LONGEST_SHARED)


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    """Returns the keys and values of a dictionary."""
    keys, values = items[::2], items[1::2]
    if not all(map(_can_be_key, keys)):
        raise ValueError("a dictionary whose keys are no strings or small numbers")
    return list(zip(keys, values, strict=True))


def _can_be_key(value: Any) -> bool:
    """Returns whether a value has a hash that is quick to compute and cannot be made to collide with many others."""
    return type(value) is str or (type(value) is int and 0 <= value < _MOST_OPCODES)
