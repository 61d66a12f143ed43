//! Tests of errors: each names the object, the cause and the remedy, and none has a secret.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::reads::{bucket, run};
use crate::server::{KEY, SECRET, Server};

const ROWS: &str = "id,name\n1,a\n2,b\n3,c\n";

/// Runs a query in a process of its own, which has only the given variables about stores. Returns
/// true if it succeeded, and its output.
fn queried(location: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let query = format!("SELECT sum(id) AS total FROM csv('{location}')");
    command(&["sql", "-e", &query], variables)
}

/// Runs the command with `args`, as [`queried`].
pub(crate) fn command(args: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    for (name, _) in std::env::vars() {
        if ["AWS_", "GOOGLE_", "AZURE_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().copied());
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

/// Returns the variables with which the command reads the bucket of `server`.
pub(crate) fn with<'a>(
    server: &'a Server,
    key: &'a str,
    secret: &'a str,
) -> [(&'a str, &'a str); 4] {
    [
        ("AWS_ENDPOINT_URL", server.url.as_str()),
        ("AWS_ACCESS_KEY_ID", key),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_REGION", "us-east-1"),
    ]
}

#[test]
fn the_environment_has_the_credentials_and_errors_say_what_is_wrong_with_them() {
    let (_root, server) = bucket(|folder| fs::write(folder.join("t.csv"), ROWS).unwrap());
    let (is_ok, text) = queried("s3://bucket/t.csv", &with(&server, KEY, SECRET));
    assert!(is_ok && text.contains('6'), "{text}");
    let wrong = "another-secret-of-a-user";
    for (location, key, secret, parts) in [
        (
            "s3://bucket/none.csv",
            KEY,
            SECRET,
            vec!["no object 's3://bucket/none.csv'"],
        ),
        (
            "s3://none/",
            KEY,
            SECRET,
            vec![
                "'s3://none'",
                "its bucket does not exist",
                "AWS_ENDPOINT_URL",
            ],
        ),
        (
            "s3://bucket/",
            KEY,
            wrong,
            vec!["access is denied", "AWS_SECRET_ACCESS_KEY"],
        ),
        (
            "s3://bucket/t.csv",
            "nobody",
            wrong,
            vec!["access is denied", "AWS_SECRET_ACCESS_KEY"],
        ),
        (
            "s3://nobody:another-secret-of-a-user@bucket/t.csv",
            KEY,
            SECRET,
            vec!["leave it out"],
        ),
    ] {
        let (is_ok, text) = queried(location, &with(&server, key, secret));
        assert!(!is_ok, "{location}");
        for part in parts {
            assert!(text.contains(part), "{location}: {text}");
        }
        assert!(!text.contains(SECRET) && !text.contains(wrong), "{text}");
    }
}

/// Answers every request by `answer`, until `count` requests were answered.
fn answering(answer: &str, count: usize) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = answer.to_owned();
    #[expect(clippy::disallowed_methods, reason = "the server of a test")]
    let serving = std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, serving)
}

#[test]
fn a_bucket_of_another_region_is_named_as_such() {
    let body = "<Error><Code>PermanentRedirect</Code></Error>";
    let answer = format!(
        "HTTP/1.1 301 Moved Permanently\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let (url, serving) = answering(&answer, 1);
    let variables = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ];
    let (is_ok, text) = queried("s3://bucket/", &variables);
    assert!(!is_ok && text.contains("set AWS_REGION"), "{text}");
    serving.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_change_while_a_source_is_open_are_named() {
    let (_root, server) = bucket(|folder| fs::write(folder.join("t.csv"), ROWS).unwrap());
    let session = server.session();
    let table = "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 's3://bucket/t.csv'";
    session.execute(table).await.unwrap();
    let query =
        "CREATE OR REPLACE PIPELINE p AS SELECT id, name FROM t BATCH 2 OPTIONS (optimize = 'off')";
    assert_eq!(run(&session, query).await.unwrap().len(), 2);
    fs::write(server.file("t.csv"), ROWS.replace('b', "x")).unwrap();
    let error = run(&session, query).await.unwrap_err();
    assert!(
        error.contains("'s3://bucket/t.csv' changed since the source was opened"),
        "{error}"
    );
    fs::remove_file(server.file("t.csv")).unwrap();
    let error = run(&session, query).await.unwrap_err();
    assert!(
        error.contains("'s3://bucket/t.csv' is gone since the source was opened"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_that_is_gone_fails_its_row_and_a_store_that_fails_ends_the_run() {
    let (_root, server) = bucket(|folder| crate::common::photos(&folder.join("photos"), 12, 2));
    let session = server.session();
    let table = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 's3://bucket/photos'";
    session.execute(table).await.unwrap();
    let query = "CREATE OR REPLACE PIPELINE p AS SELECT path, image FROM photos BATCH 4
        OPTIONS (on_error = 'skip', optimize = 'off')";
    let first = server.take().len();
    assert_eq!(first, 1);
    let files = fs::read_dir(server.file("photos")).unwrap();
    let class = files
        .map(|file| file.unwrap().path())
        .find(|path| path.is_dir());
    let photo = fs::read_dir(class.unwrap())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    fs::remove_file(photo.path()).unwrap();
    let batches = run(&session, query).await.unwrap();
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert_eq!(rows, 11);
    // `skip` is for rows. It must not lose those of a store that is down.
    let session = server.session();
    session.execute(table).await.unwrap();
    server.fail(100);
    let error = run(&session, query).await.unwrap_err();
    assert!(
        error.contains("cannot read 's3://bucket/photos/"),
        "{error}"
    );
    assert!(!error.contains(SECRET), "{error}");
}
