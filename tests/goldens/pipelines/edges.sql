-- edges_casts verbose=no
SELECT id, CAST(number AS BIGINT) AS a, CAST(number AS DOUBLE) AS b, CAST(number AS DECIMAL(10, 2)) AS c,
       CAST(truth AS BOOLEAN) AS d, CAST(day AS DATE) AS e, CAST(clock AS TIME) AS f, to_timestamp(day) AS g,
       arrow_cast(number, 'UInt8') AS h
FROM odd BATCH 8 OPTIONS (on_error = 'null')

-- edges_bytes verbose=no
SELECT id, CAST(bytes AS VARCHAR) AS a, upper(CAST(bytes AS VARCHAR)) AS b, bytes || 'x' AS c,
       CAST(all_bytes AS VARCHAR[]) AS d
FROM odd SHUFFLE WITHIN 9 ROWS SEED 1 BATCH 8 OPTIONS (on_error = 'null')

-- edges_nested verbose=no
SELECT id, CAST(numbers AS BIGINT[]) AS a, CAST(make_array(numbers, numbers) AS BIGINT[][]) AS b,
       CAST(named['number'] AS BIGINT) AS c, array_sum(CAST(numbers AS BIGINT[])) AS d
FROM odd BATCH 8 OPTIONS (on_error = 'null')

-- edges_arithmetic verbose=no
SELECT id, 10 / small AS a, 10 % small AS b, CAST(large AS INT) AS c, arrow_cast(large, 'Int8') AS d,
       CAST(large AS DECIMAL(5, 0)) AS e, factorial(large) AS f, coalesce(10 / small, 1) AS g
FROM odd BATCH 8 OPTIONS (on_error = 'null')

-- edges_functions verbose=no
SELECT id, decode(hex, 'hex') AS a, regexp_like(number, pattern) AS b, regexp_replace(number, pattern, 'x') AS c,
       substr(number, 1, one) AS d, split_part(number, ',', small) AS e, chr(one) AS f, make_date(2024, large, 1) AS g
FROM odd BATCH 8 OPTIONS (on_error = 'null')

-- edges_sizes verbose=no
SELECT id, repeat('ab', large) AS a, lpad(number, large) AS b, array_repeat(id, large) AS c, array_resize([id], one) AS d,
       range(0, large) AS e
FROM odd BATCH 8 OPTIONS (on_error = 'null')

-- edges_first_is_told verbose=no
SELECT id, decode(hex, 'hex') AS a, 10 / small AS b FROM odd BATCH 8

-- edges_predicate verbose=no
SELECT id FROM odd WHERE CAST(bytes AS VARCHAR) <> 'none' AND repeat('a', large) = 'aaa' BATCH 8 OPTIONS (on_error = 'skip')

-- edges_unnest_of_casts verbose=no
SELECT id, unnest(CAST(numbers AS BIGINT[])) AS x FROM odd BATCH 8 OPTIONS (on_error = 'skip')

-- edges_join_by_cast verbose=no
SELECT id, name FROM odd LEFT JOIN sides ON CAST(number AS BIGINT) = value BATCH 8 OPTIONS (on_error = 'replace')

-- edges_constant_fails verbose=no
SELECT id, CASE WHEN id >= 20 THEN CAST('x' AS BIGINT) END AS x, nvl(nullif(id, 7), CAST('y' AS BIGINT)) AS y
FROM odd BATCH 8 OPTIONS (on_error = 'skip')

-- edges_no_rows verbose=no
SELECT id, CAST('x' AS BIGINT) AS x, 1 / 0 AS y FROM odd WHERE small % 2 = 3 BATCH 8

-- edges_dictionaries segment=24 verbose=no
SELECT id, arrow_cast(number, 'Dictionary(Int8, Utf8)') AS x FROM odd WHERE id % 2 = 0 BATCH 5

-- edges_types verbose=no
SELECT * FROM typed BATCH 2

-- edges_hidden_structs verbose=no
SELECT id, st, st['a'] AS a, (CASE WHEN id > 2 THEN st END)['a'] AS b, nullif(st, st)['a'] AS c FROM hidden BATCH 3

-- edges_hidden_lists verbose=no
SELECT array_append(l, 7) AS a, array_prepend(7, l) AS p, array_concat(l, [9]) AS c, l[1] AS e, array_length(l) AS n,
       CAST(l AS VARCHAR[]) AS s
FROM hidden SHUFFLE GLOBALLY SEED 1 BATCH 3

-- edges_hidden_join verbose=no
SELECT v.st['a'] AS x FROM hidden AS t LEFT JOIN hidden AS v ON t.id = v.id + 1 BATCH 3

-- edges_hidden_unnest verbose=no
SELECT id, unnest(l) AS x FROM hidden BATCH 3

-- edges_hidden_pack verbose=no
SELECT id, l FROM hidden PACK l INTO 4 BATCH 2

-- edges_damage_unneeded verbose=no
SELECT id, d FROM (SELECT *, upper(name) AS u, x + 1 AS y FROM damaged) AS s WHERE d > 1 SHUFFLE GLOBALLY SEED 3 BATCH 7

-- edges_damage_needed verbose=no
SELECT id, x FROM damaged SHUFFLE WITHIN 20 ROWS SEED 3 BATCH 7 OPTIONS (on_error = 'skip')

-- edges_damage_behind verbose=no
SELECT id, x FROM damaged WHERE id >= 0 TAKE 18 BATCH 7 REPEAT 2

-- edges_quote verbose=no
SELECT * FROM csv('{data}/quote.csv') BATCH 2 OPTIONS (on_error = 'skip')

-- edges_other_quote verbose=no
SELECT * FROM csv('{data}/quote.csv', quote => '''') BATCH 2

-- edges_lying_blocks verbose=no
SELECT id FROM avro('{data}/lying.avro') BATCH 20

-- edges_no_image verbose=no
SELECT label FROM images('{data}/notes.txt') BATCH 2

-- edges_wide verbose=no
SELECT *, c0 + c5 AS z
FROM (SELECT id, id * 2 + 1 AS c0, x * 1.5 - id AS c1, name || '2' AS c2, random_int(0, 3) AS c3, 100 / (d - 4) AS c4,
             id * 5 + 1 AS c5, x * 6.5 - id AS c6, name || '7' AS c7, random_int(0, 8) AS c8, 100 / (d - 9) AS c9,
             list FROM rows) AS q
WHERE c1 > -100 AND c5 % 3 = 1 SHUFFLE WITHIN 10 ROWS SEED 7 BATCH 4 OPTIONS (on_error = 'null')

-- edges_many_conditions verbose=no
SELECT id, x * 2 AS x FROM rows
WHERE ((id <> 0 AND id <> 3) AND (100 / (d - 3) <> 7 AND id <> 9)) AND ((name <> 'n4' AND id <> 15) AND (id <> 18 AND id <> 21))
BATCH 4 OPTIONS (on_error = 'skip')

-- edges_doubled verbose=no
SELECT (id + id) % 1009 AS id FROM (SELECT (id + id) % 1009 AS id FROM (SELECT (id + id) % 1009 AS id
FROM (SELECT (id + id) % 1009 AS id FROM (SELECT (id + id) % 1009 AS id FROM rows) AS a) AS b) AS c) AS d BATCH 9

-- edges_nobody_reads_errors verbose=no
SELECT CAST(name AS BIGINT) + q AS c FROM (SELECT id, name, 10 / d AS q FROM t) AS s WHERE id = 7 BATCH 2

-- edges_filters_in_order verbose=no
SELECT id FROM t WHERE id = 7 AND CAST(name AS BIGINT) > 0 AND 10 / d > 0

-- edges_limit_over_draws verbose=no
SELECT id FROM rows WHERE random_uniform() < 0.5 LIMIT 3

-- edges_limit_over_unnest verbose=no
SELECT unnest(list) AS item FROM rows LIMIT 6 TAKE 2
