"""What a machine can check of the rules for code: docstrings, sizes, unfinished code, `global`, ignores.

One test per rule, over all files; a failure lists each place and the remedy (tests/support/rules.py).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.support.rules import ROOT, c_files, hold, name_of, nodes_of, text_of, tree_of

PACKAGE = ROOT / "rocketpy"
CSRC = ROOT / "csrc"

# A function fits a screen; a file has one noun, and so has a test file or a page.
FUNCTION_LINES_MAX = 60
SMALL_FUNCTION_LINES = 12
FILE_LINES_MAX = {".py": 600, ".c": 600, ".h": 400, ".md": 400, ".java": 600, ".go": 600}
MODULE_LINES_MIN = 60  # a shorter module or C file belongs to the file of its noun, or says why it is short
COLLABORATORS_MAX = 6  # that one constructor takes
CHANGED_ON_THEIR_WAY = {"RemotingCommand"}  # a message is a value; but the connection that sends it numbers it (opaque)
SECTIONS = ("Args:", "Returns:", "Raises:", "Source:", "Layout:")
PACKAGE_MODULES_MAX = 12  # a package with more says in its docstring what each is for
ONE_FAMILY_EACH = {"admin/commands", "broker/processors"}  # the names of their modules say it
UNFINISHED = ("TODO", "FIXME", "XXX", "HACK")


def sources() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    assert len(found) > 300, "the rules find no sources"
    return found


def files_with_one_noun() -> list[Path]:
    """Sources, tests and pages, without what a build has made, and without the page of all scenarios' results."""
    trees = [PACKAGE, CSRC, *(ROOT / name for name in ("bench", "tests", "docs"))]
    found = [path for tree in trees for path in sorted(tree.rglob("*.*")) if path.suffix in FILE_LINES_MAX]
    found += sorted(ROOT.glob("*.md"))
    found.remove(ROOT / "bench/results/scenarios.md")  # `python -m bench.shipped` writes a section for each
    return [path for path in found if "target" not in path.parts and path.is_file()]


def large_packages() -> list[Path]:
    packages = [path.parent for path in sources() if path.name == "__init__.py"]
    return [
        package
        for package in packages
        if len(list(package.glob("*.py"))) - 1 > PACKAGE_MODULES_MAX
        and str(package.relative_to(PACKAGE)) not in ONE_FAMILY_EACH
    ]


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    return (node for node in nodes_of(path) if isinstance(node, Function))


def lines_of(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def has_purpose(path: Path) -> bool:
    return text_of(path).strip() == "" or ast.get_docstring(tree_of(path)) is not None


def is_marked(node: ast.AST, name: str) -> bool:
    """Whether a decorator or base class of that name is there, as `name` or `module.name` or `name(...)`."""
    marks = [*getattr(node, "decorator_list", []), *getattr(node, "bases", [])]
    return any(ast.unparse(mark).split("(")[0].split("[")[0].split(".")[-1] == name for mark in marks)


def behaves(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    """A public class with public methods: more than a value, a header, or a list of names."""
    return (
        isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and any(isinstance(part, Function) and not part.name.startswith("_") for part in node.body)
    )


def is_state(field: ast.AnnAssign) -> bool:
    """A field that the constructor does not take: of the class, or made by the object itself."""
    options = field.value.keywords if isinstance(field.value, ast.Call) else []
    return "ClassVar" in ast.unparse(field.annotation) or any(
        option.arg == "init" and ast.unparse(option.value) == "False" for option in options
    )


def collaborators(node: ast.ClassDef) -> list[str]:
    """What the constructor of a class takes. A class of attrs.frozen is a value: it names its parts, however many."""
    for part in node.body:
        if isinstance(part, Function) and part.name == "__init__":
            return [argument.arg for argument in (*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs)][1:]
    if not is_marked(node, "define"):
        return []
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and not is_state(part)]
    return [ast.unparse(field.target) for field in fields]


def is_short_without_a_reason(text: str) -> bool:
    return text.count("\n") < MODULE_LINES_MIN and not re.search(r"^(/\* | \* )?Short: .", text, re.MULTILINE)


def test_a_short_module_says_why() -> None:
    short = [
        name_of(path)
        for path in sources()
        if path.name not in ("__init__.py", "__main__.py") and is_short_without_a_reason(text_of(path))
    ]
    hold(short, "move it into the module of its noun, or give its docstring a line that begins with `Short: `")


def test_a_short_c_file_says_why() -> None:
    """A header of the same name is part of the C file: it lists its functions, and may be as short as it likes."""
    short = [
        name_of(path)
        for path in c_files()
        if not (path.suffix == ".h" and path.with_suffix(".c").exists()) and is_short_without_a_reason(text_of(path))
    ]
    hold(short, "move it into the file of its noun, or give its first comment a line that begins with ` * Short: `")


def test_a_file_without_a_reason_is_seen() -> None:
    reasons = ("Short: one list.\n", "/* See a.h.\n * Short: one list. */\n", "/* Short: one list. */\n")
    assert not any(is_short_without_a_reason(text) for text in (*reasons, "x\n" * MODULE_LINES_MIN))
    assert all(is_short_without_a_reason(text) for text in ("", "x = 'Short: one'\n", "x\n" * (MODULE_LINES_MIN - 1)))


def test_modules_have_a_docstring() -> None:
    hold((name_of(path) for path in sources() if not has_purpose(path)), "say what the module owns and why")


def test_public_classes_say_what_they_are() -> None:
    """The class is what editors show, so the module's docstring does not speak for it."""
    hold(
        (
            f"{name_of(path)}: {node.name}"
            for path in sources()
            for node in tree_of(path).body
            if behaves(node) and ast.get_docstring(node) is None
        ),
        "give the class a docstring: what it is, who owns it",
    )


def test_docstrings_begin_with_a_sentence() -> None:
    """What it does comes before its arguments and errors, which an editor cuts off."""
    hold(
        (
            f"{name_of(path)}: {node.name}"
            for path in sources()
            for node in nodes_of(path)
            if isinstance(node, ast.ClassDef | Function)
            and (ast.get_docstring(node) or "sentence").split(maxsplit=1)[0] in SECTIONS
        ),
        f"write a sentence before {', '.join(SECTIONS)}",
    )


def test_large_packages_have_a_map() -> None:
    """The package's docstring names every module, by theme: a newcomer has somewhere to begin."""

    def unnamed(package: Path) -> set[str]:
        text = ast.get_docstring(tree_of(package / "__init__.py")) or ""
        return {path.stem for path in package.glob("*.py")} - {"__init__"} - set(re.findall(r"\w+", text))

    assert len(large_packages()) > 3
    hold(
        (
            f"{name_of(package)}/__init__.py: {', '.join(sorted(unnamed(package)))}"
            for package in large_packages()
            if unnamed(package)
        ),
        "say in the package's docstring where these modules belong",
    )


def test_public_functions_of_substance_say_what_they_do() -> None:
    """Small functions say it by their names."""
    hold(
        (
            f"{name_of(path)}: {node.name}"
            for path in sources()
            for node in tree_of(path).body
            if isinstance(node, Function)
            and not node.name.startswith("_")
            and lines_of(node) > SMALL_FUNCTION_LINES
            and ast.get_docstring(node) is None
        ),
        "give the function a docstring",
    )


def test_functions_fit_a_screen() -> None:
    found = ((f"{name_of(path)}:{node.name}", lines_of(node)) for path in sources() for node in functions(path))
    hold(
        (f"{key} has {n} lines" for key, n in found if n > FUNCTION_LINES_MAX),
        f"at most {FUNCTION_LINES_MAX} lines: split the function",
    )


def test_constructors_take_few_collaborators() -> None:
    """Who reads a class sees at once what it depends on."""
    taken = [
        (f"{name_of(path)}: {node.name}", collaborators(node))
        for path in sources()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and node.name not in CHANGED_ON_THEIR_WAY
    ]
    assert sum(len(found) == COLLABORATORS_MAX for _, found in taken) > 5, "the rule finds no constructors"
    hold(
        (f"{place} takes {len(found)}: {', '.join(found)}" for place, found in taken if len(found) > COLLABORATORS_MAX),
        f"at most {COLLABORATORS_MAX}: name what belongs together in a frozen value, let a collaborator own what it "
        "alone knows, and mark state with attrs.field(init=False); a class that is a value itself is attrs.frozen",
    )


def test_collaborators_are_told_from_values_and_state() -> None:
    sample = """
@attrs.define(eq=False)
class Service:
    limits: Limits
    kind: ClassVar[str] = "x"
    clock: Clock = attrs.field(factory=Clock)
    _count: int = attrs.field(init=False, default=0)

class Plain:
    def __init__(self, limits: Limits, *, clock: Clock) -> None: ...

@attrs.frozen
class Value:
    limits: Limits
"""
    found = {node.name: collaborators(node) for node in ast.parse(sample).body if isinstance(node, ast.ClassDef)}
    assert found == {"Service": ["limits", "clock"], "Plain": ["limits", "clock"], "Value": []}


def test_files_are_short() -> None:
    assert len(files_with_one_noun()) > 1000, "the rule finds no files"
    lengths = ((path, text_of(path).count("\n"), FILE_LINES_MAX[path.suffix]) for path in files_with_one_noun())
    hold(
        (f"{name_of(path)} has {lines} lines, at most {limit}" for path, lines, limit in lengths if lines > limit),
        "look for the second noun, and give it a file",
    )


def opens_with_purpose(path: Path) -> bool:
    lines = [line for line in text_of(path).splitlines() if line and not line.startswith("#")]
    return bool(lines) and lines[0].startswith("/* ")


def test_c_files_open_with_their_purpose() -> None:
    """Or their own header does."""
    hold(
        (
            name_of(path)
            for path in c_files()
            if not opens_with_purpose(path)
            and not (path.with_suffix(".h").exists() and opens_with_purpose(path.with_suffix(".h")))
        ),
        "open the file, or its header, with a comment that says what it is for",
    )


def test_names_of_one_c_file_have_no_prefix() -> None:
    """A reader looks for `rp_` names in headers."""
    hold(
        (
            f"{name_of(path)}: {name}"
            for path in c_files()
            if path.suffix == ".c"
            for name in re.findall(r"^static (?!inline)[^;={(]*?\b(rp_\w+)\(", text_of(path), re.MULTILINE)
        ),
        "take `rp_` from the name of a static function",
    )


def test_fences_say_what_they_order() -> None:
    """A fence whose purpose is not written down cannot be checked, and nobody dares to remove it."""
    fences = [
        (f"{name_of(path)}:{number}", line)
        for path in c_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if re.search(r"\b(rp_full_fence\(\)|__atomic_thread_fence\(\w+\));", line) and "static inline" not in line
    ]
    assert len(fences) > 20, "the rule finds no fences"
    hold(
        (place for place, line in fences if not re.search(r"/\* orders (the|all) .+ before .+ \*/", line)),
        "say it in a comment on its line: /* orders the store of X before the load of Y */",
    )


def test_no_unfinished_code() -> None:
    found = [
        f"{name_of(path)}: {word}"
        for path in (*sources(), *c_files())
        for word in UNFINISHED
        if re.search(rf"\b{word}\b", text_of(path))
    ]
    found += [
        f"{name_of(path)}: {node.name} raises NotImplementedError"
        for path in sources()
        for node in functions(path)
        if len(node.body) == 1 and ast.unparse(node.body[0]) == "raise NotImplementedError"
    ]
    hold(found, "finish it, or take it out")


def test_random_tests_have_their_large_budget() -> None:
    recipes = re.findall(r"^test-(?:property|long): \$\(VENV\).*\n\t(.*)$", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert len(recipes) == 2, "make test-property or make test-long has no recipe"
    places = tuple(word for recipe in recipes for word in recipe.split() if word.startswith("tests/"))
    budgets = re.compile(r"^from tests\.support\.(budget|agreement) import", re.MULTILINE)
    users = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if budgets.search(text_of(path))]
    assert len(users) > 5, "the rule finds no random tests"
    hold(
        (name_of(path) for path in users if not name_of(path).startswith(places)),
        "add the file to test-property or test-long in the Makefile",
    )


def test_no_module_keeps_state() -> None:
    hold(
        (name_of(path) for path in sources() if any(isinstance(node, ast.Global) for node in nodes_of(path))),
        "no `global`: give the state to an object that somebody makes and passes on",
    )


def test_ignores_name_their_code() -> None:
    hold(
        (
            f"{name_of(path)}:{number}"
            for path in sources()
            for number, line in enumerate(text_of(path).splitlines(), 1)
            if ("# type: ignore" in line and "# type: ignore[" not in line)
            or ("# noqa" in line and "# noqa: " not in line)
        ),
        "name what is ignored: `# type: ignore[code]`, `# noqa: code`",
    )


def test_values_are_attrs() -> None:
    """One way to write a value: no dataclasses beside attrs."""
    hold(
        (
            f"{name_of(path)}: {node.name}"
            for path in sources()
            for node in nodes_of(path)
            if isinstance(node, ast.ClassDef) and is_marked(node, "dataclass")
        ),
        "use attrs.frozen or attrs.define",
    )


def test_offenders_are_listed_under_the_remedy() -> None:
    with pytest.raises(AssertionError, match=r"in 2 places: do this\n  a\n  b"):
        hold(["a", "b"], "do this")
    hold([], "do this")
