"""How near the optimiser's prediction comes: fourteen pipelines that calibration does not run.

    cargo build --release
    python3 benches/predicted.py PHOTOS [OTHER_PHOTOS]

Calibrates (about a minute) unless FOREBAY_COSTS names a file of prices, then runs each pipeline three
times on one thread, whole processes by turns, and prints seconds of one core as predicted and as all threads
took in the cheapest run, their ratio, and the prediction beside a wall clock of the fastest run: there, what
is read while something is computed does not count. PHOTOS is a folder with a folder per class, as is
OTHER_PHOTOS (the same one if left out).
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
        f"SELECT normalize(center_crop(resize(decode_image(image), 256, 256), 224, 224), 'imagenet') AS x {image} "
        "BATCH 64",
        "SELECT to_float(random_grayscale(random_resized_crop(decode_image(image), 128, 128))) AS x "
        f"{other} BATCH 32",
        f"SELECT solarize(vflip(resize(decode_image(image), 120, 120)), 160) AS x {image} BATCH 16",
        "SELECT random_rotate(center_crop(resize_shortest(decode_image(image), 200), 180, 180), 25, 'bilinear') AS x "
        f"{other} BATCH 32",
        f"SELECT resize(decode_image(image), 80, 80) AS x {image} WHERE octet_length(image) > 140000 BATCH 32",
        f"SELECT label, image_width(image) AS w {image} WHERE image_height(image) > 300 BATCH 128 REPEAT 25",
        "SELECT gaussian_blur(to_float(resize(decode_image(image), 96, 96)), 5) AS x "
        f"{image} BATCH 32",
        f"SELECT color_jitter(resize(decode_image(image), 200, 200), 0.5, 0.5, 0.5, 0.2) AS x {other} BATCH 32",
        f"SELECT id, text, price {parquet} BATCH 512 REPEAT 2",
        f"SELECT user_id, clicks * 3 AS c {parquet} WHERE label = 1 SHUFFLE GLOBALLY BATCH 256 REPEAT 4",
        f"SELECT id, price, category {csv} SHUFFLE GLOBALLY BATCH 1024 REPEAT 5",
        f"SELECT text, label {json_lines} WHERE price < 30 SHUFFLE WITHIN 5000 ROWS BATCH 128 REPEAT 3",
        f"SELECT id, text {arrow} WHERE clicks > 2 BATCH 64 REPEAT 6",
        f"SELECT user_id, price {arrow} SHUFFLE GLOBALLY BATCH 512 REPEAT 5",
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
