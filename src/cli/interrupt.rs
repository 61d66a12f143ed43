//! Signals that end a command, and what it owes when it ends early.
//!
//! The first SIGINT (Ctrl-C), SIGTERM or SIGHUP has the command wind up: it is dropped, which removes files that it
//! did not finish, and its resume token is written. It gets [`GRACE`] for that; a second signal ends the process at
//! once. The exit code is 128 and the number of the signal, as shells have it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::Token;
use forebay_runtime::output_file::abandon_all;
use tokio::sync::oneshot;

use super::failure::Failure;
use super::token;

/// How long a command may take to wind up before the process ends regardless.
const GRACE: Duration = Duration::from_millis(400);

/// What is still to be done when a command ends, however it ends.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    token: Mutex<Option<(PathBuf, Token)>>,
    folder: Mutex<Option<PathBuf>>,
}

impl Ending {
    /// Has this token written to a file, instead of one before it.
    pub(crate) fn save(&self, path: &Path, token: Token) {
        let mut held = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some((path.to_path_buf(), token));
    }

    /// Has a folder removed where the process ends before its owner could.
    pub(crate) fn remove(&self, folder: &Path) {
        let mut held = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(folder.to_path_buf());
    }

    /// Writes the token, once. Whoever comes second waits until it is written.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let mut held = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            Some((path, token)) => token::write(&path, &token),
            None => Ok(()),
        }
    }

    /// Ends the process at once, without files that are not whole.
    fn end(&self, signal: u8) -> ! {
        abandon_all();
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*folder {
            // Nobody is left to be told.
            std::fs::remove_dir_all(folder).ok();
        }
        std::process::exit(i32::from(exit_code(signal)));
    }
}

/// The exit code after a signal.
pub(crate) const fn exit_code(signal: u8) -> u8 {
    128 + signal
}

/// Runs a command until it ends or a signal comes, whichever is first.
pub(crate) fn interruptible(
    runtime: &tokio::runtime::Runtime,
    ending: &Arc<Ending>,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut command: Pin<Box<_>> = Box::pin(command);
    let (sender, mut signalled) = oneshot::channel();
    watch(sender, Arc::clone(ending))?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            Ok(signal) = &mut signalled => Err(Failure::Signalled(signal)),
            result = &mut command => result,
        }
    });
    // Before the token: what a command did not finish is gone then.
    drop(command);
    match (result, ending.write()) {
        (Ok(()), written) => written,
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(unwritten)) => {
            super::output::message(&format!("error: {unwritten}"));
            Err(failure)
        }
    }
}

/// Waits for signals on a thread of its own: those of the command may all be computing.
fn watch(sender: oneshot::Sender<u8>, ending: Arc<Ending>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    let watched = move || {
        runtime.block_on(async move {
            let mut signals = signals;
            let first = signals.next().await;
            // The command may have ended in the meantime; the process does so then.
            sender.send(first).ok();
            tokio::select! {
                () = tokio::time::sleep(GRACE) => {
                    // Nobody is left to be told.
                    ending.write().ok();
                    ending.end(first)
                }
                second = signals.next() => ending.end(second),
            }
        })
    };
    let thread = std::thread::Builder::new().name("forebay-signals".to_owned());
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing waits for an outcome of it but the process"
    )]
    let _watching = thread.spawn(watched)?;
    Ok(())
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// Absent where the process was started to ignore it, as `nohup` does.
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let hangup = match ignores(SignalKind::hangup()) {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// The number of the next signal.
    async fn next(&mut self) -> u8 {
        const INTERRUPT: u8 = 2;
        const TERMINATE: u8 = 15;
        const HANGUP: u8 = 1;
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPT,
            _ = self.terminate.recv() => TERMINATE,
            _ = hangup => HANGUP,
        }
    }
}

/// Whether this process was started to ignore a signal, as far as the system tells.
#[cfg(unix)]
fn ignores(signal: tokio::signal::unix::SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (signal.as_raw_value() - 1)) & 1 == 1)
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    /// The number of the next signal.
    async fn next(&mut self) -> u8 {
        const INTERRUPT: u8 = 2;
        match tokio::signal::ctrl_c().await {
            Ok(()) => INTERRUPT,
            // Without Ctrl-C there is nothing to wait for.
            Err(_) => std::future::pending().await,
        }
    }
}
