//! The command line: a thin layer over the library.
//!
//! Data goes to standard output, messages to standard error. The exit code is 0 on success (also if
//! the reader of the output closes the pipe), 1 if data cannot be read or a run fails, 2 if the
//! command line or the SQL is at fault, and 128 + n if signal n ended the command: 130 after
//! Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

#[cfg(feature = "cluster-client")]
mod access_args;
mod args;
mod cache;
mod calibrate;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_args;
mod console;
mod demo;
mod explain;
mod export;
mod failure;
mod functions;
mod generate;
mod input;
mod interrupt;
#[cfg(feature = "cluster")]
mod log_records;
mod plan;
mod preview;
mod progress;
#[cfg(feature = "cluster")]
mod python;
mod run;
mod schema;
mod script;
mod session;
mod shell;
mod statements;
#[cfg(feature = "cluster-client")]
mod status;
mod table;
mod token;
mod units;
mod which;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;

use args::{Args, Command};
use failure::CommandFailure;
use forebay_runtime::output_file::abandon_all;
use interrupt::{Ending, exit_code, interruptible};

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let started = Instant::now();
    silence_caught_panics();
    let args = Args::parse();
    let result = show_log(&args.command).and_then(|()| execute(args, started));
    // Threads that the command abandoned may still be writing: their unfinished files are removed.
    abandon_all();
    match result {
        Ok(()) | Err(CommandFailure::BrokenPipe) => ExitCode::SUCCESS,
        Err(CommandFailure::Signalled(signal)) => {
            console::message(&CommandFailure::Signalled(signal).to_string());
            ExitCode::from(exit_code(signal))
        }
        Err(failure) => {
            console::message(&format!("error: {failure}"));
            ExitCode::from(if failure.is_user() { 2 } else { 1 })
        }
    }
}

/// Silences the printed reports of panics in image decoders. If a decoder panics on a damaged file,
/// the row of this file fails, and the panic is reported as the row's error.
fn silence_caught_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !forebay_udfs::image::panics_are_caught() {
            report(panic);
        }
    }));
}

/// Shows the log records of the library on standard error: all of them in a process of a cluster,
/// and warnings in other commands.
fn show_log(command: &Command) -> Result<(), CommandFailure> {
    #[cfg(feature = "cluster")]
    match command {
        Command::Scheduler(args) => return log_records::show(args.log),
        Command::Worker(args) => return log_records::show(args.log),
        Command::Cluster(args) => return log_records::show(args.log),
        _ => {}
    }
    let _ = command;
    console::show_warnings();
    Ok(())
}

fn execute(args: Args, started: Instant) -> Result<(), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let quiet = args.quiet;
    let ending = Arc::new(Ending::default());
    let end = &ending;
    let result = match args.command {
        // The shell handles Ctrl-C by itself.
        Command::Sql(args) if shell::is_interactive(&args) => {
            runtime.block_on(Box::pin(shell::run_shell(args)))
        }
        Command::Sql(args) => interruptible(&runtime, end, shell::run_script(args)),
        Command::Run(args) => interruptible(&runtime, end, run::execute(args, end, quiet, started)),
        Command::Explain(args) => interruptible(&runtime, end, explain::execute(args)),
        Command::Plan(args) => interruptible(&runtime, end, plan::execute(args)),
        Command::Token(args) => token::execute(&args),
        Command::Which(args) => interruptible(&runtime, end, which::execute(args)),
        Command::Replay(args) => interruptible(&runtime, end, run::replay(args, quiet, started)),
        Command::Preview(args) => interruptible(&runtime, end, preview::execute(args)),
        Command::Schema(args) => interruptible(&runtime, end, schema::execute(args)),
        Command::Functions(args) => functions::execute(&args),
        Command::Cache(args) => interruptible(&runtime, end, cache::execute(args)),
        Command::Calibrate(args) => {
            interruptible(&runtime, end, calibrate::execute(args, end, quiet))
        }
        Command::Generate(args) => interruptible(&runtime, end, generate::execute(args, quiet)),
        #[cfg(feature = "cluster")]
        Command::Scheduler(args) => interruptible(&runtime, end, cluster::scheduler(args)),
        #[cfg(feature = "cluster")]
        Command::Worker(args) => interruptible(&runtime, end, cluster::worker(args)),
        #[cfg(feature = "cluster")]
        Command::Cluster(args) => interruptible(&runtime, end, cluster::cluster(args)),
        #[cfg(feature = "cluster-client")]
        Command::Status(args) => interruptible(&runtime, end, status::execute(args)),
        Command::Demo(args) => interruptible(&runtime, end, demo::execute(args, quiet, started)),
    };
    // Work that the command abandoned must not delay the exit.
    runtime.shutdown_background();
    result
}
