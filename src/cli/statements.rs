//! Where one SQL statement ends and the next begins.

/// A statement of a script, with its place in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    /// The text up to its `;`.
    text: &'a str,
    /// Lines before it.
    lines: usize,
    /// Characters before it on its first line.
    columns: usize,
}

impl Statement<'_> {
    /// The statement at its place among nothing but blanks, so that errors name the script's lines
    /// and columns.
    pub(crate) fn in_place(&self) -> String {
        format!(
            "{}{}{}",
            "\n".repeat(self.lines),
            " ".repeat(self.columns),
            self.text
        )
    }
}

/// The statements of a script, and whether all of it up to the last `;` is statements: what follows
/// it may be blanks and comments only.
pub(crate) fn split(script: &str) -> (Vec<Statement<'_>>, bool) {
    let mut statements = Vec::new();
    let mut scan = Scan::default();
    let (mut start, mut content, mut line, mut line_start) = (0, false, 0, 0);
    // Line and start of line where the statement begins.
    let mut begin = (0, 0);
    let mut push = |start: usize, end: usize, begin: (usize, usize)| {
        let columns = script[begin.1..start].chars().count();
        statements.push(Statement {
            text: &script[start..end],
            lines: begin.0,
            columns,
        });
    };
    let mut characters = script.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|&(_, next)| next);
        let kind = scan.step(character, next);
        if kind == Kind::End {
            if content {
                push(start, at, begin);
            }
            (start, content) = (at + 1, false);
            begin = (line, line_start);
        } else {
            content |= kind == Kind::Content;
        }
        if character == '\n' {
            (line, line_start) = (line + 1, at + 1);
        }
    }
    let complete = !content && scan.state == State::Plain;
    if content {
        push(start, script.len(), begin);
    }
    (statements, complete)
}

/// Whether the text ends within a string in single quotes.
pub(crate) fn in_string(text: &str) -> bool {
    let mut scan = Scan::default();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        scan.step(character, characters.peek().copied());
    }
    scan.state == State::Quoted('\'')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Plain,
    Quoted(char),
    LineComment,
    /// With the number of `/*` that are open.
    BlockComment(u32),
}

/// What a character is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blank,
    Content,
    End,
}

#[derive(Debug, Default)]
struct Scan {
    state: State,
    /// The character before has taken this one with it (`--`, `/*`, `*/`).
    taken: bool,
}

impl Scan {
    fn step(&mut self, character: char, next: Option<char>) -> Kind {
        if std::mem::take(&mut self.taken) {
            return Kind::Blank;
        }
        match (self.state, character, next) {
            (State::Plain, ';', _) => return Kind::End,
            (State::Plain, '\'' | '"', _) => self.state = State::Quoted(character),
            (State::Plain, '-', Some('-')) => {
                (self.state, self.taken) = (State::LineComment, true);
                return Kind::Blank;
            }
            (State::Plain, '/', Some('*')) => {
                (self.state, self.taken) = (State::BlockComment(1), true);
                return Kind::Blank;
            }
            (State::Plain, c, _) if c.is_whitespace() => return Kind::Blank,
            // A doubled quote ends the string and begins the next one: the same to us.
            (State::Quoted(quote), c, _) if c == quote => self.state = State::Plain,
            (State::LineComment, c, _) => {
                if c == '\n' {
                    self.state = State::Plain;
                }
                return Kind::Blank;
            }
            (State::BlockComment(depth), c, n) => {
                match (c, n) {
                    ('*', Some('/')) if depth == 1 => {
                        (self.state, self.taken) = (State::Plain, true);
                    }
                    ('*', Some('/')) => {
                        (self.state, self.taken) = (State::BlockComment(depth - 1), true);
                    }
                    ('/', Some('*')) => {
                        let depth = depth.saturating_add(1);
                        (self.state, self.taken) = (State::BlockComment(depth), true);
                    }
                    _ => {}
                }
                return Kind::Blank;
            }
            _ => {}
        }
        Kind::Content
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
        let places: Vec<String> = split(script).0.iter().map(Statement::in_place).collect();
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
