//! The fields of a golden: conversion of a pipeline's recorded behaviour to lines of text.

use std::fmt::{Display, Write as _};

use sha2::{Digest, Sha256};

use crate::corpus::Pipeline;
use crate::data::Data;
use crate::golden::Golden;

/// Maximum number of failures that are recorded in full. Of the others, only a hash is recorded.
const WRITTEN_OUT: usize = 6;

/// A batch of a recorded stream.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) rows: usize,
    pub(crate) padded: usize,
    /// The token after the batch, as text.
    pub(crate) token: String,
}

/// The recorded stream of a run.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Hash of the data; `None` if the pipeline could not be opened.
    pub(crate) data: Option<String>,
    pub(crate) steps: Vec<Step>,
    /// Digest of all batches.
    pub(crate) digest: String,
    /// Hash of the keys of all rows.
    pub(crate) keys: String,
    /// Digest of each epoch.
    pub(crate) epochs: Vec<(u64, String)>,
    /// Class and message of the error that ended the run; `None` if it succeeded.
    pub(crate) end: Option<(&'static str, String)>,
    /// Numbers of rows, of batches, and of failed rows that did not end the run.
    pub(crate) counts: String,
    /// The failed rows that were reported.
    pub(crate) failures: Vec<String>,
    /// Number of rows read from the cache, and number of rows computed because the cache lacked
    /// them; `None` without a cache.
    pub(crate) cached: Option<(u64, u64)>,
}

/// Returns the first 16 hexadecimal digits of the SHA-256 hash of `text`.
pub(crate) fn short(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Builds a golden, field by field.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    data: &'a Data,
    golden: Golden,
    /// The last recorded error, and the name of the field with this error.
    error: Option<(String, String)>,
    /// Name of the stream in the last recorded token.
    stream: Option<String>,
}

impl<'a> Record<'a> {
    pub(crate) fn new(pipeline: &Pipeline, data: &'a Data) -> Self {
        let mut record = Self {
            data,
            golden: Golden::new(&pipeline.group, &pipeline.name),
            error: None,
            stream: None,
        };
        record.put("query", short(&pipeline.query));
        record
    }

    /// Returns the golden with the recorded fields and the text of EXPLAIN.
    pub(crate) fn golden(mut self, explanation: String) -> Golden {
        let lines = self.data.masked(&explanation);
        let lines = lines.lines().map(|line| {
            if line.trim_start().starts_with("planned in ") {
                "  planned in .."
            } else {
                line.trim_end()
            }
        });
        self.golden.explanation = lines.collect::<Vec<_>>().join("\n");
        self.golden
    }

    /// Records a field. The paths of the data folders in its value are masked.
    pub(crate) fn put(&mut self, field: &str, value: impl Display) {
        let value = self.data.masked(&value.to_string()).replace('\n', "\\n");
        self.golden.fields.push((field.to_owned(), value));
    }

    /// Records an error. If the error equals the last recorded one, records only the name of the
    /// field with the last one.
    pub(crate) fn error(&mut self, field: &str, class: &str, text: &str) {
        let told = format!("{class}: {text}");
        match &self.error {
            Some((same, of)) if *same == told => {
                let of = format!("as {of}");
                self.put(field, of);
            }
            _ => {
                self.put(field, &told);
                self.error = Some((told, field.to_owned()));
            }
        }
    }

    /// Records the stream of a single rank in full.
    pub(crate) fn whole(&mut self, whole: &Stream) {
        if let Some(hash) = &whole.data {
            self.put("data", hash);
        }
        self.stream("1", whole);
        self.put("1.counts", &whole.counts);
        let shape = whole.steps.chunk_by(|a, b| a.epoch == b.epoch);
        let shape = shape.map(|of| {
            let sizes = of.iter().map(|step| match step.padded {
                0 => format!("{}", step.rows),
                padded => format!("{}/{padded}", step.rows),
            });
            let sizes: Vec<String> = sizes.collect();
            format!("{}.{}: {}", of[0].epoch, of[0].step, sizes.join(" "))
        });
        let shape: Vec<String> = shape.collect();
        self.put("1.sizes", shape.join(", "));
        if whole.epochs.len() > 1 {
            let epochs = whole.epochs.iter();
            let epochs = epochs.map(|(epoch, digest)| format!("{epoch}: {digest}"));
            self.put("1.epochs", epochs.collect::<Vec<_>>().join(", "));
        }
        for (number, failure) in whole.failures.iter().take(WRITTEN_OUT).enumerate() {
            self.put(&format!("1.failed.{number}"), failure);
        }
    }

    /// Records a stream in one line, and the error that ended the stream in another line.
    pub(crate) fn stream(&mut self, field: &str, stream: &Stream) {
        let rows: usize = stream.steps.iter().map(|step| step.rows).sum();
        let mut line = format!(
            "{} batches, {rows} rows, {}, keys {}",
            stream.steps.len(),
            stream.digest,
            stream.keys
        );
        if !stream.failures.is_empty() {
            let failures = self.data.masked(&stream.failures.join("\n"));
            let count = stream.failures.len();
            let _ = write!(line, ", {count} failed: {}", short(&failures));
        }
        self.put(field, line);
        if let Some((class, text)) = &stream.end {
            self.error(&format!("{field}.ends"), class, text);
        }
    }

    /// Records that `stream` equals `as_whole`. If they differ, records `stream` instead.
    pub(crate) fn same(&mut self, field: &str, stream: &Stream, as_whole: &Stream) {
        let of = |s: &Stream| {
            let tokens: Vec<String> = s.steps.iter().map(|step| step.token.clone()).collect();
            let end = (s.end.clone(), s.failures.clone(), s.counts.clone());
            (s.digest.clone(), s.keys.clone(), tokens, end)
        };
        if of(stream) == of(as_whole) {
            self.put(field, "the same")
        } else {
            self.stream(field, stream)
        }
    }

    /// Records a token. The stream name in the token is recorded only if it differs from that in
    /// the last recorded token.
    pub(crate) fn token(&mut self, field: &str, token: &str) {
        let end = token.find(",\"cursor\":").unwrap();
        let name = &token[..end];
        match &self.stream {
            Some(known) if known == name => self.put(field, format!("..{}", &token[end..])),
            _ => {
                self.stream = Some(name.to_owned());
                self.put(field, token);
            }
        }
    }
}
