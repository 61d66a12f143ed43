//! Tests of files on web servers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;

use forebay::Session;

use crate::common::{digest, parquet, table};
use crate::reads::run;

/// Serves `content` under each path that ends in a dot and `extension`, and nothing else. Without
/// `has_ranges`, every answer is the whole file. Returns the URL of the server, which ends with the
/// process.
fn served(content: Vec<u8>, extension: &'static str, has_ranges: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    #[expect(clippy::disallowed_methods, reason = "the server of a test")]
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that has what it needs may hang up.
            let _ = answer(stream.unwrap(), &content, extension, has_ranges);
        }
    });
    url
}

/// Answers one request.
fn answer(
    mut stream: TcpStream,
    content: &[u8],
    extension: &str,
    has_ranges: bool,
) -> std::io::Result<()> {
    let lines = BufReader::new(stream.try_clone()?).lines();
    let head: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let mut words = head
        .first()
        .map(String::as_str)
        .unwrap_or_default()
        .split(' ');
    let (method, path) = (words.next(), words.next().unwrap_or_default());
    let close = "Connection: close\r\n";
    if Path::new(path).extension().is_none_or(|of| of != extension) {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n{close}\r\n"
        );
    }
    let wanted = head
        .iter()
        .find_map(|line| range(line))
        .filter(|_| has_ranges);
    let (status, part, of) = match wanted {
        Some(part) => {
            let of = format!("bytes {}-{}/{}", part.start, part.end - 1, content.len());
            (
                "206 Partial Content",
                part,
                format!("Content-Range: {of}\r\n"),
            )
        }
        None => ("200 OK", 0..content.len(), String::new()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\n\
         Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n{of}{close}\r\n",
        part.len()
    )?;
    match method {
        Some("HEAD") => Ok(()),
        _ => stream.write_all(&content[part]),
    }
}

/// Returns the range that a line of a request's head asks for.
fn range(line: &str) -> Option<Range<usize>> {
    let (name, value) = line.split_once(": ")?;
    let (start, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let range = start.parse().ok()?..last.parse::<usize>().ok()? + 1;
    name.eq_ignore_ascii_case("range").then_some(range)
}

fn pipeline(function: &str, location: &str) -> String {
    format!(
        "CREATE PIPELINE p AS SELECT * FROM {function}('{location}')
         SHUFFLE WITHIN 500 ROWS SEED 1 BATCH 100"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_on_a_web_server_is_read_like_one_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let tables = dir.path().join("t.parquet");
    parquet(&tables, &table(6000), 500);
    let text = dir.path().join("t.csv");
    let rows: String = (0..2000).map(|n| format!("{n},{}\n", n * n)).collect();
    fs::write(&text, format!("id,square\n{rows}")).unwrap();
    for (function, file, extension) in [("parquet", &tables, "parquet"), ("csv", &text, "csv")] {
        let content = fs::read(file).unwrap();
        let local = pipeline(function, &file.display().to_string());
        let expected = digest(&run(&Session::new(), &local).await.unwrap());
        let url = served(content, extension, true);
        let remote = pipeline(function, &format!("{url}/folder/t.{extension}"));
        assert_eq!(
            digest(&run(&Session::new(), &remote).await.unwrap()),
            expected
        );

        for (location, part) in [
            (format!("{url}/none"), "no object"),
            (
                format!("{url}/*.{extension}"),
                "a web server has no listings",
            ),
            (
                format!("{url}/t.{extension}?token=secret"),
                "has a user name, a password or a query",
            ),
        ] {
            let error = run(&Session::new(), &pipeline(function, &location))
                .await
                .unwrap_err();
            assert!(
                error.contains(part) && !error.contains("secret"),
                "{location}: {error}"
            );
        }
    }
    let url = served(fs::read(&tables).unwrap(), "parquet", false);
    let remote = pipeline("parquet", &format!("{url}/t.parquet"));
    let error = run(&Session::new(), &remote).await.unwrap_err();
    assert!(
        error.contains("it does not support range requests"),
        "{error}"
    );
}
