//! A process that computes a Python function, and the pipes to it.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::frame;
use crate::printed::PrintedFile;

/// Time that a process has to end by itself when it is no longer needed. After this time, the
/// process is killed.
const GRACE: Duration = Duration::from_secs(1);
/// Interval between two checks of whether a process has ended.
const ASK: Duration = Duration::from_millis(2);
/// Environment variable with the secret of a cluster, which functions have no business with.
const SECRET: &str = "FOREBAY_CLUSTER_TOKEN";

/// This process's ends of the pipes to a process.
#[derive(Debug)]
pub(crate) struct Pipes {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    printed: Option<PrintedFile>,
}

/// A process that computes a function. Its parent, this process, always waits for its end, so that
/// it does not remain as a zombie.
#[derive(Debug)]
pub(crate) struct Process {
    /// Id of the process.
    pub(crate) id: u32,
    child: Mutex<Child>,
}

/// Starts a process: a new interpreter, never a fork of this process. With `is_caught`, what it prints
/// is taken by [`Pipes::printed`].
pub(crate) fn start(command: &[OsString], is_caught: bool) -> io::Result<(Process, Pipes)> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::other("it has no command"));
    };
    let printed = is_caught.then(PrintedFile::create).transpose()?;
    let mut command = Command::new(program);
    command.args(arguments).env_remove(SECRET);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(printed) = &printed {
        command.stderr(printed.writer()?);
    }
    // A process in a separate process group does not receive Ctrl-C. This process ends it instead.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let process = Process {
        id: child.id(),
        child: Mutex::new(child),
    };
    match pipes {
        Some((to, from)) => Ok((
            process,
            Pipes {
                to,
                from: BufReader::new(from),
                printed,
            },
        )),
        None => {
            process.kill();
            Err(io::Error::other("it has no pipes"))
        }
    }
}

impl Pipes {
    /// Waits until the process has sent its greeting. After the greeting, the process reads and
    /// writes frames.
    pub(crate) fn greeted(&mut self) -> io::Result<()> {
        frame::greeted(&mut self.from)
    }

    /// Sends a frame and waits for the answer: the bytes of a result, or the message of an error
    /// that does not belong to a row.
    pub(crate) fn ask(&mut self, request: &[u8]) -> io::Result<Result<Vec<u8>, String>> {
        frame::write(&mut self.to, request)?;
        let mut answer = frame::read(&mut self.from)?;
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(match answer.remove(0) {
            0 => Ok(answer),
            _ => Err(String::from_utf8_lossy(&answer).into_owned()),
        })
    }

    /// Takes the text that the process has printed since the last call; empty if it is not caught.
    pub(crate) fn printed(&mut self) -> String {
        let printed = self.printed.as_mut().map(PrintedFile::take);
        printed.transpose().ok().flatten().unwrap_or_default()
    }
}

impl Process {
    fn with_child<T>(&self, act: impl FnOnce(&mut Child) -> T) -> T {
        act(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if the process has ended already.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.with_child(Child::try_wait), Ok(Some(_)))
    }

    /// Waits up to [`GRACE`] for the process to end, and then kills it. Returns `None` if the exit
    /// status is unknown.
    pub(crate) fn end(&self) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            if let Ok(Some(status)) = self.with_child(Child::try_wait) {
                return Some(status);
            }
            sleep(ASK);
        }
        self.kill()
    }

    /// Kills the process at once. Returns `None` if the exit status is unknown.
    pub(crate) fn kill(&self) -> Option<ExitStatus> {
        self.with_child(|child| {
            // Killing fails if the process has ended already.
            let _ = child.kill();
            child.wait().ok()
        })
    }
}

/// Describes the exit status of a process.
pub(crate) fn ending(status: Option<ExitStatus>) -> String {
    #[cfg(unix)]
    if let Some(signal) = status.and_then(|s| std::os::unix::process::ExitStatusExt::signal(&s)) {
        let known = match signal {
            4 => " (SIGILL: an instruction that this processor does not have)",
            6 => " (SIGABRT: the process aborted itself)",
            7 => " (SIGBUS: often a full /dev/shm)",
            8 => " (SIGFPE)",
            9 => " (SIGKILL: often sent by the system when memory runs out)",
            11 => " (SIGSEGV: a fault in native code)",
            15 => " (SIGTERM)",
            _ => "",
        };
        return format!("was killed by signal {signal}{known}");
    }
    match status.and_then(|status| status.code()) {
        Some(code) => format!("ended with exit code {code}"),
        None => "ended".to_owned(),
    }
}
