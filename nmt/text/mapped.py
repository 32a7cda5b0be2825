"""Subword models of other toolkits: a segmentation, and a vocabulary that gives each piece its id."""

import base64
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, get_args

from nmt.errors import NmtError, importing
from nmt.text.subword import EOS, UNK, Vocabulary, clean_line, processor_of, without_surrogates

MappedKind = Literal["marian", "subword-nmt", "sentencepiece"]
MAPPED_KINDS = get_args(MappedKind)
# A language code such as >>fra<< at the beginning of a line is one piece (transformers' MarianTokenizer).
_LANGUAGE_CODE = re.compile(r">>.*?<<", re.DOTALL)
_MOST_CACHED = 1 << 16  # words
SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"


def language_code(line: str) -> str:
    """Returns the language code at the beginning of a line, or an empty string."""
    code = _LANGUAGE_CODE.match(line)
    return code[0] if code else ""


def language_code_pieces(vocabulary: Iterable[str]) -> list[str]:
    """Returns the pieces that are language codes, such as >>fra<<."""
    return [piece for piece in vocabulary if piece.split() == [piece] == [language_code(piece)]]


class _MarianSegmentation:
    """The pieces of a sentencepiece model of Marian.

    A language code at the beginning of a line is one piece if the vocabulary has one. If it has several, the languages
    are named elsewhere, and without any, a code in a line is text, too.
    """

    def __init__(self, model: bytes, vocabulary: Iterable[str]) -> None:
        self._processor = processor_of(model)
        self._has_codes = len(language_code_pieces(vocabulary)) == 1

    def split(self, line: str) -> list[str]:
        code = language_code(line) if self._has_codes else ""
        return [*([code] if code else []), *self._processor.encode(line.removeprefix(code), out_type=str)]

    def join(self, pieces: list[str]) -> str:
        return str(self._processor.decode_pieces(pieces))


class _SentencepieceSegmentation:
    """The pieces of a sentencepiece model. Text that spells the name of a special piece stays text."""

    def __init__(self, model: bytes, _: Iterable[str]) -> None:
        self._processor = processor = processor_of(model)
        ids = list(range(len(processor)))
        special = zip(processor.is_control(ids), processor.is_unknown(ids), processor.is_unused(ids), strict=True)
        names = zip(processor.id_to_piece(ids), map(any, special), strict=True)
        self._pieces = [SPECIAL_PIECES[UNK] if is_special else piece for piece, is_special in names]
        self._known = {*self._pieces} - {SPECIAL_PIECES[UNK]}

    def split(self, line: str) -> list[str]:
        return [self._pieces[i] for i in self._processor.encode(line)]

    def join(self, pieces: list[str]) -> str:
        return str(self._processor.decode_pieces([piece for piece in pieces if piece in self._known]))


class _SubwordNmtSegmentation:
    """The pieces of words, by the merges of subword-nmt. A piece within a word ends in @@."""

    def __init__(self, codes: bytes, _: Iterable[str]) -> None:
        with importing("subword-nmt", "a model with codes of subword-nmt", extra="fairseq"):
            from subword_nmt.apply_bpe import BPE
        text = codes.decode()
        # The library ends the process if a line is wrong.
        if not all(len(line.strip("\r ").split(" ")) == 2 for line in text.rstrip("\n").split("\n")):
            raise ValueError("a line that is not two pieces")
        self._bpe = BPE(io.StringIO(text, newline="\n"))

    def split(self, line: str) -> list[str]:
        if len(self._bpe.cache) > _MOST_CACHED:  # the library never forgets a word
            self._bpe.cache.clear()
        return self._bpe.segment(" ".join(line.split())).split()

    def join(self, pieces: list[str]) -> str:
        return f"{' '.join(pieces)} ".replace("@@ ", "").rstrip()


class Mapped(Vocabulary):
    """A subword model that cannot be trained or sampled.

    Args:
        vocabulary: the piece of each id. Ids 0 to 3 are PAD, UNK, BOS and EOS.
        model: the content of the file that segments: a sentencepiece model or the codes of subword-nmt.

    Raises:
        ValueError, RuntimeError: `model` is damaged.
    """

    def __init__(self, vocabulary: Sequence[str], model: bytes, kind: str) -> None:
        super().__init__(vocabulary)
        self.model, self.kind = model, kind
        classes: dict[str, Any] = {
            "marian": _MarianSegmentation,
            "subword-nmt": _SubwordNmtSegmentation,
            "sentencepiece": _SentencepieceSegmentation,
        }
        self._segmentation = classes[kind](model, vocabulary)

    @classmethod
    def from_bytes(cls, data: bytes, kind: str, origin: str) -> Self:
        """Returns the model that `to_bytes` returned."""
        try:
            content = json.loads(data)
            vocabulary, model = content["vocabulary"], base64.b64decode(content["model"], validate=True)
            pieces = list(dict.fromkeys(map(without_surrogates, vocabulary)))
            if pieces != vocabulary or len(pieces) <= EOS:
                raise ValueError("a vocabulary that is not a list of different pieces, or has too few")
            return cls(vocabulary, model, kind)
        except (ValueError, LookupError, TypeError, RuntimeError) as error:
            raise NmtError(
                f"{origin} is not a {kind} subword model, or is damaged; make it or copy it again"
            ) from error

    def to_bytes(self) -> bytes:
        """Returns vocabulary and model as JSON."""
        content = {"vocabulary": self.vocabulary, "model": base64.b64encode(self.model).decode()}
        return json.dumps(content).encode()

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Returns the ids of each line's pieces, without BOS and EOS. Lone surrogates become U+FFFD."""
        return [self.ids(self._segmentation.split(without_surrogates(line))) for line in lines]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Returns one line of text for each sequence of ids. Special ids are dropped."""
        return [clean_line(self._segmentation.join(self.pieces(i for i in line if i > EOS))) for line in ids]
