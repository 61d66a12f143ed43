//! Tests of the messages for many kinds of bad SQL.

use crate::source::Format;
use crate::testing::{filled, run};

use super::options::list;

/// Returns the error message for `sql`, in which `{formats}` stands for the list of all formats,
/// and `{functions}` for the list of all table functions.
async fn mistake(sql: &str) -> String {
    let error = match run(&mut filled().await, sql).await {
        Ok(_) => panic!("accepted: {sql}"),
        Err(error) => error.to_string(),
    };
    let names =
        |of: fn(Format) -> &'static str| Format::ALL.iter().map(|&f| of(f)).collect::<Vec<_>>();
    let functions = names(Format::function).join(", ");
    { error.replace(&list(&names(Format::name)), "{formats}") }.replace(&functions, "{functions}")
}

macro_rules! mistakes {
    ($($name:ident: $sql:expr => @$message:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            insta::assert_snapshot!(mistake($sql).await, @$message);
        }
    )*};
}

mistakes! {
    misspelt_statement: "SELEC label FROM photos" => @r#"line 1, column 1: expected a statement, found "SELEC"; did you mean SELECT?"#;
    not_a_statement: "42" => @"line 1, column 1: expected a statement, found 42; statements begin with CREATE, SELECT, EXPLAIN, SHOW, DESCRIBE or DROP";
    insert: "INSERT INTO photos VALUES (1)" => @"line 1, column 1: INSERT is not supported; pipelines only read data";
    create_view: "CREATE VIEW v AS SELECT 1" => @"line 1, column 8: CREATE VIEW is not supported; a pipeline without clauses is a view: CREATE PIPELINE name AS SELECT ..";
    unknown_column: "SELECT\n  lable\nFROM photos" => @r#"line 2, column 3: unknown column "lable"; did you mean "label"?"#;
    unknown_column_in_where: "SELECT label FROM photos WHERE clas = 'a'" => @r#"line 1, column 32: unknown column "clas"; did you mean "class"?"#;
    unknown_column_far_off: "SELECT zzz FROM people" => @r#"line 1, column 8: unknown column "zzz"; available columns: id, name"#;
    unknown_qualifier: "SELECT foto.label FROM photos" => @r#"line 1, column 8: unknown table "foto" in "foto.label""#;
    unknown_qualified_column: "SELECT photos.lable FROM photos" => @r#"line 1, column 8: unknown column "lable"; did you mean "label"?"#;
    ambiguous_column: "SELECT id FROM people JOIN other ON people.id = other.id" => @r#"line 1, column 8: column "id" is ambiguous; write the table before it, as in table.column"#;
    unknown_table: "SELECT label FROM photoes" => @r#"line 1, column 19: unknown table "photoes"; did you mean "photos"?"#;
    unknown_function: "SELECT resise(decode_image(image), 2, 2) AS x FROM photos" => @r#"line 1, column 8: unknown function "resise"; did you mean "resize"?"#;
    unknown_table_function: "SELECT * FROM image('dir')" => @r#"line 1, column 15: unknown table function "image"; did you mean "images"?"#;
    unknown_table_function_far: "SELECT * FROM generate_series(1, 2)" => @r#"line 1, column 15: unknown table function "generate_series"; available table functions: {functions}"#;
    random: "SELECT random() AS x FROM photos" => @"line 1, column 8: random() is not supported: its result would differ every time; random_uniform() draws a number that moves with its row";
    uuid: "SELECT label,\n uuid() AS x FROM photos" => @"line 2, column 2: uuid() is not supported: its result would differ every time; use a column that names the row, or random_uniform()";
    now: "SELECT now() AS x FROM photos" => @"line 1, column 8: now() is not supported: its result would differ every time; write the time as a literal, such as TIMESTAMP '2026-01-31 12:00:00'";
    now_in_words: "SELECT label FROM photos WHERE CURRENT_TIMESTAMP > TIMESTAMP '2026-01-01'" => @"line 1, column 32: current_timestamp() is not supported: its result would differ every time; write the time as a literal, such as TIMESTAMP '2026-01-31 12:00:00'";
    day: "SELECT label + extract(year FROM current_date) AS x FROM photos" => @"line 1, column 34: current_date() is not supported: its result would differ every time; write the day as a literal, such as DATE '2026-01-31'";
    today_in_lookup: "SELECT name FROM photos JOIN people ON people.id = extract(day FROM today())" => @"line 1, column 69: today() is not supported: its result would differ every time; write the day as a literal, such as DATE '2026-01-31'";
    time: "SELECT Current_Time AS x FROM photos" => @"line 1, column 8: current_time() is not supported: its result would differ every time; write the time as a literal, such as TIME '12:00:00'";
    time_in_bucket: "SELECT label FROM photos BUCKET BY extract(hour FROM current_time()) BOUNDARIES (12) BATCH 2" => @"line 1, column 54: current_time() is not supported: its result would differ every time; write the time as a literal, such as TIME '12:00:00'";
    time_in_mix: "SELECT x FROM MIX ((SELECT now() AS x FROM people) WEIGHT 1)" => @"line 1, column 28: now() is not supported: its result would differ every time; write the time as a literal, such as TIMESTAMP '2026-01-31 12:00:00'";
    time_in_view: "CREATE PIPELINE v AS SELECT CAST(now() AS VARCHAR) AS x FROM photos" => @"line 1, column 34: now() is not supported: its result would differ every time; write the time as a literal, such as TIMESTAMP '2026-01-31 12:00:00'";
    order_by_row: "SELECT array_sort([id], name) AS x FROM people" => @"line 1, column 8: array_sort expects constants for its order: 'ASC' or 'DESC', and 'NULLS FIRST' or 'NULLS LAST'";
    map_of_lists: "SELECT map([id], array_append([name], 'x')) AS x FROM people" => @"line 1, column 8: map expects its keys and values as literals, with a value for each key: MAP {'a': x, 'b': y}";
    file_name: "SELECT input_file_name() AS x FROM photos" => @"line 1, column 8: input_file_name() is not supported: its result would differ every time; use a column that names the row, or random_uniform()";
    version: "SELECT version() AS x FROM photos" => @"line 1, column 8: version() is not supported: its result would differ from machine to machine; write a literal instead";
    wrong_argument_type: "SELECT normalize(resize(label, 2, 2), 'imagenet') AS x FROM photos" => @"line 1, column 18: resize expects an image, found Int32";
    wrong_argument_in_the_middle: "SELECT label, resize(decode_image(image), label, 2) AS x FROM photos" => @"line 1, column 15: resize expects a constant size above 0 as argument 2";
    zero_size_argument: "SELECT resize(decode_image(image), 0, 2) AS x FROM photos" => @"line 1, column 8: resize expects a constant size above 0 as argument 2";
    wrong_operand: "SELECT image + 1 AS x FROM photos" => @"line 1, column 8: Cannot coerce arithmetic expression Binary + Int64 to valid types";
    wrong_type_in_filter: "SELECT label FROM photos WHERE label" => @"line 1, column 32: WHERE expects a condition, found a value of type Int32";
    bad_cast: "SELECT CAST(image AS DOUBLE) AS x FROM photos" => @"line 1, column 13: Binary cannot be cast to Float64";
    variable_shapes: "SELECT label, decode_image(image) AS pixels FROM photos\nBATCH 32" => @r#"line 2, column 1: BATCH needs rows of one shape, but the shape of "pixels" varies; bring it to a fixed size with resize, center_crop or random_resized_crop"#;
    duplicate_output: "SELECT people.id, other.id FROM people JOIN other ON people.id = other.id" => @r#"line 1, column 19: two columns are named "id"; give one of them another name with AS"#;
    duplicate_expression: "SELECT label, label FROM photos" => @r#"line 1, column 15: two columns are named "label"; give one of them another name with AS"#;
    duplicate_wildcard: "SELECT * FROM people JOIN other ON people.id = other.id" => @r#"line 1, column 8: two columns are named "id"; give one of them another name with AS"#;
    batch_zero: "SELECT label FROM photos BATCH 0" => @"line 1, column 32: BATCH expects a whole number of rows of at least 1, found 0";
    batch_negative: "SELECT label FROM photos BATCH -8" => @"line 1, column 32: BATCH expects a whole number of rows of at least 1, found -8";
    batch_fraction: "SELECT label FROM photos BATCH 2.5" => @"line 1, column 32: BATCH expects a whole number of rows of at least 1, found 2.5";
    batch_word: "SELECT label FROM photos WHERE label > 1 BATCH many" => @r#"line 1, column 48: BATCH expects a whole number of rows of at least 1, found "many""#;
    batch_nothing: "SELECT label FROM photos BATCH" => @"line 1, column 31: BATCH expects a whole number of rows of at least 1, found the end of the text";
    batch_string: "SELECT label FROM photos BATCH '32'" => @"line 1, column 32: BATCH expects a whole number of rows of at least 1, found '32'";
    take_zero: "SELECT label FROM photos TAKE 0" => @"line 1, column 31: TAKE expects a whole number of rows of at least 1, found 0";
    repeat_zero: "SELECT label FROM photos BATCH 2 REPEAT 0" => @"line 1, column 41: REPEAT expects a whole number of epochs of at least 1, found 0";
    skip_negative: "SELECT label FROM photos SKIP -1" => @"line 1, column 31: SKIP expects a whole number of rows of at least 0, found -1";
    seed_fraction: "SELECT label FROM photos SEED 0.5" => @"line 1, column 31: SEED expects a whole number of at least 0, found 0.5";
    shuffle_nothing: "SELECT label FROM photos SHUFFLE BATCH 2" => @r#"line 1, column 34: SHUFFLE expects WITHIN n ROWS or GLOBALLY, found "BATCH""#;
    shuffle_zero: "SELECT label FROM photos SHUFFLE WITHIN 0 ROWS" => @"line 1, column 41: SHUFFLE WITHIN expects a whole number of rows of at least 1, found 0";
    shuffle_without_rows: "SELECT label FROM photos SHUFFLE WITHIN 100" => @"line 1, column 44: SHUFFLE WITHIN n expects ROWS, found the end of the text";
    wrong_order: "SELECT label FROM photos\nBATCH 2\nSHUFFLE GLOBALLY" => @"line 3, column 1: SHUFFLE must come before BATCH; the clauses come in the order SHUFFLE, SEED, SKIP, TAKE, PACK or BUCKET, BATCH, REPEAT, CACHE, OPTIONS";
    twice: "SELECT label FROM photos BATCH 2 BATCH 3" => @"line 1, column 34: BATCH is given twice; the clauses come in the order SHUFFLE, SEED, SKIP, TAKE, PACK or BUCKET, BATCH, REPEAT, CACHE, OPTIONS";
    drop_and_pad: "SELECT label FROM photos BATCH 2 DROP REMAINDER PAD REMAINDER" => @"line 1, column 49: DROP REMAINDER and PAD REMAINDER exclude each other";
    misspelt_clause: "SELECT label FROM photos SHUFLE WITHIN 10 ROWS" => @r#"line 1, column 33: expected a training clause or the end of the statement after the query, found "WITHIN"; did you mean SHUFFLE?"#;
    misspelt_second_clause: "SELECT label FROM photos SHUFFLE GLOBALLY BACH 10" => @r#"line 1, column 43: expected a training clause or the end of the statement after the SHUFFLE clause, found "BACH"; did you mean BATCH?"#;
    clause_in_a_subquery: "SELECT label FROM (SELECT label FROM photos TAKE 5) AS t" => @"line 1, column 45: TAKE in a subquery; put training clauses at the end of the pipeline";
    with_after_a_table: "SELECT label FROM photos WITH (on_error = 'skip')" => @"line 1, column 19: WITH (..) after a table is not supported; options are given by OPTIONS (key = 'value', ..)";
    unknown_option: "SELECT label FROM photos OPTIONS (onerror = 'skip')" => @r#"line 1, column 35: unknown option "onerror"; expected on_error, relax, optimize, disable_rules, cache_dir, cache_quota, cache_price, index, horizon, equal_steps, error_budget, dead_letters or dead_letter_bytes; did you mean "on_error"?"#;
    unknown_option_value: "SELECT label FROM photos OPTIONS (on_error = 'skp')" => @r#"line 1, column 46: on_error expects 'fail', 'skip', 'replace' or 'null', found 'skp'; did you mean "skip"?"#;
    option_twice: "SELECT label FROM photos OPTIONS (relax = 'none', relax = 'order')" => @r#"line 1, column 51: option "relax" is given twice"#;
    pack: "SELECT label FROM photos PACK label INTO 512" => @r#"line 1, column 26: PACK needs a list of numbers, but "label" is Int32"#;
    pack_unknown: "SELECT label FROM photos PACK labels INTO 512" => @r#"line 1, column 26: PACK names "labels", which is not a column of the query; did you mean "label"?"#;
    pack_replace: "SELECT [1, 2] AS ids FROM photos PACK ids INTO 8 OPTIONS (on_error = 'replace')" => @"line 1, column 34: on_error = 'replace' with PACK: another row's sequence may not fit in the place of a failed one; use on_error = 'skip'; packs keep their shape";
    pack_tokens: "SELECT [1, 2] AS ids FROM photos PACK ids INTO 8 BATCH BY TOKENS 16 ON ids" => @"line 1, column 50: BATCH BY TOKENS with PACK: every pack has the same number of elements; BATCH n takes n packs of 8 elements";
    pack_taken_name: "SELECT [1, 2] AS ids, label AS ids_positions FROM photos PACK ids INTO 8" => @r#"line 1, column 58: this clause adds a column "ids_positions", which the query has too; give the query's column another name with AS"#;
    pack_bad: "SELECT label FROM photos PACK label INTO zero" => @r#"line 1, column 42: PACK column INTO expects a whole number of elements of at least 1, found "zero""#;
    bucket: "SELECT label FROM photos BUCKET BY label + 1 BOUNDARIES (1, 2)" => @"line 1, column 26: BUCKET BY needs a BATCH clause; add BATCH n";
    bucket_descending: "SELECT label FROM photos BUCKET BY label BOUNDARIES (4, 2) BATCH 2" => @"line 1, column 57: BOUNDARIES must ascend: expected a number above the one before";
    bucket_column: "SELECT label FROM photos BUCKET BY lable BOUNDARIES (1) BATCH 2" => @r#"line 1, column 36: unknown column "lable"; did you mean "label"?"#;
    bucket_function: "SELECT label FROM photos BUCKET BY random() BOUNDARIES (1) BATCH 2" => @"line 1, column 36: random() is not supported: its result would differ every time; random_uniform() draws a number that moves with its row";
    bucket_large: "SELECT label FROM photos BUCKET BY label BOUNDARIES (1, 2) BATCH 2000" => @"line 1, column 26: 3 buckets of batches of 2000 rows may hold 5997 rows open, but a resume token lists at most 5000; use fewer boundaries or smaller batches";
    tokens: "SELECT path FROM photos BATCH BY TOKENS 512 ON path" => @r#"line 1, column 25: BATCH BY TOKENS needs a list or a whole number, but "path" is Utf8"#;
    tokens_padded: "SELECT label FROM photos BATCH BY TOKENS 512 ON label PAD REMAINDER" => @"line 1, column 55: PAD REMAINDER needs a fixed number of rows per batch, which BATCH BY TOKENS does not set";
    cache: "SELECT label FROM photos CACHE AUTO" => @"line 1, column 26: CACHE needs a directory for the rows; add OPTIONS (cache_dir = '..')";
    cache_where: "SELECT label FROM photos CACHE HERE" => @r#"line 1, column 32: expected a training clause or the end of the statement after the query, found "HERE""#;
    frozen: "SELECT label FROM photos CACHE AT label FREEZING OPTIONS (cache_dir = 'c')" => @r#"line 1, column 50: CACHE AT .. FREEZING expects RANDOMNESS, found "OPTIONS""#;
    disabled_rule: "SELECT label FROM photos OPTIONS (disable_rules = 'row-swap, filter-swop')" => @r#"line 1, column 51: unknown rewrite rule "filter-swop"; did you mean "filter-swap"?"#;
    quota: "SELECT label FROM photos OPTIONS (cache_quota = 'much')" => @r#"line 1, column 49: cache_quota: expected a size such as 100kB, 300MiB or 2GiB, found "much""#;
    price: "SELECT label FROM photos OPTIONS (cache_price = 30)" => @r#"line 1, column 49: cache_price: expected core time per size, such as '30 s/GB' or '1.5 h/TB', found "30""#;
    pad_columns: "SELECT label FROM photos BATCH 2 PAD label TO 4" => @r#"line 1, column 26: PAD needs a list of numbers, but "label" is Int32"#;
    pad_twice: "SELECT [1] AS ids FROM photos BATCH 2 PAD ids, ids TO 4" => @r#"line 1, column 48: PAD names "ids" twice"#;
    horizon: "SELECT label FROM photos OPTIONS (horizon = 0)" => @"line 1, column 45: horizon expects a number of windows of at least 1, found '0'";
    budget: "SELECT label FROM photos OPTIONS (error_budget = '101 %')" => @"line 1, column 50: error_budget expects a number of rows or a share such as '1 %', found '101 %'";
    mix_bad: "SELECT label FROM MIX (photos WEIGHT heavy)" => @r#"line 1, column 38: WEIGHT expects a number above 0, found "heavy""#;
    mix_zero: "SELECT id FROM MIX (people WEIGHT 1, other WEIGHT 0)" => @"line 1, column 51: WEIGHT expects a number above 0, found 0";
    mix_negative: "SELECT id FROM MIX (people WEIGHT 1, other WEIGHT -0.5)" => @"line 1, column 51: WEIGHT expects a number above 0, found -0.5";
    mix_infinite: "SELECT id FROM MIX (people WEIGHT 1e999)" => @"line 1, column 35: WEIGHT expects a number above 0, found 1e999";
    mix_arithmetic: "SELECT id FROM MIX (people WEIGHT 1 / 2)" => @"line 1, column 35: WEIGHT expects a number above 0, found 1 / 2";
    mix_too_small: "SELECT id FROM MIX (people WEIGHT 1, other WEIGHT 1e-12)" => @"line 1, column 16: WEIGHT 1e-12 is too small beside the others: its arm would never be drawn; leave the arm out";
    mix_without_weight: "SELECT id FROM MIX (people WEIGHT 1, other)" => @"line 1, column 38: MIX expects WEIGHT and a number after the arm other";
    mix_of_nothing: "SELECT id FROM MIX ()" => @"line 1, column 16: MIX expects at least one arm: MIX (name WEIGHT 1)";
    mix_stop_alone: "SELECT id FROM MIX (stop => 'first')" => @"line 1, column 16: MIX expects at least one arm: MIX (name WEIGHT 1)";
    mix_stop_in_the_middle: "SELECT id FROM MIX (people WEIGHT 1, stop => 'first', other WEIGHT 1)" => @"line 1, column 38: stop is given once, after the arms of the MIX";
    mix_stop_other: "SELECT id FROM MIX (people WEIGHT 1, stop => 'last')" => @"line 1, column 46: stop expects 'first' or 'longest', found 'last'";
    mix_stop_number: "SELECT id FROM MIX (people WEIGHT 1, stop => 1)" => @"line 1, column 46: stop expects 'first' or 'longest', found 1";
    mix_unknown_argument: "SELECT id FROM MIX (people WEIGHT 1, until => 'first')" => @r#"line 1, column 38: unknown argument "until" of MIX; use stop => 'first' or stop => 'longest'"#;
    mix_unclosed: "SELECT id FROM MIX (people WEIGHT 1" => @"line 1, column 36: expected ), found the end of the text";
    mix_unknown_table: "SELECT id FROM MIX (people WEIGHT 1,\n peple WEIGHT 1)" => @r#"line 2, column 2: unknown table "peple"; did you mean "people"?"#;
    mix_unknown_function: "SELECT id FROM MIX (people WEIGHT 1, cvs('x') WEIGHT 1)" => @r#"line 1, column 38: unknown table function "cvs"; did you mean "csv"?"#;
    mix_of_a_value: "SELECT id FROM MIX (people WEIGHT 1, id + 1 WEIGHT 1)" => @"line 1, column 38: MIX expects the name of a table or a pipeline, a table function or (SELECT ..), found id + 1";
    mix_of_a_window: "SELECT id FROM MIX (csv('a') OVER () WEIGHT 1)" => @"line 1, column 21: MIX expects the name of a table or a pipeline, a table function or (SELECT ..), found csv('a') OVER ()";
    mix_missing_source: "SELECT id FROM MIX (people WEIGHT 1, csv('missing') WEIGHT 1)" => @"line 1, column 38: source csv('missing'): no such folder: missing";
    mix_unknown_column: "SELECT idd FROM MIX (people WEIGHT 1)" => @r#"line 1, column 8: unknown column "idd"; did you mean "id"?"#;
    mix_unknown_column_in_an_arm: "SELECT id FROM MIX (people WEIGHT 1,\n (SELECT idd FROM other) WEIGHT 1)" => @r#"line 2, column 10: unknown column "idd"; did you mean "id"?"#;
    mix_wrong_type_above: "SELECT resize(id, 1, 1) AS x FROM MIX (people WEIGHT 1)" => @"line 1, column 8: resize expects an image, found Int64";
    mix_wrong_type_in_an_arm: "SELECT x FROM MIX ((SELECT resize(id, 1, 1) AS x FROM people) WEIGHT 1)" => @"line 1, column 28: resize expects an image, found Int64";
    mix_missing_column: "SELECT id FROM MIX (people WEIGHT 0.7,\n photos WEIGHT 0.3)" => @r#"line 2, column 2: MIX: "photos" has no column "id", which "people" has; all arms of a MIX need the same columns; choose them with (SELECT ..)"#;
    mix_missing_column_of_a_query: "SELECT id FROM MIX (people WEIGHT 0.7,\n (SELECT name FROM other) WEIGHT 0.3)" => @r#"line 2, column 3: MIX: arm 2 has no column "id", which "people" has; all arms of a MIX need the same columns; choose them with (SELECT ..)"#;
    mix_extra_column: "SELECT id FROM MIX ((SELECT id FROM people) WEIGHT 7, other WEIGHT 3)" => @r#"line 1, column 55: MIX: "other" has the column "name", which arm 1 does not have; all arms of a MIX need the same columns; choose them with (SELECT ..)"#;
    mix_two_columns: "SELECT id FROM MIX ((SELECT * FROM people JOIN other ON people.id = other.id) WEIGHT 7)" => @r#"line 1, column 22: MIX: two columns of arm 1 are named "id"; give one of them another name with AS"#;
    mix_types: "SELECT x FROM MIX ((SELECT image AS x FROM photos) WEIGHT 1, (SELECT id AS x FROM people) WEIGHT 1)" => @r#"line 1, column 63: MIX: column "x" is Binary in arm 1 and Int64 in arm 2; no type holds the values of both: give one of them another name"#;
    mix_widths: "SELECT x FROM MIX ((SELECT label AS x FROM photos) WEIGHT 1, (SELECT id AS x FROM people) WEIGHT 1)" => @r#"line 1, column 63: MIX: column "x" is Int32 in arm 1 and Int64 in arm 2; bring both to one type, such as CAST(x AS BIGINT) AS x"#;
    mix_names: "SELECT * FROM MIX (people WEIGHT 1, (SELECT label AS id, class AS name FROM photos) WEIGHT 1)" => @r#"line 1, column 38: MIX: column "id" is Int64 in "people" and Int32 in arm 2; bring both to one type, such as CAST(id AS BIGINT) AS id"#;
    mix_zones: "SELECT \"At\" FROM MIX ((SELECT to_timestamp('2026-01-01') AS \"At\" FROM people) WEIGHT 1, (SELECT arrow_cast(to_timestamp('2026-01-01'), 'Timestamp(ms, \"UTC\")') AS \"At\" FROM people) WEIGHT 1)" => @r#"line 1, column 90: MIX: column "At" is Timestamp(ns) in arm 1 and Timestamp(ms, "UTC") in arm 2; bring both to one type, such as arrow_cast("At", 'Timestamp(ns, "UTC")') AS "At""#;
    mix_in_a_mix: "SELECT id FROM MIX (people WEIGHT 1, (SELECT * FROM MIX (other WEIGHT 1)) WEIGHT 1)" => @"line 1, column 53: a MIX inside a MIX is not supported yet";
    mix_as_an_arm: "SELECT id FROM MIX (people WEIGHT 1, MIX (other WEIGHT 1) WEIGHT 1)" => @"line 1, column 38: a MIX inside a MIX is not supported yet";
    mix_in_a_pipeline_in_a_mix: "CREATE PIPELINE p AS SELECT id FROM MIX (people WEIGHT 1);\nSELECT id FROM MIX (p WEIGHT 1)" => @"line 2, column 16: a MIX inside a MIX is not supported yet";
    mix_joined: "SELECT people.id FROM people JOIN MIX (other WEIGHT 1) AS m ON people.id = m.id" => @"line 1, column 35: MIX on the right side of a JOIN is not supported yet";
    mix_of_a_pipeline_joined: "CREATE PIPELINE p AS SELECT id FROM MIX (people WEIGHT 1);\nSELECT other.id FROM other JOIN p ON other.id = p.id" => @"line 2, column 1: MIX on the right side of a JOIN is not supported yet";
    mix_in_a_union: "SELECT id FROM people UNION ALL SELECT id FROM MIX (other WEIGHT 1)" => @"line 1, column 48: MIX under UNION ALL is not supported yet";
    mix_limited: "SELECT id FROM MIX (people WEIGHT 1) LIMIT 5" => @"line 1, column 44: LIMIT counts rows in stored order, but a MIX has no stored order; use TAKE";
    mix_limited_from_a_subquery: "SELECT id FROM (SELECT id FROM MIX (people WEIGHT 1)) AS q LIMIT 5" => @"line 1, column 66: LIMIT counts rows in stored order, but a MIX has no stored order; use TAKE";
    mix_in_an_expression: "SELECT mix(people WEIGHT 1) FROM people" => @r#"line 1, column 8: unknown function "mix"; did you mean "max"?"#;
    mix_clause_in_an_arm: "SELECT id FROM MIX ((SELECT id FROM people SHUFFLE GLOBALLY) WEIGHT 1)" => @"line 1, column 44: SHUFFLE in a subquery; put training clauses at the end of the pipeline";
    mix_reordered_pipeline: "CREATE PIPELINE p AS SELECT id FROM people TAKE 5;\nSELECT id FROM MIX (p WEIGHT 1)" => @r#"line 2, column 21: reading pipeline "p", which shuffles, skips or takes, is not supported yet; write the pipeline's query in its place, without these clauses"#;
    mix_sampled: "SELECT id FROM MIX (people WEIGHT 1) TABLESAMPLE (10)" => @"line 1, column 16: TABLESAMPLE is not supported";
    mix_with_options: "SELECT id FROM MIX (people WEIGHT 1) WITH (a = 1)" => @"line 1, column 16: WITH (..) after a table is not supported; options are given by OPTIONS (key = 'value', ..)";
    mix_refused_function: "SELECT x FROM MIX ((SELECT random() AS x FROM people) WEIGHT 1)" => @"line 1, column 28: random() is not supported: its result would differ every time; random_uniform() draws a number that moves with its row";
    tablesample: "SELECT label FROM photos TABLESAMPLE (10)" => @"line 1, column 19: TABLESAMPLE is not supported";
    recursive: "WITH RECURSIVE r AS (SELECT 1 AS n) SELECT n FROM r" => @"line 1, column 1: WITH RECURSIVE is not supported";
    lateral: "SELECT 1 AS one FROM people, LATERAL (SELECT 1) AS x" => @"line 1, column 39: LATERAL is not supported";
    unclosed_string: "SELECT 'abc FROM photos" => @"line 1, column 8: unterminated string literal";
    unclosed_parenthesis: "SELECT resize(image, 1 FROM photos" => @"line 1, column 24: expected ), found FROM";
    missing_expression: "SELECT label, FROM photos" => @"line 1, column 20: expected an expression, found FROM";
    two_queries_without_semicolon: "SELECT label FROM photos SELECT 1" => @r#"line 1, column 26: expected a training clause or the end of the statement after the query, found "SELECT""#;
    unknown_format: "CREATE EXTERNAL TABLE t STORED AS PARQET LOCATION 'x'" => @r#"line 1, column 35: unknown format "PARQET"; expected {formats}; did you mean "PARQUET"?"#;
    missing_location: "CREATE EXTERNAL TABLE t STORED AS CSV" => @"line 1, column 38: CREATE EXTERNAL TABLE expects LOCATION 'path', found the end of the text";
    source_not_found: "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'missing'" => @"line 1, column 23: source t: no such folder: missing";
    source_in_from_not_found: "SELECT *\nFROM images('missing')" => @"line 2, column 6: source images('missing'): no such folder: missing";
    table_function_without_path: "SELECT * FROM csv(delimiter => ';')" => @"line 1, column 15: csv expects a quoted path, found no argument";
    table_function_with_a_number: "SELECT * FROM csv(1)" => @"line 1, column 19: csv expects a quoted path first, found 1";
    name_taken: "CREATE PIPELINE photos AS SELECT 1 AS x" => @r#"line 1, column 17: "photos" is the name of a table already"#;
    name_taken_by_the_same_kind: "CREATE EXTERNAL TABLE photos STORED AS CSV LOCATION 'x'" => @r#"line 1, column 23: table "photos" exists already; use CREATE OR REPLACE to replace it"#;
    drop_of_nothing: "DROP PIPELINE trian" => @r#"line 1, column 15: unknown pipeline "trian""#;
    drop_of_the_other_kind: "DROP PIPELINE photos" => @r#"line 1, column 15: "photos" is a table; use DROP TABLE photos"#;
    describe_nothing: "DESCRIBE photo" => @r#"line 1, column 10: unknown table or pipeline "photo"; did you mean "photos"?"#;
    reordered_pipeline_in_from: "CREATE PIPELINE p AS SELECT label FROM photos SHUFFLE GLOBALLY;\nSELECT label FROM p" => @r#"line 2, column 19: reading pipeline "p", which shuffles, skips or takes, is not supported yet; write the pipeline's query in its place, without these clauses"#;
    stream_without_a_name: "SELECT random_uniform(stream => 1) AS x FROM photos" => @"line 1, column 23: stream expects a name in quotes, found 1";
    internal_function: "SELECT __stream('a') AS x FROM photos" => @r#"line 1, column 8: "__stream" is an internal function"#;
    array_of_a_column: "SELECT normalize(decode_image(image), [label]) AS x FROM photos" => @"line 1, column 8: normalize expects constant means as argument 2";
    nested_too_deeply: "SELECT ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))" => @"line 1, column 57: the query is nested too deeply";
    column_in_a_union: "SELECT id FROM people\nUNION ALL\nSELECT idd FROM other" => @r#"line 3, column 8: unknown column "idd"; did you mean "id"?"#;
    column_in_a_subquery: "SELECT * FROM (SELECT lable FROM photos) AS t" => @r#"line 1, column 23: unknown column "lable"; did you mean "label"?"#;
    column_in_a_with_query: "WITH t AS (SELECT lable FROM photos) SELECT * FROM t" => @r#"line 1, column 19: unknown column "lable"; did you mean "label"?"#;
    column_in_order_by: "SELECT label FROM photos ORDER BY lable" => @r#"line 1, column 35: unknown column "lable"; did you mean "label"?"#;
    column_in_group_by: "SELECT count(*) AS n FROM photos GROUP BY lable" => @r#"line 1, column 43: unknown column "lable"; did you mean "label"?"#;
    column_in_a_join: "SELECT people.id FROM people JOIN other ON people.id = other.idd" => @r#"line 1, column 56: unknown column "idd"; did you mean "id"?"#;
    column_in_using: "SELECT 1 AS one FROM people JOIN other USING (idd)" => @r#"line 1, column 47: unknown column "idd"; did you mean "id"?"#;
    column_in_a_call: "SELECT normalize(resize(decode_image(imag), 2, 2), 'imagenet') AS x FROM photos" => @r#"line 1, column 38: unknown column "imag"; did you mean "image"?"#;
    column_outside_of_group_by: "SELECT label, count(*) AS n FROM photos GROUP BY class" => @r#"line 1, column 8: column "photos.label" must be in GROUP BY or in an aggregate function"#;
    type_in_a_union: "SELECT id FROM people\nUNION ALL\nSELECT resize(id, 1, 1) FROM people" => @"line 3, column 8: resize expects an image, found Int64";
    type_in_a_subquery: "SELECT x FROM (SELECT resize(label, 1, 1) AS x FROM photos) AS t" => @"line 1, column 23: resize expects an image, found Int32";
    type_in_a_with_query: "WITH t AS (SELECT label AS l FROM photos)\nSELECT resize(l, 1, 1) AS x FROM t" => @"line 2, column 8: resize expects an image, found Int32";
    type_in_where: "SELECT label FROM photos WHERE octet_length(label) > 2" => @"line 1, column 32: octet_length expects binary or text, found Int32";
    union_of_other_widths: "SELECT id FROM people UNION ALL SELECT id, name FROM other" => @"line 1, column 1: UNION queries have different number of columns";
    too_few_arguments: "SELECT resize(decode_image(image)) AS x FROM photos" => @"line 1, column 8: resize expects a constant size above 0 as argument 2";
    scalar_function_of_datafusion: "SELECT abs(name) AS x FROM people" => @"line 1, column 8: Function 'abs' expects Numeric but received String";
    wrong_comparison: "SELECT id FROM people WHERE id = image" => @r#"line 1, column 34: unknown column "image"; available columns: id, name"#;
    aggregate_in_where: "SELECT id FROM people WHERE count(*) > 1" => @"line 1, column 29: an aggregate function is not allowed in WHERE; HAVING filters groups";
    named_argument: "SELECT resize(decode_image(image), height => 2) AS x FROM photos" => @"line 1, column 8: Function 'resize' does not support named arguments";
    bad_interval: "SELECT id + INTERVAL 'x' AS y FROM people" => @r#"line 1, column 22: Invalid input syntax for type interval: "x""#;
    parameter: "SELECT id FROM people WHERE id = $1" => @"line 1, column 34: a parameter in place of a value is not supported";
    variable: "SELECT @x AS y FROM people" => @"line 1, column 8: a parameter in place of a value is not supported";
    location_after_options: "SELECT * FROM csv(header => false, 'a.csv')" => @"line 1, column 36: the location must come before the options";
    option_of_a_column: "SELECT * FROM csv('a.csv', header => x)" => @r#"line 1, column 28: option "header" expects a literal, found x"#;
    option_of_a_call_twice: "SELECT * FROM csv('a.csv', header => true, HEADER => false)" => @r#"line 1, column 44: option "header" is given twice"#;
    option_refused_by_the_source: "SELECT *\n  FROM csv('a.csv', bad => 1)" => @r#"line 2, column 8: source csv('a.csv', bad => '1'): unknown option "bad""#;
    pinned_column: "SELECT label AS y, PINNED (label) AS x FROM photos" => @"line 1, column 20: PINNED expects a call or a computed value, found the column label";
    pinned_constant: "SELECT PINNED ((3)) AS x FROM photos" => @"line 1, column 8: PINNED expects a call or a computed value, found the constant 3";
    pinned_nothing: "SELECT PINNED AS x FROM photos" => @r#"line 1, column 8: unknown column "PINNED"; available columns: image, path, class, label"#;
    pinned_unknown_function: "SELECT PINNED resise(label, 2) AS x FROM photos" => @r#"line 1, column 15: unknown function "resise"; did you mean "resize"?"#;
    pinned_wrong_type: "SELECT PINNED resize(label, 2, 2) AS x FROM photos" => @"line 1, column 15: resize expects an image, found Int32";
    pin_marker: "SELECT __pinned(label) AS x FROM photos" => @r#"line 1, column 8: "__pinned" is an internal function"#;
    table_with_schema: "SELECT id FROM public.people" => @r#"line 1, column 16: unknown table "public.people""#;
    empty_select: "SELECT FROM people" => @"line 1, column 13: expected an expression, found FROM";
    scalar_subquery_of_two_columns: "SELECT (SELECT id, name FROM people) AS x FROM other" => @"line 1, column 9: Too many columns! The subquery should only return one column: people.id, people.name";
}

/// Deep plans need stack. An accepted plan must fit into the stack of a thread, and a deeper plan
/// must be refused before it overflows the stack.
#[tokio::test]
async fn long_texts_are_planned_or_refused_without_harm() {
    let chain = |part: &str, link: &str, length: usize| vec![part; length].join(link);
    for (length, accepted) in [(120, true), (1_000, false), (5_000, false)] {
        let tables = if accepted { 32 } else { length };
        for sql in [
            format!(
                "SELECT shift({}) AS x FROM people",
                chain("id", " + ", length)
            ),
            format!(
                "SELECT shift({}) AS x FROM people",
                chain("1", " + ", length)
            ),
            format!(
                "SELECT id FROM people WHERE {}",
                chain("id > 1", " AND ", length)
            ),
            chain(
                "SELECT id FROM people",
                " UNION ALL ",
                if accepted { 64 } else { length },
            ),
            format!(
                "SELECT 1 AS one FROM {}",
                (0..tables)
                    .map(|n| format!("people AS p{n}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ] {
            let result = run(&mut filled().await, &sql).await;
            assert_eq!(
                result.is_ok(),
                accepted,
                "{length} times {}: {result:?}",
                &sql[..40]
            );
            if let Err(error) = result {
                assert!(error.position().is_some(), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_list_may_be_long() {
    let list = (0..20_000)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let sql = format!("SELECT id FROM people WHERE id IN ({list})");
    assert!(run(&mut filled().await, &sql).await.is_ok());
}
