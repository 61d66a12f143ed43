//! Bad SQL of many kinds, with the message that its author gets.

use crate::testing::{filled, run};

async fn mistake(sql: &str) -> String {
    match run(&mut filled().await, sql).await {
        Ok(_) => panic!("accepted: {sql}"),
        Err(error) => error.to_string(),
    }
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
    misspelt_statement: "SELEC label FROM photos"
        => @"";
    not_a_statement: "42"
        => @"";
    insert: "INSERT INTO photos VALUES (1)"
        => @"";
    create_view: "CREATE VIEW v AS SELECT 1"
        => @"";
    unknown_column: "SELECT\n  lable\nFROM photos"
        => @"";
    unknown_column_in_where: "SELECT label FROM photos WHERE clas = 'a'"
        => @"";
    unknown_column_far_off: "SELECT zzz FROM people"
        => @"";
    unknown_qualifier: "SELECT foto.label FROM photos"
        => @"";
    unknown_qualified_column: "SELECT photos.lable FROM photos"
        => @"";
    ambiguous_column: "SELECT id FROM people JOIN other ON people.id = other.id"
        => @"";
    unknown_table: "SELECT label FROM photoes"
        => @"";
    unknown_function: "SELECT resise(decode_image(image), 2, 2) AS x FROM photos"
        => @"";
    unknown_table_function: "SELECT * FROM image('dir')"
        => @"";
    unknown_table_function_far: "SELECT * FROM generate_series(1, 2)"
        => @"";
    random: "SELECT random() AS x FROM photos"
        => @"";
    uuid: "SELECT label,\n uuid() AS x FROM photos"
        => @"";
    wrong_argument_type: "SELECT normalize(resize(label, 2, 2), 'imagenet') AS x FROM photos"
        => @"";
    wrong_argument_in_the_middle: "SELECT label, resize(decode_image(image), label, 2) AS x FROM photos"
        => @"";
    zero_size_argument: "SELECT resize(decode_image(image), 0, 2) AS x FROM photos"
        => @"";
    wrong_operand: "SELECT image + 1 AS x FROM photos"
        => @"";
    wrong_type_in_filter: "SELECT label FROM photos WHERE label"
        => @"";
    bad_cast: "SELECT CAST(image AS DOUBLE) AS x FROM photos"
        => @"";
    variable_shapes: "SELECT label, decode_image(image) AS pixels FROM photos\nBATCH 32"
        => @"";
    duplicate_output: "SELECT people.id, other.id FROM people JOIN other ON people.id = other.id"
        => @"";
    duplicate_expression: "SELECT label, label FROM photos"
        => @"";
    duplicate_wildcard: "SELECT * FROM people JOIN other ON people.id = other.id"
        => @"";
    batch_zero: "SELECT label FROM photos BATCH 0"
        => @"";
    batch_negative: "SELECT label FROM photos BATCH -8"
        => @"";
    batch_fraction: "SELECT label FROM photos BATCH 2.5"
        => @"";
    batch_word: "SELECT label FROM photos WHERE label > 1 BATCH many"
        => @"";
    batch_nothing: "SELECT label FROM photos BATCH"
        => @"";
    batch_string: "SELECT label FROM photos BATCH '32'"
        => @"";
    take_zero: "SELECT label FROM photos TAKE 0"
        => @"";
    repeat_zero: "SELECT label FROM photos BATCH 2 REPEAT 0"
        => @"";
    skip_negative: "SELECT label FROM photos SKIP -1"
        => @"";
    seed_fraction: "SELECT label FROM photos SEED 0.5"
        => @"";
    shuffle_nothing: "SELECT label FROM photos SHUFFLE BATCH 2"
        => @"";
    shuffle_zero: "SELECT label FROM photos SHUFFLE WITHIN 0 ROWS"
        => @"";
    shuffle_without_rows: "SELECT label FROM photos SHUFFLE WITHIN 100"
        => @"";
    wrong_order: "SELECT label FROM photos\nBATCH 2\nSHUFFLE GLOBALLY"
        => @"";
    twice: "SELECT label FROM photos BATCH 2 BATCH 3"
        => @"";
    drop_and_pad: "SELECT label FROM photos BATCH 2 DROP REMAINDER PAD REMAINDER"
        => @"";
    misspelt_clause: "SELECT label FROM photos SHUFLE WITHIN 10 ROWS"
        => @"";
    misspelt_second_clause: "SELECT label FROM photos SHUFFLE GLOBALLY BACH 10"
        => @"";
    clause_in_a_subquery: "SELECT label FROM (SELECT label FROM photos TAKE 5) AS t"
        => @"";
    with_after_a_table: "SELECT label FROM photos WITH (on_error = 'skip')"
        => @"";
    unknown_option: "SELECT label FROM photos OPTIONS (onerror = 'skip')"
        => @"";
    unknown_option_value: "SELECT label FROM photos OPTIONS (on_error = 'skp')"
        => @"";
    option_twice: "SELECT label FROM photos OPTIONS (relax = 'none', relax = 'order')"
        => @"";
    pack: "SELECT label FROM photos PACK label INTO 512"
        => @"";
    pack_bad: "SELECT label FROM photos PACK label INTO zero"
        => @"";
    bucket: "SELECT label FROM photos BUCKET BY label + 1 BOUNDARIES (1, 2)"
        => @"";
    tokens: "SELECT label FROM photos BATCH BY TOKENS 512 ON label"
        => @"";
    cache: "SELECT label FROM photos CACHE AUTO"
        => @"";
    pad_columns: "SELECT label FROM photos BATCH 2 PAD label TO 4"
        => @"";
    mix: "SELECT label FROM MIX (photos WEIGHT 0.7, people WEIGHT 0.3) BATCH 2"
        => @"";
    mix_bad: "SELECT label FROM MIX (photos WEIGHT heavy)"
        => @"";
    tablesample: "SELECT label FROM photos TABLESAMPLE (10)"
        => @"";
    recursive: "WITH RECURSIVE r AS (SELECT 1 AS n) SELECT n FROM r"
        => @"";
    lateral: "SELECT 1 AS one FROM people, LATERAL (SELECT 1) AS x"
        => @"";
    unclosed_string: "SELECT 'abc FROM photos"
        => @"";
    unclosed_parenthesis: "SELECT resize(image, 1 FROM photos"
        => @"";
    missing_expression: "SELECT label, FROM photos"
        => @"";
    two_queries_without_semicolon: "SELECT label FROM photos SELECT 1"
        => @"";
    unknown_format: "CREATE EXTERNAL TABLE t STORED AS PARQET LOCATION 'x'"
        => @"";
    missing_location: "CREATE EXTERNAL TABLE t STORED AS CSV"
        => @"";
    source_not_found: "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'missing'"
        => @"";
    source_in_from_not_found: "SELECT *\nFROM images('missing')"
        => @"";
    table_function_without_path: "SELECT * FROM csv(delimiter => ';')"
        => @"";
    table_function_with_a_number: "SELECT * FROM csv(1)"
        => @"";
    name_taken: "CREATE PIPELINE photos AS SELECT 1 AS x"
        => @"";
    name_taken_by_the_same_kind: "CREATE EXTERNAL TABLE photos STORED AS CSV LOCATION 'x'"
        => @"";
    drop_of_nothing: "DROP PIPELINE trian"
        => @"";
    drop_of_the_other_kind: "DROP PIPELINE photos"
        => @"";
    describe_nothing: "DESCRIBE photo"
        => @"";
    reordered_pipeline_in_from: "CREATE PIPELINE p AS SELECT label FROM photos SHUFFLE GLOBALLY;\nSELECT label FROM p"
        => @"";
    stream_without_a_name: "SELECT random_uniform(stream => 1) AS x FROM photos"
        => @"";
    internal_function: "SELECT __stream('a') AS x FROM photos"
        => @"";
    array_of_a_column: "SELECT normalize(decode_image(image), [label]) AS x FROM photos"
        => @"";
    nested_too_deeply: "SELECT ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))"
        => @"";
}
