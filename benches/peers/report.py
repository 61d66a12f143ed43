"""The report: Markdown tables between two markers of `benches/README.md`."""

from peers.contenders import LABELS
from peers.measure import summary
from peers.rounds import rates
from peers.workloads import WORKLOADS

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"

INTRODUCTION = """`{command}`, commit {commit}: {photos} photos, {rounds} rounds in turns, {minutes:.0f} minutes.{note}
{machine}. {versions}.

Figures are medians (ranges) of rounds. *Forebay is* the median over rounds of Forebay's rate divided by the
contender's. CPU is that of all processes on one core. Memory is the sum of the greatest resident sizes of a contender's
processes, on one core / on all. *Difference* is that of outputs from Forebay's over a sample, on the scale 0 to 255,
with fixed values for random functions; contenders are timed only if it is allowed. Forebay is a new process in each
round; the peers keep theirs, and run once before they are measured. All contenders read files from the page cache. On
all cores, torchvision and PIL run in a DataLoader with one worker for each core, and OpenCV in a pool of threads.
Images stay u8 until they are normalised. tf.data and OpenCV do not antialias, tf.data decodes with the fast DCT, and
its R3 crops before it resizes: all of this is less work. Tables are shuffled anew in each epoch."""


def tables(results):
    """Returns all tables as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results["versions"].items()))
    note = f" {results['note']}" if "note" in results else ""
    parts = [INTRODUCTION.format(**{**results, "versions": versions, "note": note})]
    for workload in WORKLOADS:
        records = [one for one in results["records"] if one["workload"] == workload.name]
        if records:
            rows = first_batch_rows if workload.is_first_batch else rate_rows
            parts.append(f"**{workload.title}**\n\n" + "\n".join(rows(workload, records, results["cores"])))
    return "\n\n".join(parts)


def by_contender(records):
    """Groups the records of a workload: for each contender, a record for each number of cores."""
    grouped = {}
    for record in records:
        grouped.setdefault(record["contender"], {})[record["cores"]] = record
    return grouped


def rate_rows(workload, records, cores):
    grouped, unit = by_contender(records), workload.unit
    counts = sorted({record["cores"] for record in records})
    yield "| contender | " + "".join(
        f"{unit}/s, {named(count)} | Forebay is | " for count in counts) + "CPU, µs each | memory, MiB | difference |"
    yield "|---|" + "---|---|" * len(counts) + "---|---|---|"
    for name, by_cores in grouped.items():
        cells = [LABELS[name]]
        for count in counts:
            record, ours = by_cores.get(count), grouped["forebay"].get(count)
            cells += rate_cells(record, ours)
        cells.append(cpu(by_cores.get(counts[0])))
        cells.append(" / ".join(memory(by_cores.get(count)) for count in counts))
        cells.append(difference(by_cores))
        yield f"| {' | '.join(cells)} |"


def rate_cells(record, ours):
    """Returns the rate of a contender, and the ratio of Forebay's to it."""
    if not record or not record["rounds"]:
        return ["left out", ""]
    median, least, greatest = summary(rates(record))
    cell = f"{number(median)} ({number(least)} to {number(greatest)})"
    if record["contender"] == "forebay" or not ours or not ours["rounds"]:
        return [cell, ""]
    ratio, *_ = summary([mine / theirs for mine, theirs in zip(rates(ours), rates(record))])
    return [cell, f"{ratio:.2f}x"]


def number(value):
    """Returns a number of three or four digits, in millions from there on."""
    return f"{value / 1e6:.2f} M" if value >= 1e5 else f"{value:.0f}"


def cpu(record):
    if not record or not record["rounds"]:
        return ""
    median, *_ = summary([one["cpu_seconds"] / one["rows"] for one in record["rounds"]])
    return f"{median * 1e6:.0f}" if median >= 1e-5 else f"{median * 1e6:.2f}"


def memory(record):
    return f"{max(one['peak_bytes'] for one in record['rounds']) / 2**20:.0f}" if record and record["rounds"] else ""


def difference(by_cores):
    """Returns the difference of outputs, or the reason for which a contender was left out."""
    reasons = [record["left_out"] for record in by_cores.values() if "left_out" in record]
    return reasons[0].replace("|", "\\|") if reasons else next(iter(by_cores.values()))["agreement"]


def first_batch_rows(workload, records, cores):
    del workload
    grouped = by_contender(records)
    counts = sorted({record["cores"] for record in records})
    yield "| contender | " + " | ".join(f"seconds, {named(count)} | without imports" for count in counts) + " |"
    yield "|---|" + "---|---|" * len(counts)
    for name, by_cores in grouped.items():
        cells = [LABELS[name]]
        for count in counts:
            record = by_cores.get(count)
            if not record or not record["rounds"]:
                cells += [f"left out: {record['left_out']}" if record else "left out", ""]
                continue
            for key in ("seconds", "without_imports"):
                cells.append("{:.2f} ({:.2f} to {:.2f})".format(*summary([one[key] for one in record["rounds"]])))
        yield f"| {' | '.join(cells)} |"


def named(count):
    return "one core" if count == 1 else f"{count} cores"


def write(text, path):
    """Replaces what stands between the markers of a file."""
    whole = path.read_text()
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} lacks the markers {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
