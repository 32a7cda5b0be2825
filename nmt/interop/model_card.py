"""Writes the README.md of a model that is exported for users of another toolkit."""

import json
from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.checkpoint import Checkpoint
from nmt.checkpoint_format import latest
from nmt.config import Facts
from nmt.console import listed
from nmt.model.architectures import parameter_count
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.languages import MULTIPLE
from nmt.text.mapped import language_code
from nmt.text.moses import WHOLE
from nmt.text.text_config import TextConfig

_FRONT_MATTER = "---\npipeline_tag: translation\nlibrary_name: {library}\ntags:\n- marian\n- nmt\n---\n"
# Python code that loads a MarianMT model, and that translates prepared lines with it.
_HUGGINGFACE = """from transformers import MarianMTModel, MarianTokenizer

model, tokenizer = MarianMTModel.from_pretrained("."), MarianTokenizer.from_pretrained(".")"""
_ONNX = """from optimum.onnxruntime import ORTModelForSeq2SeqLM
from transformers import MarianTokenizer

model, tokenizer = ORTModelForSeq2SeqLM.from_pretrained("."), MarianTokenizer.from_pretrained(".")"""
_GENERATE = """batch = tokenizer(lines, return_tensors="pt", padding=True)
lines = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)"""
_JAVASCRIPT = """import { pipeline } from "@huggingface/transformers";

const translate = await pipeline("translation", "MODEL", { dtype: "q8" });
console.log(await translate("…", { num_beams: 1 }));"""
# How an exported model becomes a checkpoint.
AGAIN = (
    "`nmt import huggingface` makes it a checkpoint of the toolkit nmt again, which is installed from a clone of its "
    "repository."
)
# Keys of a provenance whose values are paths of the user.
_PATHS = "save_dir", "init_from", "user_module", "averaged", "folder", "file", "path", "model_folder"


def model_card(checkpoint: Checkpoint, origin: str, use: str, facts: Facts, size: int, again: str = "") -> str:
    """Returns the README.md of an exported model.

    Args:
        use: how to translate with the model.
        size: the bytes of the exported weights.
        again: a sentence that says how the model becomes a checkpoint, if it can.
    """
    text, config = checkpoint.codec.config, checkpoint.model_config
    count, training = parameter_count(config, checkpoint.codec), latest(checkpoint.provenance)
    provenance = {"model": config.to_dict(), **_without_folders(checkpoint.provenance)}
    lower_capitals = (
        "The model has seen little text in capitals. Give it lines that are all in capitals in lower case, and put "
        "their translations in capitals, as `nmt generate` does."
    )
    history = "converted with nmt from another format" if "imported" in training else "trained with nmt"
    history += f", derived from the model `{training['derived_from']}`" if "derived_from" in training else ""
    trained = [str(Direction.parsed(stored)) for stored in training.get("directions", ())]
    sections = [
        f"# {text.in_words}" if text.source_lang == MULTIPLE else f"# {text.source_lang} to {text.target_lang}",
        f"A Transformer with {count:,} parameters in {size / 1e6:,.1f} MB, {history}. {again}",
        f"Its last training was on the directions {listed(trained, 20)}." if trained else "",
        f"## Use\n\n{use}",
        lower_capitals if text.lower_capitals else "",
        f"## Data\n\n{facts.data}" if facts.data else "",
        f"## Licence\n\n{facts.license}" if facts.license else "",
        f"## Scores\n\n{_code(facts.scores)}" if facts.scores else "",
        f"## Provenance\n\nExported by nmt {__version__} from `{Path(origin).name}`.",
        "<details><summary>How the weights were made, with all options</summary>",
        _code(json.dumps(provenance, indent=1, default=str)),
        "</details>",
    ]
    card = "\n\n".join(filter(None, (section.strip() for section in sections))) + "\n"
    return card.encode(errors="backslashreplace").decode()  # names and arguments may hold bytes that are not UTF-8


def example_codec(checkpoint: Checkpoint) -> TextCodec:
    """Returns the text processing for the direction in which the card translates: a trained one, if one is known."""
    codec, text = checkpoint.codec, checkpoint.codec.config
    trained = [each.split() for each in latest(checkpoint.provenance).get("directions", text.directions)]
    direction = (*trained, (text.languages * 2)[-2:])[0]
    return codec.with_languages(Direction(*direction)) if text.languages else codec


def marian_card(checkpoint: Checkpoint, origin: str, facts: Facts, size: int) -> str:
    """Returns the card of a MarianMT model for transformers."""
    use = f"{example(checkpoint, _HUGGINGFACE, _GENERATE, in_text=True)}\n\n{_notes(checkpoint.codec.config)}"
    return _FRONT_MATTER.format(library="transformers") + model_card(checkpoint, origin, use, facts, size, AGAIN)


def onnx_card(checkpoint: Checkpoint, origin: str, facts: Facts, size: int) -> str:
    """Returns the card of a model for ONNX Runtime."""
    paragraphs = [
        "In Python, with the package `optimum-onnx`:",
        example(checkpoint, _ONNX, _GENERATE, in_text=True),
        "In JavaScript, with the package `@huggingface/transformers`, where MODEL is this folder or its name on the "
        "hub. Without `dtype`, it takes the weights in 32 bits. It does not do Moses or lowercasing.",
        f"```js\n{_JAVASCRIPT}\n```",
        _notes(checkpoint.codec.config),
    ]
    card = model_card(checkpoint, origin, "\n\n".join(paragraphs), facts, size)
    return _FRONT_MATTER.format(library="transformers.js") + card


def _without_folders(value: Any, key: str = "") -> Any:
    """Returns a provenance whose paths are only file names, because a model card is public."""
    if isinstance(value, dict):
        return {name: _without_folders(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item, key) for item in value]
    return Path(value).name if key in _PATHS and isinstance(value, str) else value


def _code(text: str) -> str:
    return f"```\n{text.strip()}\n```"


def example(checkpoint: Checkpoint, load: str, translate: str, *, in_text: bool = False) -> str:
    """Returns Python code that translates. What the toolkit does not do, the code does.

    Args:
        load: code that loads the model.
        translate: code that translates prepared lines.
        in_text: whether a token of a language is a part of the line.
    """
    codec = example_codec(checkpoint)
    text, tokens = codec.config, codec.source.pieces(codec.language_tokens(codec.direction)[0]) if in_text else []
    lines = [load, f'lines = ["{" ".join([*tokens, "…"])}"]  # sentences in {text.source_lang}']
    source, target = (
        tokenizer.removeprefix("moses-") if tokenizer.startswith("moses-") else None
        for tokenizer in (text.source_tokenizer, text.target_tokenizer)
    )
    if source or target:
        lines.insert(0, "from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer")
    if source:
        if text.normalize_punctuation in ("both", "source"):
            exact = "norm_quote_commas=False, norm_numbers=False"
            lines.append(f"lines = [MosesPunctNormalizer({source!r}, {exact}).normalize(line) for line in lines]")
        lines.append("# Words such as AT&T and f(x) and words with typographic quotes are split here, but not in nmt.")
        tokenize = f"MosesTokenizer({source!r}).tokenize(line, escape=False, return_str=True)"
        lines.append(f"lines = [{tokenize} for line in lines]")
    if text.lowercase:
        lines.append("lines = [line.lower() for line in lines]")
    lines.append(translate)
    if target:
        detokenize = f"MosesDetokenizer({target!r}).detokenize(line.split(), unescape=False)"
        lines.append(f"lines = [{detokenize} for line in lines]")
        lines.append(f"lines = [line.replace({WHOLE!r}, '') for line in lines]  # the mark of words that stay whole")
    return "\n".join(["```python", *lines, "print(lines)", "```"])


def _notes(text: TextConfig) -> str:
    notes = [
        "Beam search of transformers has another length penalty than nmt. With `length_penalty=0.0`, it finds what "
        "`nmt generate --alpha 0` finds."
    ]
    if text.languages:
        notes.append(f"Each sentence begins with the token of its target language: `{text.language_pieces[0]} …`.")
    if text.tags:
        notes.append(f"In training, sentences of some corpora began with one of {' '.join(text.tags)}.")
    if tags := tags_in_other_pieces(text):
        problem = f"`MarianTokenizer` turns {' '.join(tags)} into other pieces than nmt"
        advice = f"put `tokenizer.convert_tokens_to_ids({tags[0]!r})` before its ids"
        notes.append(f"{problem}. Encode the sentence without the tag, and {advice}.")
    return "\n".join(notes)


def tags_in_other_pieces(text: TextConfig) -> list[str]:
    """Returns the tags that MarianTokenizer does not keep as one piece: all but language codes."""
    return [tag for tag in text.tags if language_code(tag) != tag]
