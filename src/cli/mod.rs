//! The command line: a thin layer over the library.
//!
//! Data goes to standard output, messages to standard error. The exit code is 0 where all went well
//! (a reader that closed its pipe included), 1 where data cannot be read or a run failed, 2 where the
//! command line or the SQL is at fault, and 130 after Ctrl-C.

mod args;
mod cache;
mod costs;
mod demo;
mod explain;
mod failure;
mod functions;
mod generate;
mod input;
mod out;
mod output;
mod plan;
mod preview;
mod progress;
mod run;
mod schema;
mod script;
mod shell;
mod statements;
mod table;
mod token;
mod units;
mod which;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use args::{Args, Command};
use failure::Failure;

/// How long a command may take to wind up after Ctrl-C before the process ends regardless.
const GRACE: Duration = Duration::from_millis(400);
/// The exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

/// Runs the command line of this process.
pub(crate) fn main() -> ExitCode {
    let started = Instant::now();
    silence_caught_panics();
    output::show_warnings();
    let args = Args::parse();
    match execute(args, started) {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => {
            output::message("interrupted");
            ExitCode::from(INTERRUPTED)
        }
        Err(failure) => {
            output::message(&format!("error: {failure}"));
            ExitCode::from(if failure.is_user() { 2 } else { 1 })
        }
    }
}

/// A decoder that panics on a damaged file gives that row an error, which is reported as one; the
/// panic's own message would only be noise.
fn silence_caught_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !forebay_udfs::image::panics_are_caught() {
            report(panic);
        }
    }));
}

fn execute(args: Args, started: Instant) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let quiet = args.quiet;
    let result = match args.command {
        // The shell has an answer of its own to Ctrl-C.
        Command::Sql(args) if shell::is_interactive(&args) => {
            runtime.block_on(Box::pin(shell::run_shell()))
        }
        Command::Sql(args) => interruptible(&runtime, shell::run_script(args)),
        Command::Run(args) => interruptible(&runtime, run::execute(args, quiet, started)),
        Command::Explain(args) => interruptible(&runtime, explain::execute(args)),
        Command::Plan(args) => interruptible(&runtime, plan::execute(args)),
        Command::Token(args) => token::execute(&args),
        Command::Which(args) => interruptible(&runtime, which::execute(args)),
        Command::Replay(args) => interruptible(&runtime, run::replay(args, quiet, started)),
        Command::Preview(args) => interruptible(&runtime, preview::execute(args)),
        Command::Schema(args) => interruptible(&runtime, schema::execute(args)),
        Command::Functions(args) => functions::execute(&args),
        Command::Cache(args) => interruptible(&runtime, cache::execute(args)),
        Command::Calibrate(args) => interruptible(&runtime, costs::execute(args, quiet)),
        Command::Generate(args) => interruptible(&runtime, generate::execute(args, quiet)),
        Command::Demo(args) => interruptible(&runtime, demo::execute(args, quiet, started)),
    };
    // Work that was abandoned must not hold up the exit.
    runtime.shutdown_background();
    result
}

/// Runs a command until it ends or Ctrl-C is pressed, whichever comes first.
fn interruptible(
    runtime: &tokio::runtime::Runtime,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut command: Pin<Box<_>> = Box::pin(command);
    let (sender, mut interrupted) = tokio::sync::oneshot::channel();
    // A task of its own: it ends the process even where the command's thread is busy computing.
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            sender.send(()).ok();
            tokio::time::sleep(GRACE).await;
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    runtime.block_on(async {
        tokio::select! {
            biased;
            Ok(()) = &mut interrupted => Err(Failure::Interrupted),
            result = &mut command => result,
        }
    })
}
