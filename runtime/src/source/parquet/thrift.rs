//! A reader of those parts of Thrift's compact encoding that checking lengths needs.
//!
//! The encoding is described in Thrift's `thrift-compact-protocol.md`.

/// Maximum depth of nested structs and lists. Deeper nesting is an error.
const MAX_DEPTH: usize = 32;

const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// A reader of bytes in Thrift's compact encoding.
#[derive(Debug)]
pub(super) struct Thrift<'a> {
    rest: &'a [u8],
}

/// The value of a Thrift field, as far as checks need the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// A struct, whose fields follow in the reader.
    Struct,
    /// A list of this many structs, which follow in the reader.
    Structs(u64),
    Integer(i64),
    Flag(bool),
    /// A value of another type, which was skipped.
    Other,
}

impl<'a> Thrift<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of bytes that are left.
    pub(super) const fn left(&self) -> usize {
        self.rest.len()
    }

    fn byte(&mut self) -> Result<u8, String> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(ended)?;
        self.rest = rest;
        Ok(byte)
    }

    /// Takes the next `bytes` bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Result<&'a [u8], String> {
        let split = usize::try_from(bytes)
            .ok()
            .and_then(|at| self.rest.split_at_checked(at));
        let (taken, rest) = split.ok_or_else(ended)?;
        self.rest = rest;
        Ok(taken)
    }

    fn advance(&mut self, bytes: u64) -> Result<(), String> {
        self.take(bytes).map(drop)
    }

    /// Reads an unsigned integer of variable length.
    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("an integer of more than 64 bits".to_owned())
    }

    /// Reads a signed integer of variable length (zig-zag).
    pub(super) fn signed(&mut self) -> Result<i64, String> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Calls `visit` with the number and the value of each field of a struct. `visit` must consume
    /// the content of a [`Field::Struct`] or [`Field::Structs`], by further reads or by
    /// [`pass`](Self::pass).
    pub(super) fn fields(
        &mut self,
        mut visit: impl FnMut(&mut Self, i64, Field) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == STOP {
                return Ok(());
            }
            id = match i64::from(head >> 4) {
                0 => self.signed()?,
                step => id.saturating_add(step),
            };
            let field = match kind {
                TRUE => Field::Flag(true),
                FALSE => Field::Flag(false),
                I16 | I32 | I64 => Field::Integer(self.signed()?),
                STRUCT => Field::Struct,
                LIST if self.rest.first().is_some_and(|head| head & 0x0f == STRUCT) => {
                    Field::Structs(self.list()?.1)
                }
                other => {
                    self.skip(other, 0)?;
                    Field::Other
                }
            };
            visit(self, id, field)?;
        }
    }

    /// Skips the structs of `field`, which [`fields`](Self::fields) has not read. Does nothing for
    /// fields of other types.
    pub(super) fn pass(&mut self, field: Field) -> Result<(), String> {
        match field {
            Field::Struct => self.skip(STRUCT, 0),
            Field::Structs(count) => {
                for _ in 0..count {
                    self.skip(STRUCT, 0)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the head of a list: the type and the number of its elements. More elements than bytes
    /// left are an error, because each element takes at least one byte.
    fn list(&mut self) -> Result<(u8, u64), String> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => u64::from(few),
        };
        if count > self.rest.len() as u64 {
            return Err(format!(
                "a list of {count} elements in {} bytes",
                self.rest.len()
            ));
        }
        Ok((head & 0x0f, count))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("values nested in more than {MAX_DEPTH} levels"));
        }
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.advance(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.advance(8),
            BINARY => {
                let bytes = self.varint()?;
                self.advance(bytes)
            }
            LIST | SET => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    self.element(kind, depth)?;
                }
                Ok(())
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.element(kinds >> 4, depth)?;
                    self.element(kinds & 0x0f, depth)?;
                }
                Ok(())
            }
            STRUCT => loop {
                let head = self.byte()?;
                if head & 0x0f == STOP {
                    return Ok(());
                }
                if head >> 4 == 0 {
                    self.varint()?;
                }
                self.skip(head & 0x0f, depth + 1)?;
            },
            other => Err(format!("a value of the unknown type {other}")),
        }
    }

    /// Skips an element of a list or map. In contrast to a boolean field, a boolean element takes a
    /// byte.
    fn element(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        match kind {
            TRUE | FALSE => self.advance(1),
            other => self.skip(other, depth + 1),
        }
    }
}

fn ended() -> String {
    "it ends too early".to_owned()
}
