//! Headers of tar entries.

pub(super) const BLOCK: usize = 512;

/// The fields of a tar header block that are used here.
#[derive(Debug)]
pub(super) struct TarHeader {
    pub(super) name: Vec<u8>,
    pub(super) size: u64,
    pub(super) kind: u8,
}

impl TarHeader {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Self, String> {
        let stated = octal(&block[148..156]).ok_or("not a tar header")?;
        let is_checksum = |byte: usize| (148..156).contains(&byte);
        let bytes = block.iter().enumerate();
        let bytes = bytes.map(|(at, &byte)| if is_checksum(at) { b' ' } else { byte });
        let unsigned: u64 = bytes.clone().map(u64::from).sum();
        // Some old writers computed the checksum over signed bytes.
        let signed: i64 = bytes.map(|byte| i64::from(byte as i8)).sum();
        if stated != unsigned && i64::try_from(stated) != Ok(signed) {
            return Err(
                "its checksum does not match: the archive is damaged, or not a tar file".to_owned(),
            );
        }
        let mut name = until_nul(&block[..100]).to_vec();
        let prefix = until_nul(&block[345..500]);
        // GNU tar, whose magic differs, stores times in the bytes of the ustar prefix.
        if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
        let size = number(&block[124..136]).ok_or("its size is not a number")?;
        Ok(Self {
            name,
            size,
            kind: block[156],
        })
    }
}

/// Parses a numeric field of a tar header: octal digits, or a big-endian integer if the first bit
/// of the field is set.
fn number(field: &[u8]) -> Option<u64> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 == 0 {
        return octal(field);
    }
    let start = u64::from(first & 0x7f);
    rest.iter().try_fold(start, |value, &byte| {
        Some(value.checked_mul(256)? | u64::from(byte))
    })
}

/// Parses octal digits, which blanks and NULs may surround. An empty field is 0.
fn octal(field: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field.iter().position(|byte| !is_blank(byte));
    let digits = &field[start.unwrap_or(field.len())..];
    let end = digits.iter().position(is_blank);
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    if !rest.iter().all(is_blank) {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = char::from(digit).to_digit(8)?;
        Some(value.checked_mul(8)? | u64::from(digit))
    })
}

pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    &field[..end.unwrap_or(field.len())]
}
