"""Sphinx configuration of the site: `make docs` builds it offline into build/site."""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from docutils import nodes
from sphinx import addnodes

from privfed import __version__
from privfed.cli.main import main
from privfed.core.stored.encoding import Message

DOCS = Path(__file__).parent

project = "privfed"
author = "The privfed maintainers"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "decisions",
    "measurements",
    "specifications",
    "gallery/GALLERY_HEADER.rst",
    "**sg_execution_times.rst",
    "sg_execution_times.rst",
]
nitpicky = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Quotes of the text's own; options keep both their hyphens.
smartquotes_action = "q"
# A word between single backticks is code, in docstrings as on the pages.
default_role = "code"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_ivar = True
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 90
autodoc_default_options = {"members": True, "show-inheritance": True}

# Each public name has one page, in the first of these modules that exports it.
MODULES = (
    "errors",
    "",
    "metrics",
    "plot",
    "attacks",
    "attacks.audits",
    "data",
    "tables",
    "deep",
    "testing",
    "extend",
)
_shown: set[int] = set()
public: dict[str, list[str]] = {}
elsewhere: dict[str, list[str]] = {}
for _name in MODULES:
    _module = import_module(f"privfed.{_name}".rstrip("."))
    public[_module.__name__], elsewhere[_module.__name__] = [], []
    for _one in getattr(_module, "__all__", dir(_module)):
        try:
            _value = getattr(_module, _one)
        except ModuleNotFoundError as missing:
            # Without torch the site has no page of what needs it.
            if missing.name != "torch":
                raise
            continue
        if isinstance(_value, ModuleType) or _one.startswith("_"):
            continue
        # A dictionary has no page: its docstring would be that of `dict`.
        told = id(_value) in _shown or isinstance(_value, dict)
        (elsewhere if told else public)[_module.__name__].append(_one)
        _shown.add(id(_value))
# What is sent has no public name: its page is made of all subclasses, wherever they stand.
WIRED = "core.stored.encoding", "protocols.secure_sums", "nodes.signed"
_sent: dict[str, list[str]] = {}
for _name in WIRED:
    import_module(f"privfed.{_name}")
for _wired in Message.__subclasses__():
    _sent.setdefault(_wired.__module__, []).append(_wired.__name__)
_pieces = [
    f".. automodule:: {_module}\n   :members: {', '.join(sorted(_names))}\n   :no-index:\n"
    for _module, _names in sorted(_sent.items())
]
(DOCS / "reference/generated").mkdir(parents=True, exist_ok=True)
(DOCS / "reference/generated/messages.inc").write_text("\n".join(_pieces), encoding="utf-8")


# The page of commands shows those of the group alone, and privfed imports others when they are called.
_context = click.Context(main)
for _name in main.list_commands(_context):
    if (_command := main.get_command(_context, _name)) is not None:
        main.add_command(_command, _name)
main.commands = dict(sorted(main.commands.items()))


def reference() -> str:
    """Return one line for each command, and for each public name by its module."""
    lines = ["## Commands", "", "| command | |", "|---|---|"]
    for name, one in main.commands.items():
        link = f'<a href="commands.html#privfed-{name}"><code>{name}</code></a>'
        lines.append(f"| {link} | {one.get_short_help_str(120)} |")
    for module, names in sorted(public.items(), key=lambda item: item[0] == "privfed.errors"):
        first = (import_module(module).__doc__ or "").partition("\n")[0]
        listed = [f"   ~{module}.{name}" for name in names]
        table = ["```{eval-rst}", ".. autosummary::", "   :nosignatures:", "", *listed, "```"]
        lines += ["", f"## {module}", "", first, "", *table]
    return "\n".join(lines)


(DOCS / "reference/generated/names.inc").write_text(reference(), encoding="utf-8")
autosummary_context = {"public": public, "elsewhere": elsewhere}
autosummary_ignore_module_all = False
templates_path = ["_templates"]

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    # Models need torch, which an environment for clustering alone has not.
    "ignore_pattern": r"__init__\.py" if find_spec("torch") else r"__init__\.py|plot_9_models\.py",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"privfed {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "show_prev_next": False,
    "search_bar_text": "Search these pages (works offline)",
}

_LINK = re.compile(r"\[(?P<text>[^\]\n]+(?:\n[^\]\n]+)?)\]\((?P<target>[^)#\s]+)(?P<part>#[^)\s]*)?\)")


def without_repository(app: Any, docname: str, source: list[str]) -> None:
    """Write links to files of the repository, which are no page of the site, as the files' names."""
    here = DOCS / f"{docname}.md"
    if not here.is_file():
        return

    def named(found: re.Match[str]) -> str:
        target = found["target"]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = Path(os.path.normpath(here.parent / target))
        if (
            path.suffix in (".md", ".rst")
            and path.is_relative_to(DOCS)
            and not {"decisions", "measurements", "specifications"} & set(path.parts)
        ):
            return found[0]
        if path.suffix in (".png", ".svg"):
            return found[0]
        name = os.path.relpath(path, DOCS.parent)
        text = found["text"].strip("`")
        if text in (name, path.name):
            return f"`{name}`"
        # Within parentheses there are no second ones.
        return (
            f"{found['text']}, `{name}`"
            if source[0].startswith(")", found.end())
            else f"{found['text']} (`{name}`)"
        )

    source[0] = _LINK.sub(named, source[0])


def of_libraries(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out members that scikit-learn adds to every estimator for itself."""
    of_sklearn = str(getattr(member, "__module__", "")).startswith("sklearn")
    return True if of_sklearn or re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def as_rst(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Turn what docstrings have of Markdown into reStructuredText: tables, and lists of modules."""
    if what == "module" and any(line.startswith("    ") for line in lines):
        first = lines.index("") if "" in lines else len(lines)
        lines[first:] = ["", "::", "", *(f"    {line}" for line in lines[first:]), ""]
    made: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|") or len(cells) < 2:
            made.append(line)
        elif not set("".join(cells)) <= set("-: "):
            if not (made and made[-1].startswith("     ")):
                made += ["", ".. list-table::", "   :header-rows: 1", ""]
            cells = [re.sub(r" \*(?=[,;.]|$)", r" \\*", cell) for cell in cells]
            made += [f"   {' ' if i else '*'} - {cell}".rstrip() for i, cell in enumerate(cells)]
    lines[:] = made


def searched(app: Any, pagename: str, *_: Any) -> None:
    """Let the page of the search find sections (`_static/search.js`)."""
    if pagename == "search":
        app.add_js_file("search.js")


def sections(app: Any, failed: Exception | None) -> None:
    """Write the texts of all sections and definitions, which `_static/search.js` searches."""
    found = list[tuple[str, str, str, str, str]]()
    kinds = nodes.section | addnodes.desc
    for page in sorted(app.env.found_docs) if failed is None else ():
        whole = app.env.titles[page].astext()
        for one in app.env.get_doctree(page).findall(lambda node: isinstance(node, kinds)):
            head: Any = one.next_node(
                nodes.title if isinstance(one, nodes.section) else addnodes.desc_signature
            )
            # What stands in a section below is found there.
            parts = [
                part.astext() for part in one.children if part is not head and not isinstance(part, kinds)
            ]
            title = head.get("fullname") or head.astext()
            if page == "reference/commands" and title != whole:
                # A command may have the name of another one's part, and many have the same options.
                above, owner = [title], one.parent
                while owner is not None and owner.parent.parent is not None:
                    above += [owner.next_node(nodes.title).astext()] * isinstance(owner, nodes.section)
                    owner = owner.parent
                title = " ".join(name for name in reversed(above) if name not in ("Options", "Arguments"))
            ids = (head if isinstance(one, addnodes.desc) else one)["ids"]
            anchor = "" if title == whole or not ids else ids[0]
            found.append((page, whole, anchor, title, " ".join(" ".join(parts).split())))
    script = f"const SECTIONS = {json.dumps(found, ensure_ascii=False, separators=(',', ':'))};"
    (Path(app.outdir) / "_static" / "sections.js").write_text(script, encoding="utf-8")


def setup(app: Any) -> None:
    """Register what is done to pages and members."""
    app.connect("html-page-context", searched)
    app.connect("build-finished", sections)
    app.connect("source-read", without_repository)
    app.connect("autodoc-skip-member", of_libraries)
    app.connect("autodoc-process-docstring", as_rst)
