//! Parts of URLs that may be secret. A location is part of plans, errors, logs and saved plans, so
//! a location with such a part is refused, and never shown whole.

use datafusion::common::{Result, plan_err};

/// Returns `location` without what may be secret: the user and the password of a URL, and the query
/// of the URL of a web server.
pub fn masked(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else {
        return location.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map(|(_, host)| host);
    let host = host.map_or_else(|| authority.to_owned(), |host| format!("...@{host}"));
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let path = match path.split_once('?') {
        Some((path, _)) if is_web => format!("{path}?..."),
        _ => path.to_owned(),
    };
    format!("{scheme}://{host}{path}")
}

/// Checks that `location` has no part that may be secret.
///
/// # Errors
/// Fails with the remedy, and without the secret part.
pub fn check(location: &str) -> Result<()> {
    let shown = masked(location);
    if shown == location {
        return Ok(());
    }
    plan_err!(
        "'{shown}' has a user name, a password or a query, which plans and errors would show; leave it out: the \
         credentials of a store are set in the environment, and a file that needs a query has to be downloaded"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_refused_without_being_shown() {
        for (location, shown) in [
            ("s3://key:secret@bucket/a", "s3://...@bucket/a"),
            ("https://secret@host", "https://...@host"),
            ("HTTP://h/a.csv?Signature=secret", "HTTP://h/a.csv?..."),
        ] {
            assert_eq!(masked(location), shown);
            let error = check(location).unwrap_err().to_string();
            assert!(
                error.contains(shown) && !error.contains("secret"),
                "{error}"
            );
        }
        for location in ["a@b?c", "s3://b/a?.csv", "s3://b/x@y", "file:///a?b", ""] {
            assert_eq!(masked(location), location);
            assert!(check(location).is_ok());
        }
    }
}
