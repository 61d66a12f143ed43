-- sources_parquet wide=yes
SELECT id, x, d, name, list FROM rows SHUFFLE WITHIN 12 ROWS SEED 2 BATCH 9

-- sources_ipc wide=yes
SELECT id, x, d, name, list FROM ipc SHUFFLE WITHIN 12 ROWS SEED 2 BATCH 9

-- sources_csv wide=yes
SELECT id, x, d, name FROM comma SHUFFLE WITHIN 12 ROWS SEED 2 BATCH 9

-- sources_json wide=yes
SELECT id, x, d, name FROM lines SHUFFLE WITHIN 12 ROWS SEED 2 BATCH 9

-- sources_avro wide=yes
SELECT id, x, d, name FROM blocks SHUFFLE WITHIN 12 ROWS SEED 2 BATCH 9

-- sources_images wide=yes
SELECT path, class, label, octet_length(image) AS bytes FROM photos SHUFFLE WITHIN 5 ROWS SEED 2 BATCH 4

-- sources_function
SELECT id, d FROM parquet('{data}/rows') WHERE d > 3 BATCH 9

-- sources_pattern
SELECT id FROM json('{data}/a/*.json') SHUFFLE GLOBALLY BATCH 12

-- sources_pruned
SELECT id, d FROM rows WHERE id BETWEEN 12 AND 31 BATCH 5

-- sources_segments segment=3
SELECT id, x, name, random_uniform() AS u FROM rows WHERE x IS NOT NULL SHUFFLE WITHIN 30 ROWS SEED 6 BATCH 7 REPEAT 2

-- sources_pipeline
SELECT id + twice AS sum, name FROM kept SHUFFLE WITHIN 5 ROWS SEED 3 BATCH 4

-- sources_properties
SELECT id, d, id * 2 + d AS a, random_normal() + coalesce(x, 0.0) AS g, upper(name) AS s, one_hot(d, 13) AS h,
       CASE WHEN d > 5 THEN x ELSE -x END AS c
FROM ipc WHERE random_bool(0.7) AND name LIKE 'n1%' SHUFFLE WITHIN 20 ROWS SEED 11 BATCH 5 DROP REMAINDER REPEAT 2

-- images_train wide=yes
SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)), 'imagenet') AS pixels
FROM photos WHERE octet_length(image) > 0 SHUFFLE WITHIN 5 ROWS SEED 42 BATCH 4 DROP REMAINDER REPEAT 3
OPTIONS (on_error = 'replace', relax = 'none')

-- images_plain wide=yes
SELECT label, to_chw(resize(decode_image(image), 8, 8)) AS pixels FROM clean BATCH 5 GLOBAL REPEAT 2 CONTINUOUS
OPTIONS (optimize = 'off')

-- images_late
SELECT pixels, twice FROM (
  SELECT resize(decode_image(image), 8, 8) AS pixels, label, label * 2 AS twice FROM photos) AS q
WHERE twice > 2 BATCH 4 OPTIONS (on_error = 'skip')

-- images_jitter
SELECT label, color_jitter(random_rotate(resize(decode_image(image), 16, 16), 20), 0.4, 0.4, 0.4, 0.1) AS pixels
FROM clean SHUFFLE GLOBALLY SEED 3 BATCH 4 REPEAT 2

-- images_many
SELECT label, random_erasing(to_float(gaussian_blur(random_grayscale(resize(decode_image(image), 17, 15), 0.5), 3, 0.1, 2.0)), 0.5) AS a,
       posterize(solarize(center_crop(resize(decode_image(image), 20, 20), 13, 14), 128), 3) AS b
FROM clean SHUFFLE WITHIN 4 ROWS SEED 5 BATCH 3

-- images_pinned
SELECT label, crop(PINNED vflip(resize(decode_image(image), 20, 20)), 2, 1, 12, 13) AS pixels FROM clean BATCH 6

-- images_gray
SELECT path, resize(decode_image(image, 'gray'), 9, 7) AS pixels, image_width(image) AS w, image_height(image) AS h
FROM clean WHERE image_width(image) % 3 <> 1 SHUFFLE WITHIN 6 ROWS SEED 3 BATCH 3 REPEAT 2 OPTIONS (equal_steps = 'drop')

-- images_numeric
SELECT label, normalize(hflip(resize(to_float(decode_image(image)), 12, 12)), 'imagenet') AS pixels FROM clean
SHUFFLE WITHIN 6 ROWS SEED 1 BATCH 4 OPTIONS (relax = 'numeric')

-- images_order
SELECT label, random_hflip(resize(decode_image(image), 12, 12)) AS pixels FROM clean WHERE label > 0
SHUFFLE WITHIN 6 ROWS SEED 1 BATCH 4 OPTIONS (relax = 'order')

-- images_statistical wide=yes
SELECT label, random_crop(random_hflip(normalize(resize(decode_image(image), 16, 16), 'imagenet')), 12, 12) AS pixels
FROM clean SHUFFLE WITHIN 6 ROWS SEED 1 BATCH 4 REPEAT 2 OPTIONS (relax = 'statistical')

-- images_without_rules
SELECT label, normalize(center_crop(resize(decode_image(image), 16, 16), 12, 12), 'imagenet') AS pixels
FROM clean WHERE label <> 1 BATCH 4 OPTIONS (disable_rules = 'row, filter, image')

-- images_one_hot
SELECT label, one_hot(label, 4) AS hot, center_crop(resize_shortest(decode_image(image), 10), 10, 10) AS pixels
FROM clean SHUFFLE WITHIN 5 ROWS SEED 8 BATCH 3 PAD REMAINDER

-- images_decoded_filter
SELECT label, path FROM photos WHERE decode_image(image) IS NOT NULL BATCH 5 OPTIONS (on_error = 'skip')

-- cache_off wide=yes
SELECT label, random_crop(normalize(x, 'imagenet'), 8, 8) AS pixels
FROM (SELECT label, resize(decode_image(image), 12, 12) AS x FROM photos) AS q
SHUFFLE WITHIN 6 ROWS SEED 3 BATCH 5 REPEAT 3 CACHE OFF OPTIONS (on_error = 'skip')

-- cache_auto wide=yes
SELECT label, random_crop(normalize(x, 'imagenet'), 8, 8) AS pixels
FROM (SELECT label, resize(decode_image(image), 12, 12) AS x FROM clean) AS q
SHUFFLE WITHIN 6 ROWS SEED 3 BATCH 5 REPEAT 30 CACHE AUTO OPTIONS (cache_dir = '{cache}')

-- cache_without_folder
SELECT label, random_hflip(resize(decode_image(image), 12, 12)) AS pixels FROM clean BATCH 5 REPEAT 3 CACHE AUTO

-- cache_at wide=yes
SELECT label, random_crop(normalize(x, 'imagenet'), 8, 8) AS pixels
FROM (SELECT label, resize(decode_image(image), 12, 12) AS x FROM photos) AS q
SHUFFLE WITHIN 6 ROWS SEED 3 BATCH 5 REPEAT 3 CACHE AT resize OPTIONS (cache_dir = '{cache}', on_error = 'skip')

-- cache_at_without_folder
SELECT label, random_hflip(resize(decode_image(image), 12, 12)) AS pixels FROM clean BATCH 5 REPEAT 3 CACHE AT resize

-- cache_at_draws
SELECT label, random_crop(resize(decode_image(image), 12, 12), 8, 8) AS pixels FROM clean BATCH 5 REPEAT 2
CACHE AT random_crop OPTIONS (cache_dir = '{cache}')

-- cache_freezing wide=yes
SELECT label, random_hflip(random_crop(resize(decode_image(image), 12, 12), 8, 8)) AS pixels FROM clean
SHUFFLE WITHIN 6 ROWS SEED 3 BATCH 5 REPEAT 3 CACHE AT random_crop FREEZING RANDOMNESS OPTIONS (cache_dir = '{cache}')

-- cache_of_rows wide=yes
SELECT id, upper(name) AS big, x + random_uniform() AS noisy FROM rows WHERE id % 3 <> 1 AND name IS NOT NULL
SHUFFLE WITHIN 20 ROWS BATCH 8 REPEAT 2 CACHE AT upper OPTIONS (cache_dir = '{cache}')

-- cache_of_union
SELECT upper(name) AS name, id + random_int(0, 9) AS id
FROM (SELECT id, name FROM rows WHERE id < 20 UNION ALL SELECT id + 1000, name FROM ipc WHERE id > 40) AS q
SHUFFLE WITHIN 16 ROWS BATCH 8 REPEAT 2 CACHE AT upper OPTIONS (cache_dir = '{cache}')

-- cache_too_small
SELECT label, random_hflip(resize(decode_image(image), 12, 12)) AS pixels FROM clean BATCH 5 REPEAT 3
CACHE AT resize OPTIONS (cache_dir = '{cache}', cache_quota = '1 KiB')

-- cache_counts wide=yes
SELECT id FROM num WHERE value * value % 13 < 6 SHUFFLE WITHIN 20 ROWS SEED 1 BATCH 8 CACHE OFF
OPTIONS (cache_dir = '{cache}')

-- cache_price
SELECT label, random_crop(resize(decode_image(image), 12, 12), 8, 8) AS pixels FROM clean
SHUFFLE GLOBALLY SEED 1 BATCH 5 REPEAT 20 OPTIONS (cache_dir = '{cache}', cache_quota = '1GiB', cache_price = '4 min/GB')

-- cache_auto_failing
SELECT label, random_hflip(resize(decode_image(image), 12, 12)) AS pixels FROM photos
SHUFFLE WITHIN 6 ROWS SEED 2 BATCH 5 REPEAT 20 OPTIONS (cache_dir = '{cache}', on_error = 'replace')
