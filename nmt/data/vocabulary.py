"""Makes the codec of a data folder: tokenisation, and subword models that are read or trained."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from nmt import console
from nmt.config import DataConfig
from nmt.data.corpora import CHUNK_PAIRS, Chunk, Corpus, chunked, read_corpora, sample
from nmt.errors import NmtError
from nmt.processes import in_order
from nmt.text.codec import Preparer, TextCodec, TextConfig
from nmt.text.corpus import read_lines
from nmt.text.subword import Subword


def text_config(config: DataConfig) -> TextConfig:
    """Returns how the text of the data folder is processed."""
    return TextConfig(
        source_lang=config.source_lang,
        target_lang=config.target_lang,
        tokenizer=config.tokenizer,
        lowercase=config.lowercase,
        subword=config.subword,
        joint_vocab=config.joint_vocab,
    )


def make_codec(config: DataConfig, train: list[Corpus]) -> TextCodec:
    """Returns the codec. Its subword model is read from --subword-model or trained on a sample of `train`.

    Raises:
        NmtError: the model cannot be read or trained, or --symbols is wrong.
    """
    text = text_config(config)
    if config.subword_model:
        model = _load_model(config.subword_model, config.subword)
        return TextCodec(text, model, model)
    if config.joint_vocab:
        model = _train_model(config, text, train, (text.source_lang, text.target_lang))
        return TextCodec(text, model, model)
    return TextCodec(
        text,
        _train_model(config, text, train, (text.source_lang, None)),
        _train_model(config, text, train, (None, text.target_lang)),
    )


def _load_model(path: str, kind: str) -> Subword:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NmtError(f"--subword-model {path} cannot be read ({error.strerror}); check the path") from error
    model = Subword.from_bytes(data, kind, f"--subword-model {path}")
    if not model.has_bytes:
        console.warn(
            f"--subword-model {path} was trained without byte_fallback; characters that have no piece will be lost"
        )
    return model


def _train_model(
    config: DataConfig, text: TextConfig, train: list[Corpus], langs: tuple[str | None, str | None]
) -> Subword:
    """Trains a subword model on a sample of the sides that have a language in `langs` (source, target)."""
    total = sum(corpus.pairs for corpus in train)
    sampled = min(total, config.subword_sample)
    named = " and ".join(lang for lang in langs if lang)
    console.info(f"Training a {config.subword} model of {config.vocab_size:,} pieces on {sampled:,} lines of {named}")
    chunks = chunked(sample(read_corpora(train), total, sampled, config.seed))
    workers = useful_workers(config.workers, sampled) if config.tokenizer == "moses" else 1
    with closing(in_order(partial(_preparer, text, langs), chunks, workers)) as prepared:
        lines = (line for chunk in prepared for side in chunk for line in side)
        return Subword.train(lines, config.subword, config.vocab_size, _read_symbols(config.symbols))


def _read_symbols(path: str | None) -> list[str]:
    if path is None:
        return []
    symbols = list(read_lines(path))
    seen: set[str] = set()
    for number, symbol in enumerate(symbols, start=1):
        if len(symbol.split()) != 1 or symbol != symbol.strip() or symbol in seen:
            place = f"--symbols {path}, line {number}"
            raise NmtError(f"{place}: {symbol!r} is not a single new word; write one new word on each line")
        seen.add(symbol)
    return symbols


def _preparer(text: TextConfig, langs: tuple[str | None, str | None], _worker: int) -> Callable[[Chunk], Chunk]:
    """Returns a function that prepares a chunk for the subword model. A side whose language is None becomes empty."""
    preparers = [Preparer(text, lang) if lang else None for lang in langs]

    def prepare(chunk: Chunk) -> Chunk:
        sides = zip(preparers, chunk, strict=True)
        return Chunk(*([preparer.prepare(line) for line in lines] if preparer else [] for preparer, lines in sides))

    return prepare


def useful_workers(workers: int, pairs: int) -> int:
    """Returns at most one worker for each chunk, because starting a process takes longer than encoding a chunk."""
    return max(1, min(workers, -(-pairs // CHUNK_PAIRS)))
