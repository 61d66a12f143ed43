//! Tests of sources in object stores and on web servers, against servers in this process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod caches;
#[path = "../soundness/case.rs"]
#[allow(dead_code, reason = "shared with another test")]
mod case;
#[path = "../common/mod.rs"]
mod common;
#[path = "../goldens/corpus.rs"]
mod corpus;
#[path = "../goldens/data.rs"]
mod data;
#[path = "../common/draw.rs"]
mod draw;
mod errors;
#[path = "../goldens/golden.rs"]
#[allow(dead_code, reason = "goldens are only compared here")]
mod golden;
mod goldens;
#[path = "../soundness/images.rs"]
mod images;
#[path = "../goldens/observe.rs"]
mod observe;
#[path = "../goldens/odd.rs"]
mod odd;
#[path = "../goldens/planning.rs"]
mod planning;
mod reads;
#[path = "../goldens/record.rs"]
mod record;
#[path = "../soundness/rows.rs"]
mod rows;
#[path = "../common/sequences.rs"]
mod sequences;
mod server;
#[path = "../common/tar.rs"]
mod tar;
#[path = "../soundness/values.rs"]
mod values;
mod web;
