"""Builds the documentation as a site, with a reference of the commands and of the Python interface from the code.

    python recipes/documentation.py [OUT]     # writes OUT/site/index.html; OUT is build/site by default

Needs the extra `docs`. README.md is the first page. Files outside of docs/ that pages link to, such as recipes, are
copied as text, so that the site needs no other host.
"""

import inspect
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_origin

from typer.core import TyperArgument, TyperGroup
from typer.main import get_command

import nmt
from nmt.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
# Pages outside of docs/, and their names in the site.
PAGES = {"README.md": "index.md", "recipes/README.md": "recipes.md", "CHANGELOG.md": "changes.md"}
LINK = re.compile(r"""(\]\(\s*|(?:src|srcset|href)=")(?!\w+:|#)([^)#"\s]+)""")
# The modules of types, which signatures leave out.
MODULES = re.compile(r"\b(?:nmt|collections|pathlib|typing)\.(?:\w+\.)*(?=[A-Z])")


def main(out: Path) -> None:
    if find_spec("zensical") is None:
        sys.exit("error: zensical is not installed; run pip install '.[docs]' -c constraints.txt")
    pages = out / "pages"
    if out.exists() and any(out.iterdir()) and not (pages / "index.md").exists():
        sys.exit(f"error: {out} exists already and has other files; give another folder, or remove it")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    for path in (*ROOT.glob("docs/*.md"), *(ROOT / name for name in PAGES)):
        name = PAGES.get(str(path.relative_to(ROOT)), path.name)
        title = "---\ntitle: Overview\n---\n\n" if name == "index.md" else ""  # the heading is the name of the site
        (pages / name).write_text(title + with_own_links(path, pages), encoding="utf-8")
    commands = command_pages()
    (pages / "commands").mkdir()
    for name, text in (*commands.items(), ("python_reference.md", python_reference())):
        (pages / name).write_text(text, encoding="utf-8")
    listed = ", ".join(f'"{name}"' for name in commands)
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    (out / "zensical.toml").write_text(
        settings.replace('"commands.md"', f'{{ "Commands" = [{listed}] }}'), encoding="utf-8"
    )
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=out)
    if built.returncode:
        sys.exit(f"error: the site was not built; correct what zensical says above about the pages in {pages}")
    (out / "site" / "sitemap.xml").unlink()  # it is empty, because the address of the site is not known


def with_own_links(page: Path, pages: Path) -> str:
    """Returns the text of a page with links to places in the site. Files that are not pages are copied there."""

    def replaced(link: re.Match[str]) -> str:
        target = (page.parent / link[2]).resolve().relative_to(ROOT)
        if str(target) in PAGES:
            return link[1].rstrip() + PAGES[str(target)]
        if target.parts[0] == "docs":
            return link[1].rstrip() + str(target.relative_to("docs"))
        copy = pages / "files" / (target if target.suffix == ".txt" else f"{target}.txt")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / target, copy)
        return link[1].rstrip() + str(copy.relative_to(pages))

    return LINK.sub(replaced, page.read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------------- commands


def command_pages() -> dict[str, str]:
    """Returns a page for each command with its arguments and options, by file name. The first page lists them."""
    commands: Any = get_command(app).commands  # type: ignore[attr-defined]
    rows = [f"| [`nmt {name}`](commands/{name}.md) | {first_sentence(each.help)} |" for name, each in commands.items()]
    overview = [
        "# Commands and options",
        "These pages are for looking up an option. They are made from the code, as is `nmt COMMAND --help`. An "
        "option with two names, such as `--html` and `--no-html`, turns something on and off.",
        "\n".join(["| command | what it does |", "|---|---|", *rows]),
        "Next: [Python reference](python_reference.md), and [exit codes](reliability.md#exit-codes-and-signals).\n",
    ]
    pages = {f"commands/{name}.md": command_section(command, f"nmt {name}", 1) for name, command in commands.items()}
    return {"commands.md": "\n\n".join(overview)} | pages


def first_sentence(text: str) -> str:
    return in_markdown(re.split(r"(?<=\.)\s", text, maxsplit=1)[0].replace("\n", " "))


def command_section(command: Any, name: str, level: int) -> str:
    sections = [f"{'#' * level} {name}", in_markdown(command.help or "")]
    if isinstance(command, TyperGroup):
        sections += [command_section(each, f"{name} {key}", level + 1) for key, each in command.commands.items()]
        return "\n\n".join(sections)
    usage = " ".join([name, *(p.metavar or p.name.upper() for p in arguments(command)), "[OPTIONS]"])
    sections += [f"```\n{usage}\n```", *option_tables(command)]
    if command.epilog:
        examples = [line for line in command.epilog.splitlines() if line.startswith("nmt ")]
        sections += ["\n".join(["```", *examples, "```"])]
    return "\n\n".join(sections)


def arguments(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]


def option_tables(command: Any) -> list[str]:
    """Returns a table of the arguments, and one for each section of the help page."""
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        is_argument = isinstance(parameter, TyperArgument)
        panels.setdefault("Arguments" if is_argument else parameter.rich_help_panel or "Options", []).append(parameter)
    tables = []
    for panel, parameters in panels.items():
        rows = [f"| {panel} | value | default | |", "|---|---|---|---|", *map(option_row, parameters)]
        tables.append("\n".join(rows))
    return tables


def option_row(parameter: Any) -> str:
    if isinstance(parameter, TyperArgument):
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    described = parameter.type_descriptor
    if described.choices:
        value = " ".join(f"`{choice}`" for choice in described.choices)
    elif getattr(parameter, "is_flag", False):
        value = ""
    else:
        words = {int: "whole number", float: "number", str: "text"}
        (kind,) = [kind for kind in words if kind.__name__ in str(described.annotation)][:1] or [str]
        value = " ".join(f"`{word}`" for word in (parameter.metavar or "").split("|") if word) or words[kind]
        if parameter.min is not None and parameter.max is not None:
            value += f", {parameter.min:,} to {parameter.max:,}"
    default = "required" if parameter.required else default_in_words(parameter)
    cells = names, value, default, in_markdown(parameter.help or "").replace("\n", " ")
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def default_in_words(parameter: Any) -> str:
    value = parameter.default
    if value is None or value == [] or callable(value):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return " ".join(f"`{item}`" for item in value)
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def in_markdown(text: str) -> str:
    """Returns help text whose signs mean themselves. Names of options are set as code."""
    text = re.sub(r"(?<!`)([<*_])(?!`)", r"\\\1", text)
    return re.sub(r"(?<![`\w-])(--[a-z][a-z0-9-]*)(?!`)", r"`\1`", text)


# ------------------------------------------------------------------------------------------------- Python interface


def python_reference() -> str:
    """Returns a page with the public names of the package `nmt`."""
    names = [name for name in nmt.__all__ if not name.startswith("__")]
    return "\n\n".join(
        [
            "# Python reference",
            "This page is for programs that use `nmt` as a library. It is made from the code and has all names that "
            "`import nmt` offers. Other modules may change without notice.",
            *(section for name in names for section in described(name, getattr(nmt, name))),
            "Next: [Commands and options](commands.md), and [your own architectures and losses](extending.md).\n",
        ]
    )


def described(name: str, value: Any) -> list[str]:
    heading = [f"## nmt.{name}"]
    if get_origin(value) or not callable(value):  # a type such as Callable[…], or a number
        return [*heading, f"```python\n{name} = {annotation(value) if get_origin(value) else value}\n```"]
    if not inspect.isclass(value):
        return [*heading, signature(name, value), docstring(value)]
    if issubclass(value, BaseException):
        parents = [f"`{base.__name__}`" for base in value.__bases__]
        return [*heading, f"An exception. Its base class is {' and '.join(parents)}.", docstring(value)]
    sections = [*heading, signature(name, value), docstring(value)]
    for member_name, member in vars(value).items():
        if member_name.startswith("_"):
            continue
        function = getattr(member, "__func__", member)
        if isinstance(member, property):
            sections += [f"### {name}.{member_name}", docstring(member)]
        elif inspect.isfunction(function):
            prefix = f"{name}." if isinstance(member, (classmethod, staticmethod)) else ""
            sections += [f"### {name}.{member_name}", signature(prefix + member_name, function), docstring(function)]
    return sections


def signature(name: str, function: Any) -> str:
    parameters = inspect.signature(function).parameters.values()
    written = [str(p).partition(" = <")[0] for p in parameters if p.name not in ("self", "cls")]
    written = [MODULES.sub("", parameter) for parameter in written]
    kinds = [p.kind for p in parameters if p.name not in ("self", "cls")]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        written.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = inspect.signature(function).return_annotation
    arrow = "" if inspect.isclass(function) or returned is inspect.Signature.empty else f" -> {annotation(returned)}"
    whole = f"{name}({', '.join(written)}){arrow}"
    if len(whole) > 90:
        whole = f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in written) + f"){arrow}"
    return f"```python\n{whole}\n```"


def annotation(kind: Any) -> str:
    return MODULES.sub("", kind if isinstance(kind, str) else inspect.formatannotation(kind))


def docstring(value: Any) -> str:
    """Returns a docstring in Markdown; entries of `Args:` and `Raises:` become lists."""
    lines, section = [], False
    for line in (inspect.getdoc(value) or "").splitlines():
        entry = re.match(r"    (\w[\w, ]*): (.*)", line)
        if re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields):", line):
            section = True
            lines += [f"**{line}**", ""]
        elif section and entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            section = section and (not line or line.startswith(" "))
            lines.append(line.strip() if section else line)
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
