//! Resume tokens. A run that resumes from the token of a batch yields the batches that follow that
//! batch.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::stream::cursor::{Cursor, damaged};

/// Version of the token format. A change raises the version if earlier code would misread the new
/// tokens. Version 2 added a checksum, and a snapshot hash that covers the files' contents.
const VERSION: u32 = 2;
/// Maximum size of a token in bytes. A longer text is refused.
const LARGEST: usize = 1 << 20;
const CHECKSUM_DIGITS: usize = 16;

/// The identity of a stream: its pipeline, its data, its seed and, if rewrites above the exact tier
/// are allowed, its plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamName {
    /// The pipeline's semantic hash.
    pub semantic_hash: String,
    /// The pipeline's training clauses as text, so that an error can show the clause that differs.
    pub clauses: String,
    /// Hash of the snapshot, which covers the files' contents.
    pub snapshot_hash: String,
    /// Size of the snapshot, so that an error can show both sizes if the data has changed.
    pub data: DataSize,
    /// Seed of the stream.
    pub seed: u64,
    /// Hash of the plan if rewrites above the exact tier are allowed, because the plan then decides
    /// the stream; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
}

/// The size of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSize {
    /// Number of files.
    pub files: u64,
    /// Number of stored rows.
    pub rows: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
}

impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, rows, bytes } = self;
        write!(f, "{files} files, {rows} rows, {bytes} bytes")
    }
}

/// A resume token: a position in a stream, between two steps. All ranks have the same token at a
/// step, and a run with any number of ranks can resume from that token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenToken", try_from = "WrittenToken")]
pub struct Token {
    /// Identity of the stream.
    pub stream: StreamName,
    /// Position in the stream.
    pub cursor: Cursor,
}

/// The serialised form of a token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToken {
    /// Version of the token format.
    forebay_token: u32,
    stream: StreamName,
    cursor: Cursor,
    /// Checksum of the fields `forebay_token`, `stream` and `cursor`.
    checksum: String,
}

impl WrittenToken {
    /// Returns the first 16 hexadecimal digits of BLAKE3 over all other fields as JSON. The JSON is
    /// written from the parsed fields, so the order of keys in the token's text does not matter.
    fn checksum(&self) -> Option<String> {
        let mut hasher = blake3::Hasher::new();
        let parts = (self.forebay_token, &self.stream, &self.cursor);
        serde_json::to_writer(&mut hasher, &parts).ok()?;
        let mut digits = hasher.finalize().to_hex().to_string();
        digits.truncate(CHECKSUM_DIGITS);
        Some(digits)
    }
}

impl From<Token> for WrittenToken {
    fn from(Token { stream, cursor }: Token) -> Self {
        let mut written = Self {
            forebay_token: VERSION,
            stream,
            cursor,
            checksum: String::new(),
        };
        written.checksum = written.checksum().unwrap_or_default();
        written
    }
}

impl TryFrom<WrittenToken> for Token {
    type Error = Error;

    fn try_from(written: WrittenToken) -> Result<Self> {
        check_form(written.forebay_token)?;
        if written.checksum().as_ref() != Some(&written.checksum) {
            return Err(damaged(
                "its checksum does not match its contents; use an undamaged copy, or an earlier token",
            ));
        }
        let WrittenToken { stream, cursor, .. } = written;
        Ok(Self { stream, cursor })
    }
}

/// Checks that `form`, the version of a token's format, is the current version.
fn check_form(form: u32) -> Result<()> {
    let what = match form.cmp(&VERSION) {
        Ordering::Equal => return Ok(()),
        Ordering::Less => {
            "an earlier version of forebay: resume with that version, or start the run from its beginning"
        }
        Ordering::Greater => "a later version of forebay: resume with that version",
    };
    Err(Error::Config(format!(
        "the resume token has version {form} where {VERSION} was expected; it was written by {what}"
    )))
}

/// The field of a token that states its version. This field is parsed first and alone, because the
/// other fields may differ in another version.
#[derive(Deserialize)]
struct TokenForm {
    forebay_token: u32,
}

impl Token {
    /// Creates the token of a position in a stream.
    pub(crate) fn new(stream: &StreamName, cursor: &Cursor) -> Self {
        Self {
            stream: stream.clone(),
            cursor: cursor.clone(),
        }
    }

    /// Parses a token from its JSON form.
    ///
    /// # Errors
    /// Fails if the text is not a token, is too large, has another version, or was altered.
    pub fn from_json(text: &str) -> Result<Self> {
        let not_a_token = |why: String| Error::Config(format!("not a resume token: {why}"));
        if text.len() > LARGEST {
            return Err(not_a_token(format!(
                "it has {} bytes, more than {LARGEST}",
                text.len()
            )));
        }
        let parsed = serde_json::from_str(text);
        let TokenForm { forebay_token } = parsed.map_err(|why| not_a_token(why.to_string()))?;
        check_form(forebay_token)?;
        let written: WrittenToken =
            serde_json::from_str(text).map_err(|why| not_a_token(why.to_string()))?;
        Self::try_from(written)
    }

    /// Returns the token as one line of JSON.
    ///
    /// # Errors
    /// Never fails in practice: numbers and strings serialise.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|why| Error::Config(format!("cannot write the resume token: {why}")))
    }

    /// Returns the number of carried rows: rows before the token's position whose batch comes after
    /// the token's position.
    ///
    /// # Errors
    /// Fails if the token's carried rows cannot be decoded.
    pub fn carried(&self) -> Result<usize> {
        Ok(self.cursor.carry()?.rows().count())
    }

    /// Checks that the token belongs to `stream`.
    ///
    /// # Errors
    /// Fails if the token belongs to another stream; the error says what differs.
    pub fn check(&self, stream: &StreamName) -> Result<()> {
        let own = &self.stream;
        let refused = |what: String| Err(Error::Resume(what));
        if own.semantic_hash != stream.semantic_hash {
            let (was, is): (Vec<&str>, Vec<&str>) = (
                own.clauses.lines().collect(),
                stream.clauses.lines().collect(),
            );
            let differs = { was.iter().zip(&is) }.find(|(was, is)| was != is);
            return refused(match differs {
                Some((was, is)) => format!(
                    "the pipeline means something else: `{was}` was in the token, `{is}` is now"
                ),
                None if was.len() != is.len() => {
                    "the pipeline means something else: its clauses differ".to_owned()
                }
                None => format!(
                    "the pipeline means something else: its query differs (semantic hash {}, now {})",
                    own.semantic_hash, stream.semantic_hash
                ),
            });
        }
        if own.data != stream.data {
            return refused(format!(
                "the data has changed: {} in the token, {} now",
                own.data, stream.data
            ));
        }
        if own.snapshot_hash != stream.snapshot_hash {
            return refused(format!(
                "the data has changed: files of the same number and size, but other names or contents, or read with \
                 other options ({})",
                own.data
            ));
        }
        if own.seed != stream.seed {
            return refused(format!(
                "the seed is {}, but was {} when the token was written",
                stream.seed, own.seed
            ));
        }
        if own.plan_hash != stream.plan_hash {
            return refused(
                "the plan differs, and above the exact tier the plan decides the stream; run with the saved plan \
                 (`forebay plan save`)"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, cursor, .. } = self;
        writeln!(f, "stream    {}", stream.semantic_hash)?;
        writeln!(f, "data      {} ({})", stream.snapshot_hash, stream.data)?;
        writeln!(f, "seed      {}", stream.seed)?;
        if let Some(plan) = &stream.plan_hash {
            writeln!(f, "plan      {plan}")?;
        }
        writeln!(f, "epoch     {}", cursor.epoch)?;
        writeln!(f, "steps     {} taken", cursor.step)?;
        writeln!(f, "batches   {} over all ranks", cursor.batches)?;
        write!(f, "rows      {} of the epoch taken", cursor.rows)?;
        if cursor.ended {
            writeln!(f, ", and it has no more")?
        } else {
            writeln!(f)?
        }
        for (nth, input) in cursor.arms.iter().enumerate() {
            let name = if cursor.arms.len() > 1 {
                format!("input {}", nth + 1)
            } else {
                "input".to_owned()
            };
            match input.window {
                Some(window) => write!(f, "{name:<9} window {window}")?,
                None => write!(f, "{name:<9} the beginning")?,
            }
            if input.pass > 0 {
                write!(f, " of pass {}", input.pass)?;
            }
            match input.row {
                Some((row, _)) => writeln!(f, ", after stored row {row}")?,
                None => writeln!(f)?,
            }
        }
        match self.carried() {
            Ok(0) => write!(f, "carried   nothing"),
            Ok(rows) => write!(f, "carried   {rows} rows waiting for their batch"),
            Err(_) => write!(f, "carried   unreadable"),
        }
    }
}
