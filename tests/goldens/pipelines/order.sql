-- order_stored wide=yes
SELECT id, x FROM rows BATCH 16

-- order_within wide=yes
SELECT id, random_uniform() AS u FROM rows SHUFFLE WITHIN 20 ROWS SEED 42 BATCH 8 DROP REMAINDER REPEAT 3

-- order_globally wide=yes
SELECT id, random_uniform() AS u FROM rows SHUFFLE GLOBALLY SEED 5 BATCH 7 REPEAT 3

-- order_globally_filtered wide=yes
SELECT id, random_uniform() AS u FROM rows WHERE d > 3 SHUFFLE GLOBALLY SEED 5 BATCH 7 REPEAT 3

-- order_skip_take wide=yes
SELECT id FROM rows SHUFFLE WITHIN 12 ROWS SEED 1 SKIP 2 TAKE 30 BATCH 20 REPEAT 2

-- order_skip_take_filtered
SELECT id FROM rows WHERE d <> 5 SHUFFLE WITHIN 12 ROWS SEED 1 SKIP 5 TAKE 21 BATCH 6 REPEAT 2

-- order_skip_all
SELECT id FROM rows SKIP 100 BATCH 6 REPEAT 2

-- order_seed_large
SELECT id, random_int(0, 1000000) AS r FROM ipc SHUFFLE WITHIN 9 ROWS SEED 9007199254740993 BATCH 9

-- order_remainder_drop wide=yes
SELECT path FROM photos BATCH 5 DROP REMAINDER REPEAT 2

-- order_remainder_pad wide=yes
SELECT path FROM photos BATCH 5 PAD REMAINDER REPEAT 2

-- order_global_batches wide=yes
SELECT label, path FROM photos SHUFFLE GLOBALLY BATCH 6 GLOBAL REPEAT 2

-- order_global_pad wide=yes
SELECT id FROM num BATCH 16 GLOBAL PAD REMAINDER REPEAT 2

-- order_per_rank wide=yes
SELECT id FROM num SHUFFLE GLOBALLY SEED 3 BATCH 16 PER RANK DROP REMAINDER

-- order_continuous wide=yes
SELECT path FROM photos BATCH 5 REPEAT 2 CONTINUOUS

-- order_continuous_shuffled wide=yes
SELECT id FROM rows WHERE d > 2 SHUFFLE WITHIN 15 ROWS SEED 6 SKIP 3 TAKE 31 BATCH 8 GLOBAL REPEAT 3 CONTINUOUS

-- order_without_end wide=yes limit=9
SELECT id FROM few SHUFFLE GLOBALLY BATCH 4 REPEAT

-- order_without_end_filtered limit=9
SELECT id FROM few WHERE id >= 0 BATCH 4 REPEAT

-- order_without_end_draws limit=4
SELECT id FROM few WHERE random_bool(0.4) SEED 2 BATCH 5 DROP REMAINDER REPEAT

-- order_default_batch
SELECT id FROM num

-- order_steps_count wide=yes
SELECT id FROM num WHERE value <> 3 SHUFFLE WITHIN 10 ROWS SEED 3 BATCH 7 REPEAT 2 OPTIONS (equal_steps = 'count')

-- order_steps_drop wide=yes
SELECT id FROM num WHERE value <> 3 SHUFFLE WITHIN 10 ROWS SEED 3 BATCH 7 REPEAT 2 OPTIONS (equal_steps = 'drop')

-- order_steps_pad wide=yes
SELECT id FROM num WHERE value <> 3 SHUFFLE WITHIN 10 ROWS SEED 3 BATCH 7 REPEAT 2 OPTIONS (equal_steps = 'pad')

-- order_steps_pad_continuous wide=yes
SELECT id FROM few BATCH 4 REPEAT 2 CONTINUOUS OPTIONS (equal_steps = 'pad')

-- order_draws_of_streams
SELECT id, random_int(0, 100, stream => 'one') AS a, random_int(0, 100, stream => 'two') AS b, random_int(0, 100) AS c,
       random_normal() AS g
FROM rows SHUFFLE GLOBALLY SEED 1 BATCH 20 REPEAT 2
