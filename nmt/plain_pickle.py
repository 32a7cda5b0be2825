"""Reads the pickles that torch.save writes as plain data and tensors, without unpickling them.

A checkpoint may come from an untrusted source. torch.load(weights_only=True) does not run code from it, but a pickle of
a few hundred bytes can crash torch.load or keep it busy forever: torch.load hashes nested tuples as keys of
dictionaries, follows references that double the content with every level, and encodes text with any codec of Python.
This reader only accepts what torch.save writes for a checkpoint. A pickle may refer to a value several times only if
the value is a short string. Therefore the content cannot be much larger than the pickle, and cannot contain itself.
"""

import pickletools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from torch import Tensor

# The training state of a model with a thousand layers has about a million opcodes.
_MOST_OPCODES = 2**22
# The longest string, in characters, that may occur several times by reference. Names of tensors are shorter.
_LONGEST_SHARED = 1000

# The opcodes that only push a value, and the function from their argument to that value.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "GLOBAL": lambda name: Global(name),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"), lambda value: value),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

MakeTensor = Callable[[str, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class Global:
    """A class or function that the pickle refers to, as `module name`. It is never imported."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """A reference to the numbers of a tensor, which are stored outside the pickle.

    Attributes:
        key: the name of the archive entry with the numbers.
        numbers: how many there are.
    """

    key: str
    numbers: int


def plain_data(pickled: bytes, make_tensor: MakeTensor) -> Any:
    """Returns the content of a pickle: None, bool, int, float, str, bytes, list, tuple, dict and tensors.

    Args:
        make_tensor: returns the fp32 tensor for the key of its numbers and its shape. The shape is not checked before
            the call. Exceptions of this function are passed on.

    Raises:
        ValueError, LookupError: the pickle is damaged or has values of other types.
    """
    return _PlainMachine(make_tensor).content(pickled)


class Machine(ABC):
    """The stack machine that executes the opcodes of a pickle. A subclass says what the pickle may contain."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def content(self, pickled: bytes | IO[bytes]) -> Any:
        """Returns the content of a pickle."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
            if count > _MOST_OPCODES:
                raise ValueError(f"a pickle of more than {_MOST_OPCODES:,} opcodes")
            self.run(opcode.name, argument)
        (content,) = self.stack
        return content

    def run(self, opcode: str, argument: Any) -> None:
        """Executes one opcode."""
        if opcode in _VALUES:
            self.stack.append(_VALUES[opcode](argument))
            return
        match opcode:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                self.marks.append(len(self.stack))
            case "TUPLE":
                self.stack.append(tuple(self.popped(self.marks.pop())))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(self.popped(-_TUPLES[opcode])))
            case "APPEND" | "APPENDS":
                self.extend(self.popped(self.marks.pop() if opcode == "APPENDS" else -1))
            case "SETITEM" | "SETITEMS":
                self.update(self.popped(self.marks.pop() if opcode == "SETITEMS" else -2))
            case "BINPUT" | "LONG_BINPUT":
                if self.can_be_shared(self.stack[-1]):
                    self.memo[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "BINPERSID":
                self.stack.append(self.storage(self.stack.pop()))
            case "REDUCE":
                function, arguments = self.popped(-2)
                self.stack.append(self.call(function, arguments))
            case _:
                raise ValueError(f"the opcode {opcode}")

    def popped(self, start: int) -> list[Any]:
        """Removes the values from `start` on from the stack and returns them."""
        popped = self.stack[start:]
        del self.stack[start:]
        return popped

    @abstractmethod
    def can_be_shared(self, value: Any) -> bool:
        """Returns whether the pickle may refer to a value several times."""

    @abstractmethod
    def extend(self, items: list[Any]) -> None:
        """Appends items to the newest value."""

    @abstractmethod
    def update(self, items: list[Any]) -> None:
        """Adds alternating keys and values to the newest value."""

    @abstractmethod
    def storage(self, reference: Any) -> Any:
        """Returns the storage for what the pickle says about it."""

    @abstractmethod
    def call(self, function: Any, arguments: Any) -> Any:
        """Returns what a call stands for. No function is ever called."""


class _PlainMachine(Machine):
    """Executes the pickle of a checkpoint of nmt."""

    def __init__(self, make_tensor: MakeTensor) -> None:
        super().__init__()
        self._make_tensor = make_tensor

    def can_be_shared(self, value: Any) -> bool:
        """Returns True for functions and short strings."""
        return isinstance(value, Global) or (isinstance(value, str) and len(value) <= _LONGEST_SHARED)

    def extend(self, items: list[Any]) -> None:
        """Appends items to the newest value, which must be a list."""
        self._newest(list).extend(items)

    def update(self, items: list[Any]) -> None:
        """Adds alternating keys and values to the newest value, which must be a dict."""
        self._newest(dict).update(_pairs(items))

    def storage(self, reference: Any) -> Any:
        """Returns the storage for what the pickle says about it."""
        match reference:
            case ("storage", Global("torch FloatStorage"), str(key), str(), int(numbers)):
                return _Storage(key, numbers)
        raise ValueError("a reference to something other than an fp32 storage")

    def _newest(self, kind: type) -> Any:
        """Returns the newest value of the stack, which must be of this type."""
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"items for a value that is not a {kind.__name__}")
        return self.stack[-1]

    def call(self, function: Any, arguments: Any) -> Any:
        """Returns what a call stands for. No function is ever called."""
        match function, arguments:
            case Global("collections OrderedDict"), ():
                return {}
            case Global("_codecs encode"), (str(text), str("latin1")):
                return text.encode("latin1")
            # The arguments are storage, offset, shape, stride, requires_grad and hooks.
            case (
                Global("torch._utils _rebuild_tensor_v2"),
                (_Storage() as storage, int(0), tuple(shape), tuple(stride), False, {} as hooks),
            ) if not hooks:
                return self._tensor(storage, shape, stride)
        raise ValueError("a call of another function or with other arguments")

    def _tensor(self, storage: _Storage, shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Tensor:
        if not all(type(number) is int for number in shape + stride):
            raise ValueError("a tensor whose shape is not made of whole numbers")
        made = self._make_tensor(storage.key, shape)
        if made.numel() != storage.numbers or made.stride() != stride:
            raise ValueError("a tensor that is only a part of its storage, or is not contiguous")
        return made


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    """Returns the key-value pairs of a dictionary, whose keys and values alternate in `items`."""
    keys, values = items[::2], items[1::2]
    if not all(map(_can_be_key, keys)):
        raise ValueError("a dictionary with a key that is neither a string nor a small number")
    return list(zip(keys, values, strict=True))


def _can_be_key(value: Any) -> bool:
    """Returns whether a value is a safe key: its hash is quick to compute, and many keys cannot have the same hash."""
    return type(value) is str or (type(value) is int and 0 <= value < _MOST_OPCODES)
