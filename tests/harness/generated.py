"""Clients generated from the committed OpenAPI documents, as a user would generate them.

The generators live in environments of their own, made the first time and kept beside the other
tools of the tests; a change of their pins makes new ones.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.harness.openapi import FOLDER as DOCUMENTS
from tests.harness.s3 import TOOLS

CLIENTS = Path(__file__).parents[1] / "clients"
_GENERATOR = "org.openapitools.codegen.OpenAPIGenerator"


def run_python_client(folder: Path, *arguments: str, program: str = "publisher") -> str:
    """Generate the Python client of a service in `folder` and run its program.

    Return its output.
    """
    pins = CLIENTS / "python" / "requirements.txt"
    binaries = _environment("python", [pins], _install_python) / "bin"
    _run(
        [
            *(
                binaries / "python",
                "-m",
                "openapi_python_client",
                "generate",
                "--path",
                _document(program),
            ),
            *("--meta", "none", "--output-path", folder / "packhorse_client"),
        ],
        folder,
        binaries,
    )
    copied = shutil.copy(CLIENTS / "python" / f"{program}.py", folder)
    return _run([binaries / "python", copied, *arguments], folder, binaries)


def run_typescript_client(folder: Path, *arguments: str, program: str = "publisher") -> str:
    """Generate the TypeScript client of a service in `folder`, compile and run its program."""
    sources = CLIENTS / "typescript"
    pins = [sources / "package.json", sources / "package-lock.json"]
    modules = _environment("typescript", pins, _install_typescript) / "node_modules"
    node = Path(sys.executable).parent
    shutil.copy(sources / "tsconfig.json", folder)
    shutil.copy(sources / f"{program}.ts", folder / "main.ts")
    (folder / "node_modules").symlink_to(modules)
    tools = modules / ".bin"
    _run([tools / "openapi-ts", "-i", _document(program), "-o", folder / "client"], folder, node)
    _run([tools / "tsc", "-p", folder], folder, node)
    return _run([node / "node", folder / "built" / "main.js", *arguments], folder, node)


def run_go_client(folder: Path, *arguments: str, program: str = "publisher") -> str:
    """Generate the Go client of a service in `folder`, compile and run its program."""
    _generate("go", program, folder / "client", "packageName=client,withGoMod=false")
    for source, target in (("go.mod", "go.mod"), (f"{program}.go", "main.go")):
        shutil.copy(CLIENTS / "go" / source, folder / target)
    _run(["go", "build", "-o", folder / "program", "."], folder, folder)
    return _run([folder / "program", *arguments], folder, folder)


def run_java_client(folder: Path, *arguments: str, program: str = "publisher") -> str:
    """Generate the Java client of a room for the JDK's HttpClient, compile and run its program."""
    pom = CLIENTS / "java" / "pom.xml"
    jars = _environment("java", [pom], lambda made: _install_jars(made, pom)) / "*"
    _generate("java", program, folder / "client", "openApiNullable=true", "--library", "native")
    main = CLIENTS / "java" / f"{program.capitalize()}.java"
    sources = [*(folder / "client" / "src" / "main" / "java").rglob("*.java"), main]
    built = folder / "built"
    _run(["javac", "-nowarn", "-proc:none", "-cp", jars, "-d", built, *sources], folder, folder)
    path = f"{jars}{os.pathsep}{built}"
    return _run(["java", "-cp", path, program.capitalize(), *arguments], folder, folder)


def validate_document(program: str, folder: Path) -> None:
    """Let openapi-generator judge a service's document; fail with what it says."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", _generator() / "*", _GENERATOR]
    _run([*command, "validate", "-i", _document(program)], folder, folder)


def _generator() -> Path:
    pom = CLIENTS / "openapi_generator" / "pom.xml"
    return _environment("openapi-generator", [pom], lambda made: _install_jars(made, pom))


def _generate(language: str, program: str, folder: Path, properties: str, *options: str) -> None:
    code = (
        "apis,models,supportingFiles,apiDocs=false,modelDocs=false,apiTests=false,modelTests=false"
    )
    command = [
        *("java", "-XX:TieredStopAtLevel=1", "-cp", _generator() / "*"),
        *(_GENERATOR, "generate", "-g", language, *options),
        *("-i", _document(program), "-o", folder, "--global-property", code),
        f"--additional-properties={properties}",
    ]
    _run(command, folder.parent, folder.parent)


def _install_jars(made: Path, pom: Path) -> None:
    target = f"-DoutputDirectory={made / 'home'}"
    _run(["mvn", "-q", "-f", pom, "dependency:copy-dependencies", target], made, made)


def _document(program: str) -> Path:
    return DOCUMENTS / f"{program}.yaml"


def _environment(name: str, pins: Sequence[Path], install: Callable[[Path], None]) -> Path:
    """Return the folder of a generator with these pins, installed by whoever comes first.

    It is moved into its place when it is complete, so nothing in it may know where it was made.
    """
    digest = hashlib.sha256(b"".join(pin.read_bytes() for pin in pins)).hexdigest()[:16]
    home = TOOLS / f"client-{name}-{digest}"
    if not home.exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=home.name, dir=TOOLS))
        try:
            install(made)
            (made / "home").rename(home)
        except OSError:  # another test process was faster
            assert home.exists()
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return home


def _install_python(made: Path) -> None:
    home = made / "home"
    venv.create(home, with_pip=True, symlinks=True)
    requirements = CLIENTS / "python" / "requirements.txt"
    pip = [home / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", "-r", requirements], made, home / "bin")


def _install_typescript(made: Path) -> None:
    home = made / "home"
    home.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(CLIENTS / "typescript" / name, home)
    node = Path(sys.executable).parent
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    _run([node / "npm", "ci", *quiet], home, node)


def _run(command: Sequence[str | Path], folder: Path, binaries: Path) -> str:
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout
