//! URLs of objects: `s3://bucket/path`, `https://host/path`.

use forebay_planner::secrets::{self, is_web};
use object_store::path::Path;
use url::{Position, Url};

use super::failure::{StoreError, in_one_line};

/// The URL of an object, or of a prefix of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectUrl {
    /// The URL of the whole store: scheme, host and port.
    pub(crate) root: String,
    /// The scheme, in lower case.
    pub(crate) scheme: String,
    /// The host with its port: the name of a bucket, except for a web server.
    pub(crate) host: String,
    /// The decoded path. It may have the characters of globs.
    pub(crate) path: Path,
    /// True when the URL ends with a slash, so it names a prefix.
    pub(crate) is_folder: bool,
}

/// True when `location` is a URL with another scheme than `file`.
pub(crate) fn is_object_url(location: &str) -> bool {
    let scheme = location.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case("file"))
}

impl ObjectUrl {
    /// Parses a URL. In a path, `%20` is a space, and `?` is a character of globs, except for a web
    /// server, where it begins a query.
    ///
    /// # Errors
    /// The URL is not valid, has a part that may be secret or a fragment, or lacks the name of the
    /// bucket.
    pub(crate) fn parse(location: &str) -> Result<Self, StoreError> {
        secrets::check(location)?;
        let bad = |cause: &str| StoreError::url(location, cause);
        let scheme = location
            .split_once("://")
            .map_or("", |(scheme, _)| scheme)
            .to_ascii_lowercase();
        let text = if is_web(&scheme) {
            location.to_owned()
        } else {
            location.replace('?', "%3F")
        };
        let url = Url::parse(&text).map_err(|error| bad(&format!("it is not a URL: {error}")))?;
        if url.fragment().is_some() {
            return Err(bad("it has a fragment; write %23 for the character #"));
        }
        let host = &url[Position::BeforeHost..Position::AfterPort];
        if host.is_empty() && (is_web(&scheme) || is_bucket(&scheme)) {
            return Err(bad(&format!(
                "it names no bucket: write {scheme}://bucket/path"
            )));
        }
        if url.port().is_some() && is_bucket(&scheme) {
            return Err(bad(
                "a bucket has no port; the address of another server is set in the environment, for S3 in \
                 AWS_ENDPOINT_URL",
            ));
        }
        let path = Path::from_url_path(url.path())
            .map_err(|error| bad(&in_one_line(&error.to_string())))?;
        Ok(Self {
            root: format!("{scheme}://{host}"),
            host: host.to_owned(),
            path,
            is_folder: url.path().ends_with('/'),
            scheme,
        })
    }

    /// True for a file on a web server, which has no listings.
    pub(crate) fn is_web(&self) -> bool {
        is_web(&self.scheme)
    }
}

/// True for the schemes whose host is a bucket (or a container).
pub(super) fn is_bucket(scheme: &str) -> bool {
    matches!(scheme, "s3" | "gs" | "az")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_store_and_a_path() {
        for (location, root, path, is_folder) in [
            (
                "s3://Bucket_1/a/b c.csv",
                "s3://Bucket_1",
                "a/b c.csv",
                false,
            ),
            ("S3://b/a%20b/", "s3://b", "a b", true),
            ("gs://b/a/*/?[1-3].png", "gs://b", "a/*/?[1-3].png", false),
            ("az://container", "az://container", "", false),
            (
                "https://host:8443/x/y.parquet",
                "https://host:8443",
                "x/y.parquet",
                false,
            ),
            ("memory:///a.csv", "memory://", "a.csv", false),
            ("s3://b/../../etc/passwd", "s3://b", "etc/passwd", false),
        ] {
            let url = ObjectUrl::parse(location).unwrap();
            let found = (url.root.as_str(), url.path.as_ref(), url.is_folder);
            assert_eq!(found, (root, path, is_folder), "{location}");
        }
    }

    #[test]
    fn secrets_and_mistakes_are_refused_without_repeating_secrets() {
        for (location, part) in [
            (
                "s3://key:secret@bucket/a",
                "'s3://...@bucket/a' has a user name, a password",
            ),
            ("https://secret@host/a", "has a user name"),
            ("s3://AKIA:a/secret@bucket/a", "has a user name"),
            ("https://h?sig=secret", "has a user name"),
            (
                "https://h/a.csv?X-Amz-Signature=secret",
                "h/a.csv?...' has a user name, a password or a query",
            ),
            ("s3:///a", "names no bucket"),
            ("s3://b:9000/a", "AWS_ENDPOINT_URL"),
            ("s3://b/a#b", "%23"),
            ("http://:80/", "it is not a URL"),
            ("s3://b/a%2F..%2Fb", "s3://b/a%2F..%2Fb"),
        ] {
            let error = ObjectUrl::parse(location).unwrap_err().to_string();
            assert!(error.contains(part), "{location}: {error}");
            assert!(
                !error.contains("secret@") && !error.contains("=secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn only_urls_of_other_schemes_name_objects() {
        assert!(is_object_url("s3://b/a") && is_object_url("HTTP://h/a"));
        assert!(!is_object_url("a/b.csv") && !is_object_url("FILE:///a"));
    }
}
