"""The model card of an exported model: how to use it, where it comes from, and its scores."""

import json

from nmt import __version__
from nmt.checkpoint import Checkpoint
from nmt.model.cost import parameters
from nmt.text.codec import TextConfig

_LOAD = """from transformers import MarianMTModel, MarianTokenizer

model, tokenizer = MarianMTModel.from_pretrained("."), MarianTokenizer.from_pretrained(".")
lines = ["…"]  # sentences in {source}"""
_TRANSLATE = """batch = tokenizer(lines, return_tensors="pt", padding=True)
lines = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)"""


def model_card(checkpoint: Checkpoint, origin: str, scores: str | None) -> str:
    """Returns the README.md of an exported folder.

    Args:
        origin: the file name of the checkpoint.
        scores: what `nmt score` printed.
    """
    text, config = checkpoint.codec.config, checkpoint.model_config
    source_size = 0 if text.joint_vocab else len(checkpoint.codec.source)
    count = parameters(config, len(checkpoint.codec.target), source_size)
    sections = [
        f"---\npipeline_tag: translation\nlibrary_name: transformers\ntags:\n- marian\n- nmt\n---\n"
        f"# {text.source_lang} to {text.target_lang}\n\n"
        f"A Transformer with {count:,} parameters, trained with nmt. `nmt import huggingface` makes it a checkpoint "
        f"again.",
        f"## Use\n\n```python\n{_example(text)}\n```\n\n{_notes(text)}",
        f"## Scores\n\n{_code(scores)}" if scores else "",
        f"## Provenance\n\nExported by nmt {__version__} from `{origin}`.\n\n"
        + _code(json.dumps({"model": config.to_dict(), **checkpoint.provenance}, indent=1, default=str)),
    ]
    return "\n\n".join(filter(None, (section.strip() for section in sections))) + "\n"


def _code(text: str) -> str:
    return f"```\n{text.strip()}\n```"


def _example(text: TextConfig) -> str:
    """Returns Python code that translates. What the tokenizer of transformers does not do, the code does."""
    lines = [_LOAD.format(source=text.source_lang)]
    source, target = (_moses(tokenizer) for tokenizer in (text.source_tokenizer, text.target_tokenizer))
    if source or target:
        lines.insert(0, "from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer")
    if source:
        if text.normalize_punctuation != "none":
            lines.append(f"lines = [MosesPunctNormalizer({source!r}).normalize(line) for line in lines]")
        lines.append(
            f"lines = [MosesTokenizer({source!r}).tokenize(line, escape=False, return_str=True) for line in lines]"
        )
    if text.lowercase:
        lines.append("lines = [line.lower() for line in lines]")
    lines.append(_TRANSLATE)
    if target:
        lines.append(
            f"lines = [MosesDetokenizer({target!r}).detokenize(line.split(), unescape=False) for line in lines]"
        )
    return "\n".join([*lines, "print(lines)"])


def _moses(tokenizer: str) -> str | None:
    """Returns the language of a tokeniser of Moses; None for another tokeniser."""
    return tokenizer.removeprefix("moses-") if tokenizer.startswith("moses-") else None


def _notes(text: TextConfig) -> str:
    notes = ["Beam search of transformers has another length penalty than nmt. Both agree with `length_penalty=0`."]
    if text.tags:
        notes.append(f"In training, sentences of some corpora began with one of {' '.join(text.tags)}.")
    return "\n".join(notes)
