//! The guide and the READMEs: the SQL and shell blocks of each page are run in order, in one folder of small data.
//! Each must print the `text` block that follows it. `python/tests/test_guide.py` does the same with the Python
//! blocks.
//!
//! * ` ```sql ` is run by `forebay sql`, and each pipeline that it creates by `forebay run`. The
//!   block can use tables and pipelines that earlier blocks created. With `file=train.sql`, the block
//!   is also written to that file, and must be complete.
//! * ` ```sh ` is run command by command; a command is a line, or several lines joined by `\`.
//! * ` ```text ` after one of these is its expected output. `...` within a line matches anything; alone on a line it
//!   matches any number of lines.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use arrow::datatypes::Int32Type;

/// Setup commands on the pages, which this test does not run: they build or test the whole project,
/// or start a cluster on a fixed port and use it.
const SET_UP: [&str; 11] = [
    "cargo test --workspace --features cluster,object-stores",
    "cargo install --path .",
    "cargo install --path . --features cluster",
    "cargo install --path . --features object-stores",
    "forebay cluster --workers 2",
    "forebay run -f train.sql --digest --cluster 127.0.0.1:7100",
    "forebay scheduler --listen 127.0.0.1:7100",
    "forebay worker --scheduler 127.0.0.1:7100",
    "forebay explain -f train.sql --cluster 127.0.0.1:7100",
    "pip install ./python",
    "python/run-tests",
];

/// Pairs of a command on a page and the cheaper command that the test runs instead.
const INSTEAD: [(&str, &str); 2] = [
    // The command on the page runs 90 epochs.
    (
        "forebay run -f train.sql --plan plan.json",
        "forebay run -f train.sql --plan plan.json --epochs 1",
    ),
    ("cargo run -- demo", "forebay demo --count 16 --size 96x72"),
];

/// Text blocks that are not the output of the block before them, each given by its page and first
/// line.
const SHOWN: [(&str, &str); 1] = [("README.md", "Pipeline train")];

/// Languages of blocks. `rust` occurs only in README.md, and is run by the documentation tests.
const LANGUAGES: [&str; 5] = ["python", "sql", "sh", "text", "rust"];

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $name() {
                check($page);
            }
        )*
    };
}

pages! {
    readme: "README.md",
    python_readme: "python/README.md",
    index: "docs/guide/index.md",
    pytorch: "docs/guide/pytorch.md",
    tf_data: "docs/guide/tf-data.md",
    sql: "docs/guide/sql.md",
    order: "docs/guide/order.md",
    resume: "docs/guide/resume.md",
    errors: "docs/guide/errors.md",
    functions: "docs/guide/functions.md",
    jax: "docs/guide/jax.md",
    arrow: "docs/guide/arrow.md",
    speed: "docs/guide/speed.md",
    stores: "docs/guide/stores.md",
}

/// A code block of a page.
#[derive(Debug)]
struct Block {
    language: String,
    /// The file of `file=..`, to which the block is also written.
    file: Option<String>,
    text: String,
    /// Line number of the first line of the block's text on the page, from 1.
    line: usize,
    /// The expected output: the `text` block after this block, and its line number on the page.
    output: Option<(String, usize)>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns the code blocks of a page. Panics at a block that cannot be parsed, so that no block is
/// skipped.
fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // True as long as only blank lines separate the current line from the last block.
    let mut adjoins = false;
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if !line.contains("```") && !line.trim_start().starts_with("~~~") {
            adjoins &= line.trim().is_empty();
            continue;
        }
        let Some(info) = line.strip_prefix("```").filter(|i| !i.starts_with('`')) else {
            panic!("{page}:{number}: a block begins with ``` at the margin");
        };
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default().split(',').next();
        let language = language.unwrap_or_default().to_owned();
        if !LANGUAGES.contains(&language.as_str()) || (language == "rust" && page != "README.md") {
            panic!("{page}:{number}: no test runs a block of \"{language}\"");
        }
        let mut file = None;
        for word in words {
            match (language.as_str(), word.split_once('=')) {
                ("sql", Some(("file", name))) => file = Some(name.to_owned()),
                ("python", Some(("file" | "module" | "ranks", _))) => {}
                _ => panic!("{page}:{number}: unknown word \"{word}\" behind the language"),
            }
        }
        let mut content = String::new();
        loop {
            match lines.next() {
                Some(("```", _)) => break,
                Some((line, _)) => content = content + line + "\n",
                None => panic!("{page}:{number}: a block without an end"),
            }
        }
        let known = content.lines().next().unwrap_or_default();
        if language == "text" && !SHOWN.contains(&(page, known)) {
            match blocks.last_mut() {
                Some(block) if adjoins => block.output = Some((content, number + 1)),
                _ => panic!("{page}:{number}: no block right before it prints this"),
            }
            adjoins = false;
            continue;
        }
        adjoins = matches!(language.as_str(), "python" | "sql" | "sh");
        blocks.push(Block {
            language,
            file,
            text: content,
            line: number + 1,
            output: None,
        });
    }
    let runs = |b: &Block| matches!(b.language.as_str(), "python" | "sql" | "sh");
    assert!(blocks.iter().any(runs), "{page}: no block that is run");
    blocks
}

/// Returns the command in a line of a shell block, without the comment after it.
fn command_of(line: &str) -> &str {
    line.split(" #").next().unwrap_or_default().trim_end()
}

/// Returns the commands of a shell block, each with its line number.
fn commands(block: &Block) -> Vec<(String, usize)> {
    let mut commands: Vec<(String, usize)> = Vec::new();
    let mut is_open = false;
    for (line, number) in block.text.lines().zip(block.line..) {
        match commands.last_mut() {
            Some((command, _)) if is_open => *command = format!("{command}\n{line}"),
            _ => commands.push((line.to_owned(), number)),
        }
        is_open = line.ends_with('\\');
    }
    commands.retain(|(command, _)| !command_of(command).trim().is_empty());
    commands
}

/// Runs a command in `folder`, and returns what it writes to standard output and standard error, in
/// the order written.
fn shell(folder: &Path, command: &str, place: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [bin.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let said = folder.join(".said");
    let out = File::create(&said).unwrap();
    let status = Command::new("sh")
        .args(["-e", "-c", command])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("HOME", folder)
        .env("XDG_CONFIG_HOME", folder)
        .env_remove("FOREBAY_COSTS")
        .stdin(Stdio::null())
        .stderr(out.try_clone().unwrap())
        .stdout(out)
        .status()
        .unwrap();
    let said = fs::read_to_string(said).unwrap();
    assert!(status.success(), "{place}: {status}\n{command}\n{said}");
    said
}

/// Returns the SQL statements of a text.
fn statements(sql: &str) -> impl Iterator<Item = &str> {
    sql.split_inclusive(';')
        .filter(|statement| !statement.trim().is_empty())
}

/// Returns the kind of the object that a statement creates, `TABLE` or `PIPELINE`, and the object's
/// name; `None` if the statement creates none.
fn created(statement: &str) -> Option<(&str, &str)> {
    let lines = statement.lines().map(|l| l.split("--").next().unwrap_or(l));
    let mut words = lines
        .flat_map(str::split_whitespace)
        .filter(|word| !["OR", "REPLACE", "EXTERNAL", "IF", "NOT", "EXISTS"].contains(word));
    match (words.next(), words.next(), words.next()) {
        (Some("CREATE"), Some(kind @ ("TABLE" | "PIPELINE")), Some(name)) => Some((kind, name)),
        _ => None,
    }
}

/// Runs the statements of a block, and each pipeline that they create. Returns the output.
fn run_sql(folder: &Path, block: &Block, known: &mut String, place: &str) -> String {
    let own: Vec<_> = statements(&block.text).filter_map(created).collect();
    let file = match &block.file {
        Some(name) => {
            fs::write(folder.join(name), &block.text).unwrap();
            name.clone()
        }
        None => {
            let above = statements(known).filter(|s| created(s).is_some_and(|c| !own.contains(&c)));
            let sql = above.chain([block.text.as_str()]).collect::<String>();
            fs::write(folder.join(".block.sql"), sql).unwrap();
            ".block.sql".to_owned()
        }
    };
    let said = shell(folder, &format!("forebay sql -q -f {file}"), place);
    // The statements of earlier blocks are run again. Their output (`created ..`) is removed, since
    // the page does not show it.
    let said = said.lines().filter(|line| !line.starts_with("created "));
    let said = said.map(|line| format!("{line}\n")).collect();
    for (kind, name) in &own {
        if *kind == "PIPELINE" {
            let epochs = if block.text.contains("REPEAT") {
                "--epochs 2"
            } else {
                ""
            };
            let run = format!("forebay run -q -f {file} --pipeline {name} {epochs}");
            shell(folder, &run, place);
        }
    }
    for statement in statements(&block.text).filter(|s| created(s).is_some()) {
        known.push_str(statement);
        if !statement.ends_with(';') {
            known.push(';');
        }
    }
    said
}

/// Runs all SQL and shell blocks of a page, and compares their output with the page.
fn check(page: &str) {
    let blocks = blocks(page, &read(page));
    let is_ours = |block: &&Block| matches!(block.language.as_str(), "sql" | "sh");
    if !blocks.iter().any(|block| is_ours(&block)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make_data(folder);
    let mut known = String::new();
    for block in blocks.iter().filter(is_ours) {
        let place = format!("{page}:{}", block.line);
        let mut said = String::new();
        if block.language == "sql" {
            said = run_sql(folder, block, &mut known, &place);
        } else {
            for (command, line) in commands(block) {
                let typed = command_of(&command);
                if SET_UP.contains(&typed) {
                    continue;
                }
                let instead = INSTEAD.iter().find(|(known, _)| *known == typed);
                let command = instead.map_or(command.as_str(), |(_, other)| other);
                let command = command.replace("cargo run -- ", "forebay ");
                said += &shell(folder, &command, &format!("{page}:{line}"));
            }
        }
        if let Some((expected, line)) = &block.output {
            let (expected, said) = (lines(expected), lines(&said));
            let agree = is_like(&expected, &said);
            let (expected, said) = (expected.join("\n"), said.join("\n"));
            assert!(
                agree,
                "{page}:{line}: the block before prints something else\n--- on the page\n{expected}\n--- printed\n{said}"
            );
        }
    }
}

/// Returns the lines of a text without trailing blanks, and without empty lines at the end.
fn lines(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

/// Returns true if the lines `said` match `expected`, in which `...` stands for anything.
fn is_like(expected: &[&str], said: &[&str]) -> bool {
    match (expected, said) {
        ([], []) => true,
        ([only, rest @ ..], _) if only.trim() == "..." => {
            (0..=said.len()).any(|skipped| is_like(rest, &said[skipped..]))
        }
        ([first, rest @ ..], [line, others @ ..]) => {
            is_line_like(first, line) && is_like(rest, others)
        }
        _ => false,
    }
}

fn is_line_like(expected: &str, line: &str) -> bool {
    let Some((before, behind)) = expected.split_once("...") else {
        return expected == line;
    };
    let Some(rest) = line.strip_prefix(before) else {
        return false;
    };
    let mut ends = (0..=rest.len()).filter(|end| rest.is_char_boundary(*end));
    ends.any(|end| is_line_like(behind, &rest[end..]))
}

/// Creates small data under the names that the pages use.
fn make_data(folder: &Path) {
    let make = |command: &str| shell(folder, command, "the data of a page");
    make("mkdir t");
    make("forebay generate table t/a.parquet --rows 2000");
    make("forebay generate photos photos/train --count 300 --classes 3 --size 40x30");
    make("forebay generate photos photos/test --count 24 --classes 3 --size 40x30 --seed 1");
    fs::write(folder.join("words.csv"), "id,word\n0,zero\n1,one\n2,two\n").unwrap();
    for (name, first, shortest) in [("web", 0, 1), ("books", 10_000, 60)] {
        let rows = (0..1200_i64).map(|row| row + first);
        let length = |id: i64| shortest + id * 37 % 120;
        let tokens = |id: i64| {
            let tokens =
                (0..length(id)).map(move |at| Some(((id * 31 + at * 7) % 1000 + 1) as i32));
            Some(tokens.collect::<Vec<_>>())
        };
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
            (
                "tokens",
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
                    rows.map(tokens),
                )),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        common::parquet(&folder.join(name).join("a.parquet"), &batch, 200);
    }
}

#[test]
fn every_page_is_run() {
    let guide = fs::read_dir(root().join("docs/guide")).unwrap();
    let guide = guide.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = guide.map(|name| format!("docs/guide/{name}")).collect();
    let listed = PAGES.iter().filter(|page| page.starts_with("docs/"));
    assert_eq!(found, listed.map(|page| (*page).to_owned()).collect());
    let all: String = PAGES.iter().map(|page| read(page)).collect();
    for line in SET_UP {
        assert!(
            all.lines().any(|l| command_of(l) == line),
            "no page says `{line}` any more"
        );
    }
}

#[test]
fn pages_are_read_whole() {
    let page = "text\n\n```sh\na \\\n  b  # why\n\nc\n```\n\n```text\nx ... y\n```\n";
    let read = blocks("page.md", page);
    assert_eq!((read.len(), read[0].line), (1, 4));
    assert_eq!(
        commands(&read[0]),
        [("a \\\n  b  # why".to_owned(), 4), ("c".to_owned(), 7)]
    );
    assert_eq!(read[0].output, Some(("x ... y\n".to_owned(), 11)));
    for (page, why) in [
        (
            "```yaml\n```\n",
            "page.md:1: no test runs a block of \"yaml\"",
        ),
        ("\n```\n```\n", "page.md:2: no test runs a block of \"\""),
        (
            "```rust\n```\n",
            "page.md:1: no test runs a block of \"rust\"",
        ),
        ("```sh\n", "page.md:1: a block without an end"),
        (
            "- ```sh\n  x\n",
            "page.md:1: a block begins with ``` at the margin",
        ),
        (
            "  ```sh\n  ```\n",
            "page.md:1: a block begins with ``` at the margin",
        ),
        (
            "```sh skip\n```\n",
            "page.md:1: unknown word \"skip\" behind the language",
        ),
        (
            "```sh\n```\nso\n```text\n```\n",
            "page.md:4: no block right before it prints this",
        ),
        ("only text\n", "page.md: no block that is run"),
    ] {
        let failed = std::panic::catch_unwind(|| blocks("page.md", page)).unwrap_err();
        let said = failed.downcast_ref::<String>().unwrap();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn dots_match_anything() {
    let is_like = |expected: &str, said: &str| is_like(&lines(expected), &lines(said));
    assert!(is_like("a ... c\n", "a b c\n\n") && is_like("a...\n...\nd", "a\nb\nc\nd"));
    assert!(is_like("...\nx", "x") && is_like("é...é", "éüé") && is_like("", "\n"));
    assert!(!is_like("a ... c", "a b d") && !is_like("a\n...", "b\na") && !is_like("a", "a\nb"));
}
