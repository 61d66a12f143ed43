//! How blocks are compressed.

use std::io::Read;

/// Bytes of a block at most, decompressed: it is decoded as a whole.
pub(super) const MAX_BLOCK_BYTES: u64 = 256 << 20;

/// Bytes behind a block that Snappy compressed: a checksum.
const SNAPPY_CHECKSUM: usize = 4;

/// Bytes that a byte of Snappy yields at most: a copy of 64 bytes takes three.
const MAX_SNAPPY_RATIO: u64 = 64;

/// How the blocks of a file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
    Bzip2,
    Xz,
}

impl Codec {
    /// The codec of this name.
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
                return Err(format!("its compression '{name}' is not known"));
            }
        })
    }

    /// The bytes of a block.
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

/// All that a decoder yields, within the limit of a block.
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
            "it states {stated} bytes, more than {} compressed ones hold",
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
        Err("its checksum is another".to_owned())
    }
}
