//! Errors of object stores, in words that say what to do.

use std::error::Error;

use forebay_planner::secrets::SecretInLocation;
use object_store::Error as ClientError;

/// Maximum number of characters of a cause that comes from a library.
const MAX_CAUSE: usize = 300;

/// Minimum length of the value of an environment variable that is removed from texts. Shorter
/// values would remove parts of words.
const MIN_SECRET: usize = 6;

/// Parts of the names of environment variables whose values are secret.
const SECRET_NAMES: [&str; 6] = ["KEY", "SECRET", "TOKEN", "SAS", "PASSWORD", "CREDENTIAL"];

/// The reason for which a location in an object store, or an object, cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The location has a part that may be secret.
    #[error(transparent)]
    Secret(#[from] SecretInLocation),
    /// The URL cannot be used.
    #[error("cannot use the location '{location}': {cause}")]
    Url {
        /// The URL without its secrets.
        location: String,
        /// The reason and the remedy.
        cause: String,
    },
    /// The object does not exist.
    #[error("no object '{object}': check the path")]
    Missing {
        /// The URL of the object.
        object: String,
    },
    /// The object was removed after it was listed.
    #[error("'{object}' is gone since the source was opened; open the source again")]
    Gone {
        /// The URL of the object.
        object: String,
    },
    /// The object was written again after it was listed.
    #[error(
        "'{object}' changed since the source was opened: it was written again; open the source again"
    )]
    Changed {
        /// The URL of the object.
        object: String,
    },
    /// The store cannot be reached, refuses the request, or its answer breaks the protocol.
    #[error("cannot read '{object}': {cause}")]
    Failed {
        /// The URL of the object, of the prefix or of the store.
        object: String,
        /// The reason and the remedy.
        cause: String,
    },
}

impl StoreError {
    pub(super) fn url(location: &str, cause: &str) -> Self {
        Self::Url {
            location: location.to_owned(),
            cause: cause.to_owned(),
        }
    }

    /// Returns the error for a URL whose scheme no client has.
    pub(super) fn unknown_scheme(location: &str, scheme: &str) -> Self {
        let cause = format!(
            "no store has the scheme {scheme}://; locations are paths, and URLs that begin with file://, s3://, \
             gs://, az://, http:// or https://"
        );
        Self::url(location, &cause)
    }

    pub(super) fn failed(object: &str, cause: impl Into<String>) -> Self {
        Self::Failed {
            object: object.to_owned(),
            cause: cause.into(),
        }
    }

    /// Converts the error of a request for `object`.
    pub(super) fn of(object: &str, error: &ClientError) -> Self {
        match error {
            ClientError::NotFound { .. } if code(&error.to_string()) != Some("NoSuchBucket") => {
                Self::Missing {
                    object: object.to_owned(),
                }
            }
            ClientError::Precondition { .. } => Self::Changed {
                object: object.to_owned(),
            },
            _ => Self::failed(object, cause_of(object, error)),
        }
    }

    /// Returns the error for an object that was listed: if it is missing now, it was removed.
    pub(super) fn since_listing(self) -> Self {
        match self {
            Self::Missing { object } => Self::Gone { object },
            other => other,
        }
    }

    /// True when one object is at fault, and not the store.
    pub(crate) const fn is_of_object(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::Gone { .. } | Self::Changed { .. }
        )
    }
}

/// Describes an error, with its remedy. Of the text that the store sent, only the code of the error
/// is used. `object` is the URL of the object, or a path if a directory of this machine is the
/// store.
pub(crate) fn cause_of(object: &str, error: &ClientError) -> String {
    if let ClientError::InvalidPath { source } = error {
        return format!("{}; rename the object", in_one_line(&source.to_string()));
    }
    if !object.contains("://") {
        return root_cause(error);
    }
    let text = error.to_string();
    let is_s3 = object.starts_with("s3://");
    let code = code(&text);
    let status = status(&text);
    let named = match (status, code) {
        (Some(status), Some(code)) => format!(" ({status} {code})"),
        (Some(status), None) => format!(" ({status})"),
        (None, Some(code)) => format!(" ({code})"),
        (None, None) => String::new(),
    };
    let is_region = text.contains("incorrectly configured region")
        || matches!(
            code,
            Some("AuthorizationHeaderMalformed" | "PermanentRedirect" | "TemporaryRedirect")
        );
    if code == Some("NoSuchBucket") {
        let server = if is_s3 {
            ", and AWS_ENDPOINT_URL if it is not a bucket of AWS"
        } else {
            ""
        };
        return format!("its bucket does not exist{named}; check the name{server}");
    }
    if is_s3 && is_region {
        return format!("its bucket is in another region{named}; set AWS_REGION to it");
    }
    let is_denied = matches!(
        error,
        ClientError::PermissionDenied { .. } | ClientError::Unauthenticated { .. }
    );
    if is_denied || matches!(status, Some(401 | 403)) {
        return format!("access is denied{named}; {}", credentials(object));
    }
    if text.contains("non-partial response") || text.contains("Range request not supported") {
        return "the server cannot read parts of a file (it does not support range requests); download the file"
            .to_owned();
    }
    if text.contains("169.254.") || text.contains("metadata.google") {
        return format!("no credentials were found; {}", credentials(object));
    }
    if let Some(status) = status {
        return if status >= 500 || status == 429 {
            format!(
                "the store failed in each of several attempts{named}; try again later, with fewer readers if it says \
                 SlowDown"
            )
        } else {
            format!(
                "the store refused the request{named}; {}",
                credentials(object)
            )
        };
    }
    let cause = without_secrets(&root_cause(error));
    format!("{cause}; check the network, and the address of the store")
}

/// Returns the advice about the credentials that reading `object` needs.
fn credentials(object: &str) -> &'static str {
    match object.split_once("://").map_or("", |(scheme, _)| scheme) {
        "s3" => {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION, or set \
             AWS_SKIP_SIGNATURE=true for a public bucket"
        }
        "gs" => {
            "check GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS, or set GOOGLE_SKIP_SIGNATURE=true for a \
             public bucket"
        }
        "az" => {
            "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or set AZURE_SKIP_SIGNATURE=true for a \
             public container"
        }
        _ => "check that the address may be read without a password",
    }
}

/// Returns the code in the XML that describes an error of a store.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = |code: &&str| {
        (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    Some(code).filter(is_code)
}

/// Returns the status of HTTP in the text of an error.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Returns the text of the innermost error, in one line.
fn root_cause(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    in_one_line(&inner.to_string())
}

/// Returns the first characters of a text, with line breaks as spaces. Other control characters are
/// escaped, because they could change what a terminal shows.
pub(super) fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars().take(MAX_CAUSE) {
        match character {
            '\n' | '\r' => line.push(' '),
            control if control.is_control() => line.extend(control.escape_default()),
            other => line.push(other),
        }
    }
    line
}

/// Removes the values of secret environment variables from a text.
fn without_secrets(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            continue;
        };
        let name = name.to_ascii_uppercase();
        let is_secret = SECRET_NAMES.iter().any(|part| name.contains(part));
        if is_secret && value.len() >= MIN_SECRET {
            text = text.replace(value, "...");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> ClientError {
        ClientError::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn causes_have_a_remedy_and_nothing_else_that_the_store_sent() {
        let body = "Server returned non-2xx status code: 503 Service Unavailable: <Error><Code>SlowDown</Code>\
                    <Message>secret</Message></Error>";
        for (object, text, part) in [
            ("s3://b/a", body, "several attempts (503 SlowDown)"),
            (
                "s3://b/a",
                "<Code>AuthorizationHeaderMalformed</Code>",
                "set AWS_REGION",
            ),
            (
                "s3://b/a",
                "this normally indicates an incorrectly configured region",
                "set AWS_REGION",
            ),
            (
                "s3://b/a",
                "status code: 400 Bad Request: secret",
                "refused the request (400); check AWS_ACCESS",
            ),
            (
                "s3://b/a",
                "PUT http://169.254.169.254/latest secret",
                "no credentials were found; check AWS",
            ),
            (
                "gs://b/a",
                "<Code>no secret</Code> status code: 404",
                "(404); check GOOGLE_SERVICE",
            ),
            (
                "https://h/a",
                "Received non-partial response when range requested",
                "download the file",
            ),
        ] {
            let error = StoreError::of(object, &generic(text)).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = StoreError::of("s3://b/a", &generic("connection\nrefused")).to_string();
        assert!(
            error.contains("connection refused; check the network"),
            "{error}"
        );
    }

    #[test]
    fn control_characters_of_a_cause_are_escaped() {
        let error = StoreError::of("s3://b/a", &generic("\u{1b}[2Jgone\u{9b}\u{7}")).to_string();
        assert!(
            error.contains(r"\u{1b}[2Jgone\u{9b}\u{7}; check"),
            "{error}"
        );
    }

    #[test]
    fn a_path_that_is_not_valid_is_the_cause() {
        let source = object_store::path::Path::parse("a//b").unwrap_err();
        let error = StoreError::of("s3://b", &ClientError::InvalidPath { source });
        let cause = "Path \"a//b\" contained empty path segment; rename the object";
        assert_eq!(error.to_string(), format!("cannot read 's3://b': {cause}"));
    }

    #[test]
    fn the_object_or_the_store_is_at_fault() {
        let missing = |text: &str| ClientError::NotFound {
            path: "a".to_owned(),
            source: text.to_owned().into(),
        };
        let error = StoreError::of("s3://b/a", &missing("<Code>NoSuchKey</Code>"));
        assert!(error.is_of_object());
        assert!(error.since_listing().to_string().contains("is gone since"));
        let error = StoreError::of("s3://b/a", &missing("<Code>NoSuchBucket</Code>"));
        assert!(!error.is_of_object());
        assert!(
            error.to_string().contains("bucket does not exist"),
            "{error}"
        );
    }
}
