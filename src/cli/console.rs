//! Console output: data goes to standard output, messages to standard error.

use std::io::{self, Write};

use super::failure::CommandFailure;

/// Writes data to standard output, ends the last line if necessary, and flushes.
pub(crate) fn data(text: &str) -> Result<(), CommandFailure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}

/// Writes a value to standard output as indented JSON.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(value);
    data(&text.map_err(|error| CommandFailure::Run(error.to_string()))?)
}

/// Writes a message to standard error. A failure to write is ignored, since the failure could not
/// be reported either.
pub(crate) fn message(text: &str) {
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "{text}").ok();
}

/// Prints the library's warnings on standard error.
pub(crate) fn show_warnings() {
    struct Warnings;
    impl log::Log for Warnings {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() <= log::Level::Warn && metadata.target().starts_with("forebay")
        }

        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                message(&format!("warning: {}", record.args()));
            }
        }

        fn flush(&self) {}
    }
    // A process has one logger, and no other code sets the logger.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}
