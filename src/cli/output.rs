//! Where text goes: data to standard output, messages to standard error.

use std::io::{self, Write};

use super::failure::Failure;

/// Writes data, with a line end, to standard output at once.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}

/// Writes a value as JSON in lines to standard output.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    data(&text.map_err(|error| Failure::Run(error.to_string()))?)
}

/// Writes a message to standard error. Nobody is left to be told where that fails.
pub(crate) fn message(text: &str) {
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "{text}").ok();
}

/// Shows the library's warnings on standard error.
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
    // There is one logger a process, and this is the first.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}
