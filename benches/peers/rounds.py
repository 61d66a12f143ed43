"""Rounds: starts the contenders of a workload, compares their outputs, and lets them take turns."""

import sys

from peers import agreement
from peers.contenders import LABELS, is_forebay
from peers.contenders.forebay import Forebay
from peers.measure import pinning, summary
from peers.peer import Peer


def measure(workload, cores, program, inputs, rounds, work):
    """Measures a workload on some cores; returns a record for each contender, and the versions of the peers."""
    data, sample = inputs[workload.data]
    common = (workload, data, sample, len(cores), pinning(cores))
    contenders, records, versions = {}, {}, {}
    try:
        for name in ("forebay", *workload.variants, *workload.contenders):
            records[name] = {"workload": workload.name, "cores": len(cores), "contender": name, "rounds": []}
            try:
                if is_forebay(name):
                    contenders[name] = Forebay(program, name, *common)
                else:
                    contenders[name] = Peer(name, *common, work / f"{workload.name}_{name}_{len(cores)}.log")
                    versions.update(contenders[name].versions)
                records[name]["agreement"] = agree(name, workload, contenders, work)
            except (RuntimeError, ValueError) as error:
                leave_out(name, error, contenders, records)
        for turn in range(rounds):
            names = list(contenders)
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                contender = contenders[name]
                try:
                    # The first round warms caches, pools and traced graphs up.
                    if turn == 0 and not workload.is_first_batch:
                        contender.round()
                    one = contender.first_batch() if workload.is_first_batch else contender.round()
                    records[name]["rounds"].append(one)
                except RuntimeError as error:
                    leave_out(name, error, contenders, records)
    finally:
        for contender in contenders.values():
            contender.close()
    return list(records.values()), versions


def agree(name, workload, contenders, work):
    """Compares a contender's outputs over the sample with those of Forebay; returns the difference as text."""
    path = work / f"outputs_{name}.{'arrow' if is_forebay(name) else 'npz'}"
    contenders[name].write_outputs(path)
    if name == "forebay":
        return ""
    ours = agreement.read_ours(work / "outputs_forebay.arrow")
    if is_forebay(name):
        theirs = agreement.read_ours(path)
        return agreement.compare_tiers(workload.chain, ours, theirs)
    return agreement.compare(workload.chain, name, ours, agreement.read_theirs(path))


def leave_out(name, error, contenders, records):
    """Notes why a contender takes no further part."""
    print(f"{LABELS[name]}: left out: {error}", file=sys.stderr, flush=True)
    records[name]["left_out"] = str(error)
    if name in contenders:
        contenders.pop(name).close()


def rates(record):
    """Returns the rows per second of each round."""
    return [one["rows"] / one["seconds"] for one in record["rounds"]]


def describe(record):
    """Returns a line about a contender for the terminal."""
    if not record["rounds"]:
        return f"{LABELS[record['contender']]}: left out: {record.get('left_out', '')}"
    if "rows" in record["rounds"][0]:
        median, least, greatest = summary(rates(record))
        text = f"{median:,.0f} a second ({least:,.0f} to {greatest:,.0f})"
    else:
        text = "{:.2f} s ({:.2f} to {:.2f})".format(*summary([one["seconds"] for one in record["rounds"]]))
    return f"{LABELS[record['contender']]}: {text}; {record['agreement']}"
