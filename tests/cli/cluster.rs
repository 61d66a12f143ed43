//! A cluster of processes: workers on other addresses and in other folders yield the stream of one
//! process, also if one of them is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::process::Process;
use super::{command, forebay, photos};

/// Starts a process that listens, and gives it the token of the cluster.
fn start(folder: &Path, words: &[&str]) -> Process {
    Process::start(command(folder, words).env("FOREBAY_CLUSTER_TOKEN", "secret"))
}

/// Starts a worker whose kernels use the vector instructions `simd`.
fn worker(folder: &Path, simd: &str, words: &[&str]) -> Process {
    let mut command = command(folder, &[&["worker"], words].concat());
    let command = command.env("FOREBAY_CLUSTER_TOKEN", "secret");
    Process::start(command.env("FOREBAY_SIMD", simd))
}

fn digest(folder: &Path, sql: &str, cluster: Option<&str>, token: &str) -> super::Ran {
    digest_with(folder, sql, cluster, token, &[])
}

/// Runs with `more` arguments.
fn digest_with(
    folder: &Path,
    sql: &str,
    cluster: Option<&str>,
    token: &str,
    more: &[&str],
) -> super::Ran {
    let mut words = [&["run", "-e", sql, "--digest"], more].concat();
    if let Some(address) = cluster {
        words.extend(["--cluster", address]);
    }
    let mut command = command(folder, &words);
    command.env("FOREBAY_CLUSTER_TOKEN", token);
    super::Ran::of(&command.output().unwrap())
}

#[test]
fn workers_run_python_functions_only_where_they_are_told_to_safely() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &[&str]| {
        let mut command = command(
            folder.path(),
            &[&["worker", "--allow-python"], words].concat(),
        );
        command.env_remove("FOREBAY_PYTHON");
        let ran = super::Ran::of(&command.output().unwrap());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        ran.stderr
    };
    let near = ["--scheduler", "127.0.0.1:1"];
    let none = refused(&near);
    assert!(none.contains("python -m forebay worker"), "{none}");
    let missing = refused(&[&near[..], &["--python", "/no/such/python"]].concat());
    assert!(missing.contains("/no/such/python"), "{missing}");
    // Neither --insecure nor a token suffices where other machines can send code.
    for open in [
        [&near[..], &["--listen", "0.0.0.0:0", "--insecure"]].concat(),
        vec!["--scheduler", "192.0.2.1:1", "--insecure"],
    ] {
        let error = refused(&open);
        assert!(error.contains("--tls-ca"), "{error}");
    }
}

#[test]
fn processes_yield_the_stream_of_one_process() {
    let (folder, elsewhere) = (photos(), tempfile::tempdir().unwrap());
    forebay(
        folder.path(),
        &["generate", "table", "t.parquet", "--rows", "5000"],
    )
    .ok();
    let scheduler = start(elsewhere.path(), &["scheduler", "--listen", "127.0.0.2:0"]);
    let at = scheduler.address.as_str();
    let mixed = [
        ("scalar", "127.0.0.3:0", "1", "200MiB"),
        ("auto", "127.0.0.7:0", "2", "300MiB"),
        ("avx2", "127.0.0.8:0", "3", "150MiB"),
    ];
    let mixed = mixed.map(|(simd, listen, threads, memory)| {
        let words = ["--scheduler", at, "--listen", listen, "--threads", threads];
        let words = [&words[..], &["--memory-limit", memory]].concat();
        worker(elsewhere.path(), simd, &words)
    });
    let pipelines = [
        "SELECT label, normalize(random_hflip(random_resized_crop(decode_image(image), 24, 24)), 'imagenet') AS p
         FROM images('photos') AS t SHUFFLE WITHIN 5 ROWS SEED 2 BATCH 4 REPEAT 3",
        "SELECT id, price * 2 AS twice FROM parquet('t.parquet') AS t WHERE clicks > 1
         SHUFFLE GLOBALLY SEED 3 BATCH 32 REPEAT 2",
        "SELECT id, 100 / (id % 7) AS v FROM parquet('t.parquet') AS t BATCH 50 OPTIONS (on_error = 'skip')",
    ];
    for sql in pipelines {
        let local = digest(folder.path(), sql, None, "").ok().stdout;
        let there = digest(folder.path(), sql, Some(at), "secret").ok().stdout;
        assert_eq!(there, local, "{sql}");
        for codec in ["lz4", "zstd"] {
            let more = ["--cluster-compression", codec];
            let compressed = digest_with(folder.path(), sql, Some(at), "secret", &more);
            assert_eq!(compressed.ok().stdout, local, "{codec}: {sql}");
        }
    }
    let refused = digest(folder.path(), pipelines[0], Some(at), "wrong");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("token"), "{}", refused.stderr);

    // A worker joins that has its data in another place, and the others are killed.
    let there = elsewhere.path().join("photos");
    let data = folder.path().join("photos");
    std::fs::rename(&data, &there).unwrap();
    std::fs::create_dir(&data).unwrap();
    for entry in walk(&there) {
        let to = data.join(entry.strip_prefix(&there).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&entry, to).unwrap();
    }
    let root = format!("{}={}", data.display(), there.display());
    let words = [
        "--scheduler",
        at,
        "--listen",
        "127.0.0.4:0",
        "--data",
        &root,
    ];
    let _moved = worker(elsewhere.path(), "auto", &words);
    drop(mixed);
    let local = digest(folder.path(), pipelines[0], None, "").ok().stdout;
    // The client reads nothing: its folder is gone.
    std::fs::remove_dir_all(&data).unwrap();
    let moved = digest(folder.path(), pipelines[0], Some(at), "secret")
        .ok()
        .stdout;
    assert_eq!(moved, local);
    let shown = |words: &[&str]| {
        let words = [words, &["--cluster", at, "-e", pipelines[0]]].concat();
        let mut command = command(folder.path(), &words);
        command.env("FOREBAY_CLUSTER_TOKEN", "secret");
        super::Ran::of(&command.output().unwrap())
    };
    assert!(shown(&["schema"]).ok().stdout.contains("label"));
    assert!(shown(&["explain"]).ok().stdout.contains("decode_image"));
    shown(&["preview", "--out", "sheet.png"]).ok();
    // The times of operators are those of the workers.
    let analyzed = shown(&["explain", "--analyze", "--json"]).ok().stdout;
    let analyzed: serde_json::Value = serde_json::from_str(&analyzed).unwrap();
    let operators = analyzed["analyze"]["operators"].as_array().unwrap();
    assert!(!operators.is_empty());
    assert!(
        operators.iter().all(|of| of["rows"].as_u64().unwrap() > 0),
        "{operators:?}"
    );
    assert!(analyzed["analyze"]["read_bytes"].as_u64().unwrap() > 0);
    shown(&["which", "--step", "1"]).ok();
    let missing = [
        "run",
        "--cluster",
        at,
        "-e",
        "SELECT * FROM images('none') AS t BATCH 1",
    ];
    let mut missing = command(folder.path(), &missing);
    missing.env("FOREBAY_CLUSTER_TOKEN", "secret");
    let missing = super::Ran::of(&missing.output().unwrap());
    assert_eq!(missing.code, Some(1), "{}", missing.stderr);
    assert!(
        missing.stderr.contains("no file or folder"),
        "{}",
        missing.stderr
    );
}

/// Returns the files below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| {
        if path.is_dir() {
            walk(&path)
        } else {
            vec![path]
        }
    };
    entries.flat_map(below).collect()
}

#[test]
fn addresses_of_other_machines_need_insecure() {
    let folder = tempfile::tempdir().unwrap();
    let refused = forebay(folder.path(), &["scheduler", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("insecure"), "{}", refused.stderr);
}

#[test]
fn a_worker_without_room_for_temporary_files_is_set_aside() {
    let (folder, gone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let table = ["generate", "table", "t.parquet", "--rows", "16000"];
    forebay(folder.path(), &[&table[..], &["--payload", "1kB"]].concat()).ok();
    let scheduler = start(folder.path(), &["scheduler", "--listen", "127.0.0.9:0"]);
    let at = scheduler.address.as_str();
    let words = ["worker", "--scheduler", at, "--memory-limit", "18MiB"];
    let _sound = start(folder.path(), &words);
    let mut broken = command(folder.path(), &words);
    broken.env("FOREBAY_CLUSTER_TOKEN", "secret");
    let _broken = Process::start(broken.env("TMPDIR", gone.path()));
    gone.close().unwrap();

    // Each epoch is one window, which does not fit into the memory of a worker.
    let sql =
        "SELECT id, payload FROM parquet('t.parquet') AS t SHUFFLE GLOBALLY BATCH 500 REPEAT 8";
    let local = digest(folder.path(), sql, None, "").ok().stdout;
    let there = digest(folder.path(), sql, Some(at), "secret").ok();
    assert_eq!(there.stdout, local);
    let cause = "cannot create a temporary file";
    assert!(there.stderr.contains(cause), "{}", there.stderr);
}

#[test]
fn addresses_of_other_machines_are_not_reached_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SELECT * FROM images('photos') AS t BATCH 1";
    // The address is one of documentation, and belongs to no machine.
    let refused = forebay(
        folder.path(),
        &["run", "-e", sql, "--cluster", "192.0.2.1:7100"],
    );
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("without encryption"),
        "{}",
        refused.stderr
    );
}

/// Writes a new authority and a certificate that it signed: `NAME-ca.pem`, `NAME.pem`, `NAME.key`.
fn write_certificates(folder: &Path, name: &str, hosts: &[&str]) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(hosts).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let write = |end: &str, text: String| {
        std::fs::write(folder.join(format!("{name}{end}")), text).unwrap();
    };
    write("-ca.pem", authority.pem());
    write(".pem", certificate.pem());
    write(".key", key.serialize_pem());
}

#[test]
fn processes_speak_mutual_tls() {
    let folder = photos();
    write_certificates(folder.path(), "node", &["127.0.0.5", "127.0.0.6"]);
    write_certificates(folder.path(), "foreign", &["127.0.0.5"]);
    let node = [
        "--tls-cert",
        "node.pem",
        "--tls-key",
        "node.key",
        "--tls-ca",
        "node-ca.pem",
    ];
    let listen = ["scheduler", "--listen", "127.0.0.5:0"];
    let scheduler = start(folder.path(), &[&listen[..], &node].concat());
    let at = scheduler.address.as_str();
    let words = ["--scheduler", at, "--listen", "127.0.0.6:0"];
    let _worker = worker(folder.path(), "auto", &[&words[..], &node].concat());

    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(folder.path(), words);
        command.env("FOREBAY_CLUSTER_TOKEN", "secret");
        command.envs(variables.iter().copied());
        super::Ran::of(&command.output().unwrap())
    };
    let variables = [
        ("FOREBAY_TLS_CERT", "node.pem"),
        ("FOREBAY_TLS_KEY", "node.key"),
        ("FOREBAY_TLS_CA", "node-ca.pem"),
    ];
    let sql = "SELECT label FROM images('photos') AS t BATCH 4";
    let words = ["run", "-e", sql, "--digest"];
    let local = run(&words, &[]).ok().stdout;
    let words = [&words[..], &["--cluster", at]].concat();
    assert_eq!(run(&words, &variables).ok().stdout, local);
    assert_eq!(run(&[&words[..], &node].concat(), &[]).ok().stdout, local);

    let status = ["status", "--cluster", at];
    let text = run(&status, &variables).ok().stdout;
    assert!(
        text.contains("ready") && text.contains("127.0.0.6:"),
        "{text}"
    );
    let json = run(&[&status[..], &["--json"]].concat(), &variables).json();
    let [worker] = &json["workers"].as_array().unwrap()[..] else {
        panic!("{json}");
    };
    assert_eq!(worker["is_ready"], true);

    let foreign_ca = [
        variables[0],
        variables[1],
        ("FOREBAY_TLS_CA", "foreign-ca.pem"),
    ];
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[], "requires TLS; give --tls-ca"),
        (&foreign_ca, "was not signed by an authority of --tls-ca"),
        (&variables[..1], "add --tls-key"),
    ];
    for (variables, expected) in cases {
        for words in [&words[..], &status] {
            let refused = run(words, variables);
            assert_ne!(refused.code, Some(0), "{words:?}");
            assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        }
    }
}

#[test]
fn the_log_of_a_process_can_be_json() {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "scheduler",
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ];
    let mut command = command(folder.path(), &words);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let record: serde_json::Value = serde_json::from_str(&line).unwrap();
    let message = record["message"].as_str().unwrap();
    assert!(
        message.contains("scheduler listens on 127.0.0.1:"),
        "{line}"
    );
    assert_eq!(record["level"], "INFO");
}
