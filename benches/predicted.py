"""Compares the optimiser's predictions with measurements, for fourteen pipelines that calibration does not run.

    cargo build --release
    python3 benches/predicted.py PHOTOS [OTHER_PHOTOS]

Calibrates (about a minute) unless FOREBAY_COSTS names a file of prices. Then it runs each pipeline three
times on one thread, in turns and each time as a new process. It prints the predicted seconds of one core, the CPU
seconds of all threads in the cheapest run, their ratio, and the prediction for a wall clock beside the time of the
fastest run: on a wall clock, reading during a computation does not count. PHOTOS and OTHER_PHOTOS are folders
with one folder per class; OTHER_PHOTOS defaults to PHOTOS.
"""

import json
import os
import subprocess
import sys
import tempfile

FOREBAY = os.environ.get("FOREBAY", "target/release/forebay")
ROUNDS = 3


def call(*words, **env):
    done = subprocess.run(
        [FOREBAY, *words], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


def pipelines(photos, others, tables):
    image = f"FROM images('{photos}')"
    other = f"FROM images('{others}')"
    parquet, csv = f"FROM parquet('{tables}/t.parquet')", f"FROM csv('{tables}/t.csv')"
    json_lines, arrow = f"FROM json('{tables}/t.jsonl')", f"FROM arrow('{tables}/t.arrow')"
    return [
        f"SELECT to_chw(to_float(center_crop(resize_shortest(decode_image(image), 232), 224, 224))) AS x {image} "
        "BATCH 32",
        f"SELECT normalize(random_vflip(random_crop(resize(decode_image(image), 180, 180), 160, 160)), 'imagenet') AS x "
        f"{other} BATCH 64",
        f"SELECT posterize(solarize(resize(decode_image(image), 150, 150), 200), 5) AS x {image} BATCH 32",
        f"SELECT random_erasing(to_float(color_jitter(resize(decode_image(image), 112, 112), 0.1, 0.1, 0.1, 0.05))) "
        f"AS x {other} BATCH 32",
        f"SELECT resize(decode_image(image), 112, 112) AS x {image} WHERE image_height(image) < 400 BATCH 32",
        f"SELECT label, path {image} WHERE image_width(image) > 400 BATCH 64 REPEAT 20",
        f"SELECT gaussian_blur(random_grayscale(resize(decode_image(image), 140, 140)), 11) AS x {image} BATCH 32",
        f"SELECT pad(rotate(resize(decode_image(image), 160, 160), 45), 8) AS x {other} BATCH 16",
        f"SELECT label, price, clicks {parquet} WHERE price > 20 BATCH 512 REPEAT 3",
        f"SELECT id, text {parquet} SHUFFLE WITHIN 10000 ROWS BATCH 256 REPEAT 2",
        f"SELECT id, price + clicks AS s {csv} WHERE clicks > 1 SHUFFLE WITHIN 5000 ROWS BATCH 256 REPEAT 3",
        f"SELECT user_id, category, label {json_lines} SHUFFLE GLOBALLY BATCH 256 REPEAT 4",
        f"SELECT id, clicks, text {arrow} SHUFFLE WITHIN 20000 ROWS BATCH 512 REPEAT 5",
        f"SELECT user_id, price {parquet} WHERE label = 0 SHUFFLE GLOBALLY BATCH 1024 REPEAT 2",
    ]


def main():
    photos = os.path.abspath(sys.argv[1])
    others = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        prices = os.environ.get("FOREBAY_COSTS")
        if not prices:
            prices = f"{folder}/costs.json"
            call("calibrate", "--out", prices)
        for extension, rows in [("parquet", 400000), ("csv", 100000), ("jsonl", 100000), ("arrow", 100000)]:
            call("generate", "table", f"{folder}/t.{extension}", "--rows", str(rows), "--seed", "9")
        queries = pipelines(photos, others, folder)
        cheapest, fastest = [float("inf")] * len(queries), [float("inf")] * len(queries)
        for _ in range(ROUNDS):
            for number, query in enumerate(queries):
                ran = json.loads(call("run", "-e", query, "--threads", "1", "--json", FOREBAY_COSTS=prices))
                cheapest[number] = min(cheapest[number], ran["cpu_seconds"])
                fastest[number] = min(fastest[number], ran["seconds"])
        print("predicted    cores   ratio    wall   ratio")
        for query, cores, wall in zip(queries, cheapest, fastest):
            words = ["explain", "-e", query, "--threads", "1", "--format", "json"]
            told = json.loads(call(*words, FOREBAY_COSTS=prices))
            predicted = told["optimizer"]["chosen_seconds"]
            print(
                f"{predicted:7.3f} s {cores:7.3f} s {predicted / cores:5.2f} {wall:7.3f} s {predicted / wall:5.2f}"
                f"  {query[:90]}"
            )


main()
