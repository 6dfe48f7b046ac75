"""One word per thing, and only words about the product.

Texts are every file of the repository that people read. Names are what the library calls its own
parameters, fields, attributes, functions, classes, keys and flags; what a function calls its local
variables is its own business, and so is what it has to call things when it talks to a library.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import ROOT, Function, Source, library, plant

# In two parts, so that this file passes too.
UNFINISHED = [
    a + b for a, b in (("TO", "DO"), ("FIX", "ME"), ("X", "XX"), ("HA", "CK"), ("W", "IP"))
]
PLACES = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/"]
HOSTS = ["pypi" + ".org", "python" + "hosted.org", "download." + "pytorch.org"]

FORBIDDEN_TEXT = re.compile(
    r"\b(?:" + "|".join(UNFINISHED) + r")\b|(?<![\w.])(?:" + "|".join(PLACES) + r")|"
    r"(?:" + "|".join(map(re.escape, HOSTS)) + r")"
)

SYNONYMS = {
    "done": "terminated and truncated, told apart",
    "dones": "terminated and truncated, told apart",
    "env_id": "replica",
    "env_ids": "replica",
    "env_idx": "replica",
    "env_index": "replica",
    "n_envs": "replicas",
    "num_envs": "replicas",
    "n_workers": "executors, actors or learners",
    "num_workers": "executors, actors or learners",
    "env_worker": "executor",
    "rollout_worker": "executor",
    "sampler": "executor",
    "policy_server": "actor",
    "policy_worker": "actor",
    "inference_server": "actor",
    "inference_worker": "actor",
    "trainer": "learner",
    "experience_buffer": "storage",
    "rollout_buffer": "storage",
    "policy_version": "version",
    "model_version": "version",
    "weights_version": "version",
    "n_steps": "steps, or the rollout's length",
    "num_steps": "steps, or the rollout's length",
}
"""What a thing is called elsewhere, and its name here."""

FOREIGN = {
    ("hts_envs.envpool", "env_id"): "EnvPool's record of which replica answers",
    ("hts_envs.envpool", "num_envs"): "EnvPool's own argument",
    ("hts_envs.vector", "num_envs"): "an attribute of Gymnasium's vector environments",
}
"""Names that another library dictates, by the module that talks to it."""

READ = {".py", ".yaml", ".yml", ".md", ".txt", ".toml", ".ini", ".sh", ".cfg", ""}
UNREAD = {"__pycache__", "runs", "build", "dist"}


def texts(root: Path) -> Iterator[Path]:
    """What people read: everything with a text's name outside hidden and generated folders."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not _is_unread(name))
        for name in sorted(files):
            if Path(name).suffix in READ and not name.startswith(".coverage"):
                yield Path(folder, name)


def _is_unread(folder: str) -> bool:
    hidden = folder.startswith(".") and folder != ".ci"
    return hidden or folder in UNREAD or folder.endswith(".egg-info")


def forbidden_texts(root: Path) -> Iterator[str]:
    for path in texts(root):
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            for found in FORBIDDEN_TEXT.findall(line):
                yield f"{path.relative_to(root)}:{number} says {found}"


def names(source: Source) -> Iterator[tuple[str, int]]:
    """What the module calls things that others see, and the line."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            yield node.name, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield node.name.lower(), node.lineno
            yield from _fields(node)
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        else:
            yield from _keys(node)


def _keys(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Strings that name something: keys of a dictionary, what is looked up, and flags."""
    if isinstance(node, ast.Dict):
        found = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Subscript):
        found = [node.slice]
    else:
        found = [node] if isinstance(node, ast.Constant) and _is_flag(node.value) else []
    for key in found:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, key.lineno


def _is_flag(value: object) -> bool:
    return isinstance(value, str) and value.startswith("--")


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.lineno


def foreign_words(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        for name, line in names(source):
            bare = name.strip("_").removeprefix("--").replace("-", "_")
            if bare in SYNONYMS and (source.module, bare) not in FOREIGN:
                yield f"{source.where(line)} says {name}: here it is {SYNONYMS[bare]}"


def test_texts_speak_of_the_product_alone() -> None:
    """Nothing is marked unfinished, and no text names a private folder or a package host."""
    assert len(list(texts(ROOT))) > 20, "the checker found next to nothing to read"
    assert list(forbidden_texts(ROOT)) == []


def test_each_thing_has_one_name() -> None:
    """No interface of the library uses a synonym for a word of the glossary."""
    assert list(foreign_words(library())) == []


def test_every_exception_is_still_needed() -> None:
    """A foreign name that its module no longer uses is no exception any more."""
    used = {(source.module, name) for source in library() for name, _ in names(source)}
    assert set(FOREIGN) - used == set()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("hts/planted.py", f"# {UNFINISHED[0]}: later"),
        ("README.md", f"see {UNFINISHED[1]}"),
        ("configs/planted.yaml", f"path: {PLACES[0]}main"),
        ("tools/planted", f"cd {PLACES[2]}me"),
        (".ci/planted", f"pip install -i https://{HOSTS[0]}/simple"),
    ],
)
def test_a_planted_text_is_caught(tmp_path: Path, path: str, text: str) -> None:
    """Code, documents, configurations, tools and CI are all read."""
    plant(tmp_path, {path: text})
    assert len(list(forbidden_texts(tmp_path))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def step(done): pass",
        "class Step:\n    done: bool",
        "class Step:\n    def __init__(self):\n        self.done = False",
        "facts = {'done': True}",
        "storage['done'] = True",
        "storage.write(dones=1)",
        "def take(env_id): pass",
        "class Trainer: pass",
        "parser.add_argument('--num-workers')",
        "def _sampler(): pass",
    ],
)
def test_a_planted_synonym_is_caught(tmp_path: Path, text: str) -> None:
    """Parameters, fields, attributes, keys, keywords, classes and flags are all looked at."""
    assert list(foreign_words(plant(tmp_path, {"hts/planted.py": text}))) != []


def test_locals_and_sentences_are_free(tmp_path: Path) -> None:
    """A local variable and a word in a sentence are no interface."""
    text = (
        '"""When all is done."""\ndone = 1\nstatus = "done"\n# a path like /workers/ or x/home/y\n'
    )
    sources = plant(tmp_path, {"hts/planted.py": text})
    assert list(foreign_words(sources)) == []
    assert list(forbidden_texts(tmp_path)) == []
