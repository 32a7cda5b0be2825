"""Makes the codec of a data folder: tokenisation, and subword models that are read or trained."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import get_args

from nmt import console
from nmt.config import DataConfig, Tokenizer
from nmt.data.corpora import CHUNK_PAIRS, Chunk, Corpus, chunked, read_corpora, sample
from nmt.errors import NmtError
from nmt.jobs.pool import in_order
from nmt.text.codec import Preparer, Side, TextCodec, TextConfig
from nmt.text.corpus import read_lines
from nmt.text.moses import MOSES, base_language
from nmt.text.subword import UNK, Subword


def text_config(config: DataConfig) -> TextConfig:
    """Returns how the text of the data folder is processed; --tokenizer auto is decided for each language."""
    return TextConfig(
        source_lang=config.source_lang,
        target_lang=config.target_lang,
        source_tokenizer=_tokenizer(config.tokenizer, config.source_lang),
        target_tokenizer=_tokenizer(config.tokenizer, config.target_lang),
        normalize_punctuation=config.normalize_punctuation,
        lowercase=config.lowercase,
        subword=config.subword,
        joint_vocab=config.joint_vocab,
        tags=tuple(dict.fromkeys(tag for tag in config.tag if tag)),
    )


def _tokenizer(choice: Tokenizer, lang: str) -> str:
    """Returns the tokeniser of a language, as TextConfig names it."""
    language = base_language(lang)
    return f"moses-{language}" if choice == "moses" or (choice == "auto" and language in MOSES) else "none"


def show_tokenizers(text: TextConfig) -> None:
    """Logs on one line how the text of each side is tokenised."""
    sides = [(text.source_lang, text.source_tokenizer), (text.target_lang, text.target_tokenizer)]
    tokenizers = ", ".join(f"{lang} {tokenizer}" for lang, tokenizer in sides)
    normalized = f"; --normalize-punctuation {text.normalize_punctuation}" if "moses-" in tokenizers else ""
    console.info(f"tokenisation: {tokenizers}{normalized}")


def make_codec(config: DataConfig, train: list[Corpus]) -> TextCodec:
    """Returns the codec. Its subword model is read from --subword-model or trained on a sample of `train`.

    Raises:
        NmtError: the model cannot be read or trained, or --symbols is wrong.
    """
    text = text_config(config)
    if config.subword_model:
        model = _load_model(config.subword_model, config.subword)
        if unknown := [tag for tag in text.tags if model.ids([tag]) == [UNK]]:
            raise NmtError(f"--subword-model {config.subword_model} has no piece {unknown[0]}; leave out --tag")
        return TextCodec(text, model, model)
    if config.joint_vocab:
        model = _train_model(config, text, train, ("source", "target"))
        return TextCodec(text, model, model)
    return TextCodec(
        text,
        _train_model(config, text, train, ("source",)),
        _train_model(config, text, train, ("target",)),
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


def _train_model(config: DataConfig, text: TextConfig, train: list[Corpus], sides: tuple[Side, ...]) -> Subword:
    """Trains a subword model on a sample of one side or of both."""
    total = sum(corpus.pairs for corpus in train)
    sampled = min(total, config.subword_sample)
    named = " and ".join(text.source_lang if side == "source" else text.target_lang for side in sides)
    console.info(f"Training a {config.subword} model of {config.vocab_size:,} pieces on {sampled:,} lines of {named}")
    chunks = chunked(sample(read_corpora(train), total, sampled, config.seed))
    tokenizes = {text.source_tokenizer, text.target_tokenizer} != {"none"}
    workers = useful_workers(config.processes, sampled) if tokenizes else 1
    with closing(in_order(partial(_preparer, text, sides), chunks, workers, preload=__name__)) as prepared:
        lines = (line for chunk in prepared for side in (chunk.source, chunk.target) for line in side)
        tags = text.tags if "source" in sides else ()
        return Subword.train(lines, config.subword, config.vocab_size, _read_symbols(config.symbols), tags)


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


def _preparer(text: TextConfig, sides: tuple[Side, ...], _worker: int) -> Callable[[Chunk], Chunk]:
    """Returns a function that prepares a chunk for the subword model. A side that is not in `sides` becomes empty."""
    preparers = [Preparer(text, side) if side in sides else None for side in get_args(Side)]

    def prepare(chunk: Chunk) -> Chunk:
        pairs = zip(preparers, (chunk.source, chunk.target), strict=True)
        source, target = ([preparer.prepare(line) for line in lines] if preparer else [] for preparer, lines in pairs)
        return Chunk(source, target, [], [])

    return prepare


def useful_workers(workers: int, pairs: int) -> int:
    """Returns at most one worker for each chunk, because starting a process takes longer than encoding a chunk."""
    return max(1, min(workers, -(-pairs // CHUNK_PAIRS)))
