//! A file of a source: its place, and the state that it had when it was listed.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::object::OpenObject;
use super::{Input, Opened};
use crate::objects::Object;
use crate::source::error::SourceError;

/// A file of a source. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum InputFile {
    /// A file of this machine, by the path with which it is opened.
    Local(PathBuf),
    /// An object of a store.
    Object(Arc<Object>),
}

impl InputFile {
    /// Returns the path or URL that errors show.
    pub(crate) fn name(&self) -> PathBuf {
        match self {
            Self::Local(path) => path.clone(),
            Self::Object(object) => object.name(),
        }
    }

    /// True for an object of a store.
    pub(crate) const fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Opens the file. Returns its size in bytes: that of an object is the listed one, and reads
    /// fail if the object was written again since.
    pub(crate) fn open(&self) -> Result<(Input, u64), SourceError> {
        match self {
            Self::Local(path) => {
                let unreadable = |error| SourceError::unreadable(path, error);
                let file = File::open(path).map_err(unreadable)?;
                let size = file.metadata().map_err(unreadable)?.len();
                Ok((Input(Opened::Local(file)), size))
            }
            Self::Object(object) => {
                let opened = OpenObject::new(Arc::clone(object));
                Ok((Input(Opened::Object(opened)), object.size()))
            }
        }
    }
}
