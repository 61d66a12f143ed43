//! Locations of sources as workers get them.

use forebay_planner::source::SourceSpec;

/// Makes the location of a source absolute, because workers run in other folders.
pub(crate) fn absolute(mut spec: SourceSpec) -> SourceSpec {
    if !spec.location.contains("://")
        && let Ok(absolute) = std::path::absolute(&spec.location)
    {
        // A slash at the end distinguishes a folder from a file.
        let slash = if spec.location.ends_with('/') {
            "/"
        } else {
            ""
        };
        let absolute = absolute.display().to_string();
        spec.location = format!("{}{slash}", absolute.trim_end_matches('/'));
    }
    spec
}
