"""The guide and the READMEs: the Python blocks of each page are run in order, in one namespace and one folder of small
data. Each must print the `text` block that follows it. `tests/guide.rs` does the same with SQL and shell blocks.

* ```python is run in the page's namespace.
* ```python file=train.py is written to the folder and run as a program; with ranks=2, it is run by 2 processes, as
  `torchrun` starts them, and the output of the first process counts.
* ```python module=words.py is written to the folder and imported as the module `words`, which later blocks use.
* ```text after one of these is its expected output. `...` within a line matches anything; alone on a line it matches
  any number of lines.

If a package is missing, the blocks that import it are skipped, and so are the blocks after them up to the next heading,
and later ones that use a name which only skipped blocks define.
"""

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import socket
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import png

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "python/README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "guide").glob("*.md")),
]
#: Packages that need not be installed. Blocks that import a missing one are skipped.
OPTIONAL = {"accelerate", "duckdb", "jax", "orbax", "PIL", "polars", "torch", "torchdata"}
#: Packages with threads, because of which the process must not fork later. Pages that import them are run in a separate
#: process.
THREADED = {"jax"}
#: Environment variable with the only page that this process runs.
ALONE = "FOREBAY_GUIDE_PAGE"
#: Text blocks that are not the output of the block before them, each given by its page and first line.
SHOWN = {("README.md", "Pipeline train")}
LANGUAGES = {"python", "sql", "sh", "text", "rust"}


@dataclass
class Block:
    """A block of code of a page."""

    language: str
    #: The options after the language: file=.., module=.., ranks=..
    options: dict
    text: str
    #: Line number of the first line of `text` on the page, from 1.
    line: int
    #: Number of the heading above the block, counted on the page.
    section: int
    #: The expected output; None if no `text` block follows.
    output: str | None = None
    output_line: int = 0


def blocks_of(page, text):
    """Returns the code blocks of a page. A block that cannot be parsed fails the test, so that no block is skipped."""
    blocks, adjoins, section = [], False, 0
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if "```" not in line and not line.lstrip().startswith("~~~"):
            adjoins &= not line.strip()
            section += line.startswith("#")
            continue
        assert re.match("```(?!`)", line), f"{page}:{number}: a block begins with ``` at the margin"
        language, *words = line[3:].split() or [""]
        language = language.split(",")[0]
        known = language in LANGUAGES and (language != "rust" or page == "README.md")
        assert known, f'{page}:{number}: no test runs a block of "{language}"'
        options = dict(word.partition("=")[::2] for word in words)
        allowed = {"python": {"file", "module", "ranks"}, "sql": {"file"}}.get(language, set())
        assert options.keys() <= allowed, f"{page}:{number}: unknown words behind the language: {words}"
        content = []
        for _, inner in lines:
            if inner == "```":
                break
            content.append(inner)
        else:
            raise AssertionError(f"{page}:{number}: a block without an end")
        content = "\n".join(content) + "\n"
        if language == "text" and (page, content.split("\n")[0]) not in SHOWN:
            assert adjoins, f"{page}:{number}: no block right before it prints this"
            blocks[-1].output, blocks[-1].output_line = content, number + 1
            adjoins = False
            continue
        adjoins = language in ("python", "sql", "sh")
        blocks.append(Block(language, options, content, number + 1, section))
    assert any(block.language in ("python", "sql", "sh") for block in blocks), f"{page}: no block that is run"
    return blocks


def imported(block):
    """Returns the names of the packages that a block imports."""
    wanted = set()
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            wanted |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            wanted.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Attribute) and node.attr == "torch":
            wanted.add("torch")
    if "forebay.torch" in block.text:
        wanted.add("torch")
    return wanted


def missing(block):
    """Returns the optional packages that a block imports and that are not installed."""
    return {package for package in imported(block) & OPTIONAL if importlib.util.find_spec(package) is None}


def names(block, context):
    """Returns the names that a block defines (`ast.Store`) or uses (`ast.Load`)."""
    nodes = list(ast.walk(ast.parse(block.text)))
    found = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    if context is ast.Store:
        found |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        aliases = [alias for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
        found |= {alias.asname or alias.name.split(".")[0] for alias in aliases}
    return found


def lacking(blocks):
    """Yields each block with the missing packages that it, or a skipped block that it needs, imports."""
    by_section, by_name = {}, {}
    for block in blocks:
        above = by_section.get(block.section, set())
        packages = missing(block).union(above, *(by_name.get(name, set()) for name in names(block, ast.Load)))
        by_section[block.section] = packages
        by_name |= dict.fromkeys(names(block, ast.Store), packages)
        yield block, packages


def is_like(expected, said):
    """True if the text `said` matches `expected`, in which `...` matches anything."""
    clean = lambda text: [line.rstrip() for line in text.rstrip().splitlines()]  # noqa: E731
    parts = [
        r"(?:[^\n]*\n)*" if line.strip() == "..." else "[^\n]*".join(map(re.escape, line.split("..."))) + "\n"
        for line in clean(expected)
    ]
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in clean(said))) is not None


def make_data(folder):
    """Creates small data under the names that the pages use. `tests/guide.rs` creates similar data."""
    noise = np.random.default_rng(5)
    for part, count in (("train", 96), ("test", 24)):
        for number in range(count):
            label = number % 3
            pixels = noise.integers(0, 120, (30, 40, 3), dtype=np.uint8)
            pixels[label * 10 : label * 10 + 10, :, label] += 120
            place = folder / "photos" / part / ("boat", "cat", "tree")[label]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:03}.png").write_bytes(png(pixels))
    ids = np.arange(2000)
    table = {
        "id": ids,
        "category": [("books", "games", "music", "tools")[i * 7 % 4] for i in ids],
        "price": [None if i % 50 == 49 else round(i * 37 % 1000 / 10, 2) for i in map(int, ids)],
        "clicks": pa.array(ids * 13 % 9, pa.int32()),
        "label": pa.array((ids * 13 % 9 > 4).astype(np.int32)),
        "text": [f"row {i}" for i in ids],
    }
    (folder / "t").mkdir()
    pq.write_table(pa.table(table), folder / "t" / "a.parquet", row_group_size=250)
    (folder / "words.csv").write_text("id,word\n0,zero\n1,one\n2,two\n")
    for name, first, shortest in (("web", 0, 1), ("books", 10_000, 60)):
        rows = range(first, first + 1200)
        tokens = [[(i * 31 + at * 7) % 1000 + 1 for at in range(shortest + i * 37 % 120)] for i in rows]
        (folder / name).mkdir()
        columns = {"id": pa.array(rows, pa.int64()), "tokens": pa.array(tokens, pa.list_(pa.int32()))}
        pq.write_table(pa.table(columns), folder / name / "a.parquet", row_group_size=200)


class Page:
    """The state of running the blocks of one page."""

    def __init__(self, name):
        self.name = name
        self.path = str(ROOT / name)
        self.space = {"__name__": "guide", "__file__": self.path}

    def run(self, block):
        """Runs a block, and returns its output. Tracebacks refer to the lines of the page."""
        said = io.StringIO()
        if "file" in block.options:
            return self.program(block)
        if "module" in block.options:
            Path(block.options["module"]).write_text(block.text)
            importlib.invalidate_caches()
            with contextlib.redirect_stdout(said):
                importlib.import_module(Path(block.options["module"]).stem)
            return said.getvalue()
        code = compile("\n" * (block.line - 1) + block.text, self.path, "exec")
        with contextlib.redirect_stdout(said):
            exec(code, self.space)
        return said.getvalue()

    def program(self, block):
        """Runs a block as a program, in one process per rank, and returns the output of the first process."""
        file = Path(block.options["file"])
        file.write_text(block.text)
        ranks = int(block.options.get("ranks", 1))
        places = [{}]
        if ranks > 1:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
            places = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        processes = [
            subprocess.Popen(
                [sys.executable, str(file)],
                env={**os.environ, **place},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for place in places
        ]
        try:
            said = [process.communicate(timeout=120) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, (out, err) in zip(processes, said):
            if process.returncode:
                at = f"{self.name}:{block.line}, with {file.name} from there"
                pytest.fail(f"{at}: exit code {process.returncode}\n{out}{err}", pytrace=False)
        return said[0][0]

    def check(self, block):
        said = self.run(block)
        if block.output is not None and not is_like(block.output, said):
            pytest.fail(
                f"{self.name}:{block.output_line}: the block before prints something else\n"
                f"--- on the page\n{block.output}--- printed\n{said}",
                pytrace=False,
            )
        if self.name == "README.md":
            trains_in_15_lines(block, said)


def trains_in_15_lines(block, said):
    """Checks that the training program of the README has at most 15 lines, and that its loss falls."""
    losses = [float(line.split()[-1]) for line in said.splitlines()]
    assert len(block.text.splitlines()) <= 15 and losses[-1] < losses[0] / 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    make_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("RANK", "WORLD_SIZE", "FOREBAY_COSTS"):
        monkeypatch.delenv(name, raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if name not in before and str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def run_alone(name):
    """Runs the test of a page in a separate process."""
    test = f"{__file__}::test_page[{name}]"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", test],
        env={**os.environ, ALONE: name},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    skipped = re.search("^SKIPPED.*", done.stdout, re.MULTILINE)
    if skipped:
        pytest.skip(skipped[0])


@pytest.mark.parametrize("name", PAGES)
def test_page(name, folder):
    blocks = [block for block in blocks_of(name, read(name)) if block.language == "python"]
    if os.environ.get(ALONE) != name and any(THREADED & imported(block) for block in blocks):
        run_alone(name)
        return
    page, left_out = Page(name), set()
    with warnings.catch_warnings():
        # Python warns about every fork of a process with threads, and torchdata uses functions that PyTorch deprecates.
        warnings.simplefilter("ignore")
        for block, packages in lacking(blocks):
            left_out |= packages
            if not packages:
                page.check(block)
    if left_out:
        pytest.skip(f"{name}: blocks left out for lack of {', '.join(sorted(left_out))}")


def test_blocks_that_need_a_skipped_block_are_skipped(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "missing", lambda block: imported(block) & OPTIONAL)
    sections = [
        ("import jax as j\nx = 1", "y = 1", "z = 1"),
        ("print(x)",),
        ("j.y",),
        ("x = 2", "print(x)"),
        ("print(x)", "print(z)"),
    ]
    text = "".join("# Title\n" + "".join(f"```python\n{block}\n```\n" for block in blocks) for blocks in sections)
    found = [packages for _, packages in lacking(blocks_of("page.md", text))]
    assert found == [{"jax"}] * 5 + [set()] * 3 + [{"jax"}]


def test_every_page_is_there():
    assert len(PAGES) > 8
    assert any(block.language == "python" for page in PAGES for block in blocks_of(page, read(page)))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("```yaml\n```\n", 'page.md:1: no test runs a block of "yaml"'),
        ("\n```\n```\n", 'page.md:2: no test runs a block of ""'),
        ("```rust\n```\n", 'page.md:1: no test runs a block of "rust"'),
        ("```python\n", "page.md:1: a block without an end"),
        ("- ```python\n", "page.md:1: a block begins with ``` at the margin"),
        ("```python skip\n```\n", "page.md:1: unknown words behind the language"),
        ("```python\n```\nso\n```text\n```\n", "page.md:4: no block right before it prints this"),
        ("only text\n", "page.md: no block that is run"),
    ],
)
def test_nothing_is_passed_over(page, why):
    with pytest.raises(AssertionError, match=re.escape(why)):
        blocks_of("page.md", page)


def test_a_block_that_fails_is_told_with_its_line(folder):
    text = "words\n\n```python\na = 1\n\nprint(a)\nb = 1 / 0\n```\n\n```python\nprint('x')\n```\n\n```text\ny\n```\n"
    first, second = blocks_of("page.md", text)
    page = Page("page.md")
    with pytest.raises(ZeroDivisionError) as raised:
        page.check(first)
    last = raised.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(ROOT / "page.md"), 7)
    with pytest.raises(pytest.fail.Exception, match="page.md:15: the block before prints something else"):
        page.check(second)
    program = blocks_of("page.md", "```python file=p.py\nimport sys\nsys.exit('no')\n```\n")[0]
    with pytest.raises(pytest.fail.Exception, match="page.md:2, with p.py from there: exit code 1\nno"):
        page.check(program)


def test_dots_stand_for_anything():
    assert is_like("a ... c\n", "a b c\n\n") and is_like("a...\n...\nd", "a\nb\nc\nd") and is_like("...\nx", "x")
    assert is_like("a (b) ...\n", "a (b) .")
    assert not is_like("a ... c", "a b d") and not is_like("a\n...", "b\na") and not is_like("a", "a\nb")
