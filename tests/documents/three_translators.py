"""Three translators without a model, for files of any format: they are cut, aligned and joined as by a real one.

`unchanged` returns each sentence as it is, so that the file must be equal. `capitals` changes letters but no word that
must stay, so that nothing but letters of the text may differ. `reversed_words` moves words, and aligns them.
"""

import re
from collections.abc import Callable

from checkpoints import small_codec

from nmt.documents.document import ReadOptions
from nmt.documents.formats import read_document
from nmt.text.protected import Protected
from nmt.translate.records import Translation
from nmt.translate.units import Sentence, Unit

Translator = Callable[[Sentence], Translation]

_PROTECTED = Protected()


def _words(text: str) -> list[str]:
    return re.findall(r"\S+", text, re.ASCII)


def _kept(sentence: Sentence) -> str:
    """Returns an expression for what a translation must keep."""
    protected = [sentence.text[slice(*span)] for span in _PROTECTED.spans(sentence.text)]
    longest_first = sorted({*sentence.phrases, *protected}, key=len, reverse=True)
    edges = [
        ("", "\\b")[phrase[0].isalnum()] + re.escape(phrase) + ("", "\\b")[phrase[-1].isalnum()]
        for phrase in longest_first
    ]
    return "|".join(edges) or "(?!)"


def _in_order(text: str, sentence: Sentence) -> Translation:
    """Returns a translation whose words are those of the sentence, in its order."""
    links = [(i, i) for i in range(min(len(_words(text)), len(_words(sentence.text))))]
    return Translation(text, 0.0, [], [], alignment=links)


def unchanged(sentence: Sentence) -> Translation:
    return _in_order(sentence.text, sentence)


def capitals(sentence: Sentence) -> Translation:
    parts = re.split(f"({_kept(sentence)})", sentence.text)
    return _in_order("".join(part if i % 2 else part.upper() for i, part in enumerate(parts)), sentence)


def reversed_words(sentence: Sentence) -> Translation:
    """Words that must stay are moved as a whole, with what touches them."""
    groups = [match[0] for match in re.finditer(rf"(?:{_kept(sentence)}|\S)+", sentence.text, re.ASCII)]
    sizes = [len(_words(group)) for group in groups]
    numbers = [list(range(sum(sizes[:i]), sum(sizes[: i + 1]))) for i in range(len(groups))]
    sources = [number for group in reversed(numbers) for number in group]
    return Translation(" ".join(reversed(groups)), 0.0, [], [], alignment=[(s, t) for t, s in enumerate(sources)])


def translated_unit(unit: Unit, translator: Translator, source_lang: str = "en", target_lang: str = "de") -> str:
    codec = small_codec(source_lang=source_lang, target_lang=target_lang)
    sentences = unit.sentences(codec, "sentences")
    return unit.translated(sentences, [translator(sentence) for sentence in sentences], codec)


def translated_file(
    data: bytes, form: str, translator: Translator, source_lang: str = "en", target_lang: str = "de"
) -> bytes:
    """Returns the file with the translation of each sentence."""
    document = read_document(data, form, ReadOptions(f"x.{form}", source_lang, target_lang))
    units = [passage.unit for passage in document.passages]
    return document.write([translated_unit(unit, translator, source_lang, target_lang) for unit in units])
