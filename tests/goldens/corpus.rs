//! The pipelines of the corpus: those in `pipelines/*.sql`, and random ones with fixed seeds.
//!
//! A file contains a group of pipelines. A line `-- name setting=value ..` begins a pipeline. The
//! lines up to the next such line are the query of the pipeline.

use std::path::Path;

use crate::case::Case;
use crate::draw::Draw;
use crate::sequences;

/// Number of random pipelines.
const RANDOM: u64 = 150;
/// Number of random pipelines over lists.
const SEQUENCES: u64 = 24;
/// Number of random pipelines per group, and so per golden file.
const OF_GROUP: u64 = 50;

/// A pipeline of the corpus.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    /// Group of the pipeline, which is the name of the file with its goldens.
    pub(crate) group: String,
    /// Name of the pipeline, unique in the corpus.
    pub(crate) name: String,
    /// The query with its clauses. `{data}`, `{cache}` and `{dead}` stand for folders.
    pub(crate) query: String,
    /// Number of rows in a segment, from the setting `segment=n`; `None` for the default.
    pub(crate) segment_rows: Option<u64>,
    /// Number of batches after which a run ends, from the setting `limit=n`; `None` for no limit.
    pub(crate) limit: Option<u64>,
    /// True if the pipeline has `wide=yes`. Then it is also recorded with three ranks, and with
    /// workers that take turns.
    pub(crate) is_wide: bool,
    /// True unless the pipeline has `verbose=no`: the text of EXPLAIN is recorded in full.
    pub(crate) is_verbose: bool,
}

/// Returns all pipelines, in the order of the goldens.
pub(crate) fn corpus() -> Vec<Pipeline> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/pipelines");
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut corpus = Vec::new();
    for file in files {
        let group = file.file_stem().unwrap().to_str().unwrap();
        corpus.extend(pipelines(group, &std::fs::read_to_string(&file).unwrap()));
    }
    corpus.extend((0..RANDOM).map(random));
    corpus.extend((0..SEQUENCES).map(sequence));
    let mut names: Vec<&str> = corpus.iter().map(|p| p.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "a name that two pipelines have");
    corpus
}

/// Parses the pipelines of a file.
fn pipelines(group: &str, text: &str) -> Vec<Pipeline> {
    let mut pipelines: Vec<Pipeline> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("-- "), pipelines.last_mut()) {
            (Some(head), _) => pipelines.push(headed(group, head)),
            (None, Some(pipeline)) => pipeline.query = pipeline.query.clone() + line + "\n",
            (None, None) => assert!(line.trim().is_empty(), "{group}: {line} has no name"),
        }
    }
    for pipeline in &mut pipelines {
        pipeline.query = pipeline.query.trim().to_owned();
        assert!(!pipeline.query.is_empty(), "{} has no query", pipeline.name);
    }
    pipelines
}

/// Parses `head`, a line `name setting=value ..`, as a pipeline whose query is still empty.
fn headed(group: &str, head: &str) -> Pipeline {
    let mut words = head.split_whitespace();
    let mut pipeline = Pipeline {
        group: group.to_owned(),
        name: words.next().unwrap().to_owned(),
        query: String::new(),
        segment_rows: None,
        limit: None,
        is_wide: false,
        is_verbose: true,
    };
    for word in words {
        match word.split_once('=') {
            Some(("segment", rows)) => pipeline.segment_rows = Some(rows.parse().unwrap()),
            Some(("limit", batches)) => pipeline.limit = Some(batches.parse().unwrap()),
            Some(("wide", "yes")) => pipeline.is_wide = true,
            Some(("verbose", "no")) => pipeline.is_verbose = false,
            _ => panic!("{}: unknown setting {word}", pipeline.name),
        }
    }
    pipeline
}

/// Returns the random pipeline of a seed. For half of the seeds, the pipeline allows rewrites that
/// are not exact.
fn random(seed: u64) -> Pipeline {
    let case = Case::of(seed);
    let relax = match seed % 6 {
        1 => "numeric",
        3 => "order",
        5 => "statistical",
        _ => "none",
    };
    let sql = case.sql();
    let options = sql.strip_suffix(')').unwrap();
    Pipeline {
        group: format!("random-{}", seed / OF_GROUP),
        name: format!("random_{seed}"),
        query: format!("{options}, relax = '{relax}')"),
        segment_rows: case.segment_rows,
        limit: None,
        is_wide: seed.is_multiple_of(5),
        is_verbose: false,
    }
}

/// Returns the random pipeline over lists of a seed.
fn sequence(seed: u64) -> Pipeline {
    Pipeline {
        group: "sequences".to_owned(),
        name: format!("sequence_{seed}"),
        query: sequences::pipeline(&mut Draw::new(seed)),
        segment_rows: (seed % 3 == 1).then_some(11),
        limit: None,
        is_wide: seed.is_multiple_of(4),
        is_verbose: false,
    }
}
