//! `forebay sql`: statements from a terminal, a file or a pipe.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use forebay::{Outcome, Session};
use forebay_planner::source::Format;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::HistoryHinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper, Hinter};

use super::args::SqlArgs;
use super::failure::CommandFailure;
use super::statements::{in_string, split};
use super::{console, export, functions, script, session, table};

/// Maximum number of rows of a result that the shell shows; scripts print all rows.
const SHELL_ROWS: usize = 40;
/// Maximum number of statements in the history; older statements are deleted.
const HISTORY: usize = 2000;

const HELP: &str = "\
Statements end with `;` and may span lines. Tab completes keywords, names, functions and, in quotes,
paths. Ctrl-C stops a statement or clears the line; Ctrl-D, `exit` or `quit` leaves.

  CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos/train';
  CREATE PIPELINE train AS SELECT label, decode_image(image) AS image FROM photos BATCH 8;
  SHOW TABLES;  SHOW PIPELINES;  DESCRIBE train;  SELECT path, class FROM photos LIMIT 5;
  EXPLAIN PIPELINE train;  EXPLAIN ANALYZE PIPELINE train;  DROP PIPELINE train;";

/// Keywords for tab completion, without the names of file formats.
const KEYWORDS: [&str; 56] = [
    "ANALYZE",
    "AND",
    "AS",
    "BATCH",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CONTINUOUS",
    "CREATE",
    "DESC",
    "DESCRIBE",
    "DROP",
    "ELSE",
    "END",
    "EPOCHS",
    "EXPLAIN",
    "EXTERNAL",
    "FALSE",
    "FROM",
    "GLOBAL",
    "GLOBALLY",
    "GROUP",
    "IN",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "NOT",
    "NULL",
    "ON",
    "OPTIONS",
    "OR",
    "ORDER",
    "PAD",
    "PER RANK",
    "PIPELINE",
    "PIPELINES",
    "REMAINDER",
    "REPEAT",
    "REPLACE",
    "ROWS",
    "SEED",
    "SELECT",
    "SHOW",
    "SHUFFLE",
    "SKIP",
    "STORED",
    "TABLE",
    "TABLES",
    "TAKE",
    "THEN",
    "WHERE",
    "WITHIN",
];

/// True if the user types statements at a terminal.
pub(crate) fn is_interactive(args: &SqlArgs) -> bool {
    let given = args.sql.is_some() || args.file.is_some() || args.out.is_some();
    !given && io::stdin().is_terminal()
}

/// Executes the statements of a file, an argument or a pipe, up to the first statement that fails.
pub(crate) async fn run_script(args: SqlArgs) -> Result<(), CommandFailure> {
    let text = match args.sql {
        Some(sql) => sql,
        None => script::read(args.file.as_deref().unwrap_or(Path::new("-")))?,
    };
    if let Some(path) = &args.out {
        // A wrong file name is reported before any statement is executed.
        export::format(path)?;
    }
    if let Some(out) = &args.out {
        export::refuse_inputs(out, args.file.as_deref())?;
    }
    let session = session::guarding(args.out.as_deref(), &args.machines)?;
    let mut last = None;
    for statement in split(&text).0 {
        for outcome in session.execute(&statement.in_place()).await? {
            match outcome {
                Outcome::Table(schema, batches) if args.out.is_some() => {
                    last = Some((schema, batches));
                }
                outcome => show(outcome, usize::MAX)?,
            }
        }
    }
    match (&args.out, last) {
        (None, _) => Ok(()),
        (Some(path), Some((schema, batches))) => export::write(path, &schema, &batches),
        (Some(_), None) => Err(CommandFailure::Usage(
            "no rows for --out: the statements contain no query".to_owned(),
        )),
    }
}

/// Reads statements from the terminal and executes them until the user leaves.
pub(crate) async fn run_shell(args: SqlArgs) -> Result<(), CommandFailure> {
    let session = session::open(&args.machines)?;
    let problem =
        |error: ReadlineError| CommandFailure::Run(format!("cannot read the terminal: {error}"));
    let mut editor = editor().map_err(problem)?;
    let history = history_file();
    if let Some(path) = &history {
        // A missing history file is not an error.
        editor.load_history(path).ok();
    }
    console::message("Forebay: SQL statements end with `;`. `help` says more, `exit` leaves.");
    loop {
        let text = match editor.readline("forebay> ") {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(problem(error)),
        };
        let word = text.trim().trim_end_matches(';').trim();
        match word.to_ascii_lowercase().as_str() {
            "" => continue,
            "exit" | "quit" | "\\q" => break,
            "help" | "\\?" | "\\h" => {
                console::message(HELP);
                continue;
            }
            _ => {}
        }
        editor.add_history_entry(text.trim()).ok();
        if let Some(path) = &history {
            // A failure to write the history file is ignored.
            editor.append_history(path).ok();
        }
        if let Err(failure) = run_line(&session, &text).await {
            match failure {
                CommandFailure::BrokenPipe => break,
                CommandFailure::Interrupted => console::message("interrupted"),
                failure => console::message(&format!("error: {failure}")),
            }
        }
        if let Some(helper) = editor.helper() {
            *helper.names.borrow_mut() = session.names().await;
        }
    }
    Ok(())
}

/// Executes the statements of one input. Ctrl-C abandons the running statement and all later
/// statements of the input.
async fn run_line(session: &Session, text: &str) -> Result<(), CommandFailure> {
    for statement in split(text).0 {
        let outcomes = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return Err(CommandFailure::Interrupted),
            outcomes = Box::pin(async { session.execute(&statement.in_place()).await }) => outcomes?,
        };
        for outcome in outcomes {
            show(outcome, SHELL_ROWS)?;
        }
    }
    Ok(())
}

fn show(outcome: Outcome, max_rows: usize) -> Result<(), CommandFailure> {
    match outcome {
        Outcome::Done(text) => console::message(&text),
        Outcome::Text(text) => console::data(&text)?,
        Outcome::Table(schema, batches) => {
            let text = table::format(&schema, &batches, max_rows);
            console::data(&text.map_err(|error| CommandFailure::Run(error.to_string()))?)?;
        }
    }
    Ok(())
}

/// Returns the path of the history file: the value of `FOREBAY_HISTORY`, else `.forebay_history` in
/// the home folder. `None` means that no history is kept.
fn history_file() -> Option<PathBuf> {
    match std::env::var_os("FOREBAY_HISTORY") {
        Some(path) => (!path.is_empty()).then(|| PathBuf::from(path)),
        None => Some(PathBuf::from(std::env::var_os("HOME")?).join(".forebay_history")),
    }
}

fn editor() -> rustyline::Result<Editor<ShellHelper, FileHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .max_history_size(HISTORY)?
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(ShellHelper {
        files: FilenameCompleter::new(),
        hinter: HistoryHinter::new(),
        functions: functions::names(),
        names: RefCell::new(Vec::new()),
    }));
    Ok(editor)
}

#[derive(Helper, Hinter)]
struct ShellHelper {
    files: FilenameCompleter,
    #[rustyline(Hinter)]
    hinter: HistoryHinter,
    functions: Vec<String>,
    /// Names of the session's tables and pipelines.
    names: RefCell<Vec<String>>,
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        if in_string(&line[..at]) {
            return self.files.complete(line, at, context);
        }
        let start = word_start(&line[..at]);
        let found = candidates(&line[start..at], &self.functions, &self.names.borrow());
        let pairs = found.into_iter().map(|text| Pair {
            display: text.clone(),
            replacement: text,
        });
        Ok((start, pairs.collect()))
    }
}

/// Returns the byte offset at which the last word of `text` begins; `text` ends at the cursor.
fn word_start(text: &str) -> usize {
    text.char_indices()
        .rev()
        .take_while(|(_, c)| c.is_alphanumeric() || *c == '_')
        .last()
        .map_or(text.len(), |(at, _)| at)
}

/// Returns the completions of a word: first names, then functions with an opening parenthesis, then
/// keywords in the case of the typed word.
fn candidates(word: &str, functions: &[String], names: &[String]) -> Vec<String> {
    if word.is_empty() {
        return names.to_vec();
    }
    let lower = word.to_ascii_lowercase();
    let starts = |text: &&String| text.to_ascii_lowercase().starts_with(&lower);
    let mut found: Vec<String> = names.iter().filter(starts).cloned().collect();
    found.extend(
        functions
            .iter()
            .filter(starts)
            .map(|name| format!("{name}(")),
    );
    let is_lower = !word.contains(|c: char| c.is_ascii_uppercase());
    let formats = Format::ALL.iter().map(|format| format.name());
    let mut keywords: Vec<&str> = KEYWORDS.iter().copied().chain(formats).collect();
    keywords.sort_unstable();
    found.extend(
        keywords
            .into_iter()
            .map(|keyword| {
                if is_lower {
                    keyword.to_ascii_lowercase()
                } else {
                    keyword.to_owned()
                }
            })
            .filter(|keyword| keyword.to_ascii_lowercase().starts_with(&lower)),
    );
    found
}

impl Validator for ShellHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let word = text.trim().to_ascii_lowercase();
        let command = matches!(word.as_str(), "exit" | "quit" | "help") || word.starts_with('\\');
        Ok(if command || split(text).1 {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Highlighter for ShellHelper {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        // Hints are faint, so that they differ from typed text.
        Cow::Owned(format!("\x1b[2m{hint}\x1b[m"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_with_names_functions_and_keywords() {
        let functions = ["resize".to_owned(), "random_hflip".to_owned()];
        let names = ["requests".to_owned()];
        let complete = |word| candidates(word, &functions, &names);
        assert_eq!(
            complete("re"),
            ["requests", "resize(", "remainder", "repeat", "replace"]
        );
        assert_eq!(complete("REP"), ["REPEAT", "REPLACE"]);
        assert_eq!(complete(""), ["requests"]);
        assert_eq!(complete("zzz"), [""; 0]);
        assert_eq!(word_start("SELECT resize(im"), 14);
        assert_eq!(word_start("SELECT "), 7);
    }

    #[test]
    fn keywords_are_in_order() {
        assert!(KEYWORDS.is_sorted());
    }
}
