//! Sending compiled pipelines to other machines.
//!
//! A message carries the written plan, the clauses, the sources, and the facts by which the plan
//! was chosen. The receiver opens the sources, searches again by these facts, and compares the
//! semantic hash and the plan hash with the sender's. So no plan is executed that the receiver did
//! not choose itself, and nothing that the encoding loses goes unnoticed.
//!
//! Sender and receiver must be the same release. A message is checked before it is used: damaged or
//! hostile bytes are refused. They cannot make the decoder panic, recurse deeply, or allocate more
//! than a small multiple of their length.
//!
//! | module | contents |
//! |---|---|
//! | `message` | messages: encoding, decoding, and compiling what was decoded |
//! | `source` | the sources of a message, and descriptions of sources |
//! | `error` | refusals |
//! | `frame`, `version` | version, release and checksum around the payload |
//! | `form` | the payload's JSON document, and the forms of operators and of nodes of expressions |
//! | `write_plan`, `read_plan` | operators |
//! | `write_expr`, `read_expr` | expressions, as lists of nodes |
//! | `node`, `guard` | single nodes of expressions, and their checks |
//! | `literal` | literals that datafusion-proto does not keep |
//! | `registry` | functions by name |

mod error;
mod form;
mod frame;
mod guard;
mod literal;
mod message;
mod node;
mod read_expr;
mod read_plan;
mod registry;
mod source;
#[cfg(test)]
mod tests;
mod version;
mod write_expr;
mod write_plan;

pub use error::WireError;
pub use message::PlanMessage;
pub use source::{DescribeTable, SourceMessage, decode_spec, encode_spec};
