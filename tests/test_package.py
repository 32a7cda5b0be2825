"""The wheel works in an environment of its own."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import nmt

ROOT = Path(__file__).parents[1]


def test_the_wheel_alone_has_all_that_commands_need(trained: Path, tmp_path: Path) -> None:
    source, env = tmp_path / "source", tmp_path / "env"
    shutil.copytree(ROOT / "nmt", source / "nmt", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", f"--outdir={tmp_path}", str(source)]
    subprocess.run(build, check=True, capture_output=True)
    with ZipFile(next(tmp_path.glob("attention_nmt-*.whl"))) as wheel:
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
    found = subprocess.run([*python[:2], "-c", "import nmt; print(nmt.__file__)"], capture_output=True, text=True)
    assert Path(found.stdout).is_relative_to(packages)
