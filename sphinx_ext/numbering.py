"""Numbers by chapter: the title "4 Attention", in it Fig. 4.2 and (4.1).

The number stands in the name of the file, ``04_attention``. Sphinx itself
counts from 1, so that chapter 0 would be the first, and it would number the
sections of a chapter as well. Of a page in ``further/`` the number is
``4F``, or ``4F1`` and ``4F2`` where there are two; other pages have none, and
count their figures for themselves.
"""

from docutils import nodes
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

from coursekit_classroom.notebooks.plain import number_of

number_figures = TocTreeCollectorWithStyles.assign_figure_numbers


def assign_section_numbers(self, env):
    """Number the title of each chapter; return the pages that changed."""
    before, env.toc_secnumbers = env.toc_secnumbers, {}
    changed = []
    for docname, toc in env.tocs.items():
        number = number_of(docname, env.found_docs)
        if not number:
            continue
        numbers = env.toc_secnumbers[docname] = {}
        for entry in toc.findall(nodes.reference):
            is_title = not entry["anchorname"]
            # A section without an entry would be given the title's number.
            numbers[entry["anchorname"]] = (number,) if is_title else ()
            entry["secnumber"] = [number] if is_title else None
        env.titles[docname]["secnumber"] = [number]
        if numbers != before.get(docname):
            changed.append(docname)
    return changed


def assign_figure_numbers(self, env):
    """Start again on each page that has no number itself."""
    changed = number_figures(self, env)
    for docname, kinds in env.toc_fignumbers.items():
        if not number_of(docname, env.found_docs):
            for kind, found in kinds.items():
                kinds[kind] = {id: (n,) for n, id in enumerate(found, 1)}
    return changed


def setup(app):
    """Register with Sphinx."""
    collector = TocTreeCollectorWithStyles  # the one that reads _toc.yml
    collector.assign_section_numbers = assign_section_numbers
    collector.assign_figure_numbers = assign_figure_numbers
    return {"parallel_read_safe": True, "parallel_write_safe": True}
