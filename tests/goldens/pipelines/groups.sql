-- groups_pack wide=yes
SELECT id, ids FROM six PACK ids INTO 7 BATCH 2

-- groups_pack_padded wide=yes
SELECT id, ids FROM six PACK ids INTO 7 BATCH 2 PAD ids WITH -1

-- groups_pack_null
SELECT id, ids FROM six PACK ids INTO 4 BATCH 1 OPTIONS (on_error = 'null')

-- groups_pack_skip
SELECT id, ids FROM six PACK ids INTO 4 BATCH 1 OPTIONS (on_error = 'skip')

-- groups_pack_too_long
SELECT id, ids FROM six PACK ids INTO 4 BATCH 1

-- groups_pack_shuffled wide=yes
SELECT id, ids FROM a SHUFFLE WITHIN 20 ROWS SEED 4 PACK ids INTO 16 BATCH 4 DROP REMAINDER REPEAT 2 OPTIONS (horizon = 2)

-- groups_pack_replace
SELECT id, ids FROM a PACK ids INTO 12 BATCH 3 OPTIONS (on_error = 'replace')

-- groups_bucket wide=yes
SELECT id, ids FROM six BUCKET BY array_length(ids) BOUNDARIES (2, 4) BATCH 2

-- groups_bucket_shuffled wide=yes
SELECT id, value FROM num SHUFFLE GLOBALLY SEED 2 BUCKET BY value BOUNDARIES (3, 6) BATCH 7 REPEAT 2

-- groups_bucket_horizon wide=yes
SELECT id, value FROM num SHUFFLE WITHIN 9 ROWS SEED 2 BUCKET BY value BOUNDARIES (3, 6) BATCH 7 GLOBAL REPEAT 2 CONTINUOUS
OPTIONS (horizon = 1)

-- groups_bucket_windows wide=yes
SELECT id, d FROM rows SHUFFLE WITHIN 10 ROWS SEED 2 BUCKET BY d BOUNDARIES (4, 9) BATCH 7 GLOBAL REPEAT 2 CONTINUOUS
OPTIONS (horizon = 1)

-- groups_bucket_fails
SELECT id, value FROM num BUCKET BY 10 / (value - 4) BOUNDARIES (3, 6) BATCH 7 OPTIONS (on_error = 'skip')

-- groups_tokens wide=yes
SELECT id, ids FROM six BATCH BY TOKENS 7 ON ids

-- groups_tokens_padded wide=yes
SELECT id, ids FROM six BATCH BY TOKENS 8 ON ids PAD ids

-- groups_tokens_null
SELECT id, ids FROM six BATCH BY TOKENS 4 ON ids OPTIONS (on_error = 'null')

-- groups_tokens_too_long
SELECT id, ids FROM six BATCH BY TOKENS 4 ON ids

-- groups_tokens_counted wide=yes
SELECT id, value FROM num WHERE id % 4 > 0 SHUFFLE GLOBALLY BATCH BY TOKENS 40 ON value REPEAT 2

-- groups_tokens_global wide=yes
SELECT id, ids FROM a SHUFFLE WITHIN 30 ROWS SEED 5 BATCH BY TOKENS 60 ON ids GLOBAL DROP REMAINDER REPEAT 2

-- groups_pad_to
SELECT id, ids FROM a BATCH 6 PAD ids TO 10 WITH -1

-- groups_pad_too_short
SELECT id, ids FROM six BATCH 2 PAD ids TO 4

-- groups_pad_too_short_skip
SELECT id, ids FROM six BATCH 2 PAD ids TO 4 OPTIONS (on_error = 'skip')

-- groups_bucket_pad wide=yes
SELECT id, ids FROM a SHUFFLE WITHIN 40 ROWS SEED 42 SKIP 10 TAKE 50 BUCKET BY array_length(ids) BOUNDARIES (3, 6)
BATCH 4 PER RANK DROP REMAINDER PAD ids REPEAT 3 OPTIONS (on_error = 'skip')

-- groups_mix wide=yes
SELECT id, ids FROM MIX (a WEIGHT 0.7, b WEIGHT 0.3) SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 8 REPEAT 2

-- groups_mix_longest wide=yes
SELECT id, ids FROM MIX (a WEIGHT 0.5, c WEIGHT 0.5, stop => 'longest') SHUFFLE GLOBALLY SEED 3 BATCH 8 REPEAT 2

-- groups_mix_longest_continuous
SELECT id FROM MIX (num WEIGHT 2, few WEIGHT 1, stop => 'longest') BATCH 7 REPEAT 3 CONTINUOUS

-- groups_mix_late wide=yes
SELECT id, value FROM MIX (num WEIGHT 0.95, few WEIGHT 0.05) BUCKET BY value BOUNDARIES (3, 6) BATCH 4 REPEAT 3
OPTIONS (horizon = 1)

-- groups_mix_windows wide=yes
SELECT id, d FROM MIX ((SELECT id, d FROM rows) WEIGHT 0.8, (SELECT id, value AS d FROM few) WEIGHT 0.2, stop => 'longest')
SHUFFLE WITHIN 10 ROWS SEED 4 BUCKET BY d BOUNDARIES (4, 9) BATCH 5 REPEAT 2 OPTIONS (horizon = 1)

-- groups_mix_filters wide=yes
SELECT id, ids FROM MIX ((SELECT id, ids FROM a WHERE id % 3 <> 1) WEIGHT 2, (SELECT id, ids FROM b WHERE id < 105) WEIGHT 1) AS t
WHERE id % 50 < 20 SHUFFLE WITHIN 10 ROWS SEED 8 SKIP 2 TAKE 25 BATCH 5 REPEAT 2

-- groups_mix_limits
SELECT id, ids FROM MIX ((SELECT id, ids FROM a LIMIT 20 OFFSET 3) WEIGHT 1, (SELECT id, ids FROM b LIMIT 5) WEIGHT 1,
                         stop => 'longest') SEED 2 BATCH 6

-- groups_mix_pack wide=yes
SELECT id, ids FROM MIX ((SELECT * FROM a) WEIGHT 0.7, (SELECT * FROM b) WEIGHT 0.3)
SHUFFLE GLOBALLY SEED 1 PACK ids INTO 24 BATCH 3 DROP REMAINDER REPEAT 2

-- groups_mix_columns_differ
SELECT id FROM MIX (num WEIGHT 5, few WEIGHT 1, (SELECT id FROM six) WEIGHT 2) SEED 9 BATCH 10 GLOBAL REPEAT 2

-- groups_mix_three wide=yes
SELECT id FROM MIX ((SELECT id FROM num) WEIGHT 5, (SELECT id FROM few) WEIGHT 1, (SELECT id FROM six) WEIGHT 2)
SEED 9 BATCH 10 GLOBAL REPEAT 2

-- groups_unnest wide=yes
SELECT id, unnest(ids) AS item FROM a WHERE id % 3 <> 1 SHUFFLE WITHIN 12 ROWS SEED 3 BATCH 16 REPEAT 2

-- groups_unnest_parquet segment=5
SELECT id, unnest(list) AS item, random_int(0, 50) AS r FROM rows SHUFFLE GLOBALLY SEED 3 SKIP 3 TAKE 40 BATCH 9

-- groups_limit wide=yes
SELECT id, x FROM rows LIMIT 23 OFFSET 8

-- groups_limit_filtered
SELECT id, x FROM rows WHERE d > 4 LIMIT 13 OFFSET 4

-- groups_limit_inside
SELECT id * 2 AS twice FROM (SELECT id FROM comma LIMIT 30) AS q WHERE id % 2 = 1 SHUFFLE GLOBALLY SEED 4 BATCH 4

-- groups_union wide=yes
SELECT id, x, d, name FROM rows UNION ALL SELECT id + 1000, x, d, name FROM comma WHERE d < 9
SHUFFLE WITHIN 25 ROWS SEED 7 BATCH 16 REPEAT 2

-- groups_union_computed
SELECT upper(name) AS name, id + random_int(0, 9) AS id
FROM (SELECT id, name FROM rows WHERE id < 20 UNION ALL SELECT id + 1000, name FROM rows WHERE id > 40) AS q
SHUFFLE WITHIN 16 ROWS BATCH 8 REPEAT 2

-- groups_join wide=yes
SELECT a.id, ids FROM a JOIN k ON a.id = k.key SHUFFLE WITHIN 20 ROWS SEED 2 BATCH 9 REPEAT 2

-- groups_left_join wide=yes
SELECT t.id, title, weight FROM t LEFT JOIN names ON t.d = names.key SHUFFLE GLOBALLY BATCH 6

-- groups_join_of_query
SELECT rows.id, n.title FROM rows JOIN (SELECT key, title FROM names WHERE key < 3) AS n ON rows.d = n.key BATCH 5

-- groups_join_key_twice
SELECT rows.id, label FROM rows JOIN twice ON rows.d = twice.key BATCH 5
