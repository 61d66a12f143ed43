//! Splits a script into SQL statements.

/// A statement of a script, with its position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScriptStatement<'a> {
    /// Text of the statement, without its final `;`.
    text: &'a str,
    /// Number of lines of the script before the statement.
    lines: usize,
    /// Number of characters before the statement on its first line.
    columns: usize,
}

impl ScriptStatement<'_> {
    /// Returns the statement's text, padded with line breaks and blanks to its position in the
    /// script, so that errors name the script's lines and columns.
    pub(crate) fn in_place(&self) -> String {
        format!(
            "{}{}{}",
            "\n".repeat(self.lines),
            " ".repeat(self.columns),
            self.text
        )
    }
}

/// Splits a script into statements. The returned flag is true if the script is complete: only
/// blanks and ended comments follow the last `;`.
pub(crate) fn split(script: &str) -> (Vec<ScriptStatement<'_>>, bool) {
    let mut statements = Vec::new();
    let mut scan = Lexer::default();
    let (mut start, mut content, mut line, mut line_start) = (0, false, 0, 0);
    // Line number and byte offset of the line in which the current statement begins.
    let mut begin = (0, 0);
    let mut push = |start: usize, end: usize, begin: (usize, usize)| {
        let columns = script[begin.1..start].chars().count();
        statements.push(ScriptStatement {
            text: &script[start..end],
            lines: begin.0,
            columns,
        });
    };
    let mut characters = script.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|&(_, next)| next);
        let kind = scan.step(character, next);
        if kind == CharContext::End {
            if content {
                push(start, at, begin);
            }
            (start, content) = (at + 1, false);
            begin = (line, line_start);
        } else {
            content |= kind == CharContext::Content;
        }
        if character == '\n' {
            (line, line_start) = (line + 1, at + 1);
        }
    }
    let complete = !content && scan.state == LexState::Plain;
    if content {
        push(start, script.len(), begin);
    }
    (statements, complete)
}

/// True if the text ends inside a single-quoted string.
pub(crate) fn in_string(text: &str) -> bool {
    let mut scan = Lexer::default();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        scan.step(character, characters.peek().copied());
    }
    scan.state == LexState::Quoted('\'')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LexState {
    #[default]
    Plain,
    Quoted(char),
    LineComment,
    /// Inside a block comment. The value is the number of nested `/*`.
    BlockComment(u32),
}

/// The role of a character in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharContext {
    Blank,
    Content,
    End,
}

#[derive(Debug, Default)]
struct Lexer {
    state: LexState,
    /// True if the next character is the second character of a pair (`--`, `/*`, `*/`) that the
    /// previous character began.
    taken: bool,
}

impl Lexer {
    fn step(&mut self, character: char, next: Option<char>) -> CharContext {
        if std::mem::take(&mut self.taken) {
            return CharContext::Blank;
        }
        match (self.state, character, next) {
            (LexState::Plain, ';', _) => return CharContext::End,
            (LexState::Plain, '\'' | '"', _) => self.state = LexState::Quoted(character),
            (LexState::Plain, '-', Some('-')) => {
                (self.state, self.taken) = (LexState::LineComment, true);
                return CharContext::Blank;
            }
            (LexState::Plain, '/', Some('*')) => {
                (self.state, self.taken) = (LexState::BlockComment(1), true);
                return CharContext::Blank;
            }
            (LexState::Plain, c, _) if c.is_whitespace() => return CharContext::Blank,
            // A doubled quote within a string is treated as the end of one string and the start of
            // another. This does not change how the script is split.
            (LexState::Quoted(quote), c, _) if c == quote => self.state = LexState::Plain,
            (LexState::LineComment, c, _) => {
                if c == '\n' {
                    self.state = LexState::Plain;
                }
                return CharContext::Blank;
            }
            (LexState::BlockComment(depth), c, n) => {
                match (c, n) {
                    ('*', Some('/')) if depth == 1 => {
                        (self.state, self.taken) = (LexState::Plain, true);
                    }
                    ('*', Some('/')) => {
                        (self.state, self.taken) = (LexState::BlockComment(depth - 1), true);
                    }
                    ('/', Some('*')) => {
                        let depth = depth.saturating_add(1);
                        (self.state, self.taken) = (LexState::BlockComment(depth), true);
                    }
                    _ => {}
                }
                return CharContext::Blank;
            }
            _ => {}
        }
        CharContext::Content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        split(script)
            .0
            .iter()
            .map(|s| s.text.trim().to_owned())
            .collect()
    }

    #[test]
    fn semicolons_end_statements_outside_of_quotes_and_comments() {
        assert_eq!(texts("SELECT 1; SELECT 2"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(
            texts("SELECT 'a;b''c;' , \";\" ;"),
            ["SELECT 'a;b''c;' , \";\""]
        );
        assert_eq!(
            texts("-- a; b\nSELECT 1 /* ; /* ; */ ; */ + 1;"),
            ["-- a; b\nSELECT 1 /* ; /* ; */ ; */ + 1"]
        );
        assert_eq!(texts(" ; ;\n-- nothing\n"), [""; 0]);
    }

    #[test]
    fn a_script_is_complete_after_its_last_semicolon() {
        for (script, complete) in [
            ("", true),
            ("SELECT 1", false),
            ("SELECT 1;", true),
            ("SELECT 1; -- done", false),
            ("SELECT 1; -- done\n", true),
            ("SELECT ';", false),
            ("SELECT 1; /* more", false),
        ] {
            assert_eq!(split(script).1, complete, "{script}");
        }
    }

    #[test]
    fn statements_keep_their_place() {
        let script = "SELECT 1;\n  SELECT \u{e4};  SELECT 3";
        let places: Vec<String> = split(script)
            .0
            .iter()
            .map(ScriptStatement::in_place)
            .collect();
        assert_eq!(
            places,
            [
                "SELECT 1",
                "         \n  SELECT \u{e4}",
                "\n             SELECT 3"
            ]
            .map(|s| s.to_owned())
        );
    }

    #[test]
    fn strings_are_told_from_identifiers() {
        assert!(in_string("LOCATION 'pho") && in_string("'it''s"));
        assert!(!in_string("LOCATION 'pho'") && !in_string("\"pho") && !in_string("-- 'pho"));
    }
}
