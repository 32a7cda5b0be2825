"""Forms of words: which endings the words of a language exchange, as learnt from text alone."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from itertools import combinations, takewhile

import regex

# Two endings, in alphabetical order, such as ("", "s") for dog and dogs.
Endings = tuple[str, str]
_LONGEST_ENDING = 3
_SHORTEST_STEM = 4
# Text has at least so many stems with both endings of a pair, or this share of its words.
_LEAST_STEMS, _LEAST_SHARE = 5, 0.01


def endings_of(words: Collection[str]) -> set[Endings]:
    """Returns the pairs of endings that many words of a text exchange. Capitals make no difference."""
    endings: dict[str, set[str]] = defaultdict(set)
    lowered = {word.lower() for word in words if regex.fullmatch(r"[\p{L}\p{M}]+", word)}
    for word in lowered:
        for length in range(min(_LONGEST_ENDING, len(word) - _SHORTEST_STEM) + 1):
            endings[word[: len(word) - length]].add(word[len(word) - length :])
    # Endings that begin alike are those of a longer stem.
    counts = Counter(
        pair for each in endings.values() for pair in combinations(sorted(each), 2) if pair[0][:1] != pair[1][:1]
    )
    least = max(_LEAST_STEMS, _LEAST_SHARE * len(lowered))
    return {pair for pair, count in counts.items() if count >= least}


def are_forms(first: str, second: str, endings: Collection[Endings]) -> bool:
    """Returns whether two words are the same but for their endings and capitals."""
    first, second = first.lower(), second.lower()
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    pair = tuple(sorted((first[length:], second[length:])))
    return first == second or (length >= _SHORTEST_STEM and pair in endings)


def base_forms(counts: Mapping[str, int]) -> dict[str, str]:
    """Returns the most frequent form of each word of a text, whose words have these counts."""
    endings = endings_of(counts)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for word, count in counts.items():
        spellings[word.lower()][word] += count
    usual = {word: spelt.most_common(1)[0][0] for word, spelt in spellings.items()}
    others: dict[str, list[str]] = defaultdict(list)
    for pair in endings:
        for ending, other in (pair, pair[::-1]):
            others[ending].append(other)
    bases = {}
    for word in usual:
        lengths = range(min(_LONGEST_ENDING, len(word) - _SHORTEST_STEM) + 1)
        forms = [word[: len(word) - n] + other for n in lengths for other in others[word[len(word) - n :]]]
        known = [form for form in [word, *forms] if form in usual]
        bases[word] = usual[max(known, key=lambda form: (spellings[form].total(), -len(form)))]
    return bases
