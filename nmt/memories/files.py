"""Opens memories from corpora."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from nmt import console
from nmt.config import CorpusConfig
from nmt.corpora.reading import VERSION, kind_of, read_pairs, reasons
from nmt.errors import OptionError, importing
from nmt.files import digest_of, digest_of_json
from nmt.memories.memory import Memory
from nmt.text.corpus import memory_files
from nmt.text.languages import UNKNOWN, look_swapped
from nmt.text.protected import Protected
from nmt.translate.setup import Setup


def with_memories(setup: Setup) -> Setup:
    """Returns a setup whose memories are open. Their indexes are built the first time.

    Raises:
        NmtError: a file cannot be read.
    """
    if not setup.memory:
        return setup
    languages = setup.text.resolved(setup.direction)
    if languages.source == UNKNOWN:
        raise OptionError("--memory needs --source-lang, because a memory has one direction; name the language")
    memories = tuple(open_memory(path, languages, setup.direction, setup.protected) for path in setup.memory)
    return replace(setup, memories=memories)


def open_memory(path: str, languages: tuple[str, str], asked: Sequence[str], protected: Protected) -> Memory:
    """Returns the memory in a corpus file or the PREFIX of two, whose index is built the first time.

    Args:
        languages: of source and target.
        asked: what the user calls them, such as de-AT for de. Of a text in several variants, this one is used.
    """
    paths, (source_lang, target_lang) = memory_files(path, languages, asked)
    with importing("rapidfuzz", "--memory", extra="memory"):
        import rapidfuzz  # noqa: F401

    def pairs() -> Iterator[tuple[str, str]]:
        left_out = Counter[str]()
        corpus = (pair for _, pair in read_pairs(path, [(source_lang, target_lang)], CorpusConfig(), left_out))
        first = list(islice(corpus, 1000))
        console.info(f"building the index of {path}, which later commands use")
        sources, targets = zip(*first, strict=True)
        if look_swapped(sources, targets, source_lang, target_lang):
            swapped = f"look like {target_lang}, and their translations like {source_lang}"
            advice = "swap them, or little will come from the memory"
            console.warn(f"the sources in --memory {path} {swapped}; {advice}")
        yield from chain(first, corpus)
        if left_out:
            console.info(f"{path}{reasons(left_out)}")

    content = [digest_of(str(file)) for file in paths]
    digest = digest_of_json([VERSION, kind_of(path), source_lang, target_lang, *content])
    return Memory.of(pairs, digest, languages, protected)
