//! Tar archives: finds the names, offsets and sizes of the regular files in an archive by reading
//! only headers.
//!
//! Reads ustar and pax (POSIX.1-2001, `pax`, "ustar Interchange Format" and "pax Extended Header"),
//! the long names and sizes of GNU tar ("Basic Tar Format" of its manual), and the headers of Unix
//! V7. Directories, links, devices and sparse files are skipped. Names are only used as texts: no
//! file is ever extracted to a path of that name.

mod archive;
mod header;

use std::io;

use super::content::ContentHasher;
pub(super) use archive::{Archive, TarInput};
use header::{BLOCK, TarHeader, until_nul};

/// Maximum size in bytes of a long name or of a pax header. A larger size is an error.
const MAX_EXTENSION_BYTES: u64 = 64 << 10;

/// Maximum number of bytes that may follow the first block of zeros at the end of an archive. GNU
/// tar pads archives to a multiple of 10 KiB by default.
const MAX_PADDING_BYTES: u64 = 1 << 20;

/// A regular file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TarEntry {
    /// Path of the file as stored in the archive.
    pub(super) name: String,
    /// Offset of the content in the archive, in bytes.
    pub(super) offset: u64,
    /// Size of the content in bytes.
    pub(super) size: u64,
}

/// Iterates over the regular files in a tar archive.
#[derive(Debug)]
pub(super) struct TarEntries<I> {
    input: I,
    /// Number of bytes read or skipped so far.
    at: u64,
    headers: ContentHasher,
}

/// Fields that extension headers have set for the next entry.
#[derive(Debug, Default)]
struct Extension {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl<I: TarInput> TarEntries<I> {
    /// Creates an iterator that reads the archive in `input` from its start, and adds all headers
    /// to `hasher`.
    pub(super) const fn new(input: I, hasher: ContentHasher) -> Self {
        Self {
            input,
            at: 0,
            headers: hasher,
        }
    }

    /// Returns the hasher, to which the headers read so far were added, and the input.
    pub(super) fn finish(self) -> (ContentHasher, I) {
        (self.headers, self.input)
    }

    /// Returns the next regular file, or `None` at the end of the archive. An archive without the
    /// block of zeros that marks the end was cut off, which is an error.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>, String> {
        let mut extension = Extension::default();
        let mut is_extended = false;
        loop {
            let start = self.at;
            let block = self.header()?;
            let at = |cause: String| format!("header at byte {start}: {cause}");
            if block.iter().all(|&byte| byte == 0) {
                if is_extended {
                    return Err(at("the archive ends after an extension header".to_owned()));
                }
                return self.padding().map(|()| None);
            }
            let header = TarHeader::parse(&block).map_err(at)?;
            match header.kind {
                b'x' | b'X' | b'L' | b'K' | b'g' => {
                    is_extended |= header.kind != b'g';
                    let body = self.extension(&header).map_err(at)?;
                    extension.read(header.kind, &body).map_err(at)?;
                    continue;
                }
                b'S' => {
                    let mut is_long = block[482] != 0;
                    while is_long {
                        is_long = self.header()?[504] != 0;
                    }
                }
                _ => {}
            }
            let name = extension.name.take().unwrap_or(header.name);
            let size = extension.size.take().unwrap_or(header.size);
            let text = String::from_utf8_lossy(&name).into_owned();
            let is_file = match header.kind {
                b'0' | b'7' => true,
                // Unix V7 has no entry type for directories. The names of directories end in a
                // slash.
                0 => name.last() != Some(&b'/'),
                _ => false,
            };
            let offset = self.at;
            // Links, devices, directories and pipes have no content, even if their header states a
            // size other than 0.
            if !(b'1'..=b'6').contains(&header.kind) {
                self.skip_content(size)
                    .map_err(|cause| format!("entry '{text}' at byte {start}: {cause}"))?;
            }
            if is_file && !extension.is_sparse {
                let name = String::from_utf8(name)
                    .map_err(|_| at(format!("the name '{text}' is not UTF-8; rename the entry")))?;
                return Ok(Some(TarEntry { name, offset, size }));
            }
            extension = Extension::default();
            is_extended = false;
        }
    }

    /// Reads a header block.
    fn header(&mut self) -> Result<[u8; BLOCK], String> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) => return Err(cut_off(self.at)),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error, self.at)),
            }
        }
        self.at += BLOCK as u64;
        self.headers.update(&block);
        Ok(block)
    }

    /// Reads the content of an extension header.
    fn extension(&mut self, header: &TarHeader) -> Result<Vec<u8>, String> {
        if header.size > MAX_EXTENSION_BYTES {
            return Err(format!(
                "an extension header of {} bytes, above the limit of {MAX_EXTENSION_BYTES}",
                header.size
            ));
        }
        let mut body = vec![0; header.size as usize];
        let read = self.input.read_exact(&mut body);
        read.map_err(|error| failed(&error, self.at))?;
        self.at += header.size;
        self.headers.update(&body);
        self.skip(padding_of(header.size))?;
        Ok(body)
    }

    fn skip_content(&mut self, size: u64) -> Result<(), String> {
        let padded = size.checked_add(padding_of(size));
        let padded = padded.filter(|padded| self.at.checked_add(*padded).is_some());
        self.skip(padded.ok_or_else(|| format!("a size of {size} bytes"))?)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), String> {
        let skipped = self.input.skip(bytes);
        skipped.map_err(|error| failed(&error, self.at))?;
        self.at += bytes;
        Ok(())
    }

    /// Checks that only zeros follow the first block of zeros, which marks the end of the archive.
    fn padding(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16 * BLOCK];
        let mut length = 0;
        loop {
            let read = match self.input.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(&error, self.at)),
            };
            length += read as u64;
            if length > MAX_PADDING_BYTES || buffer[..read].iter().any(|&byte| byte != 0) {
                return Err(format!(
                    "data after the end of the archive at byte {}: join archives by `tar --concatenate`, or keep them apart",
                    self.at
                ));
            }
        }
    }
}

impl Extension {
    /// Parses the content of an extension header.
    fn read(&mut self, kind: u8, body: &[u8]) -> Result<(), String> {
        match kind {
            b'L' => self.name = Some(until_nul(body).to_vec()),
            // The long name of a link's target. Links are skipped, so the name is not used.
            b'K' => {}
            _ => {
                let mut rest = body;
                while !rest.is_empty() {
                    let (key, value) = pax_record(&mut rest).ok_or("a pax header is damaged")?;
                    self.set(kind, key, value)?;
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, kind: u8, key: &[u8], value: &[u8]) -> Result<(), String> {
        if kind == b'g' {
            return match key {
                b"path" | b"size" => Err("a global pax header sets path or size, which is not supported; write the archive without global headers".to_owned()),
                _ => Ok(()),
            };
        }
        match key {
            b"path" => self.name = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value).ok_or("a pax size is not a number")?),
            key if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
            _ => {}
        }
        Ok(())
    }
}

/// Takes the next record, `length key=value\n`, from the pax header `rest`, and returns key and
/// value. The length counts all bytes of the record.
fn pax_record<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let space = rest.iter().position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(&rest[..space])?).ok()?;
    let record = rest.get(space + 1..length)?.strip_suffix(b"\n")?;
    *rest = &rest[length..];
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..]))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// Returns the number of bytes from the end of a content of `size` bytes to the next block.
const fn padding_of(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn failed(error: &io::Error, at: u64) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_off(at),
        _ => format!("after byte {at}: {error}"),
    }
}

fn cut_off(at: u64) -> String {
    format!("it is cut off after byte {at}, before the end of the archive: copy or write it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::testing::{tar, tar_entry, tar_header, with_checksum};

    impl TarInput for &[u8] {
        fn skip(&mut self, bytes: u64) -> io::Result<()> {
            let bytes = usize::try_from(bytes)
                .ok()
                .filter(|&bytes| bytes <= self.len());
            *self = &self[bytes.ok_or(io::ErrorKind::UnexpectedEof)?..];
            Ok(())
        }
    }

    fn entries(archive: &[u8]) -> Result<Vec<(String, &[u8])>, String> {
        let mut entries = TarEntries::new(archive, ContentHasher::new("tar", ""));
        let mut found = Vec::new();
        while let Some(TarEntry { name, offset, size }) = entries.next()? {
            let content = &archive[offset as usize..(offset + size) as usize];
            found.push((name, content));
        }
        Ok(found)
    }

    fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
        [parts.concat(), vec![0; 1024]].concat()
    }

    fn pax(records: &[(&str, &str)]) -> Vec<u8> {
        let record = |(key, value): &(&str, &str)| {
            // The length of a pax record includes the digits of the length.
            let rest = key.len() + value.len() + 3;
            let length = (rest + 1..)
                .find(|n| n.to_string().len() + rest == *n)
                .unwrap();
            format!("{length} {key}={value}\n")
        };
        records.iter().map(record).collect::<String>().into_bytes()
    }

    #[test]
    fn regular_files_have_their_names_and_contents() {
        let long = "d/".repeat(60) + "long.jpg";
        let mut prefixed = tar_header(b'0', "name.txt", 3);
        prefixed[345..348].copy_from_slice(b"a/b");
        let mut large = tar_header(b'0', "large.bin", 0);
        large[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
        let mut signed = tar_header(b'0', "\u{e9}", 0);
        let sum: i64 = signed
            .iter()
            .enumerate()
            .map(|(at, &b)| {
                if (148..156).contains(&at) {
                    32
                } else {
                    i64::from(b as i8)
                }
            })
            .sum();
        signed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut v7 = tar_header(0, "v7.cls", 0);
        v7[257..265].fill(0);
        let sparse = [("GNU.sparse.major", "1"), ("path", "hole")];
        let bytes = archive(&[
            tar_entry(b'5', "d/", b""),
            tar_entry(b'0', "d/empty.txt", b""),
            tar_entry(b'2', "link", b""),
            tar_header(b'1', "hard", 700),
            tar_entry(b'V', "volume", b"skipped"),
            with_checksum(prefixed),
            [b"abc".to_vec(), vec![0; 509]].concat(),
            tar_entry(b'L', "././@LongLink", format!("{long}\0").as_bytes()),
            tar_entry(b'0', "short", &[7; 512]),
            tar_entry(b'g', "global", &pax(&[("comment", "x")])),
            tar_entry(
                b'x',
                "pax",
                &pax(&[("path", "\u{fc}ber.json"), ("size", "4"), ("mtime", "1.5")]),
            ),
            tar_header(b'0', "other", 0),
            [b"{  }".to_vec(), vec![0; 508]].concat(),
            tar_entry(b'x', "pax", &pax(&sparse)),
            tar_entry(b'0', "hole", b"map"),
            with_checksum(large),
            [vec![5; 513], vec![0; 511]].concat(),
            signed,
            with_checksum(v7.clone()),
            {
                v7[5] = b'/';
                with_checksum(v7)
            },
        ]);
        let found = entries(&bytes).unwrap();
        let expected: [(&str, &[u8]); 7] = [
            ("d/empty.txt", b""),
            ("a/b/name.txt", b"abc"),
            (&long, &[7; 512]),
            ("\u{fc}ber.json", b"{  }"),
            ("large.bin", &[5; 513]),
            ("\u{e9}", b""),
            ("v7.cls", b""),
        ];
        let found: Vec<(&str, &[u8])> = found.iter().map(|(name, c)| (name.as_str(), *c)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_archive_that_is_cut_off_or_goes_on_is_an_error() {
        let bytes = tar(&[("a.txt", b"abc"), ("b.txt", &[1; 600])]);
        let whole = entries(&bytes).unwrap();
        // The first block of zeros marks the end of the archive.
        let end = bytes.len() - 512;
        for length in 0..bytes.len() {
            match entries(&bytes[..length]) {
                Ok(found) => assert!(length >= end && found == whole, "{length}"),
                Err(error) => assert!(
                    length < end && error.contains("cut off"),
                    "{length}: {error}"
                ),
            }
        }
        let error = entries(&[bytes.clone(), bytes.clone()].concat()).unwrap_err();
        assert!(
            error.contains("data after the end of the archive at byte 3072"),
            "{error}"
        );
        entries(&[bytes.clone(), vec![0; 20 << 10]].concat()).unwrap();
        assert!(entries(&[bytes, vec![0; 2 << 20]].concat()).is_err());
        assert_eq!(entries(&[0; 512]).unwrap(), []);
    }

    #[test]
    fn damaged_headers_are_errors() {
        let error = |parts: &[Vec<u8>]| entries(&archive(parts)).unwrap_err();
        let mut flipped = tar_entry(b'0', "a.txt", b"abc");
        flipped[3] ^= 1;
        assert!(
            error(&[tar_entry(b'0', "x", b""), flipped])
                .starts_with("header at byte 512: its checksum")
        );
        assert!(error(&[b"a,b\n".repeat(128)]).contains("not a tar header"));
        let mut size = tar_header(b'0', "a.txt", 0);
        size[124] = b'9';
        assert!(error(&[with_checksum(size.clone())]).contains("size is not a number"));
        for first in [0xff, 0x80] {
            size[124] = first;
            size[125..136].fill(0xff);
            assert!(error(&[with_checksum(size.clone())]).contains("size is not a number"));
        }
        size[124..136].copy_from_slice(&[
            0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ]);
        let message = error(&[with_checksum(size)]);
        assert!(
            message.contains("entry 'a.txt' at byte 0: a size of 18446744073709551615 bytes"),
            "{message}"
        );
        assert!(error(&[tar_header(b'L', "x", 1 << 30)]).contains("above the limit"));
        for body in [
            "7 a=b",
            "999 a=b\n",
            "x a=b\n",
            "3 a=b\n",
            "0 a=b\n",
            "5 ab\n",
            "12 size=1x\n",
        ] {
            let message = error(&[
                tar_entry(b'x', "x", body.as_bytes()),
                tar_entry(b'0', "a", b""),
            ]);
            assert!(
                message.contains("header at byte 0: a pax"),
                "{body}: {message}"
            );
        }
        assert!(error(&[tar_entry(b'x', "x", b"")]).contains("ends after an extension header"));
        assert!(
            error(&[tar_entry(b'g', "x", &pax(&[("size", "1")]))]).contains("global pax header")
        );
        let mut name = tar_header(b'0', "a.txt", 0);
        name[0] = 0xff;
        assert!(error(&[with_checksum(name)]).contains("is not UTF-8"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            changes in proptest::collection::vec((0usize..6144, 0u8..), 1..8),
            is_checked: bool,
        ) {
            let mut bytes = archive(&[
                tar_entry(b'x', "pax", &pax(&[("path", "p.json"), ("size", "4")])),
                tar_entry(b'0', "a.txt", b"abcd"),
                tar_entry(b'L', "long", b"b.txt\0"),
                tar_entry(b'0', "b.txt", &[1; 600]),
            ]);
            for (at, byte) in changes {
                if let Some(changed) = bytes.get_mut(at) {
                    *changed = byte;
                }
            }
            for header in bytes.chunks_mut(512).filter(|_| is_checked) {
                let checked = with_checksum(header.to_vec());
                header.copy_from_slice(&checked);
            }
            let _ = entries(&bytes);
        }
    }
}
