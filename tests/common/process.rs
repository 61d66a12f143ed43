//! Processes of the command line that listen on an address.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A process that is killed when the test ends.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// The address that the process listens on.
    pub(crate) address: String,
    /// Open end of the pipe that the process writes its messages to.
    _messages: Lines<BufReader<ChildStderr>>,
}

impl Process {
    /// Starts a process, and waits until it says which address it listens on.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = |line: std::io::Result<String>| {
            let line = line.unwrap();
            line.split_once("listens on ").map(|(_, at)| at.to_owned())
        };
        let address = lines.by_ref().find_map(listens).unwrap();
        Self {
            child,
            address,
            _messages: lines,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have been killed already; one that is stopped ends, too.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}
