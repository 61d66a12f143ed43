//! Tokens that are damaged, edited or invented are either refused, or the run resumes with batches
//! of the pipeline's own stream. They never cause another stream, a panic or an endless run.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::{RunConfig, Session, Token};
use serde_json::Value;

use crate::cases::{again, seeds};
use crate::common::{batches_of_p, digest};
use crate::draw::Draw;
use crate::json::{damaged, deface};

/// Timeout of a run, far longer than a run over these few rows takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pipelines whose tokens contain open packs or buckets, positions in several inputs, or the number
/// of rows that a filter has kept.
const QUERIES: [&str; 4] = [
    "SELECT id, ids FROM t SHUFFLE WITHIN 20 ROWS SEED 3 PACK ids INTO 12 BATCH 2 REPEAT 2",
    "SELECT id, ids FROM t SHUFFLE GLOBALLY BUCKET BY id % 7 BOUNDARIES (2, 4) BATCH 9 REPEAT 2",
    "SELECT id FROM MIX (t WEIGHT 2, (SELECT * FROM t WHERE id > 50) WEIGHT 1) BATCH 7 REPEAT 2",
    "SELECT id FROM t WHERE id % 3 > 0 SHUFFLE WITHIN 30 ROWS SEED 1 SKIP 3 TAKE 60 BATCH 4 REPEAT 3",
];

async fn session(folder: &Path, query: &str) -> Session {
    let file = folder.join("t.json");
    let lines = (0..120).fold(String::new(), |mut lines, id| {
        let ids: Vec<u64> = (0..1 + id * 31 % 9).collect();
        writeln!(lines, "{{\"id\": {id}, \"ids\": {ids:?}}}").unwrap();
        lines
    });
    std::fs::write(&file, lines).unwrap();
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS JSON LOCATION '{}'; CREATE PIPELINE p AS {query}",
        file.display()
    );
    session.execute(&sql).await.unwrap();
    session
}

/// Runs the pipeline `p`. Returns a token in the middle of the first epoch, and the digest of the
/// stream after this token.
async fn token(session: &Session) -> (Token, String) {
    let batches = batches_of_p(session, RunConfig::default(), usize::MAX)
        .await
        .unwrap();
    let of_first = batches.iter().filter(|batch| batch.epoch == 0).count();
    let at = of_first / 2;
    (batches[at].token(), digest(&batches[at + 1..]))
}

/// Resumes the pipeline `p` from `token`. Returns the digest of the remaining stream or the error.
async fn resume(session: &Session, token: Token) -> Result<String, String> {
    let config = RunConfig {
        resume: Some(Arc::new(token)),
        ..RunConfig::default()
    };
    let run = batches_of_p(session, config, usize::MAX);
    let batches = tokio::time::timeout(PATIENCE, run).await;
    let outcome = batches.unwrap_or_else(|_| panic!("the run did not end"));
    if let Err(why) = &outcome {
        let broken = ["panicked", "broke down", "nternal error"];
        assert!(broken.iter().all(|sign| !why.contains(sign)), "{why}");
    }
    outcome.map(|batches| digest(&batches))
}

/// Parses damaged bytes. Returns true if they are accepted. Panics if the accepted token differs
/// from the original `token`.
fn read(bytes: &[u8], token: &Token) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let read = Token::from_json(text);
    if let Ok(read) = &read {
        assert_eq!(read, token, "{text}");
    }
    read.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_flipped_bit_or_truncation_makes_another_token() {
    for query in QUERIES {
        let folder = tempfile::tempdir().unwrap();
        let (token, _) = token(&session(folder.path(), query).await).await;
        let text = token.to_json().unwrap();
        assert_eq!(text.lines().count(), 1);
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(!read(&bytes, &token), "bit {bit} of byte {at}: {query}");
            }
            assert!(!read(&text.as_bytes()[..at], &token), "{at} bytes: {query}");
        }
        assert!(read(text.as_bytes(), &token));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reformatted_token_is_equal_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), QUERIES[0]).await;
    let (token, rest) = token(&session).await;
    let text = token.to_json().unwrap();
    // The order of the JSON keys and white space do not change the meaning of a token.
    let value: Value = serde_json::from_str(&text).unwrap();
    let sorted = serde_json::to_string_pretty(&value).unwrap();
    assert_ne!(sorted, text);
    assert!(read(sorted.as_bytes(), &token));
    assert_eq!(
        resume(&session, Token::from_json(&sorted).unwrap()).await,
        Ok(rest)
    );
    // A token with a duplicate key is refused.
    for (key, value) in value["cursor"].as_object().unwrap() {
        let twice = text.replacen(
            "\"cursor\":{",
            &format!("\"cursor\":{{\"{key}\":{value},"),
            1,
        );
        assert!(!read(twice.as_bytes(), &token), "{key}");
    }
    let refused = |text: &str| Token::from_json(text).unwrap_err().to_string();
    let older = refused(&text.replacen("\"forebay_token\":2", "\"forebay_token\":1", 1));
    assert!(older.contains("written by an earlier version"), "{older}");
    let later = refused(&text.replacen("\"forebay_token\":2", "\"forebay_token\":3", 1));
    assert!(later.contains("written by a later version"), "{later}");
    let moved = refused(&text.replacen("\"epoch\":0", "\"epoch\":1", 1));
    assert!(moved.contains("its checksum does not match"), "{moved}");
    for nested in ["[", "{\"a\":"] {
        refused(&nested.repeat(200_000));
    }
    // Deserialising with serde alone must apply the same checks as `Token::from_json`.
    let moved = text.replacen("\"epoch\":0", "\"epoch\":1", 1);
    serde_json::from_str::<Token>(&moved).unwrap_err();
    assert_eq!(serde_json::from_str::<Token>(&text).unwrap(), token);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_tokens_are_refused_and_invented_ones_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut streams = Vec::new();
    for query in QUERIES {
        let session = session(folder.path(), query).await;
        let (token, rest) = token(&session).await;
        streams.push((session, token, rest));
    }
    let (mut refused, mut accepted) = (0, 0);
    for seed in seeds(120) {
        let draw = &mut Draw::new(seed);
        let (session, token, rest) = &streams[draw.whole(0, QUERIES.len() as u64 - 1) as usize];
        let bytes = damaged(&token.to_json().unwrap(), draw);
        if read(&bytes, token) {
            let text = String::from_utf8(bytes).unwrap();
            let outcome = resume(session, Token::from_json(&text).unwrap()).await;
            assert_eq!(outcome.as_ref(), Ok(rest), "{}", again(seed));
        }
        // An attacker can recompute the checksum, and so can change any field of the cursor.
        let mut value = serde_json::to_value(&token.cursor).unwrap();
        for _ in 0..draw.whole(1, 3) {
            deface(&mut value, "", draw);
        }
        let Ok(cursor) = serde_json::from_value(value.clone()) else {
            continue;
        };
        let mut made_up = token.clone();
        made_up.cursor = cursor;
        eprintln!("{} with {value}", again(seed));
        match resume(session, made_up).await {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
    }
    eprintln!("{refused} made-up tokens refused, {accepted} accepted");
}
