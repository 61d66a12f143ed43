//! The Rust front end.
