//! Follows quotes through a file: which are not closed, and which have text behind them.
//!
//! The parser takes both without a word. A quote that is not closed makes one value of all rows up to
//! the next quote, or to the end of the file.

use super::records::Dialect;

/// State of the byte that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    RecordStart,
    Comment,
    FieldStart,
    Plain,
    /// Inside quotes.
    Quoted,
    /// Inside quotes, behind an escape.
    Escaped,
    /// Behind a quote that closes a field, unless another one makes it a quote of the text.
    Closed,
}

/// The quotes of a file, up to the bytes seen last.
#[derive(Debug)]
pub(super) struct Quotes {
    dialect: Dialect,
    place: Place,
    /// The line in which the quote opened that was seen last.
    opened: u64,
}

impl Quotes {
    pub(super) const fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            place: Place::RecordStart,
            opened: 0,
        }
    }

    /// The line of the quote that is open.
    pub(super) fn open_line(&self) -> Option<u64> {
        matches!(self.place, Place::Quoted | Place::Escaped).then_some(self.opened)
    }

    /// Sees the next bytes, of which the first is in line `line`. `is_record_end` is true where a record
    /// ends with them.
    pub(super) fn see(
        &mut self,
        bytes: &[u8],
        mut line: u64,
        is_record_end: bool,
    ) -> Result<(), String> {
        let is_outside = !matches!(self.place, Place::Quoted | Place::Escaped | Place::Closed);
        if is_outside && is_record_end && !bytes.contains(&self.dialect.quote) {
            self.place = Place::RecordStart;
            return Ok(());
        }
        for &byte in bytes {
            self.place = self.next(byte, line)?;
            line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn next(&mut self, byte: u8, line: u64) -> Result<Place, String> {
        let Dialect {
            delimiter,
            quote,
            escape,
            comment,
        } = self.dialect;
        let is_end = matches!(byte, b'\n' | b'\r');
        Ok(match self.place {
            Place::RecordStart if is_end => Place::RecordStart,
            Place::RecordStart if comment == Some(byte) => Place::Comment,
            Place::Comment if byte == b'\n' => Place::RecordStart,
            Place::Comment => Place::Comment,
            Place::RecordStart | Place::FieldStart if byte == quote => {
                self.opened = line;
                Place::Quoted
            }
            Place::Quoted if byte == quote => Place::Closed,
            Place::Quoted if escape == Some(byte) => Place::Escaped,
            Place::Quoted | Place::Escaped => Place::Quoted,
            Place::Closed if byte == quote && escape.is_none() => Place::Quoted,
            _ if byte == delimiter => Place::FieldStart,
            _ if is_end => Place::RecordStart,
            Place::Closed => {
                return Err(format!(
                    "line {line} has text behind a closing quote (the field opens in line {}); double the quotes \
                     inside a value, or set the option quote to a character that the file does not hold",
                    self.opened
                ));
            }
            Place::RecordStart | Place::FieldStart | Place::Plain => Place::Plain,
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

    /// The line of the quote that is open at the end, the same for every cut in two.
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
