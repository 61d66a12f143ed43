//! Parts of URLs that may be secret. A location is part of plans, errors, logs and saved plans, so
//! a location with such a part is refused, and never shown whole.

/// The error for a location that has a part which may be secret.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{shown}' has a user name, a password or a query, which plans and errors would show; leave it out: the \
     credentials of a store are set in the environment, and a file that needs a query has to be downloaded"
)]
pub struct SecretInLocation {
    /// The location without the part.
    shown: String,
}

/// True for the schemes of web servers, in any case.
pub fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// Returns `location` without what may be secret: the user and the password of a URL, and the query
/// of the URL of a web server, or one that is signed. Where a part may be either a secret or a name, it is
/// left out.
pub fn masked(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else {
        return location.to_owned();
    };
    let is_web = is_web(scheme);
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    // The secret keys of AWS may have a slash, which ends the authority of a valid URL.
    let user = if has_password(authority, is_web) {
        rest.rfind('@')
    } else {
        authority.rfind('@')
    };
    let (user, rest) = match user {
        Some(at) => ("...@", &rest[at + 1..]),
        None => ("", rest),
    };
    match rest.split_once('?') {
        Some((path, query)) if is_web || is_signed(query) => {
            format!("{scheme}://{user}{path}?...")
        }
        _ => format!("{scheme}://{user}{rest}"),
    }
}

/// True if `query` has a signature, such as a shared access signature (SAS) of Azure. Other stores have
/// no queries in their URLs, and `?` is a character of names and patterns.
fn is_signed(query: &str) -> bool {
    query.split('&').any(|part| {
        let name = part.split('=').next().unwrap_or_default();
        part.contains('=') && (name == "sig" || name.to_ascii_lowercase().ends_with("signature"))
    })
}

/// True if the colon in `authority` may be that before a password. Only a web server has a port,
/// and IPv6 addresses.
fn has_password(authority: &str, is_web: bool) -> bool {
    let Some((_, end)) = authority.rsplit_once(':') else {
        return false;
    };
    let is_port = end.bytes().all(|byte| byte.is_ascii_digit()) || end.ends_with(']');
    !(is_web && is_port)
}

/// Returns `text`, such as an error or a line of SQL, with each of its URLs [`masked`]. A URL ends
/// at a quote, but not at two quotes, which stand for one in a string of SQL.
pub fn masked_text(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(colon) = rest.find("://") {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let before = rest[..colon].trim_end_matches(is_scheme);
        let url = &rest[before.len()..];
        let url = &url[..end_of_url(url)];
        shown.push_str(before);
        shown.push_str(&masked(url));
        rest = &rest[before.len() + url.len()..];
    }
    shown + rest
}

fn end_of_url(text: &str) -> usize {
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if matches!(character, '\'' | '"')
            && characters.next_if(|(_, next)| *next == character).is_none()
        {
            return at;
        }
    }
    text.len()
}

/// Checks that `location` has no part that may be secret.
///
/// # Errors
/// Fails with the remedy, and without the secret part.
pub fn check(location: &str) -> Result<(), SecretInLocation> {
    let shown = masked(location);
    if shown == location {
        Ok(())
    } else {
        Err(SecretInLocation { shown })
    }
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
            // The slash is part of the secret key.
            ("s3://AKIA:wJalr/secret@bucket/k", "s3://...@bucket/k"),
            ("s3://AKIA:123/secret@bucket/k", "s3://...@bucket/k"),
            ("https://user:a#b?secret@host/k", "https://...@host/k"),
            ("https://user:secret@host:80/k", "https://...@host:80/k"),
            // A query without a path.
            ("https://host?sig=secret", "https://host?..."),
            ("https://host:80?sig=secret", "https://host:80?..."),
            // Signed queries of stores.
            ("az://c/k.csv?sv=2024&sig=secret", "az://c/k.csv?..."),
            ("s3://b/k?X-Amz-Signature=secret", "s3://b/k?..."),
        ] {
            assert_eq!(masked(location), shown);
            let error = check(location).unwrap_err().to_string();
            assert!(
                error.contains(shown) && !error.contains("secret"),
                "{error}"
            );
        }
        for location in [
            "a@b?c",
            "s3://b/a?.csv",
            "s3://b/a?sig&b=c",
            "s3://b/x@y",
            "https://h:8080/x@y",
            "https://[::1]/x@y",
            "file:///a?b",
            "file:///a:b/x@y",
            "",
        ] {
            assert_eq!(masked(location), location);
            assert!(check(location).is_ok());
        }
    }

    #[test]
    fn each_url_of_a_text_is_masked() {
        for (text, shown) in [
            ("no url", "no url"),
            (
                "csv('https://h/it''s?sig=secret') JOIN csv(\"s3://k:a secret@b/x\") WHERE a LIKE '?@'",
                "csv('https://h/it''s?...') JOIN csv(\"s3://...@b/x\") WHERE a LIKE '?@'",
            ),
            ("://k:secret@b", "://...@b"),
        ] {
            assert_eq!(masked_text(text), shown);
        }
    }
}
