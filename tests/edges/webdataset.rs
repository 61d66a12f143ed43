//! WebDataset shards: compressed and uncompressed shards give the same streams, in stored and
//! shuffled order, and after a resume from any batch.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use forebay::digest::Digest;
use forebay::{RunConfig, Session, Token};

use super::tar::{gzip, tar};

/// Writes three shards of 400 samples each; a third of the samples has no class.
fn shards(folder: &Path, is_compressed: bool) {
    for shard in 0..3 {
        let sample = |i: usize| {
            let id = shard * 400 + i;
            let class =
                (!id.is_multiple_of(3)).then(|| (format!("{id:05}.cls"), format!("{}\n", id % 10)));
            [
                (format!("{id:05}.txt"), format!("text {id}")),
                (format!("{id:05}.bin"), "x".repeat(id)),
            ]
            .into_iter()
            .chain(class)
            .map(|(name, content)| (name, content.into_bytes()))
        };
        let archive = tar(&(0..400).flat_map(sample).collect::<Vec<_>>());
        let (name, bytes) = match is_compressed {
            true => (format!("{shard}.tar.gz"), gzip(&archive)),
            false => (format!("{shard}.tar"), archive),
        };
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Runs a query, from `resume` if there is a token. Returns the digests of its batches, and the
/// token after batch number `stop`.
async fn run(
    query: &str,
    stop: usize,
    resume: Option<Token>,
) -> Result<(Vec<String>, Option<Token>), String> {
    let session = Session::new();
    let sql = format!("CREATE PIPELINE p AS {query}");
    session
        .execute(&sql)
        .await
        .map_err(|error| error.to_string())?;
    let config = RunConfig {
        resume: resume.map(Arc::new),
        ..RunConfig::default()
    };
    let mut run = session
        .run("p", config)
        .await
        .map_err(|error| error.to_string())?;
    let (mut digests, mut token) = (Vec::new(), None);
    while let Some(batch) = run.next().await {
        let batch = batch.map_err(|error| error.to_string())?;
        let mut digest = Digest::default();
        digest.update(&batch.batch).unwrap();
        digests.push(digest.finish());
        if digests.len() == stop {
            token = Some(batch.token());
        }
    }
    Ok((digests, token))
}

#[tokio::test]
async fn plain_and_compressed_shards_have_the_same_rows() {
    let (plain, compressed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    shards(plain.path(), false);
    shards(compressed.path(), true);
    let query = |folder: &Path| {
        let folder = folder.display();
        format!(
            "SELECT \"__key__\", txt, coalesce(cls, -1) AS cls, octet_length(bin) AS n FROM webdataset('{folder}') WHERE cls IS NULL OR cls > 2 BATCH 64"
        )
    };
    let expected = run(&query(plain.path()), 0, None).await.unwrap();
    assert!(expected.0.len() > 10);
    assert_eq!(
        run(&query(compressed.path()), 0, None).await.unwrap().0,
        expected.0
    );
}

#[tokio::test]
async fn a_shuffled_stream_goes_on_from_its_token() {
    for is_compressed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        shards(folder.path(), is_compressed);
        let location = folder.path().display();
        for shuffle in ["SHUFFLE WITHIN 300 ROWS SEED 7", "SHUFFLE GLOBALLY SEED 7"] {
            let query = format!(
                "SELECT txt, bin, cls FROM webdataset('{location}/*') WHERE txt <> 'text 5' {shuffle} BATCH 32 REPEAT 2"
            );
            let (whole, token) = run(&query, 50, None).await.unwrap();
            assert_eq!(whole.len(), 76, "{shuffle}");
            assert_ne!(whole[..37], whole[38..75], "{shuffle}");
            let (rest, _) = run(&query, 0, token).await.unwrap();
            assert_eq!(rest, whole[50..], "{shuffle}");
        }
    }
}

#[tokio::test]
async fn a_value_of_another_type_is_an_error_of_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.tar");
    let files = [("a.cls", "1"), ("b.cls", "cat"), ("c.cls", "3")];
    let files = files.map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec()));
    fs::write(&path, tar(&files)).unwrap();
    let query = |policy: &str| {
        format!(
            "SELECT cls FROM webdataset('{}') BATCH 1 OPTIONS (on_error = '{policy}')",
            path.display()
        )
    };
    let error = run(&query("fail"), 0, None).await.unwrap_err();
    assert!(
        error.contains(
            "t.tar' is not a sound WEBDATASET file: sample 'b', cls: 'cat' is not an integer"
        ),
        "{error}"
    );
    assert_eq!(run(&query("null"), 0, None).await.unwrap().0.len(), 3);
    // A damaged shard ends the run with an error under every policy `on_error`.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1024]).unwrap();
    for policy in ["fail", "skip", "null"] {
        let error = run(&query(policy), 0, None).await.unwrap_err();
        assert!(error.contains("it is cut off after byte 3072"), "{error}");
    }
}
