"""How near the optimiser's prediction comes: sixteen pipelines that calibration does not run.

    cargo build --release
    python3 benches/predicted.py PHOTOS [OTHER_PHOTOS]

Calibrates (about a minute) unless FOREBAY_COSTS names a file of prices, then runs each pipeline three
times on one thread, whole processes by turns, and prints predicted seconds, the fastest run's, and their
ratio. PHOTOS is a folder with a folder per class, as is OTHER_PHOTOS (the same one if left out).
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
    image = f"FROM images('{photos}') BATCH 32"
    other = f"FROM images('{others}') BATCH 32"
    return [
        f"SELECT resize(decode_image(image), 128, 128) AS x {image}",
        f"SELECT normalize(random_resized_crop(decode_image(image), 224, 224), 'imagenet') AS x {image}",
        f"SELECT to_float(center_crop(resize_shortest(decode_image(image), 256), 224, 224)) AS x {image}",
        "SELECT random_hflip(color_jitter(resize(decode_image(image), 160, 160), 0.4, 0.4, 0.4, 0.1)) AS x "
        + image,
        f"SELECT gaussian_blur(resize(decode_image(image), 96, 96), 9) AS x {image}",
        "SELECT to_chw(normalize(random_crop(resize(decode_image(image), 256, 256), 224, 224), 'imagenet')) "
        f"AS x {other}",
        f"SELECT grayscale(random_rotate(resize(decode_image(image), 200, 200), 10)) AS x {image}",
        f"SELECT image_width(image) AS w, image_height(image) AS h {image} REPEAT 30",
        "SELECT resize(decode_image(image), 64, 64) AS x "
        f"FROM images('{photos}') WHERE image_width(image) >= 500 BATCH 16",
        "SELECT random_erasing(to_float(random_vflip(resize(decode_image(image), 224, 224)))) AS x "
        + image,
        f"SELECT solarize(posterize(resize(decode_image(image), 300, 300), 4), 128) AS x {image}",
        f"SELECT resize(decode_image(image), 224, 224, 'bicubic') AS x, random_uniform() AS u {other}",
        f"SELECT id, price * 2 AS p, clicks + 1 AS c FROM parquet('{tables}/t.parquet') WHERE clicks > 1 "
        "BATCH 1024 REPEAT 15",
        f"SELECT id, price, text FROM csv('{tables}/t.csv') WHERE price > 20 BATCH 256 REPEAT 3",
        f"SELECT id, category, one_hot(label, 2) AS y FROM json('{tables}/t.jsonl') BATCH 256 REPEAT 3",
        f"SELECT id, price + random_normal(0, 0.1) AS p FROM arrow('{tables}/t.arrow') "
        "SHUFFLE WITHIN 10000 ROWS BATCH 256 REPEAT 5",
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
        fastest = [float("inf")] * len(queries)
        for _ in range(ROUNDS):
            for number, query in enumerate(queries):
                ran = json.loads(call("run", "-e", query, "--threads", "1", "--json", FOREBAY_COSTS=prices))
                fastest[number] = min(fastest[number], ran["seconds"])
        for query, measured in zip(queries, fastest):
            words = ["explain", "-e", query, "--threads", "1", "--format", "json"]
            told = json.loads(call(*words, FOREBAY_COSTS=prices))
            predicted = told["optimizer"]["chosen_seconds"]
            print(f"{predicted:7.3f} s {measured:7.3f} s {predicted / measured:5.2f}  {query[:90]}")


main()
