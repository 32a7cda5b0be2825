"""Writes the example files of the tutorials, from the small corpus of grammar.py, so that anyone can follow them.

python recipes/tutorial_files.py company DIR      # a translation memory, a glossary and documents
python recipes/tutorial_files.py language DIR     # a tiny random model of several languages, and text of a new one
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from html import escape
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import links
from grammar import corpus, write

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1>
<p>{first} <b>{second}</b></p>
<ul><li>{third}</li><li><a href="https://example.org">{fourth}</a></li></ul>
</body></html>
"""
# Entries that harm a training: without a translation, in the wrong language, and with another number.
BAD_ENTRIES = [
    ("The doctor opens the window in the kitchen.", ""),
    ("The teacher is looking for her old umbrella.", "Le professeur cherche son vieux parapluie dans la maison."),
    ("The baker needs 12 apples on Monday.", "Der Bäcker braucht am Montag 21 Äpfel."),
]
TERMS = "coat\tMantel\tMäntel\tMänteln\numbrella\tRegenschirm\tRegenschirme\tRegenschirmen\n"


def write_company(folder: Path) -> None:
    """Writes the files of a company: memory.tmx, terms.tsv, handbook.html and news.md."""
    pairs = [tuple(map(links.plain, pair)) for pair in corpus(9000, seed=1)]
    units = "".join(
        f'<tu><tuv xml:lang="en-GB"><seg>{escape(english)}</seg></tuv>'
        f'<tuv xml:lang="de-DE"><seg>{escape(german)}</seg></tuv></tu>\n'
        for english, german in [*pairs, *BAD_ENTRIES]
    )
    header = (
        '<header srclang="en-GB" creationtool="example" creationtoolversion="1" segtype="sentence" datatype="plaintext"'
    )
    header += ' adminlang="en" o-tmf="example"/>'
    tmx = f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">{header}<body>\n{units}</body></tmx>\n'
    (folder / "memory.tmx").write_text(tmx, encoding="utf-8")
    (folder / "terms.tsv").write_text(TERMS, encoding="utf-8")
    # One sentence of each document is in the memory. The others are new, and one of them has a word of the glossary.
    known = {english for english, _ in pairs}
    new = [english for english, _ in (map(links.plain, pair) for pair in corpus(1000, seed=2)) if english not in known]
    coats = sorted((english for english in new[6:] if " coat " in english and "?" not in english), key=len)
    words = {"title": new[0], "first": pairs[10][0], "second": new[1], "third": coats[0], "fourth": new[3]}
    (folder / "handbook.html").write_text(PAGE.format(**words), encoding="utf-8")
    (folder / "news.md").write_text(f"# {new[4]}\n\n- {pairs[11][0]}\n- {coats[1]}\n- **{new[5]}**\n", encoding="utf-8")


def write_language(folder: Path) -> None:
    """Writes text of English and German, and a tiny random model that knows English, Dutch and French."""
    try:
        import transformers  # noqa: F401 (write_model needs it, but only after the text was written)
    except ImportError as error:
        sys.exit(f"error: transformers is missing ({error}); run pip install transformers -c constraints.txt")
    sentences = iter(corpus(9000, seed=1))
    for split, size in {"corpus": 8000, "dev": 500, "test": 500}.items():
        english, german = zip(*islice(sentences, size), strict=True)
        write(folder / f"{split}.eng_Latn", map(links.plain, english))
        write(folder / f"{split}.deu_Latn", map(links.plain, german))
    write_model(folder / "model", (folder / "corpus.eng_Latn").read_text(encoding="utf-8").splitlines())


def write_model(folder: Path, text: Iterable[str]) -> None:
    """Writes a model in the format of NLLB-200 on Hugging Face, with the pieces of a text and random weights."""
    import sentencepiece
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    folder.mkdir()
    with (folder / "sentencepiece.bpe.model").open("wb") as file:
        options = {"model_type": "bpe", "vocab_size": 1000, "minloglevel": 2, "character_coverage": 1.0}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=file, **options)
    tokens = {"tokenizer_class": "NllbTokenizer", "extra_special_tokens": ["eng_Latn", "fra_Latn", "nld_Latn"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    transformers.NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"d_model": 128, "encoder_layers": 4, "decoder_layers": 4, "scale_embedding": True, "dropout": 0.1}
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 256)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    config = transformers.M2M100Config(vocab_size=1010, **sizes)
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the example files of the tutorials.")
    parser.add_argument("tutorial", choices=["company", "language"])
    parser.add_argument("folder", type=Path, help="folder to write to")
    options = parser.parse_args()
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"{options.folder} cannot be made ({error.strerror}); choose another folder")
    with TemporaryDirectory(dir=options.folder) as folder:  # all files appear at once, or none
        {"company": write_company, "language": write_language}[options.tutorial](Path(folder))
        files = sorted(Path(folder).iterdir())
        if present := [file.name for file in files if (options.folder / file.name).exists()]:
            parser.error(f"{options.folder} already has {', '.join(present)}; choose another folder")
        for file in files:
            shutil.move(file, options.folder)


if __name__ == "__main__":
    main()
