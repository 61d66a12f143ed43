//! Locations of sources and caches as workers get them.

use forebay_planner::source::SourceSpec;

/// Makes the location of a source absolute, because workers run in other folders.
pub(crate) fn absolute(mut spec: SourceSpec) -> SourceSpec {
    spec.location = absolute_text(&spec.location);
    spec
}

/// Makes a location absolute, unless it is a URL.
pub(crate) fn absolute_text(location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let Ok(absolute) = std::path::absolute(location) else {
        return location.to_owned();
    };
    // A slash at the end distinguishes a folder from a file.
    let slash = if location.ends_with('/') { "/" } else { "" };
    let absolute = absolute.display().to_string();
    format!("{}{slash}", absolute.trim_end_matches('/'))
}

/// Returns the place on this machine of a location of the client. `roots` are the roots whose places
/// differ: the client's root, and this machine's.
pub(crate) fn mapped(roots: &[(String, String)], location: &str) -> String {
    for (theirs, ours) in roots {
        if let Some(rest) = location.strip_prefix(theirs.as_str())
            && (rest.is_empty() || rest.starts_with('/') || theirs.ends_with('/'))
        {
            return format!("{ours}{rest}");
        }
    }
    location.to_owned()
}
