-- guide_train verbose=no
SELECT label, resize(decode_image(image), 16, 16) AS pixels FROM clean SHUFFLE WITHIN 10000 ROWS SEED 42 BATCH 4

-- guide_named verbose=no
SELECT cheap.id, upper(category) AS category, words.word, CASE WHEN price < 10 THEN 1 ELSE 0 END AS gift
FROM (SELECT id, category, price FROM sales WHERE price < 50) AS cheap LEFT JOIN words ON cheap.id = words.id BATCH 16

-- guide_tokens verbose=no
SELECT id, unnest(tokens) AS token FROM web BATCH 256

-- guide_both verbose=no
SELECT id FROM web UNION ALL SELECT id FROM books BATCH 16

-- guide_everything wide=yes verbose=no
SELECT id, tokens FROM web SHUFFLE WITHIN 20 ROWS SEED 42 SKIP 10 TAKE 45 BUCKET BY array_length(tokens) BOUNDARIES (12, 24)
BATCH 4 PER RANK DROP REMAINDER PAD tokens REPEAT 3 OPTIONS (on_error = 'skip')

-- guide_packed wide=yes verbose=no
SELECT id, tokens FROM MIX ((SELECT * FROM web) WEIGHT 0.7, (SELECT * FROM books) WEIGHT 0.3)
SHUFFLE GLOBALLY SEED 1 PACK tokens INTO 128 BATCH 4 DROP REMAINDER

-- guide_packed_long verbose=no
SELECT tokens FROM MIX (web WEIGHT 0.7, books WEIGHT 0.3) SHUFFLE WITHIN 100 ROWS SEED 1 PACK tokens INTO 56 BATCH 4
OPTIONS (on_error = 'skip', error_budget = '30 %', dead_letters = '{dead}')

-- guide_by_tokens verbose=no
SELECT id, tokens FROM web SHUFFLE GLOBALLY BATCH BY TOKENS 256 ON tokens PAD tokens TO 64 WITH -1

-- guide_split verbose=no
SELECT id FROM sales SHUFFLE GLOBALLY BATCH 16 GLOBAL PAD REMAINDER REPEAT 2

-- guide_crossing verbose=no
SELECT id FROM sales SHUFFLE GLOBALLY BATCH 30 REPEAT 2 CONTINUOUS

-- guide_resumed verbose=no
SELECT id, price FROM sales WHERE clicks > 1 SHUFFLE WITHIN 25 ROWS SEED 1 BATCH 8 REPEAT 4

-- guide_options verbose=no
SELECT label, resize(decode_image(image), 12, 12) AS pixels FROM photos SHUFFLE GLOBALLY BATCH 5 REPEAT 2
OPTIONS (
  on_error = 'skip', error_budget = '40 %', dead_letters = '{dead}', dead_letter_bytes = '1MiB', equal_steps = 'drop',
  horizon = 4, relax = 'numeric', optimize = 'default', disable_rules = 'row-swap',
  cache_dir = '{cache}', cache_quota = '1GiB', cache_price = '4 min/GB'
)
