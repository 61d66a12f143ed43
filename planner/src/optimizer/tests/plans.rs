//! Tests of the plans that the optimiser chooses for SQL queries: rewrites, refusals, pins and
//! cache points, and that optimising keeps a query's meaning.

use insta::assert_snapshot;

use crate::compile::Compiled;
use crate::optimizer::arena::Arena;
use crate::optimizer::lower::lower;
use crate::optimizer::raise::raise;
use crate::optimizer::rules::Tier;
use crate::optimizer::tests::search_lines;
use crate::optimizer::{Config, optimize};
use crate::pipeline::Pipeline;
use crate::rows::canonical::semantic_hash;
use crate::rows::{RowOp, RowPlan};
use crate::units::{bytes_text, parse_price};

/// Plans the query `sql`, and lowers the plan to a row plan.
pub(crate) async fn planned(sql: &str) -> (RowPlan, Pipeline) {
    let pipeline = crate::testing::planned(sql).await;
    (crate::rows::lower::lower(&pipeline.plan).unwrap(), pipeline)
}

/// The plan that the optimiser chooses for `sql`, one operator per line with the topmost first,
/// followed by the refusals of rules.
async fn chosen(sql: &str, tier: Tier) -> String {
    let (plan, pipeline) = planned(sql).await;
    let config = Config {
        tier,
        ..Config::default()
    };
    let (mut lines, refusals) = search_lines(&plan, &pipeline, &config);
    lines.extend(refusals);
    lines.join("\n")
}

pub(crate) const QUERIES: [&str; 16] = [
    "SELECT id + 1 AS b FROM (SELECT id * 2 AS id, name FROM t) AS q",
    "SELECT id AS a, id AS b, id + 1 AS c FROM t WHERE id > 3",
    "SELECT label, resize(decode_image(image), 8, 8) AS x FROM photos WHERE label > 3 BATCH 4",
    "SELECT image, resize(decode_image(image), 8, 8) AS image2 FROM photos",
    "SELECT * FROM (SELECT label, hflip(resize(decode_image(image), 8, 8)) AS image FROM photos) AS q
       WHERE label = 1 AND random_bool()",
    "SELECT id FROM t WHERE id > 1 UNION ALL SELECT id + 1 FROM u WHERE name = 'x'",
    "SELECT id, name FROM t UNION ALL SELECT id, name FROM u UNION ALL SELECT 3, 'z' FROM t",
    "SELECT t.id, u.name FROM t JOIN u ON t.id = u.id WHERE t.id > 3 AND u.name = 'x'",
    "SELECT t.id, u.name, t.name AS own FROM t LEFT JOIN (SELECT id, name FROM u WHERE id < 9) AS u
       ON t.id = u.id",
    "SELECT * FROM (SELECT id, unnest([id, 2]) AS item FROM t) AS q WHERE id > 3",
    "SELECT * FROM (SELECT id, unnest([id, 2]) AS item FROM t) AS q WHERE item > 3 AND random_bool()",
    "SELECT id FROM (SELECT id FROM t LIMIT 5 OFFSET 2) AS q WHERE id > 3",
    "SELECT random_uniform() AS r, id + 1 AS id FROM MIX ((SELECT * FROM t WHERE id > 2 AND name = 'x') WEIGHT 2,
       (SELECT id * 2 AS id, name FROM u WHERE id > 3) WEIGHT 1, csv('a') WEIGHT 1) WHERE id > 3 BATCH 2",
    "SELECT label, random_hflip(x) AS x FROM MIX (
       (SELECT * FROM (SELECT label, resize(decode_image(image), 8, 8) AS x FROM photos) WHERE label = 1) WEIGHT 1,
       (SELECT label, hflip(resize(decode_image(image), 8, 8)) AS x FROM photos) WEIGHT 9, stop => 'longest')
       SHUFFLE GLOBALLY TAKE 9 BATCH 4",
    "SELECT b AS a, a AS b FROM (SELECT id AS a, name AS b FROM t) AS q",
    "SELECT random_uniform() AS r, id FROM t SHUFFLE GLOBALLY TAKE 5 BATCH 2",
];

#[tokio::test]
async fn lowering_and_raising_gives_a_plan_of_the_same_meaning() {
    for sql in QUERIES {
        let (plan, pipeline) = planned(sql).await;
        let mut arena = Arena::default();
        let lowered = lower(&mut arena, &plan, &pipeline.clauses, 1, None).unwrap();
        let raised = raise(&arena, &lowered.tree, &lowered.outputs).unwrap();
        assert_eq!(raised.schema.fields(), plan.schema.fields(), "{sql}");
        if has_canonical_text(sql) {
            let meaning = |plan| semantic_hash(plan, &pipeline.clauses).unwrap();
            assert_eq!(meaning(&raised), meaning(&plan), "{sql}\n{plan}\n{raised}");
        }
    }
}

/// True if equivalent plans of a query have the same canonical text. Unions, mixes, lookups,
/// unnests and limits appear in the text where the plan has them, so for a query with such
/// operators, rewritten plans have other texts. `tests/properties.rs` compares the rows of such
/// pipelines with and without the optimiser.
fn has_canonical_text(sql: &str) -> bool {
    ["UNION", "MIX", "JOIN", "unnest", "LIMIT"]
        .iter()
        .all(|word| !sql.contains(word))
}

#[tokio::test]
async fn the_chosen_plan_means_the_same_and_costs_no_more() {
    for sql in QUERIES {
        let (plan, pipeline) = planned(sql).await;
        let (chosen, report) =
            optimize(plan.clone(), &pipeline.clauses, &Config::default()).unwrap();
        assert_eq!(report.doubt, None, "{sql}");
        assert!(report.saturation.saturated, "{sql}");
        assert!(report.chosen <= report.written, "{sql}");
        if has_canonical_text(sql) {
            let meaning = |plan| semantic_hash(plan, &pipeline.clauses).unwrap();
            assert_eq!(meaning(&chosen), meaning(&plan), "{sql}\n{plan}\n{chosen}");
        }
    }
}

#[tokio::test]
async fn a_filter_goes_below_decoding_and_shuffling_and_not_below_take() {
    let sql = "SELECT x, label FROM (SELECT resize(decode_image(image), 8, 8) AS x, label FROM photos) AS q
               WHERE label > 3 SHUFFLE GLOBALLY TAKE 9 BATCH 3";
    assert_snapshot!(chosen(sql, Tier::Exact).await, @r#"
    batch 3
    x = resize(x, 8, 8)
    x = decode_image(image)
    skip 0 take 9
    label > 3
    shuffle globally
    "#);
}

#[tokio::test]
async fn bytes_are_mirrored_rather_than_the_floats_made_of_them() {
    let sql = "SELECT random_hflip(normalize(resize(decode_image(image), 64, 64), 'imagenet')) AS x
               FROM photos BATCH 2";
    assert_snapshot!(chosen(sql, Tier::Exact).await, @r#"
    batch 2
    x = normalize(x, 'imagenet')
    x = random_hflip(x, #0)
    x = resize(x, 64, 64)
    x = decode_image(image)
    no pointwise-past-select: x = normalize(x, 'imagenet') | x = resize(x, 64, 64): one of them mixes pixels, or adds pixels
    no pointwise-past-select: x = random_hflip(x, #0) | x = resize(x, 64, 64): one of them mixes pixels, or adds pixels
    "#);
}

#[tokio::test]
async fn grayscale_goes_before_colour_jitter_only_where_the_user_allows_it() {
    let sql = "SELECT grayscale(color_jitter(resize(decode_image(image), 64, 64), 0.4, 0.4, 0.4, 0.1)) AS x
               FROM photos BATCH 2";
    assert_snapshot!(chosen(sql, Tier::Exact).await, @r#"
    batch 2
    x = grayscale(x)
    x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0)
    x = resize(x, 64, 64)
    x = decode_image(image)
    no pointwise-past-select: x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0) | x = resize(x, 64, 64): one of them reads every pixel
    no pointwise-past-select: x = grayscale(x) | x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0): one of them reads every pixel
    "#);
    assert_snapshot!(chosen(sql, Tier::Statistical).await, @r#"
    batch 2
    x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0)
    x = resize(x, 64, 64)
    x = decode_image(image, 'luma')
    no pointwise-past-select: x = resize(x, 64, 64) | x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0): one of them reads every pixel
    no pointwise-past-select: x = resize(x, 64, 64) | x = grayscale(x): one of them mixes pixels, or adds pixels
    no pointwise-past-select: x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0) | x = resize(x, 64, 64): one of them reads every pixel
    no pointwise-past-select: x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0) | x = grayscale(x): one of them reads every pixel
    no pointwise-past-select: x = grayscale(x) | x = resize(x, 64, 64): one of them mixes pixels, or adds pixels
    no pointwise-past-select: x = grayscale(x) | x = color_jitter(x, 0.4, 0.4, 0.4, 0.1, #0): one of them reads every pixel
    no resize-into-decode: x = resize(x, 64, 64) | x = decode_image(image): no decoder scales while it decodes
    no resize-into-decode: x = resize(x, 64, 64) | x = decode_image(image, 'luma'): no decoder scales while it decodes
    "#);
}

#[tokio::test]
async fn what_is_pinned_stays_where_it_is() {
    let sql = "SELECT hflip(PINNED normalize(resize(decode_image(image), 8, 8), 'imagenet')) AS x
               FROM photos BATCH 2";
    assert_snapshot!(chosen(sql, Tier::Statistical).await, @r#"
    batch 2
    x = hflip(x)
    x = PINNED normalize(x, 'imagenet')
    x = resize(x, 8, 8)
    x = decode_image(image)
    no affine-past-resample: x = PINNED normalize(x, 'imagenet') | x = resize(x, 8, 8): one of them is pinned
    no pointwise-past-select: x = PINNED normalize(x, 'imagenet') | x = resize(x, 8, 8): one of them is pinned
    no pointwise-past-select: x = hflip(x) | x = PINNED normalize(x, 'imagenet'): one of them is pinned
    no relaxed-swap: x = PINNED normalize(x, 'imagenet') | x = resize(x, 8, 8): one of them is pinned
    no relaxed-swap: x = hflip(x) | x = PINNED normalize(x, 'imagenet'): one of them is pinned
    no resize-into-decode: x = resize(x, 8, 8) | x = decode_image(image): no decoder scales while it decodes
    "#);
    let sql = "SELECT x FROM (SELECT PINNED decode_image(image) AS x, label FROM photos) AS q
               WHERE label > 3";
    assert_snapshot!(chosen(sql, Tier::Exact).await, @r#"
    batch 256
    label > 3
    x = PINNED decode_image(image)
    no filter-below-decode: label > 3 | x = PINNED decode_image(image): one of them is pinned
    "#);
    let sql = "SELECT decode_image(image) AS x FROM photos
               WHERE PINNED (label > 3) AND octet_length(image) > 8";
    assert_snapshot!(chosen(sql, Tier::Exact).await, @r#"
    batch 256
    x = decode_image(image)
    octet_length(image) > 8
    PINNED (label > 3)
    no filter-swap: octet_length(image) > 8 | PINNED (label > 3): one of them is pinned
    no row-below-filter: x = decode_image(image) | PINNED (label > 3): one of them is pinned
    "#);
}

#[tokio::test]
async fn pins_change_neither_the_meaning_nor_what_runs() {
    let text = |pin: &str, off: &str| {
        format!(
            "SELECT {pin} hflip({pin} resize(decode_image(image), 8, 8)), label FROM photos
             WHERE {pin} (label > 3) BATCH 2 {off}"
        )
    };
    for off in ["", "OPTIONS (optimize = 'off')"] {
        let mut compiled = Vec::new();
        for pin in ["", "PINNED"] {
            let (plan, pipeline) = planned(&text(pin, off)).await;
            assert_eq!(plan.to_string().contains("PINNED"), pin == "PINNED");
            compiled.push(Compiled::new(&pipeline.plan, pipeline.clauses).unwrap());
        }
        let [plain, pinned] = [&compiled[0], &compiled[1]];
        assert_eq!(plain.semantic_hash, pinned.semantic_hash);
        assert_eq!(plain.chosen.schema, pinned.chosen.schema);
        let shown = pinned.chosen.to_string();
        assert!(!shown.contains("PINNED"), "{shown}");
        assert_eq!(shown.contains("image_program"), off.is_empty(), "{shown}");
    }
}

#[tokio::test]
async fn pinned_is_a_name_too() {
    for sql in [
        "SELECT pinned FROM (SELECT id AS pinned FROM t) AS q WHERE pinned IN (1, 2)",
        "SELECT pinned AS a, pinned + 1 AS b, q.pinned AS c FROM (SELECT id AS pinned FROM t) AS q",
        "SELECT CASE pinned WHEN (1) THEN pinned ELSE (2) END AS a FROM (SELECT id AS pinned FROM t) AS q",
        "SELECT PINNED abs(pinned) AS a FROM (SELECT id AS pinned FROM t) AS q WHERE pinned > (3)",
    ] {
        let (plan, _) = planned(sql).await;
        assert_eq!(plan.to_string().contains("PINNED"), sql.contains("PINNED"));
    }
}

#[tokio::test]
async fn a_threshold_is_not_moved_to_samples_of_another_scale() {
    let sql = "SELECT solarize(to_float(resize(decode_image(image), 64, 64)), 0.25) AS x FROM photos BATCH 2";
    let plan = chosen(sql, Tier::Statistical).await;
    let place = |name: &str| {
        plan.lines()
            .position(|l| l.starts_with(&format!("x = {name}(")))
    };
    // The text of the plan lists the topmost operator first.
    assert!(place("solarize") < place("to_float"), "{plan}");
    assert!(
        plan.contains("one of them changes the range of values on which the other depends"),
        "{plan}"
    );
}

#[tokio::test]
async fn a_disk_below_the_break_even_is_no_place_for_a_cache() {
    let sql = "SELECT random_crop(normalize(resize_shortest(decode_image(image), 256), 'imagenet'), 224, 224)
                 AS x FROM photos BATCH 8 REPEAT 5 OPTIONS (cache_dir = 'c')";
    let (_, pipeline) = planned(sql).await;
    let cached = |bytes_a_second: Option<u64>| {
        let machine = crate::optimizer::PlanningContext {
            cache_write: bytes_a_second,
            cache_read: bytes_a_second,
            ..crate::optimizer::PlanningContext::default()
        };
        let compiled = Compiled::on(&machine, &pipeline.plan, pipeline.clauses.clone());
        compiled.unwrap().report.unwrap().cached
    };
    assert!(cached(None));
    assert!(cached(Some(2_000_000_000)));
    assert!(!cached(Some(1_000_000)));
}

#[tokio::test]
async fn a_disk_with_a_price_keeps_less_and_in_the_end_nothing() {
    let (mut found, mut free) = (Vec::new(), None);
    for price in ["0 s/GB", "3 min/GB", "100 h/GB"] {
        let sql = format!(
            "SELECT random_erasing(rotate(resize(resize(decode_image(image), 16, 16), 256, 256), 30)) AS x
             FROM photos BATCH 8 REPEAT 5 OPTIONS (cache_dir = 'c', cache_price = '{price}')"
        );
        let (_, pipeline) = planned(&sql).await;
        let compiled = Compiled::new(&pipeline.plan, pipeline.clauses).unwrap();
        let table = compiled.explain().unwrap().unwrap().cache;
        let place = table.chosen().map_or("no cache".to_owned(), |point| {
            format!("{} ({})", point.text, bytes_text(point.bytes))
        });
        found.push(format!("{price}: {place}"));
        // The cost of the scan is the same under every price. The total also includes the price of
        // keeping the scan's bytes in the cache.
        let scan = &table.points[0];
        let total = *scan.total.as_ref().unwrap();
        let kept = scan.bytes * u128::from(parse_price(price).unwrap());
        assert_eq!(total - kept, *free.get_or_insert(total), "{price}");
    }
    assert_snapshot!(found.join("\n"), @r"
    0 s/GB: x = rotate(x, 30) (19.7 GB)
    3 min/GB: x = resize(x, 16, 16) (76.7 MB)
    100 h/GB: no cache
    ");
}

#[tokio::test]
async fn which_draws_are_kept_does_not_follow_the_order() {
    async fn compiled(image: &str, clauses: &str) -> Result<Compiled, String> {
        let sql = format!("SELECT {image} AS x FROM photos BATCH 2 {clauses}");
        let (_, pipeline) = planned(&sql).await;
        Compiled::new(&pipeline.plan, pipeline.clauses).map_err(|e| e.strip_backtrace())
    }
    let kept = "CACHE AT center_crop FREEZING RANDOMNESS OPTIONS (cache_dir = 'c')";
    let flipped = "center_crop(random_vflip(resize(decode_image(image), 256, 256)), 8, 8)";
    let free = compiled(flipped, "").await.unwrap().chosen.to_string();
    let place = |name: &str| free.find(name).unwrap();
    assert!(place("center_crop") < place("random_vflip"), "{free}");
    let compiled_with = compiled(flipped, kept).await.unwrap();
    let mut prefix = String::new();
    compiled_with.chosen.visit(&mut |node| {
        if matches!(node.op, RowOp::Cache) {
            prefix = node.inputs[0].to_string();
        }
    });
    assert!(prefix.contains("random_vflip"), "{}", compiled_with.chosen);
    // The pipeline has two different calls of the named function, and a cache after each would
    // freeze different draws.
    let twice = "center_crop(random_vflip(center_crop(decode_image(image), 16, 16)), 8, 8)";
    let error = compiled(twice, kept).await.unwrap_err();
    assert!(
        error.contains("the pipeline calls center_crop 2 times"),
        "{error}"
    );
    // Two equal calls are one operator that occurs twice in the plan. A union has rows of several
    // tables.
    let equal = twice.replace("16, 16", "8, 8");
    let error = compiled(&equal, kept).await.unwrap_err();
    assert!(
        error.contains("the pipeline calls center_crop 2 times"),
        "{error}"
    );
    let flip = "SELECT random_vflip(resize(decode_image(image), 8, 8)) AS x FROM photos";
    let (_, pipeline) = planned(&format!(
        "{flip} UNION ALL {flip} BATCH 2 {}",
        kept.replace("center_crop", "x")
    ))
    .await;
    let error = Compiled::new(&pipeline.plan, pipeline.clauses).unwrap_err();
    assert!(error.to_string().contains("several tables"), "{error}");
    // A random call above the cached operator and the same call below it are pipelines of different
    // meaning.
    let below = "SELECT resize(d, 8, 8) AS x, y FROM (SELECT decode_image(image) AS d,
                 random_bool(0.5) AS y FROM photos) AS q";
    let above = "SELECT x, random_bool(0.5) AS y FROM (SELECT
                 resize(decode_image(image), 8, 8) AS x FROM photos) AS q";
    let mut hashes = Vec::new();
    for query in [below, above] {
        for clause in ["", &kept.replace("center_crop", "resize")] {
            let (plan, pipeline) = planned(&format!("{query} BATCH 2 {clause}")).await;
            hashes.push(semantic_hash(&plan, &pipeline.clauses).unwrap());
        }
    }
    assert_eq!(hashes[0], hashes[2]);
    assert_ne!(hashes[1], hashes[3]);
    // Without the optimiser, no rows can be cached.
    let off = kept.replace("'c'", "'c', optimize = 'off'");
    let error = compiled(flipped, &off).await.unwrap_err();
    assert!(error.contains("leave out optimize = 'off'"), "{error}");
}
