//! A worker process of a Python function, and the pipes to it.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::udf_frame as frame;

/// Time that a worker process has to end by itself when it is no longer needed. After this time,
/// the process is killed.
const GRACE: Duration = Duration::from_secs(1);
/// Interval between two checks of whether a worker process has ended.
const ASK: Duration = Duration::from_millis(2);

/// The command that starts a worker process, and the function to send to it.
#[derive(Debug, Clone)]
pub(crate) struct Spawn {
    /// The interpreter, followed by its arguments.
    pub(crate) command: Vec<OsString>,
    /// The pickled function.
    pub(crate) payload: Vec<u8>,
}

/// This process's ends of the pipes to a worker.
#[derive(Debug)]
pub(crate) struct Pipes {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// A worker process. Its parent, this process, always waits for the worker's end, so that the
/// worker does not remain as a zombie.
#[derive(Debug)]
pub(crate) struct Process {
    /// Id of the process.
    pub(crate) id: u32,
    child: Mutex<Child>,
}

/// Starts a process: a new interpreter, never a fork of this one.
pub(crate) fn start(spawn: &Spawn) -> io::Result<(Process, Pipes)> {
    let mut command = Command::new(&spawn.command[0]);
    command.args(&spawn.command[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // A worker in a separate process group does not receive Ctrl-C. This process ends the worker
    // instead.
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
            },
        )),
        None => {
            process.kill();
            Err(io::Error::other("it has no pipes"))
        }
    }
}

impl Pipes {
    /// Waits until the worker has sent its greeting. After the greeting, the worker reads and
    /// writes frames.
    pub(crate) fn greeted(&mut self) -> io::Result<()> {
        frame::greeted(&mut self.from)
    }

    /// Sends a frame and waits for the answer: the bytes of a result, or the message of a
    /// [`Fault`](crate::udf::Fault).
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
