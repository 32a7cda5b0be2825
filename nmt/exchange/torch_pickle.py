"""Reads the pickles in torch files of other toolkits as plain data, without unpickling them.

Such files have objects of many classes: options, optimiser states, tensors that share storages. Nothing is imported or
called. An object of an unknown class becomes `Inert`, and a tensor becomes `Stored`. A value may occur several times by
reference, and may contain itself, so what reads the content must not walk through all of it.
"""

from dataclasses import dataclass
from typing import Any

from nmt.plain_pickle import Global, Machine

_KINDS = ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool")
STORAGE_KINDS = {f"torch {kind}Storage": kind for kind in _KINDS}


@dataclass
class Inert:
    """An object of a class that this toolkit does not know.

    Attributes:
        name: module and name of the class.
        state: what the pickle gives the object, usually its attributes by name.
    """

    name: str
    state: Any = None


@dataclass(frozen=True)
class Storage:
    """The numbers of tensors, which are stored outside the pickle: their key, their type, and how many they are."""

    key: str
    kind: str
    numbers: int


@dataclass(frozen=True)
class Stored:
    """A tensor: a part of a storage. Nothing about it was checked."""

    storage: Storage
    offset: Any
    shape: Any
    stride: Any


class ForeignMachine(Machine):
    """Executes the opcodes of a pickle of any torch file of protocol 2.

    Attributes:
        storages: the storages that the pickle refers to, by key.
    """

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[str, Storage] = {}

    def run(self, opcode: str, argument: Any) -> None:
        """Executes one opcode."""
        match opcode:
            case "BINSTRING" | "SHORT_BINSTRING":
                self.stack.append(argument)
            case "NEWOBJ":
                function, _ = self.popped(-2)
                self.stack.append(_object(function))
            case "BUILD":
                (state,) = self.popped(-1)
                if isinstance(self.stack[-1], Inert):
                    self.stack[-1].state = state
            case _:
                super().run(opcode, argument)

    def extend(self, items: list[Any]) -> None:
        """Appends items to a list. An object keeps none."""
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)
        elif not isinstance(self.stack[-1], Inert):
            raise ValueError("items for a value that has none")

    def update(self, items: list[Any]) -> None:
        """Adds items to a dict. Keys that are not text are left out, because hashing them may be slow."""
        if isinstance(self.stack[-1], dict):
            pairs = zip(items[::2], items[1::2], strict=True)
            self.stack[-1].update({key: value for key, value in pairs if isinstance(key, str)})
        elif not isinstance(self.stack[-1], Inert):
            raise ValueError("items for a value that has none")

    def can_be_shared(self, value: Any) -> bool:  # noqa: ARG002
        """Returns True: nothing is copied, so that references do not make the content large."""
        return True

    def storage(self, reference: Any) -> Any:
        """Returns the storage for what the pickle says about it: in legacy files also a view, which must be None."""
        match reference:
            case ("storage", Global(name), str(key), str(), int(numbers), *view) if name in STORAGE_KINDS and (
                view in ([], [None])
            ):
                found = Storage(key, STORAGE_KINDS[name], numbers)
                if self.storages.setdefault(key, found) != found:
                    raise ValueError("two storages with the same key")
                return found
        raise ValueError("a reference to something other than a storage")

    def call(self, function: Any, arguments: Any) -> Any:
        """Returns what a call stands for. No function is ever called."""
        match function, arguments:
            case Global("collections OrderedDict"), ():
                return {}
            case (
                Global("torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor"),
                (Storage() as storage, offset, shape, stride, *_),
            ):
                return Stored(storage, offset, shape, stride)
            case Global("torch._utils _rebuild_parameter"), (Stored() as tensor, *_):
                return tensor
        return _object(function)


def _object(function: Any) -> Inert:
    if not isinstance(function, Global):
        raise ValueError("an object without a class")
    return Inert(function.name)
