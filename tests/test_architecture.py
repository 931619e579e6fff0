"""The files, classes and functions that docs/architecture.md names are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(
    set(re.findall(r"`((?:shardlog|node|operator|spark-jobs)/[\w./]+)(?::([\w.]+))?`", PAGE))
)


def defined(path: Path) -> set[str]:
    """Classes, functions, and methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_what_the_page_names_is_there():
    assert len(NAMED) > 50
    absent = [
        f"{path}:{name}"
        for path, name in NAMED
        if not (ROOT / path).exists() or (name and name not in defined(ROOT / path))
    ]
    assert not absent


def test_every_package_has_its_paragraph():
    packages = {each.parent for each in (ROOT / "shardlog").glob("*/__init__.py")}
    packages |= {ROOT / "node/shardlog_node", ROOT / "operator/shardlog_operator"}
    packages |= {ROOT / "spark-jobs/shardlog_spark"}
    section = PAGE.partition("## Packages")[2].partition("\n## ")[0]
    assert {f"**`{each.relative_to(ROOT)}`**" for each in packages} <= set(
        re.findall(r"\*\*`[^`]+`\*\*", section)
    )
