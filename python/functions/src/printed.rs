//! Texts that functions print in their processes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError};

use tempfile::Builder;

/// Maximum number of bytes that are kept of the text that a process prints during one call.
const CALL_BYTES: u64 = 16 << 10;

/// Maximum number of bytes of printed text that wait to be taken.
const WAITING_BYTES: usize = 64 << 10;

/// The standard error of a process: an unnamed file. What a process has printed is in it before the
/// process answers, and also if the process is killed.
#[derive(Debug)]
pub(crate) struct PrintedFile(File);

impl PrintedFile {
    pub(crate) fn create() -> io::Result<Self> {
        let (file, path) = Builder::new().append(true).tempfile()?.into_parts();
        path.close()?;
        Ok(Self(file))
    }

    /// Returns the file for the process to write to.
    pub(crate) fn writer(&self) -> io::Result<File> {
        self.0.try_clone()
    }

    /// Takes the text that the process has printed since the last call.
    pub(crate) fn take(&mut self) -> io::Result<String> {
        let bytes = self.0.metadata()?.len();
        if bytes == 0 {
            return Ok(String::new());
        }
        // Writes go to the end of the file, wherever reads are.
        self.0.seek(SeekFrom::Start(0))?;
        let mut text = Vec::new();
        (&self.0).take(CALL_BYTES).read_to_end(&mut text)?;
        self.0.set_len(0)?;
        let left_out = bytes.saturating_sub(text.len() as u64);
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if left_out > 0 {
            text.push_str(&format!(" [.. {left_out} bytes left out ..]\n"));
        }
        Ok(text)
    }
}

/// Printed text that waits to be sent to the client, bounded.
#[derive(Debug, Default)]
pub struct PrintedText(Mutex<String>);

impl PrintedText {
    /// Adds the text that process `process` of `function` printed, and logs it.
    pub(crate) fn add(&self, function: &str, process: u32, text: &str) {
        if text.is_empty() {
            return;
        }
        for line in text.lines() {
            tracing::info!(target: "forebay::python", function, process, "{line}");
        }
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = WAITING_BYTES.saturating_sub(waiting.len());
        waiting.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// Takes the waiting text.
    pub fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn text_is_taken_once_and_bounded() {
        let mut printed = PrintedFile::create().unwrap();
        let mut writer = printed.writer().unwrap();
        assert_eq!(printed.take().unwrap(), "");
        writer.write_all("größe\n".as_bytes()).unwrap();
        assert_eq!(printed.take().unwrap(), "größe\n");
        assert_eq!(printed.take().unwrap(), "");
        writer.write_all(&vec![b'x'; 1 << 20]).unwrap();
        let text = printed.take().unwrap();
        assert!(text.len() < 17 << 10, "{} bytes", text.len());
        assert!(text.ends_with("bytes left out ..]\n"), "{text}");
        writer.write_all(b"more").unwrap();
        assert_eq!(printed.take().unwrap(), "more");
    }

    #[test]
    fn waiting_text_is_bounded() {
        let waiting = PrintedText::default();
        for _ in 0..100 {
            waiting.add("f", 1, &"ü".repeat(1 << 10));
        }
        let taken = waiting.take();
        assert!(taken.len() <= WAITING_BYTES && taken.len() > WAITING_BYTES / 2);
        assert_eq!(waiting.take(), "");
    }
}
