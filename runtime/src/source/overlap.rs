//! Detects output files that would overwrite a file of a source, or that would become inputs when
//! the source is opened again.

use std::path::Path;

use datafusion::common::DataFusionError;

use super::error::SourceError;
use super::listing::FilePlace;
use super::opened::Source;
use super::reader_of;
use crate::objects::is_object_url;
use crate::output_file::{FileIdentity, resolved};

/// Refuses to write `output` if that path is a file of the source, also through a link, or if a new
/// listing of the source's folder or glob would include `output`.
pub fn check_output(source: &dyn Source, output: &Path) -> Result<(), SourceError> {
    let spec = source.spec();
    if is_object_url(&spec.location) {
        return Ok(());
    }
    let clash = |cause: String| {
        Err(SourceError::Output {
            output: output.to_path_buf(),
            cause,
        })
    };
    let manifest = source.manifest();
    let files = &manifest.files;
    let place = FilePlace::of(&spec.location, &reader_of(spec.format).files)?;
    if let Some(identity) = FileIdentity::of(output) {
        // Two paths of one file have the same size, so only few files of a large folder have to be
        // compared.
        let mut alike = files.iter().filter(|file| file.size == identity.size);
        let same = alike.find(|file| {
            FileIdentity::of(&place.root.join(&file.path)).is_some_and(|file| file == identity)
        });
        if let Some(file) = same {
            return clash(format!(
                "it is an input, {} of '{}'; name another file",
                file.path, spec.location
            ));
        }
    }
    let Some(output) = resolved(output) else {
        return Ok(());
    };
    if is_read_next(&place, &manifest.links, &output) {
        return clash(format!(
            "'{}' would read it as input the next time; write it to another folder",
            spec.location
        ));
    }
    Ok(())
}

/// True when a listing of `place` would find a file at the absolute path `output`: below the folder
/// of `place`, or below the target of one of the symbolic `links` in that folder.
fn is_read_next(place: &FilePlace, links: &[String], output: &Path) -> bool {
    if place.is_single_file() {
        return false;
    }
    let links = links.iter().map(String::as_str);
    let mut folders = std::iter::once("").chain(links);
    folders.any(|folder| {
        let Ok(real) = place.root.join(folder).canonicalize() else {
            return false;
        };
        let below = output.strip_prefix(real).ok();
        let relative = below.map(|below| Path::new(folder).join(below));
        let relative = relative.as_deref().and_then(Path::to_str);
        relative.is_some_and(|relative| place.takes(relative))
    })
}

/// True when `error` is the error of [`check_output`]: the source reads the output file, or would
/// read it when opened again.
pub fn is_output_clash(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::External(error) => {
            matches!(error.downcast_ref(), Some(SourceError::Output { .. }))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forebay_planner::source::{Format, SourceSpec};

    use super::*;
    use crate::source::FileResolver;

    async fn checked(format: Format, location: &str, output: &Path) -> Result<(), String> {
        let spec = SourceSpec {
            format,
            location: location.to_owned(),
            options: Default::default(),
            columns: None,
        };
        let source = FileResolver::default().open(&spec).await.unwrap();
        check_output(&*source, output).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn an_input_is_refused_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let location = at("t.csv").display().to_string();
        fs::write(at("t.csv"), "a\n1\n").unwrap();
        fs::write(at("same.csv"), "a\n1\n").unwrap();
        fs::hard_link(at("t.csv"), at("hard.csv")).unwrap();
        let mut names = vec!["t.csv", "hard.csv"];
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("t.csv", at("soft.csv")).unwrap();
            names.push("soft.csv");
        }
        for name in names {
            let error = checked(Format::Csv, &location, &at(name))
                .await
                .unwrap_err();
            assert!(error.contains("it is an input, t.csv of"), "{error}");
        }
        let dotted = folder.path().join("./t.csv");
        assert!(checked(Format::Csv, &location, &dotted).await.is_err());
        // A source that is a single file never includes other files.
        for name in ["same.csv", "none.csv"] {
            assert_eq!(checked(Format::Csv, &location, &at(name)).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn what_a_folder_or_glob_would_take_in_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("data/sub")).unwrap();
        fs::create_dir(at("far")).unwrap();
        for name in ["data/a.csv", "data/sub/b.csv", "far/c.csv"] {
            fs::write(at(name), "a\n1\n").unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink("../far", at("data/link")).unwrap();
        let data = at("data").display().to_string();
        let read = async |location: &str, name: &str| {
            checked(Format::Csv, location, &at(name)).await.is_err()
        };
        assert!(read(&data, "data/new.csv").await);
        assert!(read(&data, "data/sub/new.CSV").await);
        assert!(!read(&data, "data/new.parquet").await);
        assert!(!read(&data, "data/.new.csv").await);
        assert!(!read(&data, "data/_new.csv").await);
        assert!(!read(&data, "new.csv").await);
        if cfg!(unix) {
            assert!(read(&data, "far/new.csv").await);
        }
        let glob = format!("{data}/*.csv");
        assert!(read(&glob, "data/new.csv").await);
        assert!(!read(&glob, "data/sub/new.csv").await);
        assert!(read(&format!("{data}/**/?*"), "data/sub/new.txt").await);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn linked_folders_count_without_files_in_them() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["data", "far/deep", "further", "hidden"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("data/a.csv"), "a\n1\n").unwrap();
        symlink("../far", at("data/link")).unwrap();
        symlink("../further", at("far/more")).unwrap();
        symlink("../hidden", at("data/.hidden")).unwrap();
        let data = at("data").display().to_string();
        let read = async |location: &str, name: &str| {
            checked(Format::Csv, location, &at(name)).await.is_err()
        };
        for name in ["far/new.csv", "far/deep/new.csv", "further/new.csv"] {
            assert!(read(&data, name).await, "{name}");
            assert!(read(&format!("{data}/**/*.csv"), name).await, "{name}");
            assert!(!read(&format!("{data}/*.csv"), name).await, "{name}");
        }
        // The output's folder does not exist yet.
        assert!(read(&data, "far/later/new.csv").await);
        for name in ["far/new.json", "far/_new.csv", "hidden/new.csv"] {
            assert!(!read(&data, name).await, "{name}");
        }
    }
}
