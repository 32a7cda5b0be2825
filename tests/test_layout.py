"""Imports point one way, showing help does not load PyTorch, and the wheel has all files."""

import ast
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
import typer

import nmt
from nmt.cli.app import app

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nmt"
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# From the bottom up: a module imports what is on its own level or below.
LEVELS = [
    ["nmt.errors", "nmt.signals", "nmt.config", "nmt.console", "nmt.files", "nmt.locks", "nmt.cache"],
    ["nmt.resources"],
    ["nmt.text", "nmt.jobs", "nmt.data", "nmt.model", "nmt.scoring", "nmt.parsing", "nmt.search", "nmt.memories"],
    ["nmt.checkpoint_format", "nmt.checkpoint", "nmt.extensions"],
    ["nmt.training", "nmt.translate", "nmt.interop", "nmt.cleaning"],
    ["nmt.documents"],
    ["nmt.aligning", "nmt.corpora", "nmt.memories.files"],
    ["nmt.api", "nmt.pages", "nmt.serving", "nmt.info"],
    ["nmt.cli", "nmt.__main__"],
]
LEVEL_OF = {unit: index for index, level in enumerate(LEVELS) for unit in level}
# These modules use neither a model nor the disk, not even through modules that they import.
PURE = ["nmt.data.batching", "nmt.training.learning_rate", "nmt.training.optimizer", "nmt.parsing.evalb"]
PURE += [module for module in FILES if module.startswith("nmt.search.")]
DISK = {"gzip", "io", "mmap", "os", "pathlib", "shutil", "tempfile"}
COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imported(module: str) -> Iterator[str]:
    """Yields all modules that a module imports anywhere. `from package import module` counts as the module."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import; make it absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in FILES else str(node.module) for name in names)


@cache
def own_imports(module: str) -> set[str]:
    """Returns the modules of this project that a module imports, except `nmt` itself."""
    return {name for name in imported(module) if name in FILES and name != "nmt"}


def unit_of(module: str) -> str:
    """Returns the most specific unit that the module belongs to."""
    return max((unit for unit in LEVEL_OF if module == unit or module.startswith(unit + ".")), key=len)


def reachable(module: str) -> set[str]:
    """Returns the module and all modules that it imports directly or indirectly."""
    modules, new = set[str](), {module}
    while new:
        modules |= new
        new = {name for importer in new for name in own_imports(importer)} - modules
    return modules


MODULES = [module for module, path in FILES.items() if path.name != "__init__.py"]


def test_imports_point_down() -> None:
    level = {module: LEVEL_OF[unit_of(module)] for module in FILES if module != "nmt"}
    above = {m: {name for name in own_imports(m) if level[name] > level[m]} for m in MODULES}
    assert not {module: names for module, names in above.items() if names}


def test_slow_packages_are_imported_where_they_are_needed() -> None:
    for module in MODULES:
        imports = [node for node in parsed(module).body if isinstance(node, ast.Import | ast.ImportFrom)]
        first = [ast.unparse(node).split()[1] for node in imports]
        assert not {"sacremoses", "sacrebleu", "ray"} & {name.split(".")[0] for name in first}, module


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    graph = {unit: set[str]() for unit in LEVEL_OF}
    for module in MODULES:
        graph[unit_of(module)] |= {unit_of(name) for name in own_imports(module)} - {unit_of(module)}
    list(TopologicalSorter(graph).static_order())  # raises an error if there is a circle


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_use_neither_model_nor_disk(module: str) -> None:
    for reached in reachable(module):
        assert not reached.startswith("nmt.model"), f"{module} reaches {reached}"
        assert not DISK & set(imported(reached)), f"{module} reaches {reached}, which touches the disk"
        calls = [node for node in ast.walk(parsed(reached)) if isinstance(node, ast.Call)]
        assert not any(isinstance(call.func, ast.Name) and call.func.id == "open" for call in calls), reached


def test_the_legend_has_all_shape_letters() -> None:
    """In names such as x_BTD, every letter after the last underscore is an axis in docs/architecture.md."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = page.split("## Shape letters")[1].split("## ")[0].splitlines()
    cells = [row.split("|")[1] for row in rows if row.startswith("| ")]
    letters = {letter.strip() for cell in cells for letter in cell.split(",")}
    suffix = re.compile(r"\b[a-z][a-z0-9_]*_([A-Z1]+)\b")
    for module, path in FILES.items():
        for match in suffix.finditer(path.read_text(encoding="utf-8")):
            assert set(match[1]) <= letters, f"{module} has {match[0]}; docs/architecture.md lists the letters"


def test_the_ways_through_the_code_name_functions_that_exist() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", page, re.MULTILINE)
    assert len(steps) > 20
    for file, function in steps:
        node: Any = parsed(f"nmt.{file.removesuffix('.py').replace('/', '.')}")
        for name in function.split("."):
            node = next((definition for definition in node.body if getattr(definition, "name", None) == name), None)
            assert node, f"{file} has no {function}"


def test_links_between_pages_lead_to_files_and_headings() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.md")):
        text = page.read_text(encoding="utf-8")
        for file, anchor in re.findall(r"\]\(\s*([^)#:]*)#?([^):]*)\)", text):
            target = page.parent / file if file else page
            assert target.exists(), f"{page} links to {file}"
            if anchor:
                headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{page} links to {file}#{anchor}"


def test_help_does_not_load_torch() -> None:
    """One interpreter shows all help pages."""
    assert {"preprocess", "train", "generate", "score", "serve"} <= set(COMMANDS)
    program = (
        "import sys; from nmt.cli.app import app\n"
        "for command in sys.argv[1:]:\n"
        "    try: app([*command.split(), '--help'])\n"
        "    except SystemExit as ended: assert not ended.code, command\n"
        "    loaded = {'torch', 'sacrebleu'} & set(sys.modules)\n"
        "    assert not loaded, f'{command}: {loaded}'"
    )
    pages = ["", *COMMANDS]
    done = subprocess.run([sys.executable, "-c", program, *pages], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage") == len(pages)


CLOCKS = {"sleep", "monotonic", "monotonic_ns", "time", "time_ns", "perf_counter", "perf_counter_ns"}


def clocks(node: ast.AST) -> Iterator[str]:
    """Yields the clocks that code reads or waits for, outside of what is nightly."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module == "time":
            yield from (f"line {child.lineno}: {alias.name}" for alias in child.names if alias.name in CLOCKS)
        elif isinstance(child, ast.Attribute) and ast.unparse(child.value) == "time" and child.attr in CLOCKS:
            yield f"line {child.lineno}: time.{child.attr}"
        if "pytest.mark.nightly" not in map(ast.unparse, getattr(child, "decorator_list", [])):
            yield from clocks(child)


def test_tests_do_not_wait_for_clocks() -> None:
    """A test of the gate gives the same result on a busy machine."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py")}
    nightly = re.compile(r"^pytestmark = .*pytest\.mark\.nightly", re.MULTILINE)
    clock_lines = {name: list(clocks(ast.parse(text))) for name, text in texts.items() if not nightly.search(text)}
    assert not {name: lines for name, lines in clock_lines.items() if lines}


def built_wheel(folder: Path) -> Path:
    """Builds the wheel from a copy of the package, folder/source."""
    source = folder / "source"
    shutil.copytree(ROOT / "nmt", source / "nmt", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", f"--outdir={folder}", str(source)]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("attention_nmt-*.whl"))


CALLER = """
import nmt

translator: nmt.Translator = nmt.Translator.load("best.safetensors")
lines: list[str] = translator.translate(["a"], nmt.SearchConfig(beam=2))
count: str = len(lines)
"""


@pytest.mark.nightly
def test_a_wheel_is_installed_with_its_dependencies(trained: Path, tmp_path: Path) -> None:
    """The packages come from the index of pip."""
    venv.create(tmp_path / "env", with_pip=True)
    python, run = tmp_path / "env" / "bin" / "python", trained / "run"

    def said(*command: str | Path, text: str = "", code: int = 0) -> str:
        words = [python, "-I", "-m", *command]
        done = subprocess.run(words, input=text, cwd=tmp_path, capture_output=True, text=True, timeout=3000)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    said("pip", "install", f"{built_wheel(tmp_path)}[serve]", "mypy", "-c", ROOT / "constraints.txt")
    assert said("nmt", "generate", run / "best.safetensors", text="Ba.\nDe.\n").count("\n") == 2
    said("nmt", "report", run, "--output=report.html")
    assert "drawAll();" in (tmp_path / "report.html").read_text()
    (tmp_path / "caller.py").write_text(CALLER)
    (error, *_) = said("mypy", "caller.py", code=1).splitlines()
    assert 'caller.py:6: error: Incompatible types in assignment (expression has type "int"' in error
    command = [python, "-I", "-m", "nmt", "serve", run / "best.safetensors", "--port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        address = next(match[0] for line in server.stderr if (match := re.search(r"http://[\d.]+:\d+", line)))
        page = urlopen(f"{address}/").read().decode()
        server.terminate()
    assert "<textarea" in page


def test_the_wheel_alone_has_all_that_commands_need(trained: Path, tmp_path: Path) -> None:
    source, env = tmp_path / "source", tmp_path / "env"
    with ZipFile(built_wheel(tmp_path)) as wheel:
        files = {str(path.relative_to(source)) for path in (source / "nmt").rglob("*") if path.is_file()}
        assert files <= set(wheel.namelist())
        venv.create(env)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(env)}))
        wheel.extractall(packages)
    # The dependencies are those of this environment. Its own installation of nmt is found in another way.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    run = trained / "run"
    for *command, said in (
        ("--version", f"nmt {nmt.__version__}"),
        ("info", run / "best.safetensors", "checkpoint"),
        ("report", run, f"--output={tmp_path}/report.html", ""),
        ("attention", run / "best.safetensors", "--source=Ba.", f"--output={tmp_path}/attention.html", ""),
    ):
        python = [env / "bin" / "python", "-I", "-m", "nmt"]
        done = subprocess.run([*python, *command], cwd=tmp_path, check=True, capture_output=True, text=True)
        assert done.stdout.startswith(said)
    process = subprocess.run([*python[:2], "-c", "import nmt; print(nmt.__file__)"], capture_output=True, text=True)
    assert Path(process.stdout).is_relative_to(packages)
