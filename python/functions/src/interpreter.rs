//! The interpreter of a worker.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::code::PickleVersions;

/// The release of this build, which the interpreter's package must have, because both speak over
/// pipes.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The program that an interpreter runs to answer requests.
const SERVE: &str = "from forebay._worker import main; main()";

/// The program that an interpreter runs to tell its versions.
const PROBE: &str = "from forebay._worker import probe; probe()";

/// Beginning of the line with an interpreter's versions.
const MARK: &str = "forebay-versions ";

/// A Python interpreter with the package `forebay`.
#[derive(Debug, Clone)]
pub struct Interpreter {
    program: OsString,
    versions: PickleVersions,
}

/// The reason why an interpreter cannot run functions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterpreterError {
    /// The interpreter does not start.
    #[error("cannot start the Python interpreter {program}: {cause}")]
    Start {
        /// The interpreter.
        program: String,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The interpreter does not have the package, or the package does not work.
    #[error(
        "the Python interpreter {program} cannot run functions: {cause}; install what is missing with \
         `{program} -m pip install 'forebay[udf]'`"
    )]
    Unfit {
        /// The interpreter.
        program: String,
        /// The last line that it printed.
        cause: String,
    },
    /// The package is of another release.
    #[error(
        "this is forebay {RELEASE}, and the Python interpreter {program} has forebay {found}; install the same release"
    )]
    Release {
        /// The interpreter.
        program: String,
        /// Release of its package.
        found: String,
    },
}

/// Versions of an interpreter and its packages, as [`PROBE`] prints them.
#[derive(Debug, Deserialize)]
struct Probe {
    forebay: String,
    python: String,
    cloudpickle: String,
}

impl Interpreter {
    /// Creates the interpreter `program`, whose package `forebay` has the release of this build, and
    /// whose versions are known.
    pub fn of(program: impl Into<OsString>, versions: PickleVersions) -> Self {
        Self {
            program: program.into(),
            versions,
        }
    }

    /// Asks the interpreter `program` for its versions.
    ///
    /// # Errors
    /// Fails if it does not start, if it lacks a package, or if its package `forebay` has another
    /// release than this build.
    pub fn probe(program: impl Into<OsString>) -> Result<Self, InterpreterError> {
        let program = program.into();
        let name = program.to_string_lossy().into_owned();
        let mut command = Command::new(&program);
        command.args(["-c", PROBE]).stdin(Stdio::null());
        let output = command.output().map_err(|cause| InterpreterError::Start {
            program: name.clone(),
            cause,
        })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        let answer = said.lines().find_map(|line| line.strip_prefix(MARK));
        let Some(probe) = answer.and_then(|json| serde_json::from_str::<Probe>(json).ok()) else {
            let last = complained
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty());
            return Err(InterpreterError::Unfit {
                program: name,
                cause: last.unwrap_or("it printed nothing").trim().to_owned(),
            });
        };
        if probe.forebay != RELEASE {
            return Err(InterpreterError::Release {
                program: name,
                found: probe.forebay,
            });
        }
        Ok(Self {
            program,
            versions: PickleVersions {
                python: probe.python,
                cloudpickle: probe.cloudpickle,
            },
        })
    }

    /// Returns the command of a process that computes a function.
    pub(crate) fn command(&self) -> Vec<OsString> {
        vec![self.program.clone(), "-c".into(), SERVE.into()]
    }

    /// Fails if the interpreter cannot unpickle what a process of other versions pickled, with the
    /// reason.
    pub(crate) fn check(&self, sent: &PickleVersions) -> Result<(), String> {
        let own = &self.versions;
        for (what, sent, own) in [
            ("Python", &sent.python, &own.python),
            ("cloudpickle", &sent.cloudpickle, &own.cloudpickle),
        ] {
            if sent != own {
                return Err(format!(
                    "the client has {what} {sent}, and the worker has {what} {own}; functions travel only \
                     between equal versions"
                ));
            }
        }
        Ok(())
    }
}
