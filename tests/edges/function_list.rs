//! The list of the functions that SQL accepts.

/// Lists the functions that SQL accepts, so that disabling a feature of a dependency does not lose
/// one unnoticed.
///
/// `FOREBAY_GOLDENS=write` writes the list.
#[test]
fn sql_accepts_the_listed_functions() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let names = runtime.block_on(forebay::Session::new().functions());
    let found = names.join("\n") + "\n";
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/edges/functions.txt");
    if std::env::var("FOREBAY_GOLDENS").is_ok_and(|mode| mode == "write") {
        std::fs::write(&file, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&file).unwrap());
}
