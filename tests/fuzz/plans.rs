//! Saved plans and price files that are damaged, edited or invented are either refused, or the
//! pipeline has its usual stream under them.

use std::path::Path;
use std::sync::Arc;

use forebay::{Coefficients, RunConfig, SavedPlan, Session};
use serde_json::Value;

use crate::cases::{again, seeds, within};
use crate::common::{batches_of_p, digest, photos};
use crate::draw::Draw;
use crate::json::{damaged, deface, places};

/// Returns two pipelines whose plans depend on prices and on the sizes of rows.
fn queries(folder: &Path, relax: &str) -> [String; 2] {
    let (photos, cache) = (folder.join("photos"), folder.join("cache"));
    let from = format!("images('{}')", photos.display());
    [
        format!(
            "SELECT label, normalize(random_hflip(grayscale(resize(decode_image(image), 9, 9))), 0.5, 0.5) AS pixels
             FROM {from} WHERE octet_length(image) > 0 AND label < 3
             SHUFFLE WITHIN 8 ROWS SEED 1 BATCH 5 OPTIONS (relax = '{relax}')"
        ),
        format!(
            "SELECT grayscale(resize(decode_image(image), 6, 6)) AS x, label FROM {from}
             SHUFFLE GLOBALLY BATCH 4 REPEAT 3 CACHE AUTO
             OPTIONS (relax = '{relax}', cache_dir = '{}')",
            cache.display()
        ),
    ]
}

async fn pipeline(session: &Session, query: &str) {
    let sql = format!("CREATE PIPELINE p AS {query}");
    session.execute(&sql).await.unwrap();
}

/// Runs one epoch of the pipeline `p`. Returns the digest of the stream or the error.
async fn outcome(session: &Session, plan: Option<Arc<SavedPlan>>) -> Result<String, String> {
    let config = RunConfig {
        epochs: Some(1),
        plan,
        ..RunConfig::default()
    };
    let outcome = batches_of_p(session, config, usize::MAX).await;
    if let Err(why) = &outcome {
        let broken = ["panicked", "broke down", "nternal error"];
        assert!(broken.iter().all(|sign| !why.contains(sign)), "{why}");
    }
    outcome.map(|batches| digest(&batches))
}

/// Runs a pipeline in a new session, with the prices or the saved plan if there are any. Returns
/// the digest of the stream or the error.
fn run(
    query: &str,
    prices: Option<Coefficients>,
    plan: Option<SavedPlan>,
) -> Result<String, String> {
    let query = query.to_owned();
    within(move || async move {
        let session = prices.map_or_else(Session::new, |prices| Session::new().with_prices(prices));
        pipeline(&session, &query).await;
        outcome(&session, plan.map(Arc::new)).await
    })
}

fn saved(query: &str) -> String {
    let query = query.to_owned();
    within(move || async move {
        let session = Session::new();
        pipeline(&session, &query).await;
        let saved = session.plan("p", RunConfig::default()).await.unwrap();
        saved.to_json().unwrap()
    })
}

#[test]
fn a_changed_plan_is_refused_or_gives_the_same_stream() {
    let folder = tempfile::tempdir().unwrap();
    photos(&folder.path().join("photos"), 14, 4);
    let mut cases = Vec::new();
    for relax in ["none", "statistical"] {
        for query in queries(folder.path(), relax) {
            let text = saved(&query);
            let plan = SavedPlan::from_json(&text).unwrap();
            let stream = run(&query, None, Some(plan)).unwrap();
            cases.push((query, text, stream));
        }
    }
    let (mut read, mut ran) = (0, 0);
    for seed in seeds(60) {
        let draw = &mut Draw::new(seed);
        let (query, text, stream) = &cases[draw.whole(0, cases.len() as u64 - 1) as usize];
        let changed = if draw.chance(50) {
            String::from_utf8(damaged(text, draw))
        } else {
            let mut value: Value = serde_json::from_str(text).unwrap();
            for _ in 0..draw.whole(1, 4) {
                deface(&mut value, draw.pick(&["", "/chosen_by"]), draw);
            }
            Ok(value.to_string())
        };
        let Ok(changed) = changed else { continue };
        eprintln!("{}", again(seed));
        let plan = SavedPlan::from_json(&changed);
        // Deserialising with serde alone must apply the same checks as `SavedPlan::from_json`.
        assert_eq!(
            serde_json::from_str::<SavedPlan>(&changed).ok().as_ref(),
            plan.as_ref().ok(),
        );
        let Ok(plan) = plan else { continue };
        read += 1;
        // The displayed text of the plan must not contain terminal escape sequences, whatever the
        // file contains.
        assert!(!plan.to_string().contains('\u{1b}'));
        if let Ok(found) = run(query, None, Some(plan)) {
            ran += 1;
            assert_eq!(&found, stream, "{query}");
        }
    }
    eprintln!("{read} changed plans were read, {ran} ran");
}

#[test]
fn no_prices_change_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    photos(&folder.path().join("photos"), 14, 4);
    let queries = queries(folder.path(), "none");
    let streams = queries
        .each_ref()
        .map(|query| run(query, None, None).unwrap());
    let declared = serde_json::to_value(Coefficients::declared().as_ref()).unwrap();
    let text = declared.to_string();
    let mut read = 0;
    for seed in seeds(40) {
        let draw = &mut Draw::new(seed);
        let changed = match draw.whole(0, 3) {
            0 => String::from_utf8(damaged(&text, draw)),
            1 => {
                // All prices are zero, or all exceed any reasonable bound.
                let mut value = declared.clone();
                let extreme = draw.pick(&[0, 1, u64::MAX, u64::MAX / 2]);
                for place in places(&declared) {
                    if draw.chance(80)
                        && let Some(Value::Number(found)) = value.pointer_mut(&place)
                    {
                        *found = extreme.into();
                    }
                }
                Ok(value.to_string())
            }
            _ => {
                let mut value = declared.clone();
                for _ in 0..draw.whole(1, 30) {
                    deface(&mut value, "", draw);
                }
                Ok(value.to_string())
            }
        };
        let Ok(changed) = changed else { continue };
        eprintln!("{}", again(seed));
        let Ok(prices) = Coefficients::from_json(&changed) else {
            continue;
        };
        read += 1;
        for (query, stream) in queries.iter().zip(&streams) {
            assert_eq!(
                run(query, Some(prices.clone()), None).as_ref(),
                Ok(stream),
                "{query}"
            );
        }
    }
    assert!(read > 0, "no prices were read");
    eprintln!("{read} changed files of prices were read");
}
