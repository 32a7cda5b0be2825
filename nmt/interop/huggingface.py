"""Imports MarianMT models of Hugging Face, such as those of Opus-MT, and exports checkpoints as such models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from nmt import __version__, console
from nmt.checkpoint import Checkpoint, build_model
from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.files import new_folder, writing
from nmt.interop.common import Settings, Tensors, read_json, read_safetensors, without_attention_biases
from nmt.interop.marian import (
    RECORD,
    check_expressible,
    is_shared,
    our_config,
    our_weights,
    read_text,
    special_ids,
    their_config,
    their_weights,
    vocabulary_sizes,
    write_text,
)
from nmt.interop.torch_files import read_torch_file
from nmt.model.architectures import parameter_count
from nmt.text.codec import TextConfig
from nmt.text.mapped import language_code
from nmt.text.subword import BOS, PAD

_LOAD = """from transformers import MarianMTModel, MarianTokenizer

model, tokenizer = MarianMTModel.from_pretrained("."), MarianTokenizer.from_pretrained(".")
lines = ["…"]  # sentences in {source}"""
_TRANSLATE = """batch = tokenizer(lines, return_tensors="pt", padding=True)
lines = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)"""
# Keys of a provenance whose values are paths of the user.
_PATHS = "save_dir", "init_from", "averaged", "folder", "file"


def model_card(checkpoint: Checkpoint, origin: str, scores: str | None) -> str:
    """Returns the README.md of an exported folder."""
    text, config = checkpoint.codec.config, checkpoint.model_config
    count = parameter_count(config, checkpoint.codec)
    name = Path(origin).name.encode(errors="backslashreplace").decode()
    provenance = {"model": config.to_dict(), **_without_folders(checkpoint.provenance)}
    sections = [
        f"---\npipeline_tag: translation\nlibrary_name: transformers\ntags:\n- marian\n- nmt\n---\n"
        f"# {text.source_lang} to {text.target_lang}\n\n"
        f"A Transformer with {count:,} parameters, trained with nmt. `nmt import huggingface` (`pip install "
        f"attention-nmt`) makes it a checkpoint again.",
        f"## Use\n\n```python\n{_example(text)}\n```\n\n{_notes(text)}",
        f"## Scores\n\n{_code(scores)}" if scores else "",
        f"## Provenance\n\nExported by nmt {__version__} from `{name}`.\n\n"
        + _code(json.dumps(provenance, indent=1, default=str)),
    ]
    return "\n\n".join(filter(None, (section.strip() for section in sections))) + "\n"


def _without_folders(value: Any) -> Any:
    """Returns a provenance whose paths are only file names, because a model card is public."""
    if not isinstance(value, dict):
        return value
    return {key: _names(found) if key in _PATHS else _without_folders(found) for key, found in value.items()}


def _names(paths: Any) -> Any:
    if isinstance(paths, list):
        return [_names(path) for path in paths]
    return Path(paths).name if isinstance(paths, str) else paths


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


_CONFIG, _GENERATION = "config.json", "generation_config.json"
_SAFETENSORS, _TORCH = "model.safetensors", "pytorch_model.bin"


def import_huggingface(folder: str, source_lang: str | None = None, target_lang: str | None = None) -> Checkpoint:
    """Returns the checkpoint of the MarianMT model in a folder."""
    path = Path(folder)
    if path.is_file():
        raise NmtError(f"{folder} is a file; give the folder of the model")
    values = read_json(path / _CONFIG)
    settings = Settings(values, path / _CONFIG)
    config, shared = our_config(settings), is_shared(settings)
    tensors = _tensors(path)
    sizes = vocabulary_sizes(values, tensors, path / _CONFIG, shared=shared)
    langs = {"source_lang": source_lang, "target_lang": target_lang}
    text = read_text(path, values, sizes, langs, shared=shared)
    scaled = bool(values.get("scale_embedding", False))
    weights = our_weights(config, tensors, text.source_ids, text.target_ids, shared=shared, scaled=scaled)
    config, weights = _without_needless(config, weights, _recorded(values, path))
    _warn_of_generation(path)
    provenance = {"nmt": __version__, "imported": {"format": "huggingface", "folder": folder}}
    checkpoint = Checkpoint(config, text.codec, weights, provenance)
    build_model(checkpoint, folder)  # checks that the weights fit
    return checkpoint


def _tensors(folder: Path) -> Tensors:
    if (folder / _SAFETENSORS).exists():
        path = folder / _SAFETENSORS
        tensors = read_safetensors(path)
    elif (folder / _TORCH).exists():
        path = folder / _TORCH
        tensors = read_torch_file(path)[1]
    else:
        raise NmtError(f"{folder} has neither {_SAFETENSORS} nor {_TORCH}; download the model again")
    return Tensors(tensors, path, _CONFIG, "download both again")


def _recorded(values: dict[str, Any], folder: Path) -> ModelConfig | None:
    """Returns the architecture that nmt recorded when it exported the model; None for other models."""
    record = values.get(RECORD)
    if not isinstance(record, dict) or not isinstance(record.get("model"), dict):
        return None
    return ModelConfig.from_dict(record["model"], str(folder / _CONFIG))


def _without_needless(
    config: ModelConfig, weights: dict[str, Tensor], recorded: ModelConfig | None
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Returns the architecture and the weights without biases that are zero, unless the exported model had them."""
    if recorded is not None:
        config = replace(config, guided_alignment=recorded.guided_alignment)
        smaller = without_attention_biases(config, weights)
        biased = any(weight.any() for name, weight in weights.items() if name not in smaller)
        if not recorded.attention_biases and not biased:
            config, weights = replace(config, attention_biases=False), smaller
    if not (recorded and recorded.output_bias) and not weights["output_bias"].any():
        config = replace(config, output_bias=False)
        weights = {name: weight for name, weight in weights.items() if name != "output_bias"}
    return config, weights


def _warn_of_generation(folder: Path) -> None:
    """Warns if transformers would begin every translation with a given token."""
    for name in (_CONFIG, _GENERATION):
        values = read_json(folder / name) if (folder / name).exists() else {}
        if values.get("forced_bos_token_id") is not None:
            console.warn(
                f"{folder / name} has a forced_bos_token_id, with which transformers begins every translation; "
                f"give its piece to nmt generate with --prefixes"
            )
            return


def export_huggingface(checkpoint: Checkpoint, origin: str, output: str, scores: str | None = None) -> None:
    """Writes the folder `output`, which transformers loads as a MarianMT model."""
    config, codec = checkpoint.model_config, checkpoint.codec
    check_expressible(config, origin)
    if codec.config.subword not in ("bpe", "unigram", "marian"):
        raise NmtError(
            f"MarianMT segments text with sentencepiece, but {origin} has a {codec.config.subword} vocabulary; "
            f"translate with nmt generate"
        )
    tensors = their_weights(config, checkpoint.weights)
    values = their_config(config, len(codec.source), len(codec.target), shared=codec.config.joint_vocab)
    values[RECORD] = {"text": codec.config.to_dict(), "model": config.to_dict()}
    generation = {**special_ids(), "bad_words_ids": [[PAD], [BOS]], "num_beams": 4, "max_length": 512}
    with new_folder(output, "--output") as folder, writing(f"--output {output}", "free some space"):
        (folder / _SAFETENSORS).write_bytes(save(tensors, metadata={"format": "pt"}))
        for name, content in ((_CONFIG, values), (_GENERATION, generation)):
            (folder / name).write_text(json.dumps(content, indent=1) + "\n")
        write_text(codec, folder)
        (folder / "README.md").write_text(model_card(checkpoint, origin, scores), encoding="utf-8")
    if tags := tags_in_other_pieces(codec.config):
        console.warn(
            f"{origin} has the tags {' '.join(tags)}, which MarianTokenizer turns into other pieces; see README.md in "
            f"{output} for the right ids"
        )
