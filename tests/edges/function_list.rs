//! The list of the functions that SQL accepts.

/// SQL accepts exactly the functions listed in `functions.txt`. The test fails if disabling a
/// feature of a dependency removes a function.
///
/// `FOREBAY_GOLDENS=write` rewrites the list.
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
