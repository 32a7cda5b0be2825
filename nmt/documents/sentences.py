"""The different sentences of documents, which are translated once each, and the documents with their translations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmt.documents.document import Document
from nmt.memories.matching import Match
from nmt.text.protected import ProtectedSpan
from nmt.translate.units import Sentence, Translation, Unit, UnitMaker


class SentenceKey(NamedTuple):
    """What makes sentences different, as in `Sentence`.

    Attributes:
        has_elements: false if no memory is used, because the model translates text with elements like other text.
    """

    text: str
    tags: tuple[str, ...]
    protected: tuple[ProtectedSpan, ...]
    has_elements: bool


class Sentences:
    """The different sentences of documents.

    Args:
        maker: cuts passages into sentences.
        has_memory: whether sentences with elements differ from those without, because a memory may have only these.
    """

    def __init__(self, maker: UnitMaker, *, has_memory: bool = False) -> None:
        self._maker, self._has_memory = maker, has_memory
        self.keys: dict[SentenceKey, None] = {}  # each sentence
        # The text and the alignment of each translation. As the bytes of an array, it takes a tenth of the memory.
        self._translations: dict[SentenceKey, tuple[str, bytes]] = {}
        self._from_memory = set[SentenceKey]()
        self._matches: dict[SentenceKey, Sequence[Match]] = {}
        self.has_markup = False  # whether a passage is marked up

    def add(self, document: Document) -> list[Unit]:
        """Adds the sentences of a document. Returns its passages as units."""
        units = list(map(self._maker.complete, document.passages))
        self.has_markup |= any(unit.content is not None for unit in units)
        self.keys |= dict.fromkeys(self._key(sentence) for unit in units for sentence in unit.sentences)
        return units

    def _key(self, sentence: Sentence) -> SentenceKey:
        has_elements = sentence.has_elements and self._has_memory
        return SentenceKey(sentence.text, sentence.tags, sentence.protected, has_elements)

    def unit(self, key: SentenceKey, maker: UnitMaker) -> Unit:
        """Returns a sentence as a unit, with the matches of the memories of `maker`."""
        sentence = Sentence(key.text, tags=key.tags, protected=key.protected, has_elements=key.has_elements)
        return maker.complete(Unit(key.text, place=f"the sentence {sentence.raw:.80}", sentences=[sentence]))

    def set_translation(self, key: SentenceKey, translation: Translation, matches: Sequence[Match] = ()) -> None:
        """Keeps the translation of a sentence, and its matches, for `written`."""
        alignment = np.array(translation.alignment or (), np.int32)
        self._translations[key] = translation.text, alignment.tobytes()
        self._from_memory |= {key} if translation.is_from_memory else set()
        self._matches |= {key: matches} if matches else {}

    def written(self, document: Document, units: Sequence[Unit], target_lang: str) -> tuple[bytes, int]:
        """Returns the file of a document with the translations, and how many sentences are from a memory.

        Args:
            units: what `add` returned for the document.
        """

        def translation(key: SentenceKey) -> Translation:
            text, alignment = self._translations[key]
            words = np.frombuffer(alignment, np.int32).reshape(-1, 2).tolist()
            return Translation(text, 0.0, [], [], alignment=[(i, j) for i, j in words])

        keys = [list(map(self._key, unit.sentences)) for unit in units]
        pairs = zip(units, keys, strict=True)
        translated = [unit.translated_tokens(list(map(translation, each)), target_lang) for unit, each in pairs]
        if document.offer:
            document.offer([self._matches.get(each[0], ()) if len(each) == 1 else () for each in keys])
        return document.write(translated), sum(key in self._from_memory for each in keys for key in each)
