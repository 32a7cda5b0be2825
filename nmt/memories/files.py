"""Opens memories from corpora."""

from collections import Counter
from collections.abc import Iterator, Sequence

from nmt import console
from nmt.checkpoint_file import read_codec
from nmt.config import CorpusConfig
from nmt.corpora.reading import kind_of, read_pairs, reasons
from nmt.errors import importing
from nmt.files import digest_of, digest_of_json
from nmt.memories.memory import Memory
from nmt.text.codec import Direction
from nmt.text.corpus import has_side, parallel_paths


def open_memories(paths: Sequence[str], model: str, direction: Direction | None) -> tuple[Memory, ...]:
    """Returns the memories in corpus files, whose indexes are built the first time, for a direction of a model."""
    if not paths:
        return ()
    config = read_codec(model).towards(direction).config
    return tuple(open_memory(path, (config.source_lang, config.target_lang)) for path in paths)


def open_memory(path: str, languages: tuple[str, str]) -> Memory:
    """Returns the memory in a corpus file or the PREFIX of two, whose index is built the first time.

    Args:
        languages: of source and target.
    """
    with importing("rapidfuzz", "--memory", "'attention-nmt[memory]'"):
        import rapidfuzz  # noqa: F401

    def pairs() -> Iterator[tuple[str, str]]:
        console.info(f"building the index of {path}, which later commands use")
        left_out = Counter[str]()
        yield from read_pairs(path, *languages, CorpusConfig(), left_out)
        if left_out:
            console.info(f"{path}{reasons(left_out)}")

    is_prefix = all(has_side(path, language) for language in languages)
    files = parallel_paths(path, *languages) if is_prefix else (path,)
    digest = digest_of_json([kind_of(path), *(digest_of(str(file)) for file in files)])
    return Memory.of(pairs, digest, languages)
