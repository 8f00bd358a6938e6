"""What is measured of a page's pictures, in a browser."""

# The pages that are measured: of chapters, and three more.
PAGES = r"book/(index|primer|notation|(further/)?\d\d_\w+)"

# Heights without an open picture, in windows, with what they begin at.
GAPS = """() => {
  const article = document.querySelector("article.bd-article");
  const at = (box) => box.getBoundingClientRect();
  const end = [...article.querySelectorAll("h2")].find(
    (h2) => /^(Exercises|Takeaways)/.test(h2.textContent.trim()));
  const stop = end ? at(end).top : at(article).bottom;
  const drawn = ".picture, .live-figure, .map-icon";
  const open = [...article.querySelectorAll(drawn)]
    .filter((box) => box.checkVisibility({visibilityProperty: true}))
    .map(at).filter((box) => box.height > 60 && box.top < stop)
    .sort((one, two) => one.top - two.top);
  let reached = at(article).top;
  const gaps = [];
  for (const box of open) {
    gaps.push(box.top - reached);
    reached = Math.max(reached, box.bottom);
  }
  gaps.push(stop - reached);
  return Math.max(...gaps) / innerHeight;
}"""

# The smallest label of each figure as it is shown, in pixels. (Sub- and
# superscripts are smaller; the hero has another picture for a phone.)
LABELS = """() => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  for (const part of document.querySelectorAll(".predict-closed"))
    part.classList.remove("predict-closed");
  const found = {};
  const drawn = document.querySelectorAll(".picture:not(live-hero *) svg");
  for (const svg of drawn) {
    const { width } = svg.getBoundingClientRect();
    const scale = width / svg.viewBox.baseVal.width;
    const sizes = [...svg.querySelectorAll("text")].map(
      (text) => parseFloat(getComputedStyle(text).fontSize) * scale);
    const name = svg.closest("figure")?.id ?? svg.parentNode.ariaLabel;
    if (scale && sizes.length) found[name] = Math.min(...sizes);
  }
  return found;
}"""


def screens(tab):
    """The longest stretch without an open picture, in windows."""
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.evaluate("() => window.MathJax?.startup?.promise")
    tab.evaluate("() => document.fonts.ready.then(() => true)")
    return tab.evaluate(GAPS)


def labels(tab):
    """The smallest label of each figure on a phone; all is open then."""
    tab.set_viewport_size({"width": 375, "height": 812})
    return tab.evaluate(LABELS)
