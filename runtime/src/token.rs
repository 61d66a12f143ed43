//! Resume tokens: what a run has to be given to go on behind a batch that its consumer received.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Form of tokens; raised when an older reader would misread one. Form 2 has a checksum, and a snapshot hash that
/// names the files' contents.
const VERSION: u32 = 2;
/// Largest token that is read.
const LARGEST: usize = 1 << 20;
const CHECKSUM_DIGITS: usize = 16;

/// What names a stream: meaning, data, seed, and above the exact tier the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamName {
    /// The pipeline's semantic hash.
    pub semantic_hash: String,
    /// Its training clauses, as far as they have meaning, so that a difference can be told.
    pub clauses: String,
    /// The snapshot's hash.
    pub snapshot_hash: String,
    /// The snapshot in numbers, so that a difference can be told.
    pub data: DataSize,
    /// The seed.
    pub seed: u64,
    /// Where rewrites above the exact tier are allowed, so that the plan decides the stream: its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_hash: Option<String>,
}

/// A snapshot in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSize {
    /// Files.
    pub files: u64,
    /// Stored rows.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, rows, bytes } = self;
        write!(f, "{files} files, {rows} rows, {bytes} bytes")
    }
}

/// A resume token: where a stream stands between two steps. The tokens of all ranks at a step are equal, and
/// any of them resumes any number of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenToken", try_from = "WrittenToken")]
pub struct Token {
    /// Names the stream.
    pub stream: StreamName,
    /// Where it stands.
    pub cursor: Cursor,
}

/// A token as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToken {
    /// Form of the token.
    forebay_token: u32,
    stream: StreamName,
    cursor: Cursor,
    /// Checksum of the other parts.
    checksum: String,
}

impl WrittenToken {
    /// The first 16 hexadecimal digits of BLAKE3 over the other parts as JSON. It is taken of what was understood,
    /// so keys may come in any order.
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
            return Err(Error::Config(
                "the resume token is damaged: its checksum does not match the rest of it; use an undamaged copy, or \
                 an earlier token"
                    .to_owned(),
            ));
        }
        let WrittenToken { stream, cursor, .. } = written;
        Ok(Self { stream, cursor })
    }
}

/// Checks that a token has the form of this version.
fn check_form(form: u32) -> Result<()> {
    let what = match form.cmp(&VERSION) {
        Ordering::Equal => return Ok(()),
        Ordering::Less => {
            "an earlier version of forebay: resume with that version, or start the run anew"
        }
        Ordering::Greater => "a later version of forebay: resume with that version",
    };
    Err(Error::Config(format!(
        "the resume token has form {form} where {VERSION} was expected; it was made by {what}"
    )))
}

/// The part of a token that tells its form, whatever else the form has.
#[derive(Deserialize)]
struct TokenForm {
    forebay_token: u32,
}

impl Token {
    /// The token of a place in a stream.
    pub(crate) fn new(stream: &StreamName, cursor: &Cursor) -> Self {
        Self {
            stream: stream.clone(),
            cursor: cursor.clone(),
        }
    }

    /// Reads a token.
    ///
    /// # Errors
    /// The text is none, is too large, is of another form, or is not as it was written.
    pub fn from_json(text: &str) -> Result<Self> {
        let no_token = |why: String| Error::Config(format!("no resume token: {why}"));
        if text.len() > LARGEST {
            return Err(no_token(format!("{} bytes are too many", text.len())));
        }
        let parsed = serde_json::from_str(text);
        let TokenForm { forebay_token } = parsed.map_err(|why| no_token(why.to_string()))?;
        check_form(forebay_token)?;
        let written: WrittenToken =
            serde_json::from_str(text).map_err(|why| no_token(why.to_string()))?;
        Self::try_from(written)
    }

    /// The token as one line of JSON.
    ///
    /// # Errors
    /// None in practice: numbers and texts can be written.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|why| Error::Config(format!("a resume token: {why}")))
    }

    /// Rows that came before the token and are in no batch yet.
    ///
    /// # Errors
    /// The token is damaged.
    pub fn carried(&self) -> Result<usize> {
        Ok(self.cursor.carry()?.rows().count())
    }

    /// Whether a stream is the one that the token is of.
    ///
    /// # Errors
    /// It is another one: what differs.
    pub fn check(&self, stream: &StreamName) -> Result<()> {
        let of = &self.stream;
        let refused = |what: String| Err(Error::Resume(what));
        if of.semantic_hash != stream.semantic_hash {
            let (was, is): (Vec<&str>, Vec<&str>) = (
                of.clauses.lines().collect(),
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
                    of.semantic_hash, stream.semantic_hash
                ),
            });
        }
        if of.data != stream.data {
            return refused(format!(
                "the data has changed: {} in the token, {} now",
                of.data, stream.data
            ));
        }
        if of.snapshot_hash != stream.snapshot_hash {
            return refused(format!(
                "the data has changed: files of the same number and size, but other names or contents, or read with \
                 other options ({})",
                of.data
            ));
        }
        if of.seed != stream.seed {
            return refused(format!("the seed is {}, and was {}", stream.seed, of.seed));
        }
        if of.plan_hash != stream.plan_hash {
            return refused(
                "above the exact tier the plan decides the stream, and another one was chosen; run with the \
                 plan that was saved (`forebay plan save`)"
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
        writeln!(f, "step      {} of it taken", cursor.step)?;
        writeln!(f, "batches   {} over all ranks", cursor.batches)?;
        write!(f, "rows      {} of the epoch came", cursor.rows)?;
        match cursor.ended {
            true => writeln!(f, ", all there are")?,
            false => writeln!(f)?,
        }
        for (nth, arm) in cursor.arms.iter().enumerate() {
            let name = if cursor.arms.len() > 1 {
                format!("arm {}", nth + 1)
            } else {
                "input".to_owned()
            };
            match arm.window {
                Some(window) => write!(f, "{name:<9} window {window}")?,
                None => write!(f, "{name:<9} the beginning")?,
            }
            if arm.pass > 0 {
                write!(f, " of pass {}", arm.pass)?;
            }
            match arm.row {
                Some((row, _)) => writeln!(f, ", behind stored row {row}")?,
                None => writeln!(f)?,
            }
        }
        match self.carried() {
            Ok(0) => write!(f, "carried   nothing"),
            Ok(rows) => write!(f, "carried   {rows} rows that wait for their batch"),
            Err(_) => write!(f, "carried   unreadable"),
        }
    }
}
