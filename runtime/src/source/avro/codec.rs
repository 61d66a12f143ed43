//! Compression of the blocks of an Avro file.

use std::io::Read;

/// Maximum size of a decompressed block in bytes. A larger block is an error, because a block is
/// decoded as a whole.
pub(super) const MAX_BLOCK_BYTES: u64 = 256 << 20;

/// Size in bytes of the checksum that follows a block compressed by Snappy.
const SNAPPY_CHECKSUM: usize = 4;

/// Upper bound of the number of bytes that one byte of Snappy data decompresses to: in Snappy, a
/// copy of 64 bytes takes three bytes.
const MAX_SNAPPY_RATIO: u64 = 64;

/// Compression of the blocks of an Avro file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockCodec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
    Bzip2,
    Xz,
}

impl BlockCodec {
    /// Returns the codec with this name in a file's header. A name that is not supported is an
    /// error.
    pub(super) fn parse(name: &[u8]) -> Result<Self, String> {
        Ok(match name {
            b"null" => Self::Null,
            b"deflate" => Self::Deflate,
            b"snappy" => Self::Snappy,
            b"zstandard" => Self::Zstandard,
            b"bzip2" => Self::Bzip2,
            b"xz" => Self::Xz,
            other => {
                let name: String = String::from_utf8_lossy(other).chars().take(60).collect();
                return Err(format!("its compression '{name}' is not supported"));
            }
        })
    }

    /// Decompresses the block `stored`. The error says that the block is damaged, or larger than
    /// [`MAX_BLOCK_BYTES`].
    pub(super) fn decompress(self, stored: Vec<u8>) -> Result<Vec<u8>, String> {
        let bytes = stored.as_slice();
        match self {
            Self::Null => Ok(stored),
            Self::Deflate => all(flate2::read::DeflateDecoder::new(bytes)),
            Self::Zstandard => all(zstd::stream::read::Decoder::new(bytes).map_err(broken)?),
            Self::Bzip2 => all(bzip2::read::BzDecoder::new(bytes)),
            Self::Xz => all(liblzma::read::XzDecoder::new(bytes)),
            Self::Snappy => snappy(bytes),
        }
    }
}

fn broken(error: impl std::fmt::Display) -> String {
    format!("it cannot be decompressed: {error}")
}

/// Returns all bytes that `decoder` yields. More than [`MAX_BLOCK_BYTES`] bytes are an error.
fn all(decoder: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    decoder
        .take(MAX_BLOCK_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(broken)?;
    if bytes.len() as u64 > MAX_BLOCK_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

fn too_large() -> String {
    format!("it holds more than {MAX_BLOCK_BYTES} bytes; write the file with smaller blocks")
}

fn snappy(stored: &[u8]) -> Result<Vec<u8>, String> {
    let (data, checksum) = stored
        .len()
        .checked_sub(SNAPPY_CHECKSUM)
        .map(|end| stored.split_at(end))
        .ok_or("it is too short for its checksum")?;
    let stated = snap::raw::decompress_len(data).map_err(broken)? as u64;
    if stated > MAX_BLOCK_BYTES {
        return Err(too_large());
    }
    if stated > (data.len() as u64).saturating_mul(MAX_SNAPPY_RATIO) {
        return Err(format!(
            "it states {stated} bytes, more than {} compressed bytes can hold",
            data.len()
        ));
    }
    let bytes = snap::raw::Decoder::new()
        .decompress_vec(data)
        .map_err(broken)?;
    let mut hash = flate2::Crc::new();
    hash.update(&bytes);
    if hash.sum().to_be_bytes() == checksum {
        Ok(bytes)
    } else {
        Err("its checksum does not match".to_owned())
    }
}
