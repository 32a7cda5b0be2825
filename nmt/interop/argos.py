"""Exports a checkpoint as a package of Argos Translate, which LibreTranslate uses too.

Argos Translate decides how text is prepared and searched. Its source is the only description of a package:
package.py reads the files, tokenizer.py prepares text, and translate.py calls CTranslate2.
"""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

from nmt import console
from nmt.checkpoint import Checkpoint
from nmt.config import Facts
from nmt.errors import NmtError
from nmt.files import output_file, read_bytes, writing
from nmt.interop.ctranslate2 import specification
from nmt.interop.foreign_files import ADVICE
from nmt.interop.model_card import model_card
from nmt.interop.sentencepiece_model import changed
from nmt.text.directions import Direction
from nmt.text.languages import UNKNOWN, base_language
from nmt.text.text_config import TextConfig

_SUFFIX = ".onnx"
_SERVE = "serve this one with nmt serve"
_USE = """Install Argos Translate with `pip install argostranslate`.

```python
from argostranslate import package, translate

package.install_from_path({name!r})
print(translate.translate("…", "{source}", "{target}"))  # text in {source}
```

Argos Translate splits text into sentences with a model of MiniSBD, which \
{sentences}. The package also works in LibreTranslate."""


def export_argos(
    checkpoint: Checkpoint,
    origin: str,
    output: str,
    quantization: str,
    facts: Facts,
    direction: Direction | None = None,
    sentence_model: str | None = None,
) -> None:
    """Writes the file `output`, a zip file with one folder.

    Args:
        direction: of a model of several languages, from which into which the package translates.
        sentence_model: a file with the MiniSBD model that splits text of the source language into sentences; by
            default, Argos Translate downloads one.
    """
    codec = checkpoint.codec.directed(direction)
    text, (before, behind) = codec.config, codec.language_tokens(codec.direction)
    _check_text(text, origin)
    if behind:
        problem = f"Argos Translate cannot put the token of a language behind a source line, as {origin} needs it"
        raise NmtError(f"{problem} ({text.placement}); {_SERVE}")
    source, target = _codes(text, origin)
    splitter = {}
    if sentence_model is not None:
        if not sentence_model.endswith(_SUFFIX):
            raise NmtError(f"--sentence-model {sentence_model} does not end in {_SUFFIX}; give a model of MiniSBD")
        splitter[f"minisbd/{source}{_SUFFIX}"] = read_bytes(Path(sentence_model), ADVICE)
    sentences = "this package contains" if splitter else "it downloads when it translates for the first time"
    use = _USE.format(name=Path(output).name, source=source, target=target, sentences=sentences)
    metadata = {"package_version": "1.0", "argos_version": "1.11.0"}  # whose source this module follows
    metadata |= {"from_code": source, "from_name": source, "to_code": target, "to_name": target}
    folder, subword = f"nmt-{source}_{target}", codec.source.model
    if given := codec.given_ids(codec.direction):
        # Of several sentences, Argos Translate removes only the first prefix from the text, but all control pieces.
        (metadata["target_prefix"],) = codec.target.pieces(given)
        subword = changed(subword, control=text.language_pieces)
    with output_file(output, [origin], suffix=".argosmodel") as file:
        with (
            writing(f"--output {output}", "free some space"),
            TemporaryDirectory(prefix=".nmt-", dir=Path(output).absolute().parent) as saved,
        ):
            spec = specification(checkpoint, origin, quantization, "nmt export argos")
            if before:
                (spec.config.bos_token,), spec.config.add_source_bos = codec.source.pieces(before), True
            spec.save(saved)
            model = {f"model/{path.name}": path.read_bytes() for path in sorted(Path(saved).iterdir())}
        card = model_card(replace(checkpoint, codec=codec), origin, use, facts, sum(map(len, model.values())))
        files = {"metadata.json": json.dumps(metadata, indent=1).encode(), "README.md": card.encode()}
        files |= {"sentencepiece.model": subword, **splitter, **model}
        # The zip file depends on nothing but the files. Quantised weights would hardly become smaller in it.
        archive = io.BytesIO()
        with ZipFile(archive, "w") as writer:
            for name, content in files.items():
                entry = ZipInfo(f"{folder}/{name}")  # its date is always 1980-01-01
                entry.external_attr = 0o644 << 16  # otherwise, unzip makes files that nobody may read
                writer.writestr(entry, content)
        file.write(archive.getvalue())


def _check_text(text: TextConfig, origin: str) -> None:
    """Raises NmtError if Argos Translate would convert text to other pieces than nmt, or pieces to other text.

    It converts both by the sentencepiece model of the source. That model leaves pieces that it does not know as
    they are, so it may differ from the target's. Normalisation of punctuation is a part of Moses. Argos Translate
    applies Moses only to models with codes of subword-nmt, but without splitting words at hyphens.
    """
    obstacles = {
        "Moses tokenisation": text.has_moses,
        "lowercasing": text.lowercase,
        f"a {text.subword} vocabulary": text.subword in ("wordpiece", "subword-nmt"),
        "language codes such as >>fra<<": text.subword == "marian" and bool(text.tags),
    }
    if unsupported := " and ".join(name for name, is_there in obstacles.items() if is_there):
        advice = f"train a model with --tokenizer none and --subword bpe, or {_SERVE}"
        raise NmtError(f"Argos Translate cannot prepare text with {unsupported} as {origin} needs it; {advice}")
    if text.tags:
        tags = f"{origin} has the tags {' '.join(text.tags)}, which Argos Translate cannot put before a sentence"
        console.warn(f"{tags}; it translates every sentence as one without a tag")


def _codes(text: TextConfig, origin: str) -> list[str]:
    """Returns the codes of both languages. Argos Translate expects ISO 639, and connects packages by these codes."""
    if text.source_lang == UNKNOWN:
        raise NmtError(f"--source-lang is missing; name the language that {origin} is to translate from")
    codes = [base_language(lang) for lang in (text.source_lang, text.target_lang)]
    if codes[0] == codes[1]:
        languages = f"from {text.source_lang} to {text.target_lang}, which Argos Translate would take for one language"
        raise NmtError(f"{origin} translates {languages}; {_SERVE}")
    for code in codes:
        if not re.fullmatch("[a-z]{2,3}", code):
            problem = f"{origin} has the language {code}, which is not a code of ISO 639"
            console.warn(f"{problem}; Argos Translate splits its text into sentences as English")
    return codes
