//! Reads many image files into one column.

use std::fs::File;
use std::io::{ErrorKind, Read};

use arrow::array::BinaryArray;
use arrow::buffer::OffsetBuffer;
use bytes::{Bytes, BytesMut};
use datafusion::common::{Result, exec_err};
use forebay_udfs::buffer_pool;
use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::first_reads::FirstReads;
use crate::objects::StoreError;
use crate::source::error::{FileChange, SourceError};
use crate::source::input::InputFile;
use crate::task;

/// Maximum size of an image file in bytes. A larger file is an error of the file's row.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

/// Maximum size of one fetched column in bytes, because the offsets of `Binary` are 32-bit. A
/// larger column is an error.
const MAX_FETCH_BYTES: u64 = i32::MAX as u64;

/// Maximum number of threads that read the files of one fetch.
const READERS: usize = 16;

/// Minimum number of files per reading thread.
const FILES_PER_READER: usize = 4;

/// A file to read into a fetched column.
#[derive(Debug)]
pub(super) struct Wish {
    /// Index of the file in the source.
    pub(super) index: usize,
    pub(super) file: InputFile,
    pub(super) size: u64,
}

impl Wish {
    /// Returns the number of bytes that the column reserves for this file; 0 if the file is too
    /// large to be read.
    fn room(&self) -> usize {
        if self.size > MAX_FILE_BYTES {
            0
        } else {
            self.size as usize
        }
    }
}

/// Reads files concurrently into one column. A file that cannot be read becomes an empty value, and
/// the returned list has its index in `wishes` and the cause.
pub(super) async fn read_all(
    wishes: Vec<Wish>,
    first_reads: &FirstReads,
) -> Result<(BinaryArray, Vec<(usize, String)>)> {
    let total: u64 = wishes.iter().map(|wish| wish.room() as u64).sum();
    if total > MAX_FETCH_BYTES {
        return exec_err!(
            "{} images take {total} bytes, above the {MAX_FETCH_BYTES} that one batch of them can hold: use smaller batches",
            wishes.len()
        );
    }
    let mut lengths: Vec<usize> = wishes.iter().map(Wish::room).collect();
    let per_reader = wishes.len().div_ceil(READERS).max(FILES_PER_READER);
    // Each reader writes to its own slice of the column's memory, which avoids a copy.
    let mut rest = BytesMut::from(Bytes::from(buffer_pool::take::<u8>(total as usize)));
    let mut wishes = wishes.into_iter();
    let mut groups = Vec::new();
    while wishes.len() > 0 {
        let group: Vec<Wish> = wishes.by_ref().take(per_reader).collect();
        let room = rest.split_to(group.iter().map(Wish::room).sum());
        groups.push((group, room));
    }
    // If `rest` still shared the memory of the groups, converting that memory to a column would
    // copy the bytes.
    drop(rest);
    let parts: Vec<ReadGroup> = stream::iter(groups)
        .map(|(group, room)| read_group(group, room, first_reads))
        .buffered(READERS)
        .try_collect()
        .await?;

    let mut bytes = BytesMut::new();
    let mut failed = Vec::new();
    for (group, (part, failures)) in parts.into_iter().enumerate() {
        bytes.unsplit(part);
        let first = group * per_reader;
        failed.extend(
            failures
                .into_iter()
                .map(|(row, cause)| (first + row, cause)),
        );
    }
    let mut bytes = Vec::from(bytes);
    if !failed.is_empty() {
        close_gaps(&mut bytes, &mut lengths, &failed);
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = buffer_pool::lend(bytes).into_inner();
    Ok((BinaryArray::try_new(offsets, values, None)?, failed))
}

/// Removes the bytes that are reserved for the files that could not be read. `failed` lists the
/// indices of these files, ascending.
fn close_gaps(bytes: &mut Vec<u8>, lengths: &mut [usize], failed: &[(usize, String)]) {
    let mut failed = failed.iter().map(|(row, _)| *row).peekable();
    let (mut from, mut to) = (0, 0);
    for (row, length) in lengths.iter_mut().enumerate() {
        let next = from + *length;
        if failed.next_if_eq(&row).is_some() {
            *length = 0;
        } else {
            bytes.copy_within(from..next, to);
            to += *length;
        }
        from = next;
    }
    bytes.truncate(to);
}

/// The memory with the bytes of a group of files, and the index in the group and the cause for each
/// file that could not be read.
type ReadGroup = (BytesMut, Vec<(usize, String)>);

/// Reads the files of `group` one after the other into `room`, whose size is the sum of the sizes
/// that the files reserve.
async fn read_group(
    group: Vec<Wish>,
    mut room: BytesMut,
    first_reads: &FirstReads,
) -> Result<ReadGroup> {
    if group.iter().any(|wish| wish.file.is_object()) {
        return read_objects(&group, room, first_reads).await;
    }
    let read = move || {
        let mut failed = Vec::new();
        let mut rest = room.as_mut();
        for (row, wish) in group.iter().enumerate() {
            let (place, after) = rest.split_at_mut(wish.room());
            if let Err(cause) = read_file(wish, place) {
                failed.push((row, cause));
            }
            rest = after;
        }
        (room, failed)
    };
    task::blocking("reading images", read).await
}

/// Reads objects, all of the group at a time.
///
/// # Errors
/// Fails if the store is at fault. If one object is at fault, its row fails.
async fn read_objects(
    group: &[Wish],
    mut room: BytesMut,
    first_reads: &FirstReads,
) -> Result<ReadGroup> {
    let mut rest = room.as_mut();
    let mut reads = Vec::with_capacity(group.len());
    for wish in group {
        let (place, after) = rest.split_at_mut(wish.room());
        reads.push(read_object(wish, place, first_reads));
        rest = after;
    }
    let mut failed = Vec::new();
    for (row, read) in join_all(reads).await.into_iter().enumerate() {
        match read {
            Ok(()) => {}
            Err(ObjectFailure::Row(cause)) => failed.push((row, cause)),
            Err(ObjectFailure::Store(error)) => return Err(SourceError::from(error).into()),
        }
    }
    Ok((room, failed))
}

/// The failure of one read of an object.
enum ObjectFailure {
    Row(String),
    Store(StoreError),
}

async fn read_object(
    wish: &Wish,
    place: &mut [u8],
    first_reads: &FirstReads,
) -> std::result::Result<(), ObjectFailure> {
    let InputFile::Object(object) = &wish.file else {
        return read_file(wish, place).map_err(ObjectFailure::Row);
    };
    check_size(wish).map_err(ObjectFailure::Row)?;
    if let Some(kept) = first_reads
        .take(wish.index)
        .filter(|kept| kept.len() == place.len())
    {
        place.copy_from_slice(&kept);
        return Ok(());
    }
    let read = object.whole_into(place).await;
    if read.is_ok() {
        first_reads.keep(wish.index, place);
    }
    read.map_err(|error| {
        if error.is_of_object() {
            ObjectFailure::Row(error.to_string())
        } else {
            ObjectFailure::Store(error)
        }
    })
}

fn check_size(Wish { file, size, .. }: &Wish) -> Result<(), String> {
    if *size <= MAX_FILE_BYTES {
        return Ok(());
    }
    Err(format!(
        "'{}' has {size} bytes, above the limit of {MAX_FILE_BYTES} for an image file",
        file.name().display()
    ))
}

fn read_file(wish: &Wish, place: &mut [u8]) -> Result<(), String> {
    check_size(wish)?;
    let Wish { file, size, .. } = wish;
    let InputFile::Local(path) = file else {
        return Err(format!(
            "'{}' is no file of this machine",
            file.name().display()
        ));
    };
    let unreadable = |error| SourceError::unreadable(path, error).to_string();
    let changed = |now| {
        let change = FileChange::Size { was: *size, now };
        let path = path.clone();
        SourceError::Changed { path, change }.to_string()
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let length = |file: &File| file.metadata().map(|of| of.len()).map_err(unreadable);
    let now = length(&file)?;
    if now != *size {
        return Err(changed(now));
    }
    match file.read_exact(place) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(changed(length(&file)?)),
        Err(error) => Err(unreadable(error)),
        // If one more byte can be read, the file grew during the read.
        Ok(()) => match file.read_exact(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(unreadable(error)),
            Ok(()) => Err(changed(length(&file)?)),
        },
    }
}
