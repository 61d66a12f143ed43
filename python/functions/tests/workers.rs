//! Functions on a worker, computed by a stand-in for Python: this test's own executable, which speaks
//! the frames of `python/forebay/_worker.py` and takes a program for a pickled function.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use forebay_python_functions::code::{FunctionCode, PickleVersions};
use forebay_python_functions::interpreter::InterpreterError;
use forebay_python_functions::{Declaration, Interpreter, WorkerFunctions, frame};
use forebay_udfs::{DeclaredFunction, FunctionFault, HostFunctions, RowFailure};

/// Environment variable of the processes that compute.
const SERVE: &str = "FOREBAY_TEST_SERVE";

/// The programs that [`serve`] knows.
const DOUBLE: &str = "double";
const BROKEN: &str = "broken";

/// Computes as a process of a function does. In the test's own run, it does nothing.
#[test]
fn serve() {
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    let (mut from, mut to) = (io::stdin().lock(), io::stdout());
    to.write_all(b"noise\n\0forebay-worker\n").unwrap();
    let program = String::from_utf8(frame::read(&mut from).unwrap()).unwrap();
    if program == BROKEN {
        frame::write(&mut to, b"\x01no model here").unwrap();
        std::process::exit(0);
    }
    frame::write(&mut to, b"\0").unwrap();
    let value: Arc<Field> = value().into();
    while let Ok(request) = frame::read(&mut from) {
        let rows = frame::decode(&request).unwrap();
        let numbers = rows.column(0).as_primitive::<Int64Type>();
        eprintln!("{} rows", numbers.len());
        if let Some(once) = program.strip_prefix("dies once:") {
            // Only one process finds the file.
            if std::fs::remove_file(once).is_ok() {
                std::process::abort();
            }
        } else if program == "dies" {
            std::process::abort();
        }
        let values: Int64Array = numbers.iter().map(|n| n.map(|n| n * 2)).collect();
        let failed = numbers.iter().position(|n| n == Some(7));
        let failed = failed.map(|row| RowFailure {
            row,
            operator: "lab.double".to_owned(),
            cause: "ValueError: it is seven".to_owned(),
        });
        let answer = (Arc::new(values) as ArrayRef, failed.into_iter().collect());
        let bytes = frame::encode_answer(&value, answer).unwrap();
        frame::write(&mut to, &[&[0], &bytes[..]].concat()).unwrap();
    }
    std::process::exit(0);
}

fn value() -> Field {
    Field::new("twice", DataType::Int64, true)
}

/// Returns a program that starts like an interpreter: it tells its versions, and serves. It is written
/// before any test starts a process, which could inherit the open file and keep the program from
/// starting.
fn stand_in() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let versions = r#"{"forebay": "VERSION", "python": "3.12", "cloudpickle": "3.1"}"#
            .replace("VERSION", env!("CARGO_PKG_VERSION"));
        let test = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\ncase \"$2\" in *probe*) echo hello; echo 'forebay-versions {versions}';; \
             *) {SERVE}=1 exec '{}' --exact serve --nocapture --test-threads 1;; esac\n",
            test.display()
        );
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (path, new) = (
            folder.join("stand-in.sh"),
            tempfile::NamedTempFile::new_in(folder).unwrap(),
        );
        std::fs::write(&new, script).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        new.persist(&path).unwrap();
        path
    })
}

fn worker() -> WorkerFunctions {
    WorkerFunctions::new(Interpreter::probe(stand_in()).unwrap())
}

fn code(program: &str, processes: usize) -> FunctionCode {
    FunctionCode {
        versions: PickleVersions {
            python: "3.12".to_owned(),
            cloudpickle: "3.1".to_owned(),
        },
        declaration: Declaration {
            name: "lab.double".to_owned(),
            version: 1,
            deterministic: true,
            ns_per_row: None,
            arity: Some(1),
            value: value(),
            rows: Some(3),
            processes: Some(processes),
        },
        pickled: program.as_bytes().to_vec(),
    }
}

fn sent(worker: &WorkerFunctions, program: &str, processes: usize) -> Arc<dyn DeclaredFunction> {
    worker
        .decode(&code(program, processes).encode().unwrap())
        .unwrap()
}

fn called(function: &Arc<dyn DeclaredFunction>, count: i64) -> Result<(ArrayRef, Vec<RowFailure>)> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    function.invoke_rows(ScalarFunctionArgs {
        args: vec![ColumnarValue::Array(numbers)],
        arg_fields: vec![Field::new("n", DataType::Int64, true).into()],
        number_rows: usize::try_from(count).unwrap(),
        return_field: value().into(),
        config_options: Arc::new(ConfigOptions::default()),
    })
}

fn fault(error: &DataFusionError) -> &FunctionFault {
    match error.find_root() {
        DataFusionError::External(source) => source.downcast_ref().unwrap(),
        other => panic!("{other}"),
    }
}

fn doubled(count: i64) -> Int64Array {
    (0..count).map(|n| n * 2).collect()
}

#[test]
fn a_function_is_computed_in_the_order_of_its_rows() {
    let worker = worker();
    let function = sent(&worker, DOUBLE, 3);
    let (values, failed) = called(&function, 20).unwrap();
    assert_eq!(values.as_primitive::<Int64Type>(), &doubled(20));
    let [failure] = failed.as_slice() else {
        panic!("{failed:?}");
    };
    assert_eq!((failure.row, failure.operator.as_str()), (7, "lab.double"));
    assert_eq!(failure.cause, "ValueError: it is seven");
    assert_eq!(called(&function, 0).unwrap().0.len(), 0);
    // All that it printed has arrived, once.
    let printed = function.take_printed();
    assert_eq!(printed.matches("3 rows").count(), 6, "{printed}");
    assert_eq!(printed.matches("2 rows").count(), 1, "{printed}");
    assert_eq!(function.take_printed(), "");
    assert_eq!(worker.events(), Vec::<String>::new());
    assert!(function.code().unwrap_err().contains("another process"));
}

#[test]
fn another_process_computes_the_rows_of_a_lost_one() {
    let worker = worker();
    let folder = tempfile::tempdir().unwrap();
    let once = folder.path().join("once");
    std::fs::write(&once, "").unwrap();
    let function = sent(&worker, &format!("dies once:{}", once.display()), 2);
    let (values, _) = called(&function, 20).unwrap();
    assert_eq!(values.as_primitive::<Int64Type>(), &doubled(20));
    assert!(!once.exists());
    let events = worker.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("lab.double: its worker process")
            && events[0].contains("was killed by signal 6")
            && events[0].ends_with("another process computes its rows again"),
        "{events:?}"
    );
}

#[test]
fn processes_that_ended_for_want_of_rows_start_again() {
    let function = sent(&worker().with_idle(Duration::ZERO), DOUBLE, 2);
    for count in 1..20 {
        let (values, _) = called(&function, count).unwrap();
        assert_eq!(values.as_primitive::<Int64Type>(), &doubled(count));
    }
}

#[test]
fn rows_that_end_three_processes_end_the_run() {
    let worker = worker();
    let function = sent(&worker, "dies", 1);
    let error = called(&function, 3).unwrap_err();
    let fault = fault(&error);
    assert!(fault.message.contains("was killed by signal 6"), "{fault}");
    // They would end the processes of any machine.
    assert!(!fault.is_of_machine);
    let events = worker.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[2].contains("not computed again"), "{events:?}");
}

#[test]
fn a_set_up_that_fails_is_the_machines_fault() {
    let function = sent(&worker(), BROKEN, 2);
    let error = called(&function, 9).unwrap_err();
    let fault = fault(&error);
    assert_eq!(fault.to_string(), "lab.double: no model here");
    assert!(fault.is_of_machine);
}

#[test]
fn code_of_other_versions_is_refused() {
    let worker = worker();
    let refusal = |change: &dyn Fn(&mut FunctionCode)| {
        let mut code = code(DOUBLE, 1);
        change(&mut code);
        worker.decode(&code.encode().unwrap()).unwrap_err()
    };
    let python = refusal(&|code| code.versions.python = "3.9".to_owned());
    assert!(
        python.starts_with("the client has Python 3.9, and the worker has Python 3.12"),
        "{python}"
    );
    let cloudpickle = refusal(&|code| code.versions.cloudpickle = "2.2".to_owned());
    assert!(cloudpickle.contains("cloudpickle 2.2"), "{cloudpickle}");
    assert!(worker.decode(b"{}\n").is_err());
}

#[test]
fn programs_that_are_no_interpreter_with_the_package_are_refused() {
    let missing = Interpreter::probe("/no/such/python").unwrap_err();
    assert!(
        matches!(missing, InterpreterError::Start { .. }),
        "{missing}"
    );
    let silent = Interpreter::probe("true").unwrap_err();
    assert!(
        matches!(&silent, InterpreterError::Unfit { cause, .. } if cause == "it printed nothing"),
        "{silent}"
    );
}
