//! Arguments of the commands that start the processes of a cluster.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::access_args::{SCHEDULER, SecurityArgs, TlsArgs};
use super::units::parse_bytes;

/// Format of the log on standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    #[default]
    Text,
    /// One JSON object for each record
    Json,
}

/// Log of a process of a cluster.
#[derive(Debug, Default, Clone, Copy, ClapArgs)]
pub(crate) struct LogArgs {
    /// Format of the log on standard error. The variable FOREBAY_LOG holds a filter, such as
    /// forebay=debug; `forebay=info` by default
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SchedulerArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR", default_value = SCHEDULER)]
    pub(crate) listen: SocketAddr,
    /// Host name under which workers reach the scheduler, if it is not that of --listen
    #[arg(long, value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkerArgs {
    /// Host and port of the scheduler, which may start later than the worker
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) scheduler: String,
    /// Address and port to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Host name under which the scheduler and clients reach the worker, if it is not that of
    /// --listen
    #[arg(long, value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// Number of leases that are computed at the same time; one for each core by default
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<NonZeroUsize>,
    /// Number of computing threads of each pipeline; by default, all pipelines share one thread for
    /// each core
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Memory limit of each pipeline, such as 4GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Read data from the folder NEW if the client names the folder OLD; may be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_root)]
    pub(crate) data: Vec<(String, String)>,
    /// Address and port of /healthz, /readyz and /metrics over HTTP; port 0 is any free port. They
    /// are not served by default
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Python functions on a worker.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct PythonArgs {
    /// Run the Python functions of pipelines, whose code clients send: on an address that other
    /// machines reach, this needs --tls-ca. Start the worker by `python -m forebay worker`, or name
    /// its interpreter with --python
    #[arg(long)]
    pub(crate) allow_python: bool,
    /// Python interpreter that has the package forebay. Also FOREBAY_PYTHON
    #[arg(long, value_name = "FILE", requires = "allow_python")]
    pub(crate) python: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ClusterArgs {
    /// Number of worker processes
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) workers: NonZeroUsize,
    /// Port of the scheduler; 0 is any free port
    #[arg(long, value_name = "PORT", default_value_t = 7100)]
    pub(crate) port: u16,
    /// Number of computing threads of each worker; one for each core by default
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Memory limit of each pipeline on each worker, such as 4GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory_limit: Option<u64>,
    #[command(flatten)]
    pub(crate) python: PythonArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Parses `OLD=NEW`.
fn parse_root(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err("expected OLD=NEW, such as /mnt/photos=/data/photos".to_owned()),
    }
}
