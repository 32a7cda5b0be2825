"""`nmt import` makes checkpoints of models of other toolkits."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from nmt.cli.flags import flags
from nmt.config import SelectionConfig
from nmt.errors import NmtError

EXAMPLES = """Examples, for folders with a model from Hugging Face:

nmt import huggingface opus-mt-en-de --output opus.safetensors

nmt import huggingface nllb-200-distilled-600M --output nllb.safetensors --languages eng_Latn,deu_Latn

nmt import huggingface nllb-200-distilled-600M --output nllb.safetensors --languages rus_Cyrl,kaz_Cyrl --add-language
tyv_Cyrl=kaz_Cyrl --add-pieces corpus.tyv_Cyrl"""

import_ = typer.Typer(
    name="import",
    help="Convert a model of another toolkit to a checkpoint: Opus-MT, NLLB-200, M2M-100, or one of Marian or fairseq.",
    no_args_is_help=True,
)

Output = Annotated[str, Option(help="Checkpoint file to write, whose name ends in .safetensors.")]


@import_.command(no_args_is_help=True, epilog=EXAMPLES)
@flags()
def huggingface(
    folder: Annotated[
        str, Argument(metavar="DIR", help="Folder of a model, such as Opus-MT, M2M-100, NLLB-200 or SMaLL-100.")
    ],
    output: Output,
    selection: SelectionConfig,
    source_lang: Annotated[
        str | None, Option(help="Source language of a MarianMT model, if the folder does not say it.")
    ] = None,
    target_lang: Annotated[
        str | None, Option(help="Target language of a MarianMT model that has only one, if the folder does not say it.")
    ] = None,
    base: Annotated[
        str | None, Option(metavar="DIR", help="Folder of the base model, if DIR is an adapter of PEFT.")
    ] = None,
) -> None:
    """Convert a model in the format of Hugging Face to a checkpoint: of Opus-MT, NLLB-200, M2M-100 or SMaLL-100.

    The options under Models of many languages are for all of these but Opus-MT and other models of MarianMT.
    """
    from nmt.interop.huggingface import import_huggingface

    files = chain.from_iterable(Path(each).glob("*") for each in (folder, base) if each)
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    convert = partial(import_huggingface, folder, languages, selection, base)
    write(convert, output, [*files, *selection.pieces_of, *selection.add_pieces, *selection.unchanged])


@import_.command(no_args_is_help=True)
def fairseq(
    file: Annotated[str, Argument(metavar="FILE", help="Checkpoint of a transformer of fairseq.")],
    dict_: Annotated[
        list[str],
        Option(
            "--dict",
            metavar="FILE",
            help="Dictionary of the source, and then that of the target. Give a joined dictionary once.",
        ),
    ],
    codes: Annotated[str, Option(metavar="FILE", help="BPE codes of subword-nmt or fastBPE.")],
    output: Output,
    tokenizer: Annotated[
        Literal["moses", "none"], Option(help="How the text was tokenised before it was cut into subwords.")
    ] = "moses",
    lowercase: Annotated[bool, Option("--lowercase", help="The text was lowercased.")] = False,
    source_lang: Annotated[str | None, Option(help="Source language, if the file does not say it.")] = None,
    target_lang: Annotated[str | None, Option(help="Target language, if the file does not say it.")] = None,
) -> None:
    """Convert a model that fairseq has trained to a checkpoint. No code in the file runs.

    This command needs the extra fairseq: pip install '.\\[fairseq]' -c constraints.txt in the clone of nmt.
    """
    if len(dict_) > 2:
        raise NmtError(f"--dict was given {len(dict_)} times; give it for source and target")
    from nmt.interop.fairseq import import_fairseq

    languages = {"source_lang": source_lang, "target_lang": target_lang}
    convert = partial(import_fairseq, file, dict_, codes, tokenizer, lowercase, languages)
    write(convert, output, [file, *dict_, codes])


@import_.command(no_args_is_help=True)
def marian(
    folder: Annotated[
        str,
        Argument(metavar="DIR", help="Folder of a model of Marian, Firefox or Opus-MT: its weights and vocabularies."),
    ],
    output: Output,
    source_lang: Annotated[str | None, Option(help="Source language, if the names of the files do not say it.")] = None,
    target_lang: Annotated[str | None, Option(help="Target language, if the names of the files do not say it.")] = None,
    vocabulary_map: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="File to write for --vocabulary-map of nmt generate if the folder has a shortlist, lex*.bin: by "
            "default model.vmap.txt for model.safetensors.",
        ),
    ] = None,
) -> None:
    """Convert a model of Marian to a checkpoint, such as one that Firefox translates with.

    This command needs the extra marian: pip install '.\\[marian]' -c constraints.txt in the clone of nmt.
    """
    from nmt import console
    from nmt.checkpoint_format import SUFFIX
    from nmt.files import identity, output_file
    from nmt.interop.marian import import_marian

    inputs = list(Path(folder).glob("*"))
    write_model, lines = import_marian(folder, source_lang, target_lang)
    if vocabulary_map and lines is None:
        raise NmtError(f"{folder} has no shortlist (lex*.bin); leave out --vocabulary-map")
    if vocabulary_map and identity(vocabulary_map) == identity(output):
        raise NmtError(
            f"--vocabulary-map and --output are the same file, {output}; choose another file for one of them"
        )
    with output_file(output, inputs, suffix=SUFFIX) as file:
        write_model(file)
        if lines is not None:
            path = vocabulary_map or f"{output.removesuffix(SUFFIX)}.vmap.txt"
            with output_file(path, inputs, "--vocabulary-map") as map_file:
                map_file.write("".join(lines))
    console.info(f"wrote {output}")


def write(convert: Callable[[], Any], output: str, inputs: Iterable[str | Path]) -> None:
    """Writes the checkpoint that `convert` returns."""
    from nmt import console
    from nmt.checkpoint import write_checkpoint
    from nmt.checkpoint_format import SUFFIX
    from nmt.files import output_file

    with output_file(output, inputs, suffix=SUFFIX) as file:
        write_checkpoint(convert(), file)
    console.info(f"wrote {output}")
