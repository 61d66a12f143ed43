//! Goldens, which are the recorded behaviour of pipelines: their files, and the comparison with
//! newly recorded behaviour.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Prefix of the lines that begin the golden of a pipeline.
const HEAD: &str = "== ";

/// Maximum number of differences reported per pipeline.
const OF_PIPELINE: usize = 4;

/// The recorded behaviour of a pipeline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Golden {
    group: String,
    name: String,
    /// Names and values of the recorded facts. Each is one line of the golden file.
    pub(crate) fields: Vec<(String, String)>,
    /// The text of EXPLAIN.
    pub(crate) explanation: String,
}

impl Golden {
    pub(crate) fn new(group: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn differences(&self, expected: &Self, renames: &[(String, String)]) -> Vec<String> {
        let mut differences = Vec::new();
        let mut tell = |field: &str, expected: &str, found: &str| {
            let name = format!("{}/{}", self.group, self.name);
            differences.push(format!(
                "{name}: {field}\n  golden {expected}\n  found  {found}"
            ));
        };
        let of = |golden: &Self| golden.fields.iter().cloned().collect::<BTreeMap<_, _>>();
        let renamed = |text: &String| {
            let renames = renames.iter();
            renames.fold(text.clone(), |text, (old, new)| text.replace(old, new))
        };
        let (found, mut golden) = (of(self), of(expected));
        if let Some(message) = golden.get_mut("refused") {
            *message = renamed(message);
        }
        let names: BTreeSet<&String> = found.keys().chain(golden.keys()).collect();
        for name in names {
            let value = |of: &BTreeMap<String, String>| of.get(name).cloned();
            let (expected, found) = (value(&golden), value(&found));
            if expected != found {
                let shown = |value: Option<String>| value.unwrap_or_else(|| "(none)".to_owned());
                tell(name, &shown(expected), &shown(found));
            }
        }
        let golden = renamed(&expected.explanation);
        let (expected, found) = (golden.lines(), self.explanation.lines());
        let lines = |of: std::str::Lines<'_>| of.map(str::to_owned).collect::<Vec<_>>();
        let (expected, found) = (lines(expected), lines(found));
        let same = expected.iter().zip(&found).take_while(|(a, b)| a == b);
        let at = same.count();
        if at < expected.len() || at < found.len() {
            let line = |of: &[String]| of.get(at).map_or("(end)", String::as_str).to_owned();
            let field = format!("EXPLAIN, line {}", at + 1);
            tell(&field, &line(&expected), &line(&found));
        }
        // The number of reported differences is limited, so that one pipeline does not fill the
        // report.
        let more = differences.len().saturating_sub(OF_PIPELINE);
        if more > 1 {
            differences.truncate(OF_PIPELINE);
            let name = format!("{}/{}", self.group, self.name);
            differences.push(format!("{name}: {more} more fields"));
        }
        differences
    }
}

/// The goldens of the corpus.
#[derive(Debug)]
pub(crate) struct Goldens(Vec<Golden>);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

/// Reads the pairs of old and new text in `renames.txt`.
fn renames() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder().join("renames.txt")).unwrap();
    let lines = { text.lines() }
        .filter(|line| !line.starts_with('#'))
        .filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let (old, new) = line.split_once(" => ").unwrap_or_else(|| {
                panic!("renames.txt: a line is `old => new`, and this is not: {line}")
            });
            (old.to_owned(), new.to_owned())
        })
        .collect()
}

impl Goldens {
    pub(crate) const fn new(goldens: Vec<Golden>) -> Self {
        Self(goldens)
    }

    /// Reads the goldens from the files that are checked in.
    fn checked_in() -> Self {
        let mut goldens: Vec<Golden> = Vec::new();
        let files = std::fs::read_dir(folder().join("expected")).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        for file in files
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == "txt"))
        {
            let group = file.file_stem().unwrap().to_str().unwrap();
            for (name, lines) in parts(&std::fs::read_to_string(file).unwrap()) {
                let mut golden = Golden::new(group, &name);
                for line in lines {
                    let (field, value) = line.split_once(": ").unwrap();
                    golden.fields.push((field.to_owned(), value.to_owned()));
                }
                goldens.push(golden);
            }
            let explained = std::fs::read_to_string(file.with_extension("explain")).unwrap();
            let mut explained: BTreeMap<String, Vec<String>> =
                parts(&explained).into_iter().collect();
            for golden in goldens.iter_mut().filter(|golden| golden.group == group) {
                let lines = explained.remove(&golden.name).unwrap_or_default();
                golden.explanation = lines.join("\n");
            }
        }
        Self(goldens)
    }

    /// Describes each difference of these pipelines from the checked-in goldens, with the pipeline,
    /// the field, and both values.
    #[allow(dead_code, reason = "the test of goldens compares all of them")]
    pub(crate) fn differences_of_some(&self) -> Vec<String> {
        self.differences_from(|expected, _| expected)
    }

    /// Describes each difference of the fields of these pipelines from the checked-in goldens, which
    /// may have more fields.
    #[allow(dead_code, reason = "only runs on workers are compared by fields")]
    pub(crate) fn differences_of_fields(&self) -> Vec<String> {
        self.differences_from(|mut expected, found| {
            let is_found = |name: &String| found.fields.iter().any(|(found, _)| found == name);
            expected.fields.retain(|(name, _)| is_found(name));
            expected.explanation.clear();
            expected
        })
    }

    /// Describes each difference of these pipelines from the part of their goldens that `part` returns.
    fn differences_from(&self, part: impl Fn(Golden, &Golden) -> Golden) -> Vec<String> {
        let mut differences = Vec::new();
        let (expected, renames) = (Self::checked_in().0, renames());
        for golden in &self.0 {
            let of = |other: &&Golden| (&other.group, &other.name) == (&golden.group, &golden.name);
            let expected = expected.iter().find(of).unwrap();
            let expected = part(expected.clone(), golden);
            differences.extend(golden.differences(&expected, &renames));
        }
        differences
    }

    /// Describes each difference from the checked-in goldens, with the pipeline, the field, and
    /// both values.
    pub(crate) fn differences(&self) -> Vec<String> {
        let named = |goldens: &Self| -> BTreeMap<(String, String), Golden> {
            let goldens = goldens.0.iter();
            goldens
                .map(|g| ((g.group.clone(), g.name.clone()), g.clone()))
                .collect()
        };
        let (mut expected, renames) = (named(&Self::checked_in()), renames());
        let mut differences = Vec::new();
        for golden in &self.0 {
            let key = (golden.group.clone(), golden.name.clone());
            match expected.remove(&key) {
                Some(expected) => differences.extend(golden.differences(&expected, &renames)),
                None => differences.push(format!("{}/{}: it has no golden", key.0, key.1)),
            }
        }
        differences.extend(expected.keys().map(|(group, name)| {
            format!("{group}/{name}: there is a golden, and no pipeline in the corpus")
        }));
        differences
    }

    /// Replaces the checked-in files with these goldens.
    pub(crate) fn write(&self) {
        let folder = folder().join("expected");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for of_group in self.0.chunk_by(|a, b| a.group == b.group) {
            let (mut fields, mut explained) = (String::new(), String::new());
            for golden in of_group {
                writeln!(fields, "{HEAD}{}", golden.name).unwrap();
                for (field, value) in &golden.fields {
                    writeln!(fields, "{field}: {value}").unwrap();
                }
                if !golden.explanation.is_empty() {
                    writeln!(explained, "{HEAD}{}\n{}", golden.name, golden.explanation).unwrap();
                }
            }
            let file = folder.join(&of_group[0].group);
            std::fs::write(file.with_extension("txt"), fields).unwrap();
            std::fs::write(file.with_extension("explain"), explained).unwrap();
        }
    }
}

/// Returns each heading in `text` and the lines below it.
fn parts(text: &str) -> Vec<(String, Vec<String>)> {
    let mut parts: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix(HEAD), parts.last_mut()) {
            (Some(name), _) => parts.push((name.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.to_owned()),
            (None, None) => panic!("a line above the first pipeline: {line}"),
        }
    }
    parts
}
