"""Memories: earlier translations, with an index that finds equal and similar sentences.

The index is a folder of arrays, which all processes map into their address space. Pairs are numbered by the length
of their sources, so that those of similar length are neighbours. Each word has the list of the pairs with it.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import regex as re

from nmt.cache import cached_folder
from nmt.errors import DamagedError
from nmt.memories.matching import Match, exact_match, near_matches, normalised_parts, parts_of, rest
from nmt.text.languages import UNSPACED_SCRIPT
from nmt.text.protected import PROTECTED, Protected, ProtectedSpan

# The version of the index. Another one is needed if what is written, or how sentences are compared, changes.
_VERSION = 4
# Similar sentences with a smaller score are not offered, and at most so many are.
LEAST, MOST = 0.7, 3
# Pairs that are compared with a new sentence: with other numbers, and with the same rare words.
ALIKE, _CANDIDATES = 20, 100
# The most pairs that are looked at for a new sentence, those with its rarest words first.
_READ = 300_000
_ARRAYS = ("lengths", "edges", "pairs", "rests", "keys", "words", "starts", "postings")
_LOW, _HIGH, _NONE = np.uint64(2**32 - 1), np.uint64(32), np.uint64(2**64 - 1)


class Memory:
    """Earlier translations of one direction, with their index. The digest is that of the pairs."""

    def __init__(self, folder: Path, languages: tuple[str, str], digest: str) -> None:
        self._folder, self.languages, self.digest = folder, languages, digest

    @classmethod
    def of(
        cls,
        pairs: Callable[[], Iterable[tuple[str, str]]],
        digest: str,
        languages: tuple[str, str],
        protected: Protected = PROTECTED,
    ) -> "Memory":
        """Returns the memory with pairs of source and target. Of pairs with equal sources, the last one counts.

        Args:
            pairs: returns one or more pairs; called if the user's cache has no index with this digest.
        """
        key = {"version": _VERSION, "digest": digest, "languages": languages}
        key |= {"keep": protected.keep, "protect": protected.defaults}
        folder = cached_folder("memories", key, lambda folder: _write(pairs(), folder, languages, protected))
        return cls(folder, languages, digest)

    def __reduce__(self) -> Any:  # another process maps the arrays itself
        return Memory, (self._folder, self.languages, self.digest)

    def __len__(self) -> int:
        return len(self._arrays["lengths"])

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        try:
            arrays: dict[str, np.ndarray] = {"text": np.memmap(self._folder / "text", np.uint8, "r")}
            return arrays | {name: np.load(self._folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        except (OSError, EOFError, ValueError) as error:
            raise DamagedError(
                f"the index {self._folder} is damaged ({error}); delete the folder, and it will be built again"
            ) from error

    def exact(self, sentence: Sequence[str]) -> Match | None:
        """Returns a pair whose target translates a sentence, given in parts, perhaps with other values."""
        arrays = self._arrays
        rest_hash, key = _keys(sentence)
        first, last = (int(arrays["rests"].searchsorted(rest_hash, side)) for side in ("left", "right"))
        same = first + int(arrays["keys"][first:last].searchsorted(key))
        entries = [same] if same < last and arrays["keys"][same] == key else range(first, min(last, first + ALIKE))
        pairs = (self._pair(int(arrays["pairs"][entry])) for entry in entries)
        return next(filter(None, (exact_match(sentence, *pair, self.languages) for pair in pairs)), None)

    def near(self, sentence: str, least: float = LEAST, most: int = MOST) -> list[Match]:
        """Returns the `most` pairs most similar to a normalised sentence, the best first; none scores below `least`."""
        arrays = self._arrays
        limits = math.ceil(round(least * len(sentence), 6)), math.floor(round(len(sentence) / least, 6)) + 1
        # Keys of another type would have numpy convert the whole array.
        span = arrays["lengths"].searchsorted(np.array(limits, np.uint32)).astype(np.uint32)
        words = np.array(sorted(_words(sentence)), np.uint32)
        entries = arrays["words"].searchsorted(words)
        entries = entries[arrays["words"][np.minimum(entries, len(arrays["words"]) - 1)] == words]
        lists = [arrays["postings"][arrays["starts"][entry] : arrays["starts"][entry + 1]] for entry in entries]
        lists = [part for each in lists if len(part := each[slice(*each.searchsorted(span))])]
        if not lists:
            return []
        lists.sort(key=len)
        totals = list(accumulate(map(len, lists)))
        lists = lists[: max(1, bisect_right(totals, _READ))]
        weights = [math.log(1 + len(self) / len(each)) for each in lists]
        shared = np.bincount(np.concatenate(lists) - span[0], np.repeat(weights, list(map(len, lists))))
        best = np.argpartition(-shared, min(_CANDIDATES, len(shared) - 1))[:_CANDIDATES]
        parts = (self._pair(int(span[0] + offset)) for offset in best[shared[best] > 0])
        pairs = [("".join(source), "".join(target)) for source, target in parts]
        return near_matches(sentence, pairs, least, most)

    def _pair(self, pair: int) -> tuple[list[str], list[str]]:
        """Returns the parts of a source and its target."""
        begin, middle, end = self._arrays["edges"][pair].tolist()
        text = self._arrays["text"]
        source, target = text[begin:middle].tobytes().decode(), text[middle:end].tobytes().decode()
        return source.split("\0"), target.split("\0")


class AnyMemory(Protocol):
    """What finds earlier translations of one direction; see `Memory`."""

    @property
    def languages(self) -> tuple[str, str]: ...

    def exact(self, sentence: Sequence[str]) -> Match | None: ...

    def near(self, sentence: str) -> list[Match]: ...


def matches_of(
    text: str,
    protected: Iterable[ProtectedSpan],
    memories: Sequence[AnyMemory],
    languages: tuple[str, str],
    *,
    offers: bool = True,
) -> tuple[Match, ...]:
    """Returns the match of the first memory that has a sentence, or else the most similar ones of all memories.

    Memories of other languages are not used. Without `offers`, similar sentences are not needed.
    """
    memories = [memory for memory in memories if memory.languages == languages]
    sentence = normalised_parts(text, protected, languages[0])
    if exact := next(filter(None, (memory.exact(sentence) for memory in memories)), None):
        return (exact,)
    near = [match for memory in memories for match in memory.near("".join(sentence))] if offers else []
    return tuple(sorted(near, key=attrgetter("score"), reverse=True)[:MOST])


def _keys(sentence: Sequence[str]) -> tuple[np.uint64, np.uint64]:
    """Returns hashes of a sentence, given in parts: without its values, and of all of it."""
    texts = rest(sentence), "".join(sentence)
    first, second = (blake2b(text.encode(errors="replace"), digest_size=8).digest() for text in texts)
    return np.frombuffer(first, np.uint64)[0], np.frombuffer(second, np.uint64)[0]


def _words(sentence: str) -> set[int]:
    """Returns hashes of the words of a sentence. In few words, or without spaces, so are three characters."""
    lower = sentence.lower()
    words = re.findall(r"[\p{L}\p{M}]+", lower)
    if len(words) < 4 or UNSPACED_SCRIPT.search(lower):
        words += [lower[i : i + 3] for i in range(max(1, len(lower) - 2))]
    return {crc32(word.encode(errors="replace")) for word in words}


def _write(pairs: Iterable[tuple[str, str]], folder: Path, languages: tuple[str, str], protected: Protected) -> None:
    """Writes the index of pairs. It needs some 50 bytes of RAM for a pair; words are sorted in a mapped file."""
    lengths, edges, rests, keys = array("I"), array("Q", [0]), array("Q"), array("Q")
    with (folder / "text").open("wb") as text, (folder / "entries").open("wb") as entries:
        for pair, (source, target) in enumerate(pairs):
            target = target.strip()
            parts = normalised_parts(source, protected.spans(source), languages[0])
            for side in (parts, parts_of(target, protected.spans(target), languages[1])):
                edges.append(edges[-1] + text.write("\0".join(side).encode(errors="replace")))
            sentence = "".join(parts)
            lengths.append(len(sentence))
            for values, key in zip((rests, keys), _keys(parts), strict=True):
                values.append(int(key))
            array("Q", [word << 32 | pair for word in _words(sentence)]).tofile(entries)
    rests_A, keys_A, lengths_A = map(np.array, (rests, keys, lengths))
    last = len(keys) - 1 - np.unique(keys_A[::-1], return_index=True)[1]  # of pairs with equal sources
    kept = last[np.lexsort((last, lengths_A[last]))]
    by_key = np.lexsort((keys_A[kept], rests_A[kept]))
    begins = 2 * kept[:, None] + np.arange(3)
    words, starts = _sorted_words(folder / "entries", kept, len(keys))
    arrays = {"lengths": lengths_A[kept], "edges": np.array(edges)[begins], "pairs": by_key.astype(np.uint32)}
    arrays |= {"rests": rests_A[kept][by_key], "keys": keys_A[kept][by_key], "words": words, "starts": starts}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)


def _sorted_words(path: Path, kept: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Writes the pairs with each word, in order. Returns the words, and where the pairs of each begin and end.

    Each entry of the file is a word and the number of a pair, of `count`. `kept` has old numbers in their new order.
    """
    numbers = np.full(count, -1)
    numbers[kept] = np.arange(len(kept))
    entries = np.memmap(path, np.uint64, "r+")
    parts = np.array_split(entries, 1 + len(entries) // 1_000_000)
    for part in parts:
        new = numbers[(part & _LOW).astype(np.int64)]
        part[:] = np.where(new < 0, _NONE, part >> _HIGH << _HIGH | new.astype(np.uint64))
    entries.sort()
    used = np.array_split(entries[: entries.searchsorted(_NONE)], len(parts))
    np.save(path.with_name("postings.npy"), np.concatenate([(part & _LOW).astype(np.uint32) for part in used]))
    words = np.concatenate([(part >> _HIGH).astype(np.uint32) for part in used])
    starts = np.flatnonzero(np.diff(words, prepend=words[:1] + 1, append=words[-1:] + 1))
    path.unlink()
    return words[starts[:-1]], starts
