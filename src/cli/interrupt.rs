//! Signals that end a command, and the work to be done before the process ends.
//!
//! On the first SIGINT (Ctrl-C), SIGTERM or SIGHUP, the command's future is dropped, which removes
//! the command's unfinished files. Then the resume token is written. If this takes longer than
//! [`GRACE`], the thread that waits for signals writes the token and ends the process. A second
//! signal ends the process at once. The exit code is 128 plus the signal's number, as in shells.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::Token;
use forebay_runtime::output_file::abandon_all;
use tokio::sync::oneshot;

use super::failure::CommandFailure;
use super::{console, export};

/// Time that a command has to clean up after a signal. After this time, the process is ended.
const GRACE: Duration = Duration::from_millis(400);

/// Work to do when a command ends, whether it succeeds, fails or is interrupted.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    token: Mutex<Option<(PathBuf, Token)>>,
    folder: Mutex<Option<PathBuf>>,
}

impl Ending {
    /// Sets the token to write to `path`, replacing the token of an earlier call.
    pub(crate) fn save(&self, path: &Path, token: Token) {
        let mut held = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some((path.to_path_buf(), token));
    }

    /// Sets the folder to remove if a signal ends the process before the command can remove the
    /// folder.
    pub(crate) fn remove(&self, folder: &Path) {
        let mut held = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(folder.to_path_buf());
    }

    /// Writes the token of [`save`](Self::save), unless no token was set or the token is already
    /// written. A concurrent second call waits until the token is written.
    pub(crate) fn write(&self) -> Result<(), CommandFailure> {
        let mut held = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            Some((path, token)) => export::token(&path, &token),
            None => Ok(()),
        }
    }

    /// Removes unfinished files, and ends the process at once.
    fn end(&self, signal: u8) -> ! {
        abandon_all();
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &*folder {
            // An error is ignored, since the process is ending.
            std::fs::remove_dir_all(folder).ok();
        }
        std::process::exit(i32::from(exit_code(signal)));
    }
}

/// Returns the exit code for a signal.
pub(crate) const fn exit_code(signal: u8) -> u8 {
    128 + signal
}

/// Runs `command` until the command ends or a signal arrives, whichever comes first.
pub(crate) fn interruptible(
    runtime: &tokio::runtime::Runtime,
    ending: &Arc<Ending>,
    command: impl Future<Output = Result<(), CommandFailure>>,
) -> Result<(), CommandFailure> {
    let mut command: Pin<Box<_>> = Box::pin(command);
    let (sender, mut signalled) = oneshot::channel();
    watch(sender, Arc::clone(ending))?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            Ok(signal) = &mut signalled => Err(CommandFailure::Signalled(signal)),
            result = &mut command => result,
        }
    });
    // After `GRACE`, files are removed while the command may still compute, so an error after a
    // signal is a consequence of the signal.
    let result = result.map_err(|failure| match signalled.try_recv() {
        Ok(signal) => CommandFailure::Signalled(signal),
        Err(_) => failure,
    });
    // The command's future is dropped before the token is written, which removes the command's
    // unfinished files.
    drop(command);
    match (result, ending.write()) {
        (Ok(()), written) => written,
        (Err(failure), Ok(())) => Err(failure),
        (Err(failure), Err(unwritten)) => {
            console::message(&format!("error: {unwritten}"));
            Err(failure)
        }
    }
}

/// Waits for signals on a separate thread, since all of the command's threads may be computing.
fn watch(sender: oneshot::Sender<u8>, ending: Arc<Ending>) -> Result<(), CommandFailure> {
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
            // Sending fails if the command has ended in the meantime. In this case, the process is
            // ending already.
            sender.send(first).ok();
            tokio::select! {
                () = tokio::time::sleep(GRACE) => {
                    // An error is ignored, since the process is ending.
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
        reason = "the thread has no result to wait for, and lives as long as the process"
    )]
    let _watching = thread.spawn(watched)?;
    Ok(())
}

/// Receiver of the signals that end a command.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// Receiver of SIGHUP; `None` if the process was started with SIGHUP ignored, as `nohup` does.
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let hangup = if ignores(SignalKind::hangup()) {
            None
        } else {
            Some(signal(SignalKind::hangup())?)
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup,
        })
    }

    /// Waits for the next signal and returns its number.
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

/// True if the process was started with `signal` ignored. False if the system does not report this.
#[cfg(unix)]
fn ignores(signal: tokio::signal::unix::SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (signal.as_raw_value() - 1)) & 1 == 1)
}

#[cfg(not(unix))]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next signal and returns its number.
    async fn next(&mut self) -> u8 {
        const INTERRUPT: u8 = 2;
        match tokio::signal::ctrl_c().await {
            Ok(()) => INTERRUPT,
            // Ctrl-C cannot be watched, so there is no signal to wait for.
            Err(_) => std::future::pending().await,
        }
    }
}
