-- failures_fail wide=yes
SELECT resize(decode_image(image), 8, 8) AS pixels, label FROM photos BATCH 5

-- failures_skip wide=yes
SELECT resize(decode_image(image), 8, 8) AS pixels, label FROM photos BATCH 5 REPEAT 2 OPTIONS (on_error = 'skip')

-- failures_replace wide=yes
SELECT resize(decode_image(image), 8, 8) AS pixels, label FROM photos SHUFFLE WITHIN 6 ROWS SEED 3 BATCH 5 REPEAT 2
OPTIONS (on_error = 'replace')

-- failures_null wide=yes
SELECT resize(decode_image(image), 8, 8) AS pixels, label FROM photos BATCH 5 OPTIONS (on_error = 'null')

-- failures_replace_none
SELECT 1 / (id - 4) AS x FROM num BATCH 1 OPTIONS (on_error = 'replace')

-- failures_unneeded
SELECT label FROM (SELECT label, decode_image(image) AS pixels FROM photos) AS t BATCH 6

-- failures_filtered wide=yes
SELECT label, image_width(image) AS w FROM photos
WHERE path NOT LIKE '%broken%' AND path NOT LIKE '%empty%' AND image_width(image) > 9 BATCH 6

-- failures_letters wide=yes
SELECT id, 1 / (id % 10 - 9) AS x FROM num BATCH 7
OPTIONS (on_error = 'skip', error_budget = 9, dead_letters = '{dead}')

-- failures_letters_packed
SELECT id, 1 / (id % 10 - 9) AS x, ids FROM a SHUFFLE WITHIN 20 ROWS SEED 3 PACK ids INTO 12 BATCH 2
OPTIONS (on_error = 'skip', dead_letters = '{dead}')

-- failures_letters_photos
SELECT path, random_hflip(resize(decode_image(image), 8, 8)) AS pixels FROM photos SHUFFLE WITHIN 5 ROWS SEED 3 BATCH 4
REPEAT 2 OPTIONS (on_error = 'replace', dead_letters = '{dead}', dead_letter_bytes = '1KiB')

-- failures_letters_mix
SELECT id, 10 / (id % 7 - 2) + random_int(0, 1000) AS x FROM MIX (num WEIGHT 2, few WEIGHT 1, stop => 'longest') BATCH 8
OPTIONS (on_error = 'null', dead_letters = '{dead}', error_budget = '25 %')

-- failures_letters_nowhere
SELECT 1 AS x FROM num OPTIONS (dead_letters = 's3://bucket/x')

-- failures_budget wide=yes
SELECT id, 1 / (id % 10 - 9) AS x FROM num SHUFFLE WITHIN 10 ROWS SEED 1 BATCH 7 OPTIONS (on_error = 'skip', error_budget = 4)

-- failures_budget_share
SELECT id, 1 / (id % 10 - 9) AS x FROM num BATCH 7 REPEAT 2 OPTIONS (on_error = 'null', error_budget = '5 %')

-- failures_behind_a_limit limit=2
SELECT 100 / (id - 25) AS x FROM num BATCH 10

-- failures_behind_no_limit limit=3
SELECT 100 / (id - 25) AS x FROM num WHERE id >= 0 BATCH 10

-- failures_behind_take
SELECT 100 / (id - 25) AS x FROM num WHERE id >= 0 TAKE 20 BATCH 10 REPEAT 2

-- failures_in_filter
SELECT id FROM rows WHERE d <> 0 AND id / d > 4 AND 10 / (id - 30) < 3 BATCH 8 OPTIONS (on_error = 'skip')

-- failures_casts
SELECT id, CAST(name AS BIGINT) AS n FROM t BATCH 4 OPTIONS (on_error = 'null')

-- failures_of_key
SELECT rows.id, n.title FROM rows LEFT JOIN names AS n ON 10 / rows.d = n.key BATCH 7 OPTIONS (on_error = 'skip')

-- failures_end_without_rows
SELECT id FROM num WHERE id > 200 BATCH 4 REPEAT

-- failures_end_of_remainder
SELECT id FROM few BATCH 20 DROP REMAINDER REPEAT

-- failures_aggregate
SELECT d, count(*) FROM rows GROUP BY d BATCH 2

-- failures_order_by
SELECT d FROM rows ORDER BY d BATCH 2

-- failures_distinct
SELECT DISTINCT d FROM rows BATCH 2

-- failures_unknown_column
SELECT id, namee FROM rows BATCH 8

-- failures_unknown_table
SELECT id FROM rowss BATCH 8

-- failures_clause_order
SELECT id FROM rows BATCH 8 SHUFFLE GLOBALLY

-- failures_no_file
SELECT id FROM parquet('{data}/nothing.parquet') BATCH 8

-- failures_option
SELECT id FROM rows BATCH 8 OPTIONS (on_eror = 'skip')

-- failures_random
SELECT random() AS r FROM rows BATCH 8

-- failures_type
SELECT upper(image) AS x, resize(label, 3, 3) AS y FROM photos BATCH 8

-- failures_sizes_differ
SELECT decode_image(image) AS pixels FROM clean BATCH 4

-- failures_batch_too_large
SELECT id FROM rows BATCH 100000000
