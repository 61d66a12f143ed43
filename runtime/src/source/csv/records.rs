//! Splits the bytes of a CSV file into records and fields, with quotes, escapes and comments.

use std::io::BufRead;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::dialect::Dialect;
use super::quotes::Quotes;

/// Maximum size of a record in bytes; a larger record is an error. The limit bounds the memory for
/// a file in which a quote or a line never ends.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// Maximum number of fields in a record; more fields are an error.
const MAX_FIELDS: usize = 1 << 20;

/// Reads the records of a CSV file one by one.
pub(super) struct Records<R> {
    input: R,
    parser: Reader,
    quotes: Quotes,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes of `input` consumed so far.
    consumed: u64,
    /// True when the last consumed byte ended a line.
    at_line_end: bool,
}

/// The fields of one record.
pub(super) struct Record<'a> {
    text: &'a str,
    ends: &'a [usize],
    /// Line in which the record ends, from 1.
    pub(super) line: u64,
}

impl Record<'_> {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the field `index` without its quotes; an empty text if the record has fewer fields.
    pub(super) fn field(&self, index: usize) -> &str {
        let start = if index == 0 {
            Some(&0)
        } else {
            self.ends.get(index - 1)
        };
        let range = start
            .zip(self.ends.get(index))
            .map(|(&start, &end)| start..end);
        range
            .and_then(|range| self.text.get(range))
            .unwrap_or_default()
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| self.field(index))
    }
}

impl<R: BufRead> Records<R> {
    /// Creates a reader of `input`, whose first byte is in line `line` (counted from 1).
    pub(super) fn new(input: R, dialect: Dialect, line: u64) -> Self {
        let mut parser = ReaderBuilder::new()
            .delimiter(dialect.delimiter)
            .quote(dialect.quote)
            .escape(dialect.escape)
            .double_quote(dialect.escape.is_none())
            .comment(dialect.comment)
            .build();
        parser.set_line(line);
        Self {
            input,
            parser,
            quotes: Quotes::new(dialect),
            text: vec![0; 1024],
            ends: vec![0; 64],
            consumed: 0,
            at_line_end: false,
        }
    }

    /// Returns the underlying input.
    pub(super) fn into_input(self) -> R {
        self.input
    }

    /// Returns the number of bytes of `input` consumed so far. The next record begins at this
    /// offset, or after the line end at this offset.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the line of the next byte, from 1.
    pub(super) fn line(&self) -> u64 {
        self.parser.line()
    }

    /// Skips a byte order mark, which would otherwise become part of the first field.
    pub(super) fn skip_byte_order_mark(&mut self) -> Result<(), String> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let start = self.input.fill_buf().map_err(|e| e.to_string())?;
        if start.starts_with(MARK) {
            self.input.consume(MARK.len());
            self.consumed += MARK.len() as u64;
        }
        Ok(())
    }

    /// Returns the next record, or `None` at the end. The error names the cause and the line.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, String> {
        let (mut written, mut fields) = (0, 0);
        loop {
            let line = self.parser.line();
            let buffer = self.input.fill_buf().map_err(|e| e.to_string())?;
            if let (true, Some(line)) = (buffer.is_empty(), self.quotes.open_line()) {
                return Err(format!(
                    "the quote that opens in line {line} is not closed; close it, or set the option quote to a \
                     character that the file does not hold"
                ));
            }
            let (result, read, out, ended) = self.parser.read_record(
                buffer,
                &mut self.text[written..],
                &mut self.ends[fields..],
            );
            let is_record_end = matches!(result, ReadRecordResult::Record);
            self.quotes.see(&buffer[..read], line, is_record_end)?;
            if let Some(last) = read.checked_sub(1).and_then(|last| buffer.get(last)) {
                self.at_line_end = *last == b'\n';
            }
            self.input.consume(read);
            self.consumed += read as u64;
            written += out;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.text.len() < MAX_RECORD_BYTES => {
                    self.text.resize(self.text.len() * 2, 0);
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() < MAX_FIELDS => {
                    self.ends.resize(self.ends.len() * 2, 0);
                }
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    let line = self.quotes.open_line().unwrap_or(line);
                    return Err(format!(
                        "a record in line {line} is longer than {MAX_RECORD_BYTES} bytes or {MAX_FIELDS} fields; is a quote not closed?"
                    ));
                }
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        let line = self.parser.line() - u64::from(self.at_line_end);
        let text = std::str::from_utf8(&self.text[..written])
            .map_err(|_| format!("line {line} is not UTF-8; convert the file"))?;
        Ok(Some(Record {
            text,
            ends: &self.ends[..fields],
            line,
        }))
    }
}
