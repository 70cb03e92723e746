"""Imports run downwards, no two files import each other, files are short, one place knows MPI."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "minidist"

# From the lowest floor up. A file imports from its own floor and from floors below.
FLOORS = [
    {"__init__", "errors", "bounds", "arrays", "files", "cache"},
    {"view", "cuda", "plan"},
    {"ops", "comm", "data"},
    {"network", "roster"},
    {"collectives"},
    {"nn"},
    {"parallel"},
    {"processes", "launch", "options", "device"},
    {"train", "testing"},
    {"measure_links", "learn", "doctor"},
    {"cli"},
    {"__main__"},
]
APART = [{"ops", "comm"}]  # on one floor, and yet neither imports the other
KNOW_MPI = {"comm", "launch", "doctor"}
LONGEST = 300


def modules(root: Path) -> dict[str, Path]:
    """Return the dotted name of each file, for example minidist.comm.base."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, names: set[str]) -> set[str]:
    """Return what a file imports: files of `names` by their names, others by the first word."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in wanted:
            while name not in names and "." in name:
                name = name.rpartition(".")[0]
            found.add(name)
    return found


def graph(root: Path) -> dict[str, set[str]]:
    """Return for each module of the package the modules of the package that it imports."""
    every = modules(root)
    return {name: imports(path, set(every)) & set(every) - {name} for name, path in every.items()}


def part(module: str) -> str:
    """Return the package or file below minidist/ that a module belongs to."""
    return [*module.split("."), "__init__"][1]


def floor(module: str) -> int:
    found = [level for level, parts in enumerate(FLOORS) if part(module) in parts]
    assert found, f"{module} stands on no floor: add it to FLOORS"
    return found[0]


def upward(edges: dict[str, set[str]]) -> list[str]:
    """Return the imports that run up, or between parts that stand apart."""
    wrong = []
    for module, targets in edges.items():
        for target in targets:
            pair = {part(module), part(target)}
            if floor(target) > floor(module) or (pair in APART):
                wrong.append(f"{module} imports {target}")
    return wrong


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that `start` imports, directly or through others."""
    found: set[str] = set()
    ahead = set(edges[start])
    while ahead:
        found |= ahead
        ahead = set().union(*(edges[module] for module in ahead)) - found
    return found


def circles(edges: dict[str, set[str]]) -> set[str]:
    """Return the modules that import themselves, however far the way round."""
    return {module for module in edges if module in reachable(edges, module)}


def test_imports_run_downwards():
    assert upward(graph(ROOT)) == []


def test_no_two_files_import_each_other():
    assert circles(graph(ROOT)) == set()


def test_the_checks_see_wrong_imports(tmp_path):
    root = tmp_path / "minidist"
    for name, text in {
        "__init__": "",
        "comm/__init__": "from minidist.comm import base",
        "comm/base": "from minidist.comm.base2 import x",
        "comm/base2": "def f():\n    import minidist.comm.base",
        "nn/__init__": "import minidist.train.step\nfrom minidist import comm",
        "train/step": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").write_text(text)
    edges = graph(root)
    assert upward(edges) == ["minidist.nn imports minidist.train.step"]
    assert circles(edges) == {"minidist.comm.base", "minidist.comm.base2"}


def test_only_the_communicator_and_the_launcher_know_mpi():
    every = modules(ROOT)
    knowing = {part(name) for name, path in every.items() if "mpi4py" in imports(path, set(every))}
    assert knowing <= KNOW_MPI
    speaking = {part(name) for name, path in every.items() if "mpi4py" in path.read_text("utf-8")}
    assert speaking <= KNOW_MPI | {"train", "measure_links"}  # which show it in a command line


@pytest.mark.parametrize("path", modules(ROOT).values(), ids=modules(ROOT))
def test_a_file_teaches_one_thing(path):
    text = path.read_text("utf-8")
    assert text.count("\n") <= LONGEST
    assert ast.get_docstring(ast.parse(text)), "a file says what it is"
