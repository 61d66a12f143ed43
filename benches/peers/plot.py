"""The plot: rates of all contenders in the image chains, as an SVG with the same bytes for the same results."""

import sys

from peers.contenders import LABELS
from peers.measure import summary
from peers.rounds import rates

#: Workloads of the panels, with their titles.
PANELS = (("r1", "R1: SimCLR chain"), ("r3", "R3: resize 256, centre crop 224"),
          ("r4-10", "R4: random resized crop 224, flip"), ("r4-mosaics", "R4 of 1280-pixel photos, 4:2:0"))
COLORS = {"forebay": ("#9ecae9", "#2171b5"), "peer": ("#d0d0d0", "#8c8c8c")}


def write(results, path):
    """Writes the plot; without matplotlib it says so, and leaves the file as it is."""
    try:
        import matplotlib
    except ImportError:
        print("the plot is left out: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("svg")
    # Ids of a fixed salt, and no date: the same results give the same bytes. Text stays text, which is small.
    matplotlib.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none", "font.size": 9,
                                "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    panels = [(name, title) for name, title in PANELS if measured(results, name)]
    if not panels:
        return
    rows = (len(panels) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(9, 2.6 * rows), squeeze=False)
    for axis in axes.flat[len(panels):]:
        axis.remove()
    for axis, (name, title) in zip(axes.flat, panels):
        draw(axis, measured(results, name), title)
    figure.text(0.01, 0.005, f"commit {results['commit']}; light: one core, dark: {results['cores']} cores; "
                "lines: range of rounds", fontsize=8, color="#555555")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def measured(results, workload):
    return [one for one in results["records"] if one["workload"] == workload and one["rounds"]]


def draw(axis, records, title):
    """Draws a panel: a group of bars for each contender, one bar for each number of cores."""
    names = list(dict.fromkeys(record["contender"] for record in records))
    counts = sorted({record["cores"] for record in records})
    height = 0.8 / len(counts)
    for record in records:
        median, least, greatest = summary(rates(record))
        shade = counts.index(record["cores"]) - len(counts)
        kind = "forebay" if record["contender"].startswith("forebay") else "peer"
        place = names.index(record["contender"]) + (counts.index(record["cores"]) - (len(counts) - 1) / 2) * height
        axis.barh(place, median, height, color=COLORS[kind][shade], xerr=[[median - least], [greatest - median]],
                  error_kw={"elinewidth": 0.8, "ecolor": "#333333"})
        axis.text(greatest, place, f" {median:.0f}", va="center", fontsize=7)
    axis.set_yticks(range(len(names)), [LABELS[name].replace("`", "") for name in names])
    axis.invert_yaxis()
    axis.set_xlabel("photos per second")
    axis.set_title(title, loc="left", fontsize=10)
