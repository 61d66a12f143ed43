//! Object stores and web servers: the stores that URLs name, listings, and reads of objects.
//!
//! | module | contents |
//! |---|---|
//! | `url` | URLs of objects; those with secrets are refused |
//! | `stores` | the registry of stores |
//! | `clients` | clients with the credentials of the environment (feature `object-stores`) |
//! | `limited` | a limit for the size of every response (feature `object-stores`) |
//! | `list` | listings of prefixes |
//! | `object` | an object as it was listed, and reads that are checked against that |
//! | `failure` | errors of stores, in words that name the remedy |
//! | `hooked` | a store that calls a hook around its operations, for tests |
//! | `testing` | a store in memory that records its requests, for tests |
//!
//! A store is a peer that may be broken or hostile. Sizes that it states are checked against the
//! listing or against limits before memory is allocated, and a body is read up to the expected
//! length only. Texts of a store appear in errors only as the code of the error, because they may
//! repeat parts of the request.

#[cfg(feature = "object-stores")]
mod clients;
mod failure;
#[cfg(test)]
pub(crate) mod hooked;
#[cfg(feature = "object-stores")]
mod limited;
mod list;
mod object;
mod stores;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod url;

pub use failure::StoreError;
pub(crate) use failure::cause_of;
pub(crate) use list::{head, list};
pub(crate) use object::{GAP_BYTES, MAX_PART_BYTES, Object, parts};
pub use stores::ObjectStores;
pub(crate) use stores::Store;
pub(crate) use url::{ObjectUrl, is_object_url};
