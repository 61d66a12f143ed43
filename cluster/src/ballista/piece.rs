//! Pieces in which the bodies of batches travel, compressed if the client asks for it.
//!
//! Arrow can compress the buffers of a batch, but its decoder of LZ4 frames allocates all that a
//! frame expands to. A piece has a known size, for which there is room before it is decoded.

#[cfg(feature = "ballista")]
use bytes::Bytes;
use forebay_runtime::cache::Compression;

/// Bytes of each piece of a body but the last one. gRPC copies each piece into memory of its own on both sides. Small
/// pieces stay in a processor's cache, and the allocator recycles their memory.
pub(crate) const PIECE: usize = 256 << 10;

/// Level of Zstandard: the fastest one, because workers compute while they compress.
#[cfg(feature = "ballista")]
const ZSTD_LEVEL: i32 = 1;

/// Encoder of pieces.
#[cfg(feature = "ballista")]
pub(crate) struct PieceEncoder {
    compression: Compression,
    /// Context of Zstandard, for all pieces of a result.
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

#[cfg(feature = "ballista")]
impl PieceEncoder {
    /// Creates an encoder.
    pub(crate) const fn new(compression: Compression) -> Self {
        Self {
            compression,
            zstd: None,
        }
    }

    /// Returns `true` if the encoder leaves pieces as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.compression == Compression::None
    }

    /// Compresses `piece`. A piece that does not become smaller is returned as it is.
    pub(crate) fn encode(&mut self, piece: Bytes) -> std::io::Result<Bytes> {
        let encoded = match self.compression {
            Compression::None => return Ok(piece),
            Compression::Lz4 => lz4_flex::block::compress(&piece),
            Compression::Zstd => {
                let encoder = match self.zstd.take() {
                    Some(encoder) => encoder,
                    None => zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
                };
                self.zstd.insert(encoder).compress(&piece)?
            }
        };
        Ok(if encoded.len() < piece.len() {
            Bytes::from(encoded)
        } else {
            piece
        })
    }
}

/// Decoder of pieces, which come from another machine and are untrusted.
pub(crate) struct PieceDecoder {
    compression: Compression,
    /// Context of Zstandard, for all pieces of a result.
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl PieceDecoder {
    /// Creates a decoder.
    pub(crate) const fn new(compression: Compression) -> Self {
        Self {
            compression,
            zstd: None,
        }
    }

    /// Decodes `piece` into `target`, which it has to fill. A piece of that size was left as it is.
    ///
    /// # Errors
    /// Fails with the reason if the piece is damaged or has another size.
    pub(crate) fn decode(&mut self, piece: &[u8], target: &mut [u8]) -> Result<(), String> {
        let expected = target.len();
        if piece.len() == expected {
            target.copy_from_slice(piece);
            return Ok(());
        }
        let size = match self.compression {
            Compression::None => piece.len(),
            Compression::Lz4 => {
                lz4_flex::block::decompress_into(piece, target).map_err(|e| e.to_string())?
            }
            Compression::Zstd => {
                let decoder = match self.zstd.take() {
                    Some(decoder) => decoder,
                    None => zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?,
                };
                let decoder = self.zstd.insert(decoder);
                decoder
                    .decompress_to_buffer(piece, target)
                    .map_err(|e| e.to_string())?
            }
        };
        if size != expected {
            return Err(format!("it has {size} bytes instead of {expected}"));
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "ballista"))]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// Bytes that no compression makes smaller.
    fn noise(size: usize) -> Vec<u8> {
        let mut hash = blake3::Hasher::new();
        hash.update(b"noise");
        let mut bytes = vec![0; size];
        hash.finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn pieces_survive_and_repeating_ones_shrink() {
        for compression in ALL {
            let (mut encoder, mut decoder) = (
                PieceEncoder::new(compression),
                PieceDecoder::new(compression),
            );
            for piece in [vec![7; PIECE], noise(PIECE), vec![1], noise(1000)] {
                let encoded = encoder.encode(Bytes::from(piece.clone())).unwrap();
                if compression != Compression::None && piece == vec![7; PIECE] {
                    assert!(encoded.len() < PIECE / 100, "{compression}");
                } else {
                    assert_eq!(encoded, piece, "{compression}");
                }
                let mut decoded = vec![0; piece.len()];
                decoder.decode(&encoded, &mut decoded).unwrap();
                assert_eq!(decoded, piece, "{compression}");
            }
        }
    }

    #[test]
    fn pieces_of_another_size_and_garbage_are_refused() {
        for compression in ALL {
            let mut decoder = PieceDecoder::new(compression);
            let encoded = PieceEncoder::new(compression)
                .encode(Bytes::from(vec![7; 10_000]))
                .unwrap();
            let mut is_refused = |piece: &[u8], size| {
                let decoded = decoder.decode(piece, &mut vec![0; size]);
                assert!(decoded.is_err(), "{compression} {size}");
            };
            for size in [9_999, 10_001, 0] {
                is_refused(&encoded, size);
            }
            for size in 0..200 {
                is_refused(&noise(size), 10_000);
            }
        }
    }
}
