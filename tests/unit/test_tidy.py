"""What a machine can check of the rules for code: docstrings, own test files, sizes that only shrink."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "rocketpy"
CSRC = REPOSITORY / "csrc"

# A function fits a screen; a file has one noun, and so has a test file or a page. What must be longer for now is named
# with its length, which may only shrink, and goes off the list when it fits. A file has its reason beside it.
FUNCTION_LINES_MAX = 60
SMALL_FUNCTION_LINES = 12
FILE_LINES_MAX = {".py": 400, ".c": 400, ".h": 300, ".md": 400, ".java": 400, ".go": 400}
SECTIONS = ("Args:", "Returns:", "Raises:", "Source:", "Layout:")
PACKAGE_MODULES_MAX = 12  # a package with more says in its docstring what each is for
ONE_FAMILY_EACH = {"admin/commands", "broker/processors", "remoting/bodies"}  # the names of their modules say it
UNFINISHED = ("TODO", "FIXME", "XXX", "HACK")
LONGER_FUNCTIONS: dict[str, int] = {}
LONGER_FILES: dict[str, tuple[int, str]] = {}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def files_with_one_noun() -> list[Path]:
    """Sources, tests and pages, without what a build has made."""
    trees = [PACKAGE, CSRC, *(REPOSITORY / name for name in ("bench", "tests", "docs"))]
    found = [path for tree in trees for path in sorted(tree.rglob("*.*")) if path.suffix in FILE_LINES_MAX]
    found += sorted(REPOSITORY.glob("*.md"))
    return [path for path in found if path.name != "_driver.c" and "target" not in path.parts and path.is_file()]


def large_packages() -> list[Path]:
    packages = [path.parent for path in sources() if path.name == "__init__.py"]
    return [
        package
        for package in packages
        if len(list(package.glob("*.py"))) - 1 > PACKAGE_MODULES_MAX
        and str(package.relative_to(PACKAGE)) not in ONE_FAMILY_EACH
    ]


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


Function = ast.FunctionDef | ast.AsyncFunctionDef
EVERY_MODULE = pytest.mark.parametrize("path", sources(), ids=name_of)


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def is_empty(path: Path) -> bool:
    return path.read_text().strip() == ""


def is_marked(node: ast.AST, name: str) -> bool:
    """Whether a decorator or base class of that name is there, as `name` or `module.name` or `name(...)`."""
    marks = [*getattr(node, "decorator_list", []), *getattr(node, "bases", [])]
    return any(ast.unparse(mark).split("(")[0].split("[")[0].split(".")[-1] == name for mark in marks)


@EVERY_MODULE
def test_module_has_a_docstring(path: Path) -> None:
    assert is_empty(path) or ast.get_docstring(ast.parse(path.read_text())), "say what it owns and why"


def behaves(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """A public class with public methods: more than a value, a header, or a list of names."""
    return (
        isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and any(isinstance(part, Function) and not part.name.startswith("_") for part in node.body)
    )


@EVERY_MODULE
def test_public_classes_say_what_they_are(path: Path) -> None:
    """The class is what editors show, so the module's docstring does not speak for it."""
    classes = [node for node in ast.parse(path.read_text()).body if behaves(node)]
    missing = [node.name for node in classes if ast.get_docstring(node) is None]
    assert not missing, f"no docstring: {', '.join(missing)}"


@EVERY_MODULE
def test_docstrings_begin_with_a_sentence(path: Path) -> None:
    """What it does comes before its arguments and errors, which an editor cuts off."""
    for node in ast.walk(ast.parse(path.read_text())):
        text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | Function) else None
        assert text is None or text.split(maxsplit=1)[0] not in SECTIONS, f"{getattr(node, 'name', '')}: {text!r}"


@pytest.mark.parametrize("package", large_packages(), ids=name_of)
def test_large_packages_have_a_map(package: Path) -> None:
    """The package's docstring names every module, by theme: a newcomer has somewhere to begin."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    missing = {path.stem for path in package.glob("*.py")} - {"__init__"} - set(re.findall(r"\w+", text))
    assert not missing, f"{name_of(package)}/__init__.py does not say where {', '.join(sorted(missing))} belong"


@EVERY_MODULE
def test_public_functions_of_substance_say_what_they_do(path: Path) -> None:
    """Small functions say it by their names."""
    missing = [
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, Function)
        and not node.name.startswith("_")
        and (node.end_lineno or node.lineno) - node.lineno >= SMALL_FUNCTION_LINES
        and ast.get_docstring(node) is None
    ]
    assert not missing, f"no docstring: {', '.join(missing)}"


@EVERY_MODULE
def test_functions_fit_a_screen(path: Path) -> None:
    for node in functions(ast.parse(path.read_text())):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        key = f"{name_of(path)}:{node.name}"
        limit = LONGER_FUNCTIONS.get(key, FUNCTION_LINES_MAX)
        assert lines <= limit, f"{key} has {lines} lines, at most {limit}"


@pytest.mark.parametrize("path", files_with_one_noun(), ids=name_of)
def test_files_have_one_noun(path: Path) -> None:
    lines = path.read_text().count("\n")
    limit, _ = LONGER_FILES.get(name_of(path), (FILE_LINES_MAX[path.suffix], ""))
    assert lines <= limit, f"{name_of(path)} has {lines} lines, at most {limit}: look for the second noun"


def test_the_ratchet_only_turns_one_way() -> None:
    """An exception whose function or file fits by now, or is gone, is struck off."""
    longer = {}
    for path in sources():
        for node in functions(ast.parse(path.read_text())):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            longer[f"{name_of(path)}:{node.name}"] = max(lines, longer.get(f"{name_of(path)}:{node.name}", 0))
    for key in LONGER_FUNCTIONS:
        assert longer.get(key, 0) > FUNCTION_LINES_MAX, f"{key} fits: take it off the list"
    for name in LONGER_FILES:
        path = REPOSITORY / name
        is_longer = path.exists() and path.read_text().count("\n") > FILE_LINES_MAX[path.suffix]
        assert is_longer, f"{name} fits: take it off the list"


def opens_with_purpose(path: Path) -> bool:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return bool(lines) and lines[0].startswith("/* ")


@pytest.mark.parametrize("path", sorted(CSRC.rglob("*.[ch]")), ids=name_of)
def test_c_file_opens_with_its_purpose(path: Path) -> None:
    """Or its own header does."""
    header = path.with_suffix(".h")
    assert opens_with_purpose(path) or (header.exists() and opens_with_purpose(header))


@pytest.mark.parametrize("path", sorted(CSRC.rglob("*.c")), ids=name_of)
def test_no_c_function_waits_to_be_written(path: Path) -> None:
    for word in UNFINISHED:
        assert not re.search(rf"\b{word}\b", path.read_text()), f"{path.name}: {word}"


@EVERY_MODULE
def test_no_python_waits_to_be_written(path: Path) -> None:
    text = path.read_text()
    for word in UNFINISHED:
        assert not re.search(rf"\b{word}\b", text), f"{name_of(path)}: {word}"
    for node in functions(ast.parse(text)):
        assert not (len(node.body) == 1 and ast.unparse(node.body[0]) == "raise NotImplementedError"), node.name


@EVERY_MODULE
def test_no_module_keeps_state(path: Path) -> None:
    """No `global` statements: state belongs to objects that somebody made and passes on."""
    assert not [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Global)]


@EVERY_MODULE
def test_ignores_name_their_code(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        assert "# type: ignore" not in line or "# type: ignore[" in line, f"{name_of(path)}:{number}"
        assert "# noqa" not in line or "# noqa: " in line, f"{name_of(path)}:{number}"


def test_values_are_attrs() -> None:
    """One way to write a value: no dataclasses beside attrs."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                assert not is_marked(node, "dataclass"), f"{name_of(path)}: {node.name}"
