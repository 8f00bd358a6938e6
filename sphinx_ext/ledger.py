"""The paper ledger: what the paper has, where it is here, what differs.

    ```{paper-ledger}
    - place: Table 4
      what: Parsing of English sentences.
      differs: not rebuilt; the trees are not free.
    ```

Every public name of the package whose docstring cites the paper becomes a
row. The body, in YAML, adds what has no name in the package.
"""

import importlib
import inspect
import pkgutil
import re

import yaml
from docstrings import split_fields
from sphinx.util.docutils import SphinxDirective

import coursekit
import coursekit_classroom

PAPER = "vaswani2017attention"
ROLE = re.compile(r":(\w+):`([^`]+)`")  # of reStructuredText
# Modules that cite nothing and run when they are imported.
UNLISTED = re.compile(r"\.(__main__|cli|teach|catalogue|yourfile)\b")
# Where the paper's numbered things stand, so that all sort by section.
SECTION_OF = {
    **{"equation 1": "3.2.1", "equation 2": "3.3", "equation 3": "5.3"},
    **{"Figure 1": "3.1", "Figure 2": "3.2.1", "Table 1": "4"},
    **{"Table 2": "6.1", "Table 3": "6.2", "Table 4": "6.3"},
}


def public_names():
    """``(dotted name, docstring)`` of all that the modules offer."""
    walk = pkgutil.walk_packages
    for found in (
        *walk(coursekit.__path__, "coursekit."),
        *walk(coursekit_classroom.__path__, "coursekit_classroom."),
    ):
        if UNLISTED.search(found.name):
            continue
        module = importlib.import_module(found.name)
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", None) == module.__name__
            if name.startswith("_") or not own:
                continue
            dotted = f"{module.__name__}.{name}"
            yield dotted, inspect.getdoc(thing) or ""
            if inspect.isclass(thing):
                for method, value in vars(thing).items():
                    value = getattr(value, "__func__", value)
                    if inspect.isfunction(value) and value.__doc__:
                        text = inspect.cleandoc(value.__doc__)
                        yield f"{dotted}.{method}", text


def places(source):
    """Places in the paper that a Source cites: ``equation 1 and Figure 2``."""
    for part in source.split(";"):
        if PAPER in part:
            part = part.split(PAPER)[1].split(" for ")[0]
            return part.strip(" ,.") or "the whole"
    return None


def order(place):
    """Sort key: the section in which the place stands."""
    sections = re.findall(r"\b(?:sections? )(\d(?:\.\d)*)", place)
    for name, section in SECTION_OF.items():
        if place.startswith(name):
            sections.insert(0, section)
    first = sections[0] if sections else "9"
    return [int(digit) for digit in first.split(".")], place


def rows_of_package():
    """A row for each public name whose docstring cites the paper."""
    for name, text in public_names():
        rest, fields = split_fields(text.splitlines())
        place = places(fields.get("Source", ""))
        if place:
            yield {
                "place": place[0].upper() + place[1:],
                "what": rest[0],
                "symbol": name,
                "chapter": int(re.match(r"\d+", fields["Chapter"])[0]),
                "test": fields.get("Test", ""),
                "differs": fields.get("Differs from the paper", ""),
            }


def ledger(more=()):
    """All rows, in the paper's order."""
    rows = [*rows_of_package(), *more]
    return sorted(rows, key=lambda row: order(uncapital(row["place"])))


def sentence(text):
    """With a capital and a full stop."""
    return text[0].upper() + text[1:].rstrip(".") + "."


def uncapital(place):
    """``Equation 1`` as the docstrings have it: ``equation 1``."""
    head = place.split(" ")[0]
    return (
        place if head in ("Figure", "Table") else place[0].lower() + place[1:]
    )


class PaperLedger(SphinxDirective):
    """``{paper-ledger}``: the table; its body adds rows."""

    has_content = True

    def chapter(self, number):
        """A link to the chapter, or its number in words."""
        prefix = f"book/{number:02}_"
        for doc in sorted(self.env.found_docs):
            if doc.startswith(prefix):
                return f"{{doc}}`Chapter {number} </{doc}>`"
        return f"Chapter {number}"

    def run(self):
        """Write the table in MyST and let it be parsed."""
        self.env.note_reread()  # docstrings change without this page
        more = yaml.safe_load("\n".join(self.content)) or []
        lines = [
            *(
                "````{list-table}",
                ":header-rows: 1",
                ":class: ledger",
                ":widths: 2 5 4",
                "",
            ),
            *("* - In the paper", "  - Here", "  - What differs, and why"),
        ]
        for row in ledger(more):
            here = [ROLE.sub(r"{py:\1}`\2`", row["what"])]
            if row.get("symbol"):
                symbol = row["symbol"]
                short = symbol.removeprefix("coursekit.")
                here.append(f"{{py:obj}}`{short} <{symbol}>`.")
            if row.get("chapter"):
                here.append(self.chapter(row["chapter"]) + ".")
            if row.get("test"):
                name = row["test"].rstrip(".").partition("::")[0]
                file = f"tests/library/{name}"
                here.append(f"Test: {{repo}}`{name} <blob/main/{file}>`.")
            lines += [
                f"* - {row['place']}",
                f"  - {' '.join(here)}",
                f"  - {sentence(row.get('differs') or 'nothing')}",
            ]
        lines.append("````")
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    """Register with Sphinx."""
    app.add_directive("paper-ledger", PaperLedger)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
