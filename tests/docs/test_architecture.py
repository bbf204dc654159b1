"""docs/architecture.md names what exists, where it says, and nothing is missing in it."""

import ast
import re
from functools import cache

MODULE_LINE = re.compile(r"^- `([\w/.]+)`: \S", re.MULTILINE)
REFERENCE = re.compile(r"`([\w/]+\.py)`((?:,?\s+`[A-Za-z_][\w.]*`)+)")
"""A module and the names that it is said to hold: ``path.py`` ``Class.method``, ``function``."""


def modules(package):
    """Everything that has something in it."""
    files = [*package.rglob("*.py"), *package.rglob("*.proto")]
    return sorted(str(file.relative_to(package)) for file in files if file.stat().st_size and says_something(file))


def says_something(file):
    """An ``__init__.py`` with nothing but a docstring does not."""
    return file.name != "__init__.py" or len(ast.parse(file.read_text()).body) > 1


@cache
def definitions(file):
    """What a module defines at its top, and the members of its classes as ``Class.member``."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        found |= names_of(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in node.body for name in names_of(member)}
    return frozenset(found)


def names_of(node):
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def references(page):
    return [(match[1], name) for match in REFERENCE.finditer(page.prose) for name in re.findall(r"`(.+?)`", match[2])]


def test_every_module_is_named_exactly_once(architecture, package):
    named = MODULE_LINE.findall(architecture.section("Modules").text)
    assert sorted(named) == modules(package)


def test_every_step_is_where_it_says(architecture, package):
    found = references(architecture)
    missing = [(file, name) for file, name in found if name not in definitions(package / file)]
    assert missing == []
    assert len(found) > 60, "the pattern finds the references"


def test_every_file_that_a_page_names_exists(pages, root, package):
    for page in pages:
        paths = re.findall(r"`([\w/]+/\w+\.(?:py|proto))`", page.prose)
        assert [path for path in paths if not ((package / path).exists() or (root / path).exists())] == [], page.path


def test_the_layers_are_those_of_the_contract(architecture, root):
    (drawn,) = [text.strip() for text in architecture.blocks("") if text.startswith("cli > ")]
    assert f'name = "{drawn}"' in (root / "pyproject.toml").read_text()
