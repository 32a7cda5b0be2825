"""Writes the README.md of a model that is exported for users of another toolkit."""

import json
from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.checkpoint import Checkpoint
from nmt.model.architectures import parameter_count
from nmt.text.codec import TextConfig
from nmt.text.mapped import language_code

_FRONT_MATTER = "---\npipeline_tag: translation\nlibrary_name: transformers\ntags:\n- marian\n- nmt\n---\n"
_LOAD = """from transformers import MarianMTModel, MarianTokenizer

model, tokenizer = MarianMTModel.from_pretrained("."), MarianTokenizer.from_pretrained(".")
lines = ["…"]  # sentences in {source}"""
_TRANSLATE = """batch = tokenizer(lines, return_tensors="pt", padding=True)
lines = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)"""
# Keys of a provenance whose values are paths of the user.
_PATHS = "save_dir", "init_from", "averaged", "folder", "file"


def model_card(checkpoint: Checkpoint, origin: str, scores: str | None) -> str:
    """Returns the README.md of a model that is exported to Hugging Face."""
    text = checkpoint.codec.config
    use = f"```python\n{_example(text)}\n```\n\n{_notes(text)}"
    again = "`nmt import huggingface` (`pip install attention-nmt`) makes it a checkpoint again."
    return _FRONT_MATTER + card(checkpoint, origin, use, again, scores)


def card(checkpoint: Checkpoint, origin: str, use: str, again: str = "", scores: str | None = None) -> str:
    """Returns the README.md of an exported model.

    Args:
        use: how to translate with the model.
        again: a sentence that says how the model becomes a checkpoint, if it can.
        scores: the content of the section about scores.
    """
    text, config = checkpoint.codec.config, checkpoint.model_config
    count = parameter_count(config, checkpoint.codec)
    name = Path(origin).name.encode(errors="backslashreplace").decode()
    provenance = {"model": config.to_dict(), **_without_folders(checkpoint.provenance)}
    sections = [
        f"# {text.source_lang} to {text.target_lang}",
        f"A Transformer with {count:,} parameters, trained with nmt. {again}",
        f"## Use\n\n{use}",
        f"## Scores\n\n{_code(scores)}" if scores else "",
        f"## Provenance\n\nExported by nmt {__version__} from `{name}`.\n\n"
        + _code(json.dumps(provenance, indent=1, default=str)),
    ]
    return "\n\n".join(filter(None, (section.strip() for section in sections))) + "\n"


def _without_folders(value: Any, key: str = "") -> Any:
    """Returns a provenance whose paths are only file names, because a model card is public."""
    if isinstance(value, dict):
        return {name: _without_folders(found, name) for name, found in value.items()}
    if isinstance(value, list):
        return [_without_folders(item, key) for item in value]
    return Path(value).name if key in _PATHS and isinstance(value, str) else value


def _code(text: str) -> str:
    return f"```\n{text.strip()}\n```"


def _example(text: TextConfig) -> str:
    """Returns Python code that translates. What the tokenizer of transformers does not do, the code does."""
    lines = [_LOAD.format(source=text.source_lang)]
    tokenizers = text.source_tokenizer, text.target_tokenizer
    source, target = (t.removeprefix("moses-") if t.startswith("moses-") else None for t in tokenizers)
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


def _notes(text: TextConfig) -> str:
    notes = ["Beam search of transformers has another length penalty than nmt. Both agree with `length_penalty=0`."]
    if text.tags:
        notes.append(f"In training, sentences of some corpora began with one of {' '.join(text.tags)}.")
    if tags := tags_in_other_pieces(text):
        notes.append(
            f"`MarianTokenizer` turns {' '.join(tags)} into other pieces than nmt. Encode the sentence without the "
            f"tag, and put `tokenizer.convert_tokens_to_ids({tags[0]!r})` before its ids."
        )
    return "\n".join(notes)


def tags_in_other_pieces(text: TextConfig) -> list[str]:
    """Returns the tags that MarianTokenizer does not keep as one piece: all but language codes."""
    return [tag for tag in text.tags if language_code(tag) != tag]
