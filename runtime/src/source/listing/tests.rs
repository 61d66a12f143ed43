//! Tests of listings.

use std::fs;

use url::Url;

use super::*;
use crate::objects::testing::recorded;

const CSV: WantedFiles = WantedFiles {
    noun: "CSV",
    extensions: &["csv"],
    strict: false,
};

fn tree(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    dir
}

async fn names(location: &str) -> Result<Vec<String>, String> {
    list(location, &CSV, &ObjectStores::default())
        .await
        .map(|l| l.files.into_iter().map(|f| f.relative).collect())
        .map_err(|e| e.to_string())
}

#[tokio::test]
async fn a_folder_is_listed_in_the_order_of_relative_paths() {
    let dir = tree(&[
        "b.csv",
        "a/z.CSV",
        "a b.csv",
        "a-1.csv",
        ".hidden.csv",
        "_SUCCESS",
        "_tmp/x.csv",
        "n.txt",
    ]);
    let found = names(dir.path().to_str().unwrap()).await.unwrap();
    assert_eq!(found, ["a b.csv", "a-1.csv", "a/z.CSV", "b.csv"]);
    let url = Url::from_directory_path(dir.path()).unwrap();
    assert_eq!(names(url.as_str()).await.unwrap(), found);
}

#[tokio::test]
async fn absolute_paths_open_the_files_that_were_listed() {
    let dir = tree(&["ä ö%20#1/x y.csv", "p?q.csv", "k[1].csv"]);
    let stores = ObjectStores::default();
    let found = list(dir.path().to_str().unwrap(), &CSV, &stores);
    let found = found.await.unwrap();
    assert_eq!(found.files.len(), 3);
    for file in found.files {
        assert_eq!(fs::read_to_string(file.file.name()).unwrap(), file.relative);
        assert_eq!(file.size, file.relative.len() as u64);
    }
    // A file whose name contains glob characters can be named literally.
    let literal = format!("{}/k[1].csv", dir.path().display());
    assert_eq!(names(&literal).await.unwrap(), ["k[1].csv"]);
}

#[tokio::test]
async fn globs_stay_within_a_folder_unless_doubled() {
    let dir = tree(&["a.csv", "b.txt", "x/a.csv", "x/y/a.csv", "x/.a.csv"]);
    let at = |glob: &str| format!("{}/{glob}", dir.path().display());
    assert_eq!(names(&at("*.csv")).await.unwrap(), ["a.csv"]);
    assert_eq!(names(&at("*")).await.unwrap(), ["a.csv", "b.txt"]);
    assert_eq!(
        names(&at("**/*.csv")).await.unwrap(),
        ["a.csv", "x/a.csv", "x/y/a.csv"]
    );
    assert_eq!(names(&at("x/?.csv")).await.unwrap(), ["a.csv"]);
    assert_eq!(names(&at("[xz]/*.csv")).await.unwrap(), ["x/a.csv"]);
    let url = format!("file://{}", at("x/?.csv"));
    assert_eq!(names(&url).await.unwrap(), ["a.csv"]);
    assert!(
        names(&at("*.json"))
            .await
            .unwrap_err()
            .contains("no file matches")
    );
    assert!(
        names(&at("none/*.csv"))
            .await
            .unwrap_err()
            .contains("no file or folder")
    );
    assert!(
        names(&at("a**b"))
            .await
            .unwrap_err()
            .contains("not a valid glob")
    );
}

#[tokio::test]
async fn what_is_not_there_is_said_with_what_to_do() {
    let dir = tree(&["readme.md"]);
    let here = dir.path().to_str().unwrap();
    let error = names(here).await.unwrap_err();
    assert!(
        error.contains("end in .csv") && error.contains("readme.md"),
        "{error}"
    );
    let empty = tempfile::tempdir().unwrap();
    assert!(
        names(empty.path().to_str().unwrap())
            .await
            .unwrap_err()
            .contains("is empty")
    );
    assert!(
        names("no/such")
            .await
            .unwrap_err()
            .contains("no file or folder 'no/such'")
    );
    let error = names("ftp://host/x").await.unwrap_err();
    assert!(
        error.contains("no store has the scheme ftp://") || !cfg!(feature = "object-stores"),
        "{error}"
    );
    assert!(names("").await.unwrap_err().contains("it is empty"));
    assert!(names("a\0b").await.unwrap_err().contains("NUL"));
}

#[tokio::test]
async fn links_are_followed_and_those_that_lead_nowhere_are_errors() {
    let dir = tree(&["in/a.csv", "in/.cache/x"]);
    let other = tree(&["b.csv"]);
    let here = dir.path().join("in");
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, here.join(name)).unwrap();
    link(other.path(), "linked");
    // Hidden entries, and entries that a glob does not match, are not visited.
    link(Path::new("nowhere"), ".#lock");
    link(Path::new("nowhere"), ".cache/link");
    let list = here.to_str().unwrap();
    assert_eq!(names(list).await.unwrap(), ["a.csv", "linked/b.csv"]);

    link(Path::new("nowhere"), "broken.csv");
    let error = names(list).await.unwrap_err();
    assert!(
        error.contains("in/broken.csv' is a symbolic link to 'nowhere', which is not there"),
        "{error}"
    );
    assert_eq!(names(&format!("{list}/a*.csv")).await.unwrap(), ["a.csv"]);
    for glob in ["*.csv", "**/*.csv"] {
        let error = names(&format!("{list}/{glob}")).await.unwrap_err();
        assert!(error.contains("broken.csv' is a symbolic link"), "{error}");
    }
    let error = names(&format!("{list}/broken.csv")).await.unwrap_err();
    assert!(error.contains("is a symbolic link to 'nowhere'"), "{error}");
    fs::remove_file(here.join("broken.csv")).unwrap();

    // A broken link without an extension may stand for a folder of files, so the link is an error.
    link(Path::new("gone"), "more");
    let error = names(list).await.unwrap_err();
    assert!(
        error.contains("in/more' is a symbolic link to 'gone'"),
        "{error}"
    );
    fs::remove_file(here.join("more")).unwrap();

    link(Path::new("self.csv"), "self.csv");
    assert!(
        names(list)
            .await
            .unwrap_err()
            .contains("in/self.csv' is a symbolic link")
    );
    fs::remove_file(here.join("self.csv")).unwrap();

    link(&here, "loop");
    let error = names(list).await.unwrap_err();
    assert!(
        error.contains("in/loop' is a symbolic link to")
            && error.contains("a folder that contains the link"),
        "{error}"
    );
    assert_eq!(names(&format!("{list}/*.csv")).await.unwrap(), ["a.csv"]);
}

#[tokio::test]
async fn what_is_named_like_a_file_and_is_none_is_an_error() {
    let dir = tree(&["in/a.csv"]);
    let here = dir.path().join("in");
    let socket = |name: &str| {
        drop(std::os::unix::net::UnixListener::bind(here.join(name)).unwrap());
    };
    socket("notes.sock");
    let list = here.to_str().unwrap();
    assert_eq!(names(list).await.unwrap(), ["a.csv"]);
    socket("pipe.csv");
    for location in [
        list.to_owned(),
        format!("{list}/*.csv"),
        format!("{list}/pipe.csv"),
    ] {
        let error = names(&location).await.unwrap_err();
        assert!(
            error.contains("in/pipe.csv' is neither a file nor a folder"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn objects_are_listed_like_files() {
    let (stores, store) = recorded(&[
        ("t/b.csv", b"b"),
        ("t/a/z.CSV", b"z"),
        ("t/a b.csv", b"a"),
        ("t/.hidden.csv", b"h"),
        ("t/_tmp/x.csv", b"x"),
        ("t/n.txt", b"n"),
        ("t.csv", b"t"),
        ("plain", b"p"),
    ])
    .await;
    let names = async |location: &str| -> Result<Vec<String>, String> {
        let listed = list(location, &CSV, &stores).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let requests = store.take();
        assert!(
            requests.iter().all(|of| of.is_head || of.is_list),
            "{requests:?}"
        );
        assert!(requests.len() <= 2, "{requests:?}");
        Ok(listed.files.into_iter().map(|file| file.relative).collect())
    };
    for (location, expected) in [
        ("s3://b/t", vec!["a b.csv", "a/z.CSV", "b.csv"]),
        ("s3://b/t/", vec!["a b.csv", "a/z.CSV", "b.csv"]),
        ("s3://b/t/*.csv", vec!["a b.csv", "b.csv"]),
        ("s3://b/t/**/*.[cC]??", vec!["a b.csv", "a/z.CSV", "b.csv"]),
        ("s3://b/*.csv", vec!["t.csv"]),
        ("s3://b", vec!["t.csv", "t/a b.csv", "t/a/z.CSV", "t/b.csv"]),
        ("s3://b/t/a%20b.csv", vec!["a b.csv"]),
        ("s3://b/t.csv", vec!["t.csv"]),
        ("s3://b/plain", vec!["plain"]),
    ] {
        assert_eq!(names(location).await.unwrap(), expected, "{location}");
    }
    for (location, part) in [
        ("s3://b/none", "no object 's3://b/none', and none below it"),
        ("s3://b/none.csv", "no object"),
        (
            "s3://b/t/a/*.parquet",
            "no file matches 's3://b/t/a/*.parquet'",
        ),
        ("s3://b/t/n.txt/", "no object"),
        ("s3://user:secret@b/t", "leave it out"),
    ] {
        let error = names(location).await.unwrap_err();
        assert!(
            error.contains(part) && !error.contains("secret"),
            "{location}: {error}"
        );
    }
}
