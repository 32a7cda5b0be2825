"""How well sentences of two texts fit: by their lengths, by equal words, and by words learnt from the texts themselves.

A bead's score is the logarithm of how much more likely its sides are together than apart. Lengths follow Gale and
Church (1993), and the words IBM model 1, learnt in rounds from the alignment before (Moore 2002).
"""

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np
import regex as re

from nmt.aligning.path import MOST, Bead

# Chosen on the development set of Bleualign and the beginning of a novel (recipes/measure/alignment_gold.py).
_LETTERS, _FEWEST_LETTERS = 5, 4  # of words that count as one, and as similar
_MOST_WORDS = 300  # of a sentence that are compared, because a line of plain text may be a whole chapter
_SIMILAR = 0.5  # how much similar words count
_KNOWN_AT_FIRST, _KNOWN = 0.15, 0.4  # the share of words with a counterpart in the lexicon
_ROUNDS, _DISCOUNT, _SMOOTHING = 5, 0.3, 0.5  # in learning words
_MOST_BEADS, _MOST_LINKS = 8_000, 10_000_000  # from which words are learnt
_SPREAD, _SPREAD_OF_SHORT, _BONUS = 0.06, 3.0, 1.0  # variance of the logarithm of the ratio of lengths
_RARITY = {(1, 1): 0.0, (1, 2): -2.5, (1, 3): -4.5, (2, 2): -4.0}  # of beads; of the others, -1 and -1 a sentence
# How many anchors a detour of one sentence costs, and how many of them a chain may leave out in a row.
_DETOUR, _MOST_ANCHORS = 0.02, 1000
_WEIGHT_OF_MEANING, _USUAL_COSINE = 12.0, 0.4
# A character of a script without spaces is a word.
_WORD = re.compile(r"\d+|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[\p{L}\p{M}]+")
_ACCENT = re.compile("[\u0300-\u036f]")


class Text:
    """The sentences of a text in numbers.

    Args:
        translations: of sentences, whose words count as words of the sentences, too.

    Attributes:
        types: the different words, without accents, and only with their first letters.
        words: the number of each word's type.
        word_offsets: the number of words before each sentence, and of all.
        character_offsets: the number of characters before each sentence, and of all.
        counts: how often each type occurs.
    """

    def __init__(self, sentences: Sequence[str], translations: Mapping[str, str] = {}) -> None:
        ids: dict[str, int] = {}
        with_translations = (f"{sentence} {translations.get(sentence, '')}" for sentence in sentences)
        rows = [[ids.setdefault(word, len(ids)) for word in _words(sentence)] for sentence in with_translations]
        self.types = list(ids)
        self.words = np.array([word for row in rows for word in row], np.int64)
        self.word_offsets = np.cumsum([0, *map(len, rows)])
        self.character_offsets = np.cumsum([0.0, *(max(1, len("".join(sentence.split()))) for sentence in sentences)])
        self.counts = np.bincount(self.words, minlength=len(ids))

    def __len__(self) -> int:
        return len(self.word_offsets) - 1

    def part(self, sentences: Sequence[int]) -> "Text":
        """Returns a text of some of the sentences, with the same types and counts."""
        part = copy(self)
        words = [self.words[self.word_offsets[i] : self.word_offsets[i + 1]] for i in sentences]
        part.words = np.concatenate([np.empty(0, np.int64), *words])
        part.word_offsets = np.cumsum([0, *map(len, words)])
        part.character_offsets = np.cumsum([0.0, *np.diff(self.character_offsets)[list(sentences)]])
        return part


def _words(sentence: str) -> list[str]:
    without_accents = _ACCENT.sub("", unicodedata.normalize("NFKD", sentence.lower()))
    words = _WORD.findall(unicodedata.normalize("NFC", without_accents))
    return [word if word.isdigit() else word[:_LETTERS] for word in words[:_MOST_WORDS]]


def outline(source: Text, target: Text) -> np.ndarray:
    """Returns about how many target sentences belong to each number of source sentences.

    Equal words that occur once in both texts are anchors, of which the best chain counts. Between them, lengths decide.
    """
    sides = []
    for text in (source, target):
        first = np.unique(text.words, return_index=True)[1]
        places = text.character_offsets[np.searchsorted(text.word_offsets, first, "right")].tolist()
        sides.append({word: places[i] for i, word in enumerate(text.types) if text.counts[i] == 1})
    common = sorted((sides[0][word], sides[1][word]) for word in sides[0].keys() & sides[1].keys())
    anchors = np.array([(0, 0), *common, (source.character_offsets[-1], target.character_offsets[-1])])
    best, previous = np.zeros(len(anchors)), np.zeros(len(anchors), int)
    for n in range(1, len(anchors)):
        begin = max(0, n - _MOST_ANCHORS)
        steps = (anchors[n] - anchors[begin:n]) / anchors[-1]
        gains = best[begin:n] + 1 - _DETOUR * len(target) * np.abs(steps[:, 0] - steps[:, 1])
        gains[(steps <= 0).any(1)] = -np.inf
        previous[n], best[n] = begin + gains.argmax(), gains.max()
    chain = [len(anchors) - 1]
    while chain[-1]:
        chain.append(int(previous[chain[-1]]))
    return np.searchsorted(target.character_offsets, np.interp(source.character_offsets, *anchors[chain[::-1]].T))


class Lexicon:
    """How much more often than by chance a source word and a target word belong together.

    Attributes:
        known: the share of words that have a counterpart.
    """

    def __init__(self, source: Text, target: Text, pairs: Sequence[Bead]) -> None:
        """Takes equal and similar words, and learns from the pairs, if there are any, which words go together."""
        keys, counts = _equal_words(source, target)
        if pairs:
            learnt_keys, learnt_counts = _learnt_words(source, target, pairs)
            keys, counts = np.r_[keys, learnt_keys], np.r_[counts, learnt_counts]
        keys, entry = np.unique(keys, return_inverse=True)
        rows, types = np.divmod(keys, len(target.types))
        chance = (source.counts[rows] + _SMOOTHING) * (target.counts[types] + _SMOOTHING)
        lifts = np.bincount(entry, counts, len(keys)) * min(len(source.words), len(target.words)) / chance
        kept = lifts > 1
        self._types, self._lifts, self._target = types[kept], lifts[kept].astype(np.float32), len(target.types)
        self._starts = np.searchsorted(rows[kept], np.arange(len(source.types) + 1))
        self.known = _KNOWN if pairs else _KNOWN_AT_FIRST

    def lifts(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Returns how much more often than by chance words are together; float32, [sources, targets]."""
        lifts = np.zeros((len(sources), self._target), np.float32)
        for row, word in zip(lifts, sources.tolist(), strict=True):
            entries = slice(*self._starts[word : word + 2])
            row[self._types[entries]] = self._lifts[entries]
        return lifts[:, targets]


def _equal_words(source: Text, target: Text) -> tuple[np.ndarray, np.ndarray]:
    """Returns pairs of equal or similar types, as source type times target types plus target type, with counts."""
    beginnings = defaultdict[str, list[int]](list)
    for j, word in enumerate(target.types):
        beginnings[_beginning(word)].append(j)
    keys, counts = list[int](), list[float]()
    for i, word in enumerate(source.types):
        for j in beginnings.get(_beginning(word), ()):
            is_equal = word == target.types[j] and (len(word) >= _FEWEST_LETTERS or word.isdigit())
            keys.append(i * len(target.types) + j)
            counts.append((1 if is_equal else _SIMILAR) * min(source.counts[i], target.counts[j]))
    return np.array(keys, np.int64), np.array(counts, float)


def _beginning(word: str) -> str:
    """Returns what a word shares with similar ones. Different numbers are not similar."""
    return word if word.isdigit() else word[:_FEWEST_LETTERS]


def _learnt_words(source: Text, target: Text, pairs: Sequence[Bead]) -> tuple[np.ndarray, np.ndarray]:
    """Returns pairs of types, as above, with how often they are probably translations of each other.

    IBM model 1 in both directions, whose posteriors are multiplied (Liang et al. 2006).
    """
    at_source, at_target = list[np.ndarray](), list[np.ndarray]()
    spans = [(*source.word_offsets[list(bead[:2])], *target.word_offsets[list(bead[2:4])]) for bead in pairs]
    links = sum((b - a) * (d - c) for a, b, c, d in spans)  # of each word with all of the other side
    for a, b, c, d in spans[:: 1 + int(max(len(pairs) // _MOST_BEADS, links // _MOST_LINKS))]:
        sources, targets = np.arange(a, b, dtype=np.int32), np.arange(c, d, dtype=np.int32)
        at_source.append(np.repeat(sources, len(targets)))
        at_target.append(np.tile(targets, len(sources)))
    sources, targets = np.concatenate(at_source), np.concatenate(at_target)
    keys, entry = np.unique(source.words[sources] * len(target.types) + target.words[targets], return_inverse=True)
    rows, types = np.divmod(keys, len(target.types))
    forward = backward = np.ones(len(keys))
    for _ in range(_ROUNDS):
        to_target, to_source = forward[entry], backward[entry]
        to_target /= np.bincount(targets, to_target)[targets]
        to_source /= np.bincount(sources, to_source)[sources]
        counts = np.bincount(entry, to_target * to_source) + 1e-12
        forward, backward = counts / np.bincount(rows, counts)[rows], counts / np.bincount(types, counts)[types]
    return keys, np.maximum(counts - _DISCOUNT, 0)


class Comparison:
    """Scores the beads of two texts. `scores` is called for one source sentence after the other.

    Args:
        vectors: of the one to four sentences of each side that end with each; see `Embedder`.
    """

    def __init__(self, source: Text, target: Text, lexicon: Lexicon, vectors: Sequence[np.ndarray] = ()) -> None:
        self._source, self._target, self._lexicon, self._vectors = source, target, lexicon, vectors
        # Of the last source sentences: their lifts towards each target word; and for one to four target sentences
        # that end with each sentence, the logarithm of the likelihood of the source words.
        self._lifts = np.zeros((MOST, len(target.words)))
        self._backward = np.zeros((MOST, MOST, len(target) + 1))

    def scores(self, i: int, j: int, k: int) -> np.ndarray:
        """Returns the scores of the beads behind source sentence i and behind target sentences j to k.

        Returns:
            float64, [MOST, MOST, k - j + 1]: for one to four sentences of each side before there.
        """
        source, target = self._source, self._target
        first, last = max(0, j - MOST), min(len(target), k + MOST)
        begin, words = target.word_offsets[first], slice(target.word_offsets[first], target.word_offsets[last])
        lifts = self._lexicon.lifts(
            source.words[source.word_offsets[i - 1] : source.word_offsets[i]], target.words[words]
        )
        self._lifts[i % MOST, words] = lifts.sum(0)
        sums = np.cumsum(np.pad(lifts, ((0, 0), (1, 0))), 1, dtype=float)
        ends = np.arange(first, last + 1)
        for b in range(1, MOST + 1):
            start, stop = target.word_offsets[np.maximum(ends - b, first)], target.word_offsets[ends]
            mean = (sums[:, stop - begin] - sums[:, start - begin]) / np.maximum(stop - start, 1)
            self._backward[i % MOST, b - 1, first : last + 1] = self._likelihood(mean).sum(0)
        scores = np.full((MOST, MOST, k - j + 1), -np.inf)
        ends = np.arange(j, k + 1)
        for a in range(1, min(i, MOST) + 1):
            before = [(i - n) % MOST for n in range(a)]
            mean = self._lifts[before, words].sum(0) / max(source.word_offsets[i] - source.word_offsets[i - a], 1)
            forward = np.r_[0.0, np.cumsum(self._likelihood(mean))]
            length = source.character_offsets[i] - source.character_offsets[i - a]
            for b in range(1, MOST + 1):
                starts = np.maximum(ends - b, first)
                likelihood = forward[target.word_offsets[ends] - begin] - forward[target.word_offsets[starts] - begin]
                likelihood += self._backward[before, b - 1, j : k + 1].sum(0)
                lengths = np.maximum(target.character_offsets[ends] - target.character_offsets[starts], 1)
                difference = np.log(lengths / length * source.character_offsets[-1] / target.character_offsets[-1])
                variance = _SPREAD + _SPREAD_OF_SHORT / np.minimum(lengths, length)
                fit = _BONUS - np.log(variance) / 2 - difference**2 / variance / 2
                rarity = _RARITY.get((min(a, b), max(a, b)), -1.0 - a - b)
                scores[a - 1, b - 1] = likelihood / 2 + fit + rarity
                if self._vectors:
                    cosines = self._vectors[1][b - 1, ends - 1] @ self._vectors[0][a - 1, i - 1]
                    scores[a - 1, b - 1] += _WEIGHT_OF_MEANING * (a + b) / 2 * (cosines - _USUAL_COSINE)
        return scores

    def _likelihood(self, lift: np.ndarray) -> np.ndarray:
        """Returns the logarithm of how much more likely words are with a mean lift than by chance."""
        return np.log(1 - self._lexicon.known + self._lexicon.known * np.maximum(lift, 0))
