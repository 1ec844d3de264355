"""The clients to install: `python -m tests.harness.client_packages FOLDER` writes the packages.

They are an npm tarball, a jar with its POM, and a zip of the Go module: what is generated from
every OpenAPI document, with the retries of `clients/`.
"""

import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packhorse import __version__
from packhorse.runtime.openapi import operations, successes
from tests.harness.client_tools import (
    CLIENTS,
    generator,
    jars,
    made_once,
    node_modules,
    npm,
    run,
)
from tests.harness.openapi import FOLDER as DOCUMENTS
from tests.harness.yaml_text import parsed

MODULE = "packhorse.io/clients/go"
NAME = f"packhorse-client-{__version__}"
_PLACEHOLDER = "0.0.0"
"""The version in the committed files of packages."""
_CODE_ALONE = {
    **dict.fromkeys(("apis", "models", "supportingFiles"), ""),
    **dict.fromkeys(("apiDocs", "modelDocs", "apiTests", "modelTests"), "false"),
}
_JAVA = ("java", "-XX:TieredStopAtLevel=1")
_JAVA_APIS = (
    # A file is sent by its name: its bytes are meant.
    (
        r"byte\[\] (\w+) = memberVarObjectMapper\.writeValueAsBytes\(body\);"
        r"(\s+localVarRequestBuilder\.method\(\"\w+\", HttpRequest\.BodyPublishers\.)"
        r"ofByteArray\(\1\)",
        r"\2ofFile(body.toPath())",
    ),
    # A body that is left out is sent as null: an empty object is meant.
    (r"writeValueAsBytes\((\w+)\)", r"writeValueAsBytes(\1 == null ? java.util.Map.of() : \1)"),
    # An answer is read in the machine's charset.
    (
        r"(new String\(\w+\.body\(\)\.readAllBytes\(\))\)",
        r"\1, java.nio.charset.StandardCharsets.UTF_8)",
    ),
    # A page is read as JSON.
    (r"memberVarObjectMapper\.readValue\((\w+), new TypeReference<String>\(\) \{\}\)", r"\1"),
    # A downloaded file is removed at the end, whoever keeps it, and left where its bytes break off.
    (r"\w+(\.toFile\(\))?\.deleteOnExit\(\);", ""),
    (
        r"(java\.nio\.file\.Files\.copy\(response\.body\(\), file\.toPath\(\).*;)",
        r"try { \1 } catch (IOException lost) { file.delete(); throw lost; }",
    ),
)
"""What the generator writes into a Java API, and what is meant."""
_GO_MODELS = (
    # A field, or a value, that a later version of a service adds is an error.
    (r"\tdecoder\.DisallowUnknownFields\(\)\n", ""),
    (
        r"\treturn fmt\.Errorf\(\"%\+v is not a valid \w+\", value\)\n",
        r"\t*v = enumTypeValue\n\treturn nil\n",
    ),
)
_GO_APIS = (
    # A body that is left out is sent as null: an empty object is meant.
    (
        r"\tlocalVarPostBody = (r\.\w+)\n",
        r"\tlocalVarPostBody = \1\n\tif \1 == nil {\n\t\tlocalVarPostBody = struct{}{}\n\t}\n",
    ),
)
_GO_CLIENTS = (
    # What a refusal's detail is, is told by its address.
    (r"metaValue\.FieldByName\(\"Detail\"\)", r"reflect.Indirect(\g<0>)"),
    # A file of no bytes can't be sent, and is none when it is read.
    (r"\tif bodyBuf\.Len\(\) == 0 \{\n.*\n.*\n\t\}\n", ""),
    (
        r"\tif len\(b\) == 0 \{\n",
        r"\tif _, isFile := v.(**os.File); len(b) == 0 && !isFile {\n",
    ),
)


def built() -> Path:
    """Return the folder with the packages of this checkout, built by whoever comes first."""
    sources = [path for path in sorted(CLIENTS.rglob("*")) if path.is_file()]
    folder = Path(__file__).parent
    tools = [folder / name for name in ("client_packages.py", "client_tools.py")]
    return made_once("client-packages", [*sources, *tools, *documents().values()], build)


def build(target: Path) -> None:
    """Write the three packages into a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(CLIENTS, folder, dirs_exist_ok=True)
        target.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor() as packing:
            npm_package = packing.submit(_pack_typescript, folder / "typescript", target)
            generate(folder)
            packed = [packing.submit(_pack_java, folder / "java", target)]
            packed += [packing.submit(_pack_go, folder / "go", target), npm_package]
            for one in packed:
                one.result()


def documents() -> Mapping[str, Path]:
    """Return the OpenAPI documents by their services."""
    return {path.stem: path for path in sorted(DOCUMENTS.glob("*.yaml"))}


def generate(folder: Path) -> None:
    """Let openapi-generator write `java` and `go` of every document; fail where it finds faults."""
    configured = []
    for service, document in documents().items():
        for language, options in _languages(service).items():
            path = folder / f"{language}-{service}.json"
            settings = {"inputSpec": str(document), "globalProperties": _CODE_ALONE, **options}
            path.write_text(json.dumps({"generatorName": language, **settings}))
            configured.append(path)
    program = folder / "openapi-generator" / "GenerateAll.java"
    run([*_JAVA, "-cp", generator() / "*", program, *configured], folder)


def routes() -> tuple[str, str]:
    """Return the patterns of routes that take an Idempotency-Key, and of those by a node's path."""
    keyed, trees = set(), set()
    for document in documents().values():
        for name, operation in operations(parsed(document.read_text())):
            path = name.partition(" ")[2]
            parameters = {one["name"].lower() for one in operation.get("parameters", ())}
            if "idempotency-key" in parameters:
                assert name.startswith("POST "), name
                keyed.add(re.sub(r"\{\w+\}", "[^/]+", path))
            if path.endswith("/{path}"):
                trees.add(path.removesuffix("{path}"))
    return f"({'|'.join(sorted(keyed))})$", f"({'|'.join(sorted(trees))})"


def _languages(service: str) -> Mapping[str, Mapping[str, Any]]:
    package = "io.packhorse.client"
    named = {"apiPackage": f"{package}.{service}", "modelPackage": f"{package}.{service}.model"}
    return {
        "java": {
            "library": "native",
            "outputDir": "java",
            "invokerPackage": package,
            **named,
            "additionalProperties": {
                "openApiNullable": "true",
                "hideGenerationTimestamp": "true",
                "enumUnknownDefaultCase": "true",
            },
        },
        "go": {
            "outputDir": f"go/{service}",
            "additionalProperties": {"packageName": service, "withGoMod": "false"},
        },
    }


def _pack_typescript(folder: Path, target: Path) -> None:
    (folder / "documents").mkdir()
    for service, document in documents().items():
        shutil.copy(document, folder / "documents")
        entry = f'export * from "./{service}/index.js";\n'
        entry += f'export {{ client }} from "./{service}/client.gen.js";\n'
        (folder / "src" / f"{service}.ts").write_text(entry)
    keyed, trees = (f"new RegExp({json.dumps(pattern)})" for pattern in routes())
    code = f"export const keyed = {keyed};\nexport const trees = {trees};\n"
    (folder / "src" / "routes.ts").write_text(code)
    (folder / "node_modules").symlink_to(node_modules())
    tools = folder / "node_modules" / ".bin"
    run([tools / "openapi-ts", "-f", "openapi-ts.config.mjs"], folder)
    for service in documents():
        _mend([folder / "src" / service / "sdk.gen.ts"], _other_than_json(service))
    run([tools / "tsc", "-p", folder], folder)
    package = json.loads((folder / "package.json").read_text())
    del package["devDependencies"]
    (folder / "package.json").write_text(json.dumps({**package, "version": __version__}, indent=2))
    _with_licence(folder)
    npm("pack", "--pack-destination", target, folder=folder)


def _other_than_json(service: str) -> Iterator[tuple[str, str]]:
    """Say of each operation how its answer is read, unless it is JSON whatever its type says."""
    for _, operation in operations(parsed(documents()[service].read_text())):
        types = {one for _, answer in successes(operation) for one in answer["content"]}
        if types - {"application/json", "text/event-stream"}:
            has_text = any(one.startswith("text/") for one in types)
            read = f"    parseAs: '{'auto' if has_text else 'blob'}',\n"
            call = rf"(export const {operation['operationId']} = [^;]*?\n)(    url: )"
            yield call, rf"\1{read}\2"


def _pack_java(folder: Path, target: Path) -> None:
    keyed, trees = (f"Pattern.compile({json.dumps(pattern)})" for pattern in routes())
    sources = folder / "src" / "main" / "java"
    (sources / "io" / "packhorse" / "client" / "Routes.java").write_text(
        "package io.packhorse.client;\n\nimport java.util.regex.Pattern;\n\n"
        f"final class Routes {{\n  static final Pattern KEYED = {keyed};\n"
        f"  static final Pattern TREES = {trees};\n\n  private Routes() {{}}\n}}\n"
    )
    _mend(sources.rglob("*Api.java"), _JAVA_APIS)
    pom = CLIENTS / "java" / "pom.xml"
    (folder / "sources").write_text("\n".join(str(path) for path in sources.rglob("*.java")))
    options = ("-nowarn", "-encoding", "UTF-8", "-proc:none", "-implicit:none", "--release", "17")
    classes = ("-cp", jars("java", pom) / "*", "-d", "classes")
    run(["javac", "-J-XX:TieredStopAtLevel=1", *options, *classes, "@sources"], folder)
    _with_licence(folder / "classes" / "META-INF")
    shutil.copy(CLIENTS / "java" / "README.md", folder / "classes" / "META-INF")
    run(["jar", "cf", target / f"{NAME}.jar", "-C", "classes", "."], folder)
    (target / f"{NAME}.pom").write_text(pom.read_text().replace(_PLACEHOLDER, __version__, 1))


def _pack_go(folder: Path, target: Path) -> None:
    keyed, trees = (f"regexp.MustCompile(`{pattern}`)" for pattern in routes())
    code = f'package packhorse\n\nimport "regexp"\n\nvar keyed = {keyed}\nvar trees = {trees}\n'
    (folder / "routes.go").write_text(code)
    _mend(folder.glob("*/model_*.go"), _GO_MODELS)
    _mend(folder.glob("*/api_*.go"), _GO_APIS)
    _mend(folder.glob("*/client.go"), _GO_CLIENTS)
    _with_licence(folder)
    kept = [*folder.glob("*"), *folder.glob("*/*.go")]
    with zipfile.ZipFile(target / f"{NAME}-go.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(kept):
            if path.is_file():
                inside = path.relative_to(folder).as_posix()
                archive.write(path, f"{MODULE}@v{__version__}/{inside}")


def _mend(generated: Iterable[Path], mends: Iterable[tuple[str, str]]) -> None:
    for path in generated:
        text = path.read_text()
        for written, meant in mends:
            text = re.sub(written, meant, text)
        path.write_text(text)


def _with_licence(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    shutil.copy(CLIENTS.parent / "LICENSE", folder)


if __name__ == "__main__":
    build(Path(sys.argv[1]).absolute())
