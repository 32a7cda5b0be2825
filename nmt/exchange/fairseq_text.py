"""The text processing of fairseq models: dictionaries, and the codes of subword-nmt or fastBPE."""

from collections.abc import Sequence
from pathlib import Path

from nmt.errors import NmtError
from nmt.exchange.files import read_bytes
from nmt.exchange.vocabulary import Ids
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.foreign import Mapped

# The ids of fairseq's dictionaries before those of the lines of the file. A target begins with EOS.
_FIRST_PIECES = "<s>", "<pad>", "</s>", "<unk>"
_PAD, _EOS, _UNK = range(1, len(_FIRST_PIECES))
# fastBPE writes codes like version 0.2 of subword-nmt, and the frequency of each merge behind it.
_VERSION = "#version: 0.2"


def read_dictionary(path: Path) -> list[str]:
    """Returns the piece of each id of a dictionary of fairseq.

    Raises:
        NmtError: the file cannot be read, or a line is not a piece and a number.
    """
    pieces: dict[str, None] = dict.fromkeys(_FIRST_PIECES)
    for number, line in enumerate(_text(path).removesuffix("\n").split("\n"), start=1):
        piece, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not piece or not count.isdecimal():
            raise NmtError(f"{path}, line {number}: {line!r:.80} is not a piece and a number; give fairseq's dict file")
        if piece in pieces:
            raise NmtError(f"{path}, line {number}: the piece {piece!r:.80} is there twice; give fairseq's dict file")
        pieces[piece] = None
    return list(pieces)


def ids_of_dictionary(pieces: Sequence[str]) -> Ids:
    """Returns the ids of a dictionary."""
    return Ids((_PAD, _UNK, _EOS, _EOS), len(pieces))


def read_codes(path: Path) -> bytes:
    """Returns the codes of subword-nmt in a file, or those of fastBPE as subword-nmt writes them.

    Raises:
        NmtError: the file cannot be read, a line is not a merge, or there is no merge.
    """
    lines = [line.strip("\r ") for line in _text(path).rstrip("\n").split("\n")]
    merges = [line.split(" ") for line in lines if not line.startswith("#version")]
    if not merges:
        raise NmtError(f"{path} has no merges; give BPE codes")
    for number, merge in enumerate(merges, start=1 + len(lines) - len(merges)):
        if len(merge) not in (2, 3) or len(merge) != len(merges[0]) or not all(merge):
            raise NmtError(
                f"{path}, line {number}: {' '.join(merge)!r:.80} is not a merge of two pieces; give BPE codes"
            )
    if len(merges[0]) == 2:
        return "".join(f"{line}\n" for line in lines).encode()
    return "".join(f"{line}\n" for line in (_VERSION, *(f"{left} {right}" for left, right, _ in merges))).encode()


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise NmtError(f"{path} is not UTF-8 text ({error.reason}); give a text file") from error


def codec_of(config: TextConfig, dictionaries: Sequence[Sequence[str]], codes: Path, files: Sequence[str]) -> TextCodec:
    """Returns the codec for the dictionaries of source and target.

    Args:
        files: the names of the files of the dictionaries, for messages.

    Raises:
        NmtError: the codes cannot be read, or subword-nmt is not installed.
    """
    model = read_codes(codes)
    try:
        source, target = (
            Mapped(ids_of_dictionary(pieces).vocabulary(dict(enumerate(pieces)), file), model, "subword-nmt")
            for pieces, file in zip(dictionaries, files, strict=True)
        )
    except ValueError as error:
        raise NmtError(f"{codes} is not a file of BPE codes ({error}); give the codes file of the model") from error
    return TextCodec(config, source, target)
