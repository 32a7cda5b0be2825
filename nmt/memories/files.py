"""Opens memories from files of corpora."""

from collections.abc import Iterator, Sequence

from nmt import console
from nmt.checkpoint_file import read_codec
from nmt.errors import NmtError, importing, naming
from nmt.files import digest_of
from nmt.memories.memory import Memory
from nmt.text.codec import Direction
from nmt.text.corpus import read_lines


def read_pairs(path: str, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise NmtError(f"{path}, line {number} has no tab")
        yield source, target


def open_memories(paths: Sequence[str], model: str, direction: Direction | None) -> tuple[Memory, ...]:
    """Returns the memories in corpora, whose indexes are built the first time, for a direction of a model."""
    if not paths:
        return ()
    config = read_codec(model).towards(direction).config
    return tuple(open_memory(path, (config.source_lang, config.target_lang)) for path in paths)


def open_memory(path: str, languages: tuple[str, str]) -> Memory:
    """Returns the memory in a corpus, whose index is built the first time.

    Args:
        languages: of source and target.
    """
    with importing("rapidfuzz", "--memory", "'attention-nmt[memory]'"):
        import rapidfuzz  # noqa: F401

    def pairs() -> Iterator[tuple[str, str]]:
        console.info(f"building the index of {path}, which later runs use")
        yield from read_pairs(path, *languages)

    with naming(f"--memory {path}"):
        return Memory.of(pairs, digest_of(path), languages)
