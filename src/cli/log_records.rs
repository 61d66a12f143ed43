//! The log of a cluster's process on standard error, as text or JSON.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use super::cluster_args::{LogArgs, LogFormat};
use super::console;
use super::failure::CommandFailure;

/// Environment variable with a filter of log records, in the syntax of `tracing`.
const FILTER: &str = "FOREBAY_LOG";

/// Filter if the variable is not set. It matches all crates of the project.
const DEFAULT_FILTER: &str = "forebay=info";

/// Shows log records from now on.
pub(crate) fn show(args: LogArgs) -> Result<(), CommandFailure> {
    let filter = std::env::var(FILTER).unwrap_or_default();
    let filter = Some(filter.as_str()).filter(|filter| !filter.is_empty());
    let filter = EnvFilter::try_new(filter.unwrap_or(DEFAULT_FILTER)).map_err(|error| {
        CommandFailure::Usage(format!(
            "{FILTER} is not a filter of log records: {error}; expected one such as {DEFAULT_FILTER}"
        ))
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let shown = match args.log_format {
        LogFormat::Text => log.finish().try_init(),
        LogFormat::Json => log.json().flatten_event(true).finish().try_init(),
    };
    shown.map_err(|error| CommandFailure::Run(error.to_string()))
}

/// Shows a message that users wait for, whatever the filter: as it is in a log of text, else as a
/// record.
pub(crate) fn announce(args: LogArgs, message: &str) {
    match args.log_format {
        LogFormat::Text => console::message(message),
        LogFormat::Json => log::info!("{message}"),
    }
}
