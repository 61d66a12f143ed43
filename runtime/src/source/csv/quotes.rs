//! Tracks the quotes of a CSV file, to find quotes that are not closed, and closing quotes that are
//! followed by text.
//!
//! The CSV parser accepts both without an error. A quote that is not closed turns all rows up to
//! the next quote, or up to the end of the file, into one value.

use super::dialect::Dialect;

/// State of the quote automaton, which decides the meaning of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    RecordStart,
    Comment,
    FieldStart,
    Plain,
    /// Inside quotes.
    Quoted,
    /// Inside quotes, after an escape character.
    Escaped,
    /// After a quote inside quotes. The quote closes the field, unless a second quote follows: two
    /// quotes stand for one quote in the text.
    Closed,
}

/// The state of a file's quotes after the bytes seen so far.
#[derive(Debug)]
pub(super) struct Quotes {
    dialect: Dialect,
    state: QuoteState,
    /// Line of the last opening quote.
    opened: u64,
}

impl Quotes {
    pub(super) const fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            state: QuoteState::RecordStart,
            opened: 0,
        }
    }

    /// Returns the line of the quote that is open; `None` when no quote is open.
    pub(super) fn open_line(&self) -> Option<u64> {
        matches!(self.state, QuoteState::Quoted | QuoteState::Escaped).then_some(self.opened)
    }

    /// Processes the next bytes. `line` is the line of the first of `bytes`, and `is_record_end` is
    /// true when a record ends after the last.
    pub(super) fn see(
        &mut self,
        bytes: &[u8],
        mut line: u64,
        is_record_end: bool,
    ) -> Result<(), String> {
        let is_outside = !matches!(
            self.state,
            QuoteState::Quoted | QuoteState::Escaped | QuoteState::Closed
        );
        if is_outside && is_record_end && !bytes.contains(&self.dialect.quote) {
            self.state = QuoteState::RecordStart;
            return Ok(());
        }
        for &byte in bytes {
            self.state = self.next(byte, line)?;
            line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn next(&mut self, byte: u8, line: u64) -> Result<QuoteState, String> {
        let Dialect {
            delimiter,
            quote,
            escape,
            comment,
        } = self.dialect;
        let is_end = matches!(byte, b'\n' | b'\r');
        Ok(match self.state {
            QuoteState::RecordStart if is_end => QuoteState::RecordStart,
            QuoteState::RecordStart if comment == Some(byte) => QuoteState::Comment,
            QuoteState::Comment if byte == b'\n' => QuoteState::RecordStart,
            QuoteState::Comment => QuoteState::Comment,
            QuoteState::RecordStart | QuoteState::FieldStart if byte == quote => {
                self.opened = line;
                QuoteState::Quoted
            }
            QuoteState::Quoted if byte == quote => QuoteState::Closed,
            QuoteState::Quoted if escape == Some(byte) => QuoteState::Escaped,
            QuoteState::Quoted | QuoteState::Escaped => QuoteState::Quoted,
            QuoteState::Closed if byte == quote && escape.is_none() => QuoteState::Quoted,
            _ if byte == delimiter => QuoteState::FieldStart,
            _ if is_end => QuoteState::RecordStart,
            QuoteState::Closed => {
                return Err(format!(
                    "line {line} has text behind a closing quote (the field opens in line {}); double the quotes \
                     inside a value, or set the option quote to a character that the file does not hold",
                    self.opened
                ));
            }
            QuoteState::RecordStart | QuoteState::FieldStart | QuoteState::Plain => {
                QuoteState::Plain
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect {
        delimiter: b',',
        quote: b'"',
        escape: None,
        comment: Some(b'#'),
    };

    /// Returns the line of the quote that is open at the end of `text`. Checks that processing
    /// `text` in two parts gives the same line, for every cut into two parts.
    fn open_line(dialect: Dialect, text: &str) -> Result<Option<u64>, String> {
        let mut outcomes = (0..=text.len()).map(|cut| {
            let mut quotes = Quotes::new(dialect);
            let (head, tail) = text.as_bytes().split_at(cut);
            quotes.see(head, 1, false)?;
            let line = 1 + head.iter().filter(|b| **b == b'\n').count() as u64;
            quotes.see(tail, line, false)?;
            Ok(quotes.open_line())
        });
        let first = outcomes.next().unwrap();
        assert!(outcomes.all(|outcome| outcome == first), "{text}");
        first
    }

    #[test]
    fn open_quotes_are_known_by_their_line() {
        for closed in [
            "",
            "a,b\n",
            "\"a\"\"b\",\"\"\r\n",
            "5\" pipe,x\"y\n",
            "# it's \"so\n\"x\"\n",
        ] {
            assert_eq!(open_line(DIALECT, closed), Ok(None), "{closed}");
        }
        assert_eq!(open_line(DIALECT, "a,b\nc,\"d\ne,f\n"), Ok(Some(2)));
        assert_eq!(open_line(DIALECT, "\"a\"\"\n"), Ok(Some(1)));
        let escaped = Dialect {
            escape: Some(b'\\'),
            ..DIALECT
        };
        assert_eq!(open_line(escaped, "x\n\"a\\\""), Ok(Some(2)));
        assert_eq!(open_line(escaped, "\"a\\\"\"\n"), Ok(None));
    }

    #[test]
    fn text_behind_a_closing_quote_is_an_error() {
        for text in ["\"a\"b,c\n", "1,\"a\n2,b\n3,\"c\"\n", "\"a\" ,b\n"] {
            assert!(
                open_line(DIALECT, text)
                    .unwrap_err()
                    .contains("behind a closing quote")
            );
        }
    }
}
