//! Outputs that would take the place of what a source reads, or be read by it the next time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use datafusion::common::DataFusionError;
use forebay_planner::source::Format;

use super::error::SourceError;
use super::listing::{Place, Wanted};
use super::{Source, avro, csv, images, ipc, json, parquet};
use crate::output_file::{FileIdentity, resolved};

const fn wanted(format: Format) -> &'static Wanted {
    match format {
        Format::ImageFolder => &images::IMAGES,
        Format::Parquet => &parquet::PARQUET,
        Format::Csv => &csv::CSV,
        Format::Json => &json::JSON,
        Format::Avro => &avro::AVRO,
        Format::Arrow => &ipc::ARROW,
    }
}

/// Refuses a file that is to be written where it is one of the source's, by whatever name, or where the source's
/// folder or glob would take it in when it is listed again.
pub fn check_output(source: &dyn Source, output: &Path) -> Result<(), SourceError> {
    let spec = source.spec();
    let clash = |cause: String| {
        Err(SourceError::Output {
            output: output.to_path_buf(),
            cause,
        })
    };
    let files = &source.manifest().files;
    let place = Place::of(&spec.location, wanted(spec.format))?;
    if let Some(identity) = FileIdentity::of(output) {
        // The same file has the same size, so few of a folder of photos are looked at.
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
    let paths = files.iter().map(|file| file.path.as_str());
    if is_read_next(&place, paths, &output) {
        return clash(format!(
            "'{}' would read it as input the next time; write it to another folder",
            spec.location
        ));
    }
    Ok(())
}

/// Whether a listing of the source would find a file of this absolute path.
fn is_read_next<'a>(place: &Place, files: impl Iterator<Item = &'a str>, output: &Path) -> bool {
    if place.is_single_file() {
        return false;
    }
    let (Some(folder), Some(name)) = (output.parent(), output.file_name()) else {
        return false;
    };
    let Some(name) = name.to_str() else {
        return false;
    };
    let takes = |relative: &str| place.takes(relative);
    let Ok(root) = place.root.canonicalize() else {
        return false;
    };
    if let Some(relative) = output.strip_prefix(&root).ok().and_then(Path::to_str)
        && takes(relative)
    {
        return true;
    }
    // Folders that links lead to are below the root by another name.
    let mut folders = BTreeSet::new();
    for file in files {
        let mut folder = Path::new(file).parent();
        while let Some(inner) = folder.filter(|f| !f.as_os_str().is_empty()) {
            if !folders.insert(inner.to_path_buf()) {
                break;
            }
            folder = inner.parent();
        }
    }
    let is_folder = |inner: &PathBuf| {
        let real = root.join(inner).canonicalize();
        real.is_ok_and(|real| real == folder)
    };
    folders
        .iter()
        .filter(|inner| is_folder(inner))
        .any(|inner| {
            let relative = inner.join(name);
            relative.to_str().is_some_and(takes)
        })
}

/// Whether an error is that of an output which a source reads.
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

    use forebay_planner::source::SourceSpec;

    use super::*;
    use crate::source::FileResolver;

    async fn checked(format: Format, location: &str, output: &Path) -> Result<(), String> {
        let spec = SourceSpec {
            format,
            location: location.to_owned(),
            options: Default::default(),
            columns: None,
        };
        let source = FileResolver.open(&spec).await.unwrap();
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
        // A single file takes no others in.
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
}
